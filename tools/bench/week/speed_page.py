"""The page `docs/pages.md`: how fast pages of a week of results open."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accuracy.pages.markdown_tables import MISSED, table
from bench.measure.result_store import Result

PAINT_MS, QUERY_MS = 2_000, 300
"""What is wanted of medians: the first paint of a page, and each query."""

WAYS = {"alone": "while nothing else is done", "beside": "while minutes are run, one after another"}


def write(result: Result, out: Path) -> None:
    """Write the page."""
    out.write_text("\n\n".join(_sections(result)) + "\n", encoding="utf-8")


def _sections(result: Result) -> Iterator[str]:
    pages: Mapping[str, Any] = result["pages"]
    machine, runs = result["machine"], result["runs"]
    yield "# How fast the pages open"
    yield (
        "Written by `python -m bench week`; no figure here is typed by hand. The warehouse holds "
        f"{result['windows']:,} minutes of results of {result['gpus']:,} GPUs in 20 jobs ({result['bytes'] / 1e9:.1f} "
        f"GB), with a slow host and a slow switch in each hour. `llmprism serve` shows it, Chromium opens each page "
        f"{result['opens']} times with an empty cache, and figures are medians (longest in brackets)."
    )
    yield (
        f"Machine: {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB of memory. Its load "
        f"average at the end, this work included: {result['load']:.1f}; so many processes shared the cores. "
        f"Code: {result['version']}."
    )
    yield "## What is wanted"
    rows = []
    for way, words in WAYS.items():
        painted = {name: statistics.median(one[way]["paint_ms"]) for name, one in pages.items()}
        queries = {
            f"{name}: {asked}": statistics.median(took)
            for name, one in pages.items()
            for asked, took in one[way]["queries_ms"].items()
        }
        for what, each, bound in (("first paint", painted, PAINT_MS), ("a query", queries, QUERY_MS)):
            slowest = max(each, key=each.__getitem__)
            mark = f" {MISSED}" if each[slowest] > bound else ""
            over = sum(value > bound for value in each.values())
            many = f"{len(each) - over} of {len(each)}"
            rows.append((f"{what}, {words}", f"{bound} ms", f"{each[slowest]:.0f} ms{mark} ({slowest})", many))
    failed = [run for run in runs if run["failed"]]
    waited = f"{len(failed)} of {len(runs)}" + (f" {MISSED}" if failed else "")
    rows.append(("minutes that fail, or wait longer than a second for the warehouse", "none", waited, ""))
    yield table(("", "at most", "slowest", "within it"), rows)
    yield "## Each page"
    head = (
        "page",
        *(f"{what}, {way}" for way in WAYS for what in ("first paint, ms", "charts drawn, ms")),
        "slowest query, ms",
    )
    yield table(head, [_row(name, one) for name, one in pages.items()])
    yield (
        "*Alone*: while nothing else is done. *Beside*: while `llmprism analyze` takes in and diagnoses minutes of "
        f"{result['gpus']:,} GPUs without a pause, {_times([run['wall_s'] for run in runs])} s each: more than a "
        "schedule would. A run waits at most a second for the warehouse here, and would fail. *Charts drawn*: from the "
        "request until the last chart is there. *Slowest query*: alone, by its median. The rows are made straight in "
        "the tables (`tools/bench/week`), the minutes run beside are simulated."
    )


def _row(name: str, one: Mapping[str, Any]) -> list[str]:
    cells = [_times(one[way][what]) for way in WAYS for what in ("paint_ms", "drawn_ms")]
    queries = {asked: statistics.median(took) for asked, took in one["alone"]["queries_ms"].items()}
    slowest = max(queries, key=queries.__getitem__)
    return [name, *cells, f"{slowest} {queries[slowest]:.0f}"]


def _times(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.0f} ({max(values):.0f})"
