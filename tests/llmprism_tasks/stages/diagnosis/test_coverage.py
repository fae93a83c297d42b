"""Coverage: a diagnosis is as sure as the topology lets it be, and stays sure where no missing NIC is near."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from llmprism_tasks.stages.diagnosis.coverage import with_coverage

TOPOLOGY = pl.DataFrame({"addr": ["a0", "a1", "b0", "b1", "c0"], "host": ["a", "a", "b", "b", "c"]})
MEMBERS = TOPOLOGY.select(pl.lit("j").alias("job_id"), "addr", "host")
PAIRS = pl.DataFrame(
    {"src_addr": ["a0", "x", "b0", "y", "a1"], "dst_addr": ["x", "a0", "b1", "c0", "b1"]}
)  # x trains with host a, y with host c; host c has one NIC less than the others


def told(
    subject_type: str, subject: str, *, unlisted: list[str] | None, confidence: float | None = 0.9
) -> dict[str, Any]:
    row = {"job_id": "j", "subject_type": subject_type, "subject": subject}
    diagnoses = pl.DataFrame([row | {"confidence": confidence, "explanation": "It is slow."}])
    jobs = pl.DataFrame(
        [{"job_id": "j", "unlisted": unlisted}], schema={"job_id": pl.String, "unlisted": pl.List(pl.String)}
    )
    found = with_coverage(diagnoses.cast({"confidence": pl.Float64}), jobs, MEMBERS, TOPOLOGY, PAIRS)
    assert found.schema == diagnoses.cast({"confidence": pl.Float64}).schema
    return found.row(0, named=True)


@pytest.mark.parametrize("subject", [("addr", "a0"), ("host", "a"), ("pp_stage", "0")])
def test_with_all_nics_listed_nothing_changes(subject: tuple[str, str]) -> None:
    row = told(*subject, unlisted=None)
    assert (row["confidence"], row["explanation"]) == (0.9, "It is slow.")


@pytest.mark.parametrize(
    ("subject_type", "subject", "suspects"),
    [
        ("addr", "a0", 1),  # x
        ("addr", "a1", 1),  # x is next to the other NIC of its host, which it may wait for inside the host
        ("host", "a", 1),
        ("host", "b", 0),
        ("addr", "b1", 0),
        ("addr", "c0", 2),  # y, and what its host has less than others
        ("switch", "leaf0", 2),
        ("pp_stage", "0", 2),
        ("job", "j", 2),
    ],
)
def test_each_missing_nic_next_to_the_subject_is_as_likely_as_the_subject(
    subject_type: str, subject: str, suspects: int
) -> None:
    row = told(subject_type, subject, unlisted=["x", "y"])
    assert row["confidence"] == pytest.approx(0.9 / (1 + suspects))
    assert "The topology lacks 2 NICs of this job" in row["explanation"]
    assert ("culprits among them cannot be named" in row["explanation"]) == (suspects > 0)


def test_there_are_no_more_suspects_than_missing_nics_and_no_confidence_stays_none() -> None:
    assert told("addr", "c0", unlisted=["y"])["confidence"] == pytest.approx(0.45)
    row = told("job", "j", unlisted=["x"], confidence=None)
    assert row["confidence"] is None
    assert "The topology lacks 1 NIC of this job" in row["explanation"]
