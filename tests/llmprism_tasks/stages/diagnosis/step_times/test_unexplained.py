"""A job that has become slower is held up by somebody, and a cause that explains it says by whom."""

from __future__ import annotations

import dataclasses

import polars as pl
from job_evidence import DEFAULT, history, without_rows, working

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA
from llmprism_tasks.stages.diagnosis.step_times import unexplained

NOTHING = without_rows(working([{"a": [500], "b": [500]}]))


def test_a_slower_job_is_a_straggler_of_unknown_cause() -> None:
    slower = dataclasses.replace(NOTHING, history=history([*[1000.0] * 20, *[1300] * 12], current=12))
    rows = unexplained.find(slower, DEFAULT)
    assert rows.select("kind", "subject_type", "subject", "confidence").rows() == [("straggler", "job", "j", None)]
    assert "the cause is unknown" in rows["explanation"][0]
    assert rows["explanation"][0].endswith("Steps take 1.30 s instead of 1.00 s, 12 of 12 steps in a row.")


def test_a_job_as_it_was_is_none() -> None:
    assert unexplained.find(NOTHING, DEFAULT).schema == pl.Schema(FINDING_SCHEMA)
    same = dataclasses.replace(NOTHING, history=history([1000.0] * 32, current=12))
    assert unexplained.find(same, DEFAULT).is_empty()
