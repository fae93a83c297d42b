"""Results of several runs counted together, and each figure against its bound."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from accuracy.families.registry import Bound
from accuracy.runs.results import Result

Tally: TypeAlias = dict[str, Any]

KINDS = ("dp", "pp", "ep", "cp")
DEGREES = ("tp", "pp", "dp")
"""Degrees that a layout is right by."""

COUNTS = (
    "windows", "exact", "invented", "called_other", "layouts", "layouts_right", "steps", "steps_found", "steps_extra",
    "changed_ids", "false_diagnoses", "job_hours", "faults", "faults_named", "unsure",
)  # fmt: skip
"""Figures of `llmprism evaluate` that add up over runs."""


def tally(results: Sequence[Result]) -> Tally:
    """Count runs together.

    Returns
    -------
    `exact`, `layouts`, `steps_found` : ratios; None of nothing
    `dp_precision`, `dp_recall` and so on for each kind, and `pairs_right`, the lowest of all of them
    `extra_ratio` : steps found that are none, against true ones
    `degrees_wrong` : main degrees of jobs that are wrong, by windows
    `called_pp` : pairs that are dp, ep or cp but were called pp
    `error_median`, `error_p95` : of steps' durations, ratios
    `false_per_job_hour`, `confidence` (mean, of jobs), `jobs_right` (ratio of windows of jobs whose row claims nothing
    wrong; jobs that were not found are not right)
    `counts` : what the ratios are of, under the names of `llmprism evaluate`
    """
    counts = {name: sum(result["figures"]["all"][name] for result in results) for name in COUNTS}
    errors = np.concatenate([np.asarray(result["errors"], dtype=float) for result in results])
    confidence = [one for result in results for one in result["confidence"]]
    kinds = _kinds(results)
    bands = [row for result in results for row in result["figures"]["confidence"] if row["of"] == "jobs"]
    return {
        "exact": ratio(counts["exact"], counts["windows"]),
        "layouts": ratio(counts["layouts_right"], counts["layouts"]),
        "steps_found": ratio(counts["steps_found"], counts["steps"]),
        "extra_ratio": ratio(counts["steps_extra"], counts["steps"]),
        "degrees_wrong": sum(_wrong_degrees(result) for result in results),
        **{name: counts[name] for name in ("steps_extra", "changed_ids", "invented", "called_other")},
        **kinds,
        "pairs_right": min((value for value in kinds.values() if value is not None), default=None),
        "called_pp": sum(row["pairs"] for row in confusions(results) if row["kind"] == "pp" and row["true"] != "other"),
        "error_median": float(np.median(errors)) if errors.size else None,
        "error_p95": float(np.quantile(errors, 0.95)) if errors.size else None,
        "false_per_job_hour": ratio(counts["false_diagnoses"], counts["job_hours"]),
        "confidence": statistics.fmean(confidence) if confidence else None,
        "jobs_right": ratio(sum(row["right"] for row in bands), counts["windows"]),
        "counts": counts,
    }


LEAST_EFFECT, IN_TIME = 0.04, 2
"""Longer steps, as a ratio, below which a fault is lost in the noise; windows within which one should be found."""


def culprits(results: Sequence[Result]) -> Tally:
    """Count what was said of faults together.

    Returns
    -------
    `detected` : ratio of those named within two windows, by a subject that counts as right; of those that make steps
        longer by 4 % or, as a hang does, leave none
    `first_right`, `kind_right` : ratios of the same in which who was named first, and as what, is right
    `false_per_job_hour`, and `counts` with `faults`, `loud` (the ones asked for), `detected`, `first_right`,
    `kind_right`, `false_diagnoses`, `job_hours`
    """
    rows = [row for result in results for row in result["figures"]["faults"]]
    loud = [row for row in rows if is_loud(row)]
    counts: Tally = {
        "faults": len(rows),
        "loud": len(loud),
        "detected": sum(row["named"] and row["delay"] <= IN_TIME for row in loud),
        "first_right": sum(row["first_right"] for row in loud),
        "kind_right": sum(row["kind_right"] for row in loud),
        **{
            name: sum(result["figures"]["all"][name] for result in results) for name in ("false_diagnoses", "job_hours")
        },
    }
    return {
        **{name: ratio(counts[name], counts["loud"]) for name in ("detected", "first_right", "kind_right")},
        "false_per_job_hour": ratio(counts["false_diagnoses"], counts["job_hours"]),
        "counts": counts,
    }


def is_loud(fault: Mapping[str, Any]) -> bool:
    """Say whether a fault makes steps longer by as much as is asked for, or leaves none."""
    return fault["effect"] is None or bool(fault["effect"] >= LEAST_EFFECT)


def ratio(part: float, whole: float) -> float | None:
    """Return a part's share of a whole; None of nothing."""
    return part / whole if whole else None


def _wrong_degrees(result: Result) -> int:
    """Count the windows in which a main degree of a job is wrong; NULL is not."""
    degrees = result["figures"]["all"].get("degrees", {})
    return sum(degrees.get(degree, {}).get("wrong", 0) for degree in DEGREES)


def _kinds(results: Sequence[Result]) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for kind in KINDS:
        rows = [result["figures"]["pairs"][kind] for result in results if kind in result["figures"]["pairs"]]
        found, right, true, met = (sum(row[name] for row in rows) for name in ("found", "right", "true", "met"))
        figures |= {f"{kind}_precision": ratio(right, found), f"{kind}_recall": ratio(met, true)}
    return figures


def confusions(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return what was taken for what, most first: `true`, `kind`, `pairs`."""
    counted = Counter[tuple[str, str]]()
    for result in results:
        for row in result["figures"]["confusions"]:
            counted[row["true"], row["kind"]] += row["pairs"]
    return [{"true": true, "kind": kind, "pairs": pairs} for (true, kind), pairs in counted.most_common()]


def missed(bounds: Sequence[Bound], tallied: Tally) -> list[Bound]:
    """Return the bounds that a tally misses."""
    return [bound for bound in bounds if not bound.met(tallied[bound.figure])]
