"""Figures of what was measured: medians, differences, and what each part takes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.measure.result_store import Result
from bench.page.costs_svg import Point

Figures = dict[str, Any]
GIB = 2**30


def middle(figures: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the median of a figure."""
    return statistics.median(float(one[name]) for one in figures)


def by_part(runs: Sequence[Mapping[str, Any]]) -> dict[str, Figures]:
    """Return what each part of an analysis takes, in the order in which they run: medians over the runs.

    Returns
    -------
    by part `wall_s`, `cpu_s`, `peak_bytes` and, of it, `read_s` and `write_s`; what is in no part is `the rest`
    """
    parts = dict.fromkeys(part for run in runs for part, _ in _parts(run))
    rows = {}
    for part in parts:
        each = [dict(_parts(run)).get(part, {}) for run in runs]
        rows[part] = {
            figure: statistics.median(one.get(figure, 0.0) for one in each)
            for figure in ("wall_s", "cpu_s", "peak_bytes", "read_s", "write_s")
        }
    return rows


def _parts(run: Mapping[str, Any]) -> Iterator[tuple[str, Figures]]:
    rest = dict(run["watched"])
    parts: dict[str, Figures] = {}
    for span in run["spans"]:
        part, _, inner = span["name"].partition("/")
        into = parts.setdefault(part, {"wall_s": 0.0, "cpu_s": 0.0, "peak_bytes": 0, "read_s": 0.0, "write_s": 0.0})
        if inner in {"read", "write"}:
            into[f"{inner}_s"] += span["wall_s"]
        if inner:
            continue
        into["peak_bytes"] = max(into["peak_bytes"], span["peak_bytes"] or 0)
        for figure in ("wall_s", "cpu_s"):
            into[figure] += span[figure]
            rest[figure] -= span[figure]
    yield from sorted(parts.items(), key=lambda part: _order(run, part[0]))
    yield "the rest", rest


def _order(run: Mapping[str, Any], part: str) -> int:
    return next(at for at, span in enumerate(run["spans"]) if span["name"].partition("/")[0] == part)


def beyond(result: Result, figure: str) -> float:
    """Return what an analysis takes beyond a process that imports the same and does nothing."""
    return middle(result["runs"], figure) - middle(result["starts"], figure)


def against_scan(result: Result) -> float:
    """Return how many times the bare scan an analysis takes, on the clock."""
    return middle(result["runs"], "wall_s") / middle(result["scans"], "wall_s")


def published_s(result: Result) -> float:
    """Return what the plain published method takes in all, on the clock."""
    return float(result["published"]["wall_s"] + result["published"]["bocd_s"])


def times(result: Result, bocd: str = "bocd_s") -> float:
    """Return how many times faster an analysis is than the plain published method, by a loop in Python."""
    plain = result["published"]
    return float(plain["wall_s"] + plain[bocd]) / middle(result["runs"], "wall_s")


def points(results: Sequence[Result]) -> dict[str, list[Point]]:
    """Return the costs that should grow in proportion, by name: each platform's flows, and its cost."""

    def against(cost: str) -> list[Point]:
        return [(one["holds"]["flows"], middle(one["runs"], cost)) for one in results]

    further = [(one["holds"]["flows"], max(beyond(one, "wall_s"), 0.001)) for one in results]
    return {
        "wall": against("wall_s"),
        "wall beyond start-up and imports": further,
        "processor time": against("cpu_s"),
        "memory": against("peak_bytes"),
    }
