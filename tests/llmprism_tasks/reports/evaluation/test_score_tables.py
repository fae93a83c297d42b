"""The table of scores: 100 columns wide, each figure in it, and in words what went wrong."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from llmprism_tasks.reports.evaluation import score_tables

ERRORS: dict[str, float | None] = {"median": 0.00123, "p95": 0.0456, "max": 0.25}
HEADLINE: dict[str, Any] = {
    "windows": 120,
    "exact": 118,
    "not_done": 0,
    "called_other": 0,
    "invented": 0,
    "precision": 0.98,
    "recall": 0.97,
    "degrees": {"dp": {"right": 7, "wrong": 2, "unknown": 1}},
    "layouts": 100,
    "layouts_right": 99,
    "steps": 12345,
    "steps_found": 12340,
    "steps_extra": 17,
    "duration_error": ERRORS,
    "changed_ids": 1,
    "reused_ids": 0,
    "faults": 2,
    "faults_named": 1,
    "false_diagnoses": 3,
    "unsure_ratio": 0.25,
}
KIND = {"found": 50, "right": 49, "true": 48, "met": 47, "absent": 1, "precision": 0.98, "recall": 0.979}
SCORES: dict[str, Any] = {
    "all": HEADLINE,
    "jobs": {"a job with a name that takes more than its column": HEADLINE},
    "pairs": {"dp": KIND},
    "confusions": [],
    "degrees": [],
    "confidence": [{"job": job, "of": "jobs", "band": "0.9 to 0.99", "right": 3, "wrong": 1} for job in "ab"],
    "invented": [],
    "changed_ids": [],
    "faults": [],
    "false_diagnoses": [],
}


def text(**changes: Any) -> str:
    console = Console(width=150, record=True, quiet=False)
    with console.capture() as captured:
        console.print(score_tables.render(SCORES | changes))
    return captured.get()


def test_the_table_fits_100_columns_and_holds_the_figures() -> None:
    lines = text().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= score_tables.WIDTH
    (row,) = (line for line in lines if line.startswith("all "))
    assert row.split() == [
        *("all", "118/120", "0.970", "99/100", "12340/12345", "17", "0.12", "4.56", "25", "1", "1/2", "3", "75")
    ]


def test_kinds_degrees_and_confidence_are_counted_over_all() -> None:
    lines = [line.split() for line in text().splitlines()]
    assert ["dp", "48", "50", "1", "0.980", "0.979"] in lines
    assert ["dp", "7", "2", "1"] in lines
    assert ["0.9", "to", "0.99", "6", "2", "0", "0"] in lines


CONFUSION = {"job": "a", "true": "dp", "kind": "pp", "pairs": 4}
FAULT = {"kind": "slow_gpu", "subject": "addr:1", "named": True, "first": "addr:1", "first_right": True, "delay": 0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confusions": [CONFUSION]}, "4 pairs of a are dp and were classified as pp."),
        ({"invented": [{"who": "nobody"}, {"who": "another tenant"}]}, "training belong to another tenant or nobody"),
        ({"all": HEADLINE | {"windows": 0}}, "covers no window of the warehouse, so nothing was compared"),
        ({"all": HEADLINE | {"called_other": 2}}, "2 windows of training jobs were classified as other"),
        ({"all": HEADLINE | {"not_done": 2}}, "2 windows of jobs were not finished"),
        ({"all": HEADLINE | {"reused_ids": 1}}, "1 ids were given to a second job"),
        ({"faults": [FAULT | {"delay": 2}]}, "The slow gpu of addr:1 was named 2 windows after it began."),
        ({"faults": [FAULT | {"first": "addr:2", "first_right": False}]}, "0 windows after it began, after addr:2"),
        ({"faults": [FAULT | {"named": False, "first_right": False}]}, "addr:1 was not named; addr:1 was."),
    ],
)  # fmt: skip
def test_what_went_wrong_is_said(changes: dict[str, Any], words: str) -> None:
    assert words in text(**changes)
    assert words not in text()


def test_what_was_not_asked_for_is_a_dash() -> None:
    nothing = HEADLINE | {"precision": None, "recall": None, "layouts": 0, "duration_error": dict.fromkeys(ERRORS)}
    (row,) = (line.split() for line in text(all=nothing).splitlines() if line.startswith("all "))
    assert row[2:9] == ["-", "-", "12340/12345", "17", "-", "-", "-"]
