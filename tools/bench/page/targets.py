"""What is wanted of the costs, and whether it is so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accuracy.pages.markdown_tables import MISSED, table
from bench.measure.result_store import Result
from bench.page.cost_figures import GIB, against_scan, beyond, middle, points, times
from bench.page.costs_svg import fitted
from bench.platforms.mixes import SIZES
from llmprism_tasks.settings import Settings

LARGEST, SMALLEST = max(SIZES), min(SIZES)
LOOKBACK = Settings().window.lookback_windows
STEEPEST = 1.05
"""Slope on logarithmic scales up to which cost grows in proportion."""


class Bound(NamedTuple):
    """What is wanted of a figure: at most, or at least."""

    words: str
    unit: str
    bound: float
    measured: float | None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None if it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


def wanted(results: Sequence[Result], kernel: Result | None, airflow: Sequence[Result]) -> Iterator[str]:
    """Yield the section of the page."""
    yield "## What is wanted"
    rows = []
    for bound in _bounds(results, kernel, airflow):
        sign = "at least" if bound.at_least else "at most"
        measured = "not measured" if bound.measured is None else f"{_figure(bound.measured)} {bound.unit}".strip()
        mark = f" {MISSED}" if bound.met is False else ""
        rows.append((bound.words, f"{sign} {_figure(bound.bound)} {bound.unit}".strip(), measured + mark))
    yield table(("", "wanted", "measured, the worst of the mixes"), rows)


def _bounds(results: Sequence[Result], kernel: Result | None, airflow: Sequence[Result]) -> Iterator[Bound]:
    small, large = ([one for one in results if one["gpus"] == gpus] for gpus in (SMALLEST, LARGEST))
    yield Bound(f"{SMALLEST:,} GPUs, wall", "s", 3, _worst([middle(one["runs"], "wall_s") for one in small]))
    yield Bound("of it beyond start-up and imports", "s", 1.5, _worst([beyond(one, "wall_s") for one in small]))
    yield Bound(f"{LARGEST:,} GPUs, wall", "s", 15, _worst([middle(one["runs"], "wall_s") for one in large]))
    peaks = [middle(one["runs"], "peak_bytes") / GIB for one in large]
    yield Bound("its peak memory", "GiB", 6, _worst(peaks))
    yield Bound("against the bare scan of the same file", "times", 40, _worst([against_scan(one) for one in large]))
    for one in results:
        if one["published"]:
            words = f"faster than the plain published method, {one['gpus']:,} GPUs"
            yield Bound(words, "times", 100, times(one), at_least=True)
    for words, several in points(results).items():
        fit = fitted(several)
        yield Bound(f"slope of {words}", "", STEEPEST, fit[0] if fit else None)
    speeds = [case["per_s"] / 1e6 for case in kernel["cases"]] if kernel else []
    yield Bound("change points, one core", "million a second", 2, min(speeds, default=None), at_least=True)
    for gpus, seconds in ((SMALLEST, 15), (LARGEST, 30)):
        medians = {one["lookback"]: one["median_s"] for one in airflow if one["gpus"] == gpus}
        for back, median in ({LOOKBACK: None} | medians).items():
            but = "" if back == LOOKBACK else f", look-back of {back} windows instead of {LOOKBACK}"
            yield Bound(f"Airflow, window's end to diagnoses, {gpus:,} GPUs{but}", "s", seconds, median)


def _worst(values: Sequence[float]) -> float | None:
    return max(values, default=None)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
