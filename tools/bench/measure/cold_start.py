"""What starting costs: the command that does nothing, imports, and kernels that are not compiled yet."""

from __future__ import annotations

import re
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from accuracy.runs.sources import CAPTURES
from bench.measure.process_cost import Cost, command, python, run

CAPTURE = CAPTURES / "dp2pp4_healthy"
IMPORTED = re.compile(r"import time:\s+(\d+) \|\s+\d+ \| +(\S+)")
"""A line of `python -X importtime`: a module's own microseconds, and its name."""

SHOWN = 12


def cold_start(repeats: int) -> dict[str, Any]:
    """Measure starts in fresh processes.

    Returns
    -------
    `help_s` : of `llmprism --help`, the median
    `empty_s`, `warm_s` : of `llmprism analyze` of a small capture, with nothing compiled yet, and with all of it
    `imports_ms` : what `analyze` imports, by the library that the modules belong to, the longest first
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        folder = Path(place)
        variables = {"NUMBA_CACHE_DIR": str(folder / "kernels")}
        empty = _run(folder, "empty", variables)
        warm = [_run(folder, f"warm{at}", variables) for at in range(repeats)]
        traced = python("-X", "importtime", command("llmprism"), *_analyze(folder, "traced"), variables=variables)
    return {
        "help_s": statistics.median(run([command("llmprism"), "--help"]).wall_s for _ in range(repeats)),
        "empty_s": empty.wall_s,
        "empty_cpu_s": empty.cpu_s,
        "warm_s": statistics.median(one.wall_s for one in warm),
        "warm_cpu_s": statistics.median(one.cpu_s for one in warm),
        "imports_ms": _by_library(traced.said),
    }


def _run(folder: Path, name: str, variables: dict[str, str]) -> Cost:
    return run([command("llmprism"), *_analyze(folder, name)], variables)


def _analyze(folder: Path, name: str) -> list[str]:
    places = {"flows": CAPTURE / "flows.parquet", "topology": CAPTURE / "topology.csv"}
    words = [word for place, path in places.items() for word in (f"--{place}", str(path))]
    return ["analyze", *words, "--warehouse", str(folder / f"{name}.duckdb")]


def _by_library(said: str) -> dict[str, float]:
    own = Counter[str]()
    for microseconds, module in IMPORTED.findall(said):
        own[module.partition(".")[0]] += int(microseconds)
    return {library: taken / 1000 for library, taken in own.most_common(SHOWN)}
