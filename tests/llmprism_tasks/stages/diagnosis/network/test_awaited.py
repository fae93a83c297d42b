"""A NIC that has become slow is no latent one if its job has become slower by what that costs."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import polars as pl
import pytest
from job_evidence import DEFAULT
from network_evidence import both, job, late, ring

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.network import awaited, latent


def piped(factor: float = 2) -> Evidence:
    """Return four replicas of two stages; in its last steps, what touches the NIC `f` takes so many times as long."""
    pairs = [both(one, other, factor if other == "f" else 1) for one, other in zip("abcd", "efgh", strict=True)]
    return late(job(ring("abcd"), ring("efgh", factor), *pairs, lost=0), 8)


def with_effects(evidence: Evidence, severity: float, *more: str) -> pl.DataFrame:
    """Return the latent NIC, and that its job's steps are longer by a ratio since the window began."""
    span = {"start_ns": evidence.window.start_ns, "end_ns": evidence.window.end_ns}
    of_job = {"job_id": "j", "subject_type": "job", "subject": "j", "score": 9.0, "severity": severity}
    rows = [of_job | span | {"kind": kind, "explanation": "It is slow."} for kind in ("cross_step", *more)]
    return pl.concat([latent.find(evidence, DEFAULT), pl.DataFrame(rows, schema=FINDING_SCHEMA)])


@pytest.mark.parametrize(("severity", "confidence"), [(0.2, 1), (0.4, 0.7), (0.8, None)])
def test_it_is_told_as_far_as_it_explains_what_the_job_loses(severity: float, confidence: float | None) -> None:
    """It sends for 200 ms more in a step, of 167, 286 or 444 that are lost."""
    evidence = piped()
    rows = awaited.find(with_effects(evidence, severity, "straggler"), evidence, DEFAULT)
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    assert rows["confidence"].to_list() == ([] if confidence is None else [pytest.approx(confidence)])
    assert rows.select("kind", "subject").rows() == ([] if confidence is None else [("slow_nic", "f")])


def test_another_cause_explains_it_and_what_always_was_slow_explains_nothing() -> None:
    evidence = piped()
    assert awaited.find(with_effects(evidence, 0.5, "stalls"), evidence, DEFAULT).is_empty()
    assert awaited.find(latent.find(evidence, DEFAULT), evidence, DEFAULT).is_empty()
    assert awaited.find(with_effects(piped(factor=1), 0.5), piped(factor=1), DEFAULT).is_empty()


@pytest.mark.parametrize(("sick", "names"), [("fg", []), ("gh", [("slow_nic", "host", "gh")])])
def test_two_nics_of_one_host_are_that_host(sick: str, names: list[tuple[str, str, str]]) -> None:
    """Each sends for 700 ms more in a step, of 900 that are lost, at the same time as the other."""
    rails = ("acegikmo", "bdfhjlnp")
    pairs = [both(*two, 2 if set(two) & set(sick) else 1) for rail in rails for two in combinations(rail, 2)]
    alone = late(job(*pairs, lost=0), 8)
    of_two = {addr: "".join(two) for two in zip(*rails, strict=True) for addr in two}
    hosts = alone.members.with_columns(host=pl.col("addr").replace_strict(of_two))
    evidence = dataclasses.replace(alone, members=hosts)
    rows = awaited.find(with_effects(evidence, 9), evidence, DEFAULT)
    assert rows.select("kind", "subject_type", "subject").rows() == names
    assert rows["confidence"].to_list() == [pytest.approx(7 / 9)] * len(names)
