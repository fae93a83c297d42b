"""A slow group says more of a job than that its cause is unknown, or that some of its members begin late."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA
from llmprism_tasks.stages.diagnosis.network.cross_group import name_groups


def finding(kind: str, subject_type: str, subject: str, **changed: Any) -> dict[str, Any]:
    return {
        "job_id": "j",
        "kind": kind,
        "subject_type": subject_type,
        "subject": subject,
        "start_ns": 100,
        "end_ns": 200,
        "score": 1.1,
        "severity": 0.12,
        "explanation": kind,
        "confidence": None,
    } | changed


UNKNOWN = finding("straggler", "job", "j")
GROUP = finding("cross_group", "dp_group", "a", score=4.0, candidates=["a", "b"], odds=[0.5, 0.5])


def named(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    found = pl.DataFrame(rows, schema=FINDING_SCHEMA)
    told = name_groups(found)
    assert told.schema == found.schema
    return told.to_dicts()


def test_a_slow_group_that_explains_the_loss_takes_the_place_of_an_unknown_cause() -> None:
    group, job = named(GROUP, UNKNOWN)
    assert (job["kind"], job["subject"], job["candidates"]) == ("slow_network", "j", ["a", "b"])
    assert (job["score"], job["explanation"]) == (4.0, "cross_group")
    assert job["severity"] == UNKNOWN["severity"]  # what the job loses stays what it was
    assert group["kind"] == "cross_group"


@pytest.mark.parametrize(
    "group",
    [
        GROUP | {"start_ns": 200, "end_ns": 300},
        GROUP | {"job_id": "k"},
        GROUP | {"kind": "latent"},
    ],
    ids=["at another time", "of another job", "no group"],
)
def test_else_the_cause_stays_unknown(group: dict[str, Any]) -> None:
    assert named(group, UNKNOWN)[1]["kind"] == "straggler"


def test_of_two_slow_groups_either_may_be_the_cause() -> None:
    assert named(GROUP, GROUP | {"subject": "c"}, UNKNOWN)[2]["kind"] == "straggler"


def test_a_device_stays_what_it_is() -> None:
    device = finding("straggler", "addr", "b")
    assert named(GROUP, device)[1]["kind"] == "straggler"
    assert named(device, UNKNOWN)[1]["kind"] == "straggler"
