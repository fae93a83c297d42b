"""Each kind of fault does to a job's steps and records what arithmetic says, and the truth blames who it strikes."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from small_platforms import inside, one_job, run

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.simulate import Simulation

PIPELINE = {"hosts": [0, 1, 2, 3], "pp": 2, "dp": 2}
RINGS = {"hosts": [0, 1, 4, 5], "dp": 4, "hidden": 4096}
COMPUTING_S = 2 * 0.1 * 3  # micro-batches x forward x (forward and twice as much backward)


def with_fault(layout: dict[str, Any], **fault: Any) -> Simulation:
    return run(one_job(faults=[fault], **layout))


def lengths(made: Simulation) -> pl.Series:
    return made.truth["truth_steps"]["end_ns"].diff().drop_nulls() / 1e9


def rates(made: Simulation, touches: pl.Expr) -> dict[bool, float]:
    """Return the median rate of large records that something touches, and of the others."""
    flows, _ = inside(made)
    bulk = flows.filter(pl.col("packets") > 100).with_columns(
        touched=touches, bps=pl.col("bytes") * 8e9 / (pl.col("flow_end_ns") - pl.col("flow_start_ns"))
    )
    return dict(bulk.group_by("touched").agg(pl.col("bps").median()).iter_rows())


def blamed(made: Simulation) -> tuple[str, list[str]]:
    (fault,) = made.truth["truth_faults"].to_dicts()
    return f"{fault['subject_type']}:{fault['subject']}", fault["accept"]


def test_a_slow_stage_lengthens_every_step_and_is_blamed_itself() -> None:
    healthy, slow = run(one_job(**PIPELINE)), with_fault(PIPELINE, kind="slow_stage", job="it", pp_stage=1, factor=1.5)
    added = lengths(slow).mean() - lengths(healthy).mean()  # type: ignore[operator]
    assert added == pytest.approx(0.5 * COMPUTING_S, rel=0.15)
    assert blamed(slow) == ("pp_stage:1", ["pp_stage:1"])


@pytest.mark.parametrize(("factor", "expected"), [(0.5, 0.5), (0.34, 0.34)])
def test_a_slow_nic_paces_what_it_sends_and_receives(factor: float, expected: float) -> None:
    job = RINGS | {"pp": 2, "dp": 2}
    made = with_fault(job, kind="slow_nic", job="it", rank=1, factor=factor)
    subject, accepted = blamed(made)
    assert (subject, accepted) == ("addr:10.2.0.0", ["addr:10.2.0.0", "host:node0000"])
    addr = subject.partition(":")[2]
    healthy, slow = run(one_job(**job)), made
    touches = (pl.col("src_addr") == addr) | (pl.col("dst_addr") == addr)
    assert rates(slow, touches)[True] / rates(healthy, touches)[True] == pytest.approx(expected, rel=0.1)


def test_a_degraded_link_slows_both_ways_and_a_collision_one() -> None:
    def crossed(a: str, b: str) -> pl.Expr:
        return pl.col("switch_path").list.join(">").str.contains(f"{a}>{b}", literal=True)

    link = {"switch": "leaf-000", "neighbour": "spine-00", "factor": 0.25}
    job = RINGS | {"channels": 8}
    healthy = run(one_job(**job))
    up, down = crossed("leaf-000", "spine-00"), crossed("spine-00", "leaf-000")
    for kind, slow_down in (("degraded_link", True), ("ecmp_collision", False)):
        made = with_fault(job, kind=kind, **link)
        assert blamed(made)[0] == "link:leaf-000 - spine-00"
        assert rates(made, up)[True] < 0.6 * rates(healthy, up)[True]
        assert (rates(made, down)[True] < 0.9 * rates(healthy, down)[True]) or not slow_down


def test_a_flapping_link_is_slow_only_now_and_then() -> None:
    fault = {"kind": "link_flap", "job": "it", "rank": 0, "factor": 0.01, "every_s": 10.0, "down_s": 2.0}
    made, healthy = with_fault(RINGS, **fault), run(one_job(**RINGS))
    usual = float(lengths(healthy).median())  # type: ignore[arg-type]
    slow = lengths(made) > 1.2 * usual
    assert 0.02 < slow.mean() < 0.5  # type: ignore[operator]
    assert float(lengths(made).median()) < 1.05 * usual  # type: ignore[arg-type]


def test_checkpoint_stalls_come_every_so_many_steps() -> None:
    made = with_fault(RINGS, kind="checkpoint_stall", job="it", steps=5, pause_s=2.0)
    long = (lengths(made) > 2).arg_true()
    assert long.len() > 3
    assert set(long.diff().drop_nulls()) == {5}
    assert blamed(made) == ("job:it", ["job:it"])


def test_data_loader_stalls_strike_random_steps_of_one_replica_at_a_time() -> None:
    made = with_fault(RINGS, kind="data_loader_stalls", job="it", steps=4, pause_s=1.0)
    usual = float(lengths(run(one_job(**RINGS))).median())  # type: ignore[arg-type]
    struck = lengths(made) > usual + 0.8
    assert struck.mean() == pytest.approx(1 / 4, abs=0.12)
    assert made.truth["truth_faults"]["severity"].item() == pytest.approx(1 + 0.25 / usual, rel=0.2)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "slow_nic", "job": "it", "factor": 2.0},
        {"kind": "slow_stage", "job": "it", "pp_stage": 1},
        {"kind": "degraded_link", "switch": "leaf-000", "factor": 0.5},
        {"kind": "degraded_link", "switch": "leaf-000", "neighbour": "spine-99", "factor": 0.5},
        {"kind": "checkpoint_stall", "job": "other"},
        {"kind": "degraded_switch", "switch": "leaf-000", "factor": 0.5, "job": "it"},
    ],
    ids=lambda fault: fault["kind"],
)
def test_faults_that_cannot_be_are_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"faults\[0\]"):
        one_job(faults=[fault], dp=2)
