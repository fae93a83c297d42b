"""One platform measured: analyses, bare scans, starts without work, and the plain published method."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure.process_cost import Cost, command, python, run
from bench.platforms.minutes import FOLDER, Platform, holds
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.store import query

Figures = dict[str, Any]


def measure(platform: Platform, *, runs: int, published: bool, say: Callable[[str], None]) -> Figures:
    """Measure a platform's first minute, each run in a process of its own, scans and analyses in turn.

    Returns
    -------
    `holds` : how many flows, pairs and jobs there are
    `runs` : of each analysis what it took in all; and of one more, which was watched, its `spans`, what it took by
        itself (`watched`) and the most memory
    `starts` : of a process that imports what an analysis does, and does nothing (`imports_only`), what it took
    `scans` : of each bare scan what the query took
    `published` : of the plain published method, None if it was not asked for
    """
    taken: dict[str, list[Figures]] = {"runs": [], "starts": [], "scans": []}
    name = f"{platform.gpus:,} GPUs, {platform.mix}"
    for number in range(1, runs + 1):
        taken["scans"].append(_answer(python("-m", "bench.measure.bare_scan", str(platform.flows(0)))))
        analysed = analyse(platform)
        taken["starts"].append(_total(python("-m", "bench.measure.imports_only", watched=False)))
        taken["runs"].append(analysed)
        say(f"{name}, {number} of {runs}: {analysed['wall_s']:.2f} s, {analysed['peak_bytes'] / 2**30:.2f} GiB")
    plain = None
    if published:
        plain = _answer(python("-m", "bench.bocd.plain_method", str(platform.folder), str(platform.flows(0))))
        say(f"{name}, the plain published method: {plain['wall_s'] + plain['bocd_s']:.0f} s")
    return {"holds": holds(platform), "mix": platform.mix, "gpus": platform.gpus, **taken, "published": plain}


def analyse(platform: Platform) -> Figures:
    """Analyse a platform's first minute from its file to written tables; then once more, watched.

    To watch costs a tenth of a small run, which whoever does not watch has no part in.
    """
    with tempfile.TemporaryDirectory(prefix="run-", dir=FOLDER) as place:
        spans, warehouse, again = (Path(place) / name for name in ("spans.json", "llmprism.duckdb", "again.duckdb"))
        words = ["analyze", "--flows", str(platform.flows(0)), "--topology", str(platform.topology), "--warehouse"]
        cost = run([command("llmprism"), *words, str(warehouse)], watched=False)
        watched = python("-m", "bench.measure.traced_command", str(spans), *words, str(again))
        traced: Figures = json.loads(spans.read_text(encoding="utf-8"))
        return {
            **traced,
            "wall_s": cost.wall_s,
            "cpu_s": cost.cpu_s,
            "peak_bytes": watched.peak_bytes,
            "watched": {"wall_s": watched.wall_s, "cpu_s": watched.cpu_s},
            "stages_s": _stages_s(again),
            "warehouse_bytes": warehouse.stat().st_size,
        }


def _stages_s(warehouse: Path) -> dict[str, float]:
    """Return how long each stage was at work, in whichever process, by what the warehouse was told."""
    opened = open_warehouse(Warehouse(str(warehouse), lock_wait_s=1))
    took: dict[str, int] = json.loads(query(opened, "SELECT stage_ns FROM windows").item())
    return {stage: ns / 1e9 for stage, ns in took.items()}


def _total(cost: Cost) -> Figures:
    return {"wall_s": cost.wall_s, "cpu_s": cost.cpu_s, "peak_bytes": cost.peak_bytes}


def _answer(cost: Cost) -> Figures:
    answer: Figures = json.loads(cost.said.splitlines()[-1])
    return answer
