"""What a repair gives back is what the fault truly cost: the same simulated job, with the fault and without."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest

from accuracy.runs import fault_costs as prices
from llmprism_tasks.stages.diagnosis.cost.price import price
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.liveness.overdue import Silence
from llmprism_tasks.stages.liveness.progress.step_progress import StepProgress
from llmprism_tasks.stages.liveness.quiet_times import Gap

SEED = 3
WITHIN = 0.05
"""Ratio by which a price may be off: half of the least slowdown that is diagnosed at all."""


FAULTS = {(fault["kind"], fault.get("factor")): fault for fault in prices.FAULTS}
SLOW_GPU = FAULTS["slow_gpu", 1.3]
SLOW_NIC = {"kind": "slow_nic", "job": "priced", "rank": 1, "factor": 1 / 6}
"""In pipelines a third of the rate costs less than what is diagnosed."""


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        ("replicas", SLOW_GPU),
        ("replicas", FAULTS["degraded_switch", 1 / 1.3]),
        ("pipelines", SLOW_NIC),
        ("pipelines", {**FAULTS["slow_stage", 1.3], "factor": 2.0}),
        ("tensors", FAULTS["data_loader_stalls", None]),
    ],
    ids=lambda value: value if isinstance(value, str) else value["kind"],
)
def test_the_price_of_a_fault_is_what_it_cost(job: str, fault: dict[str, object]) -> None:
    (row,) = prices.prices((job,), (fault,), seed=SEED)
    assert row["recoverable_gpu_s"] == pytest.approx(row["true_gpu_s"], rel=WITHIN)
    assert row["lost_gpu_s"] == pytest.approx(row["true_gpu_s"], rel=WITHIN)


def test_a_flap_is_priced_by_the_healthy_steps_between_though_most_steps_are_healthy() -> None:
    fault = FAULTS["link_flap", 1 / 20]
    broken = prices.simulated("pipelines", SEED, fault)
    true = prices.true_loss(broken, prices.simulated("pipelines", SEED))
    told = prices.priced(broken, fault, severity=0.36)["recoverable_gpu_s"]
    assert told == pytest.approx(true, rel=WITHIN)


@pytest.mark.parametrize(("job", "fault"), [("replicas", SLOW_GPU), ("replicas", FAULTS["slow_nic", 1 / 2])])
def test_pauses_of_the_whole_job_are_in_nobodys_price(job: str, fault: dict[str, object]) -> None:
    """They are for checkpoints; a repair gives nothing of them back."""
    pauses = prices.every(FAULTS["checkpoint_stall", None], job)
    broken = prices.simulated(job, SEED, fault, pauses)
    true = prices.true_loss(broken, prices.simulated(job, SEED, pauses))
    broken.truth["truth_faults"] = broken.truth["truth_faults"].filter(pl.col("kind") == fault["kind"])
    assert prices.priced(broken, fault)["recoverable_gpu_s"] == pytest.approx(true, rel=WITHIN)


@pytest.mark.parametrize("job", ["pipelines", "tensors"])
def test_what_is_older_than_the_look_back_is_priced_by_replicas(job: str) -> None:
    """In rings of two, as in `tensors`, nobody sees who waits."""
    broken = prices.simulated(job, SEED, SLOW_GPU, since_s=0.0)
    true = prices.true_loss(broken, prices.simulated(job, SEED))
    told = prices.priced(broken, SLOW_GPU, severity=0.2)["recoverable_gpu_s"]
    assert told == pytest.approx(true, rel=WITHIN)


def test_what_a_trouble_costs_is_known_though_nothing_else_was_ever_seen() -> None:
    fault = SLOW_GPU
    broken = prices.simulated("replicas", SEED, fault, since_s=0.0)
    true = prices.true_loss(broken, prices.simulated("replicas", SEED))
    row = prices.priced(broken, fault, severity=0.2)
    assert row["lost_gpu_s"] == row["recoverable_gpu_s"] == pytest.approx(true, rel=WITHIN)
    assert prices.priced(broken, fault)["lost_gpu_s"] < 0.5 * true, "its own past shows no better step"


def diagnosed(evidence: Evidence, **changed: object) -> dict[str, object]:
    window = evidence.window
    row = {
        "job_id": evidence.members["job_id"][0],
        "kind": "slow_compute",
        "subject_type": "addr",
        "subject": evidence.members["addr"][0],
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "severity": 0.0,
        "lost_s": None,
    }
    jobs = pl.DataFrame({"job_id": [row["job_id"]], "tp": [1], "sharded": [False]})
    return price(evidence, pl.DataFrame([row | changed]), jobs).row(0, named=True)


@pytest.fixture(scope="module")
def healthy() -> Evidence:
    evidence = prices.evidence_of(prices.tables_of(prices.simulated("replicas", SEED), prices.LAST))
    assert evidence is not None
    return evidence


@pytest.mark.parametrize("kind", ["slow_compute", "slow_nic"])
def test_a_repair_of_what_is_healthy_gives_next_to_nothing_back(healthy: Evidence, kind: str) -> None:
    given_back = diagnosed(healthy, kind=kind)["recoverable_gpu_s"]
    assert isinstance(given_back, float)
    seconds = healthy.window.length_ns / 1e9
    assert 0 <= given_back <= 0.02 * seconds * healthy.members.height


def test_nobody_is_priced_whose_work_is_not_seen(healthy: Evidence) -> None:
    assert diagnosed(healthy, subject="10.9.9.9")["recoverable_gpu_s"] is None
    assert diagnosed(healthy, kind="cross_step", subject_type="job", subject="j")["recoverable_gpu_s"] is None
    assert diagnosed(healthy, kind="cross_group", subject_type="dp_group", subject="a")["recoverable_gpu_s"] is None


@pytest.mark.parametrize("kind", ["slow_compute", "slow_nic"])
def test_where_ranks_exchange_in_every_layer_what_slow_computing_takes_is_known_and_a_repair_is_not(
    healthy: Evidence, kind: str
) -> None:
    exchanging = dataclasses.replace(healthy, flows=healthy.flows.with_columns(kind=pl.lit("ep")))
    row = diagnosed(exchanging, kind=kind)
    assert isinstance(row["lost_gpu_s"], float)
    assert (row["recoverable_gpu_s"] is None) == (kind == "slow_compute")


def test_silence_costs_all_of_its_time_and_a_repair_gives_it_back(healthy: Evidence) -> None:
    window = healthy.window
    begun = {"kind": "hang", "subject_type": "job", "start_ns": window.end_ns - 20_000_000_000}
    row = diagnosed(healthy, **begun, end_ns=window.end_ns)
    assert row["lost_gpu_s"] == row["recoverable_gpu_s"] == 20 * healthy.members.height
    before = diagnosed(healthy, **(begun | {"start_ns": window.start_ns - 1}), end_ns=window.end_ns)
    assert before["lost_gpu_s"] == window.length_ns / 1e9 * healthy.members.height, "each window its own part"


@pytest.mark.parametrize(("back", "lost"), [(True, 20), (False, None)])
def test_a_stop_costs_what_it_lasted_if_the_job_came_back(healthy: Evidence, back: bool, lost: int | None) -> None:
    """The GPUs of a job that is gone are free."""
    window, job_id = healthy.window, healthy.members["job_id"][0]
    since_ns = window.end_ns - 20_000_000_000
    where = StepProgress(False, since_ns, since_ns, 10**9, True, True, pl.DataFrame(), pl.DataFrame())
    gap = Gap(job_id, since_ns, window.end_ns if back else None, 0)
    evidence = dataclasses.replace(healthy, silences=[Silence(gap, window.end_ns, back, False, where)])
    row = diagnosed(evidence, kind="stopped", start_ns=since_ns, end_ns=window.end_ns)
    assert row["lost_gpu_s"] == (None if lost is None else lost * healthy.members.height)
    assert row["recoverable_gpu_s"] is None


@pytest.mark.parametrize(
    ("kind", "subject_type"), [("pipeline_imbalance", "pp_stage"), ("stalls", "job"), ("checkpoint_stall", "job")]
)
def test_long_stages_ever_since_and_stalls_cost_their_share_of_each_step(
    healthy: Evidence, kind: str, subject_type: str
) -> None:
    row = diagnosed(healthy, kind=kind, subject_type=subject_type, subject="0", severity=0.25)
    steps = healthy.history.filter("current")
    gpu_s = (steps["end_ns"] - steps["start_ns"]).sum() / 1e9 * healthy.members.height
    assert row["lost_gpu_s"] == row["recoverable_gpu_s"] == pytest.approx(0.2 * gpu_s)


@pytest.mark.parametrize("seed", [SEED, 22])
def test_a_slow_gpu_of_tensors_is_priced_whoever_comes_last_to_a_round(seed: int) -> None:
    """In the steps before seed 22's fault, no replica was as late to its gradients as the healthy one is now."""
    (row,) = prices.prices(("tensors",), (SLOW_GPU,), seed=seed)
    assert row["recoverable_gpu_s"] == pytest.approx(row["true_gpu_s"], rel=WITHIN)


def test_a_trouble_before_all_steps_costs_nothing(healthy: Evidence) -> None:
    none = dataclasses.replace(healthy, steps=healthy.steps.clear())
    assert diagnosed(none)["recoverable_gpu_s"] is None
    assert diagnosed(healthy, start_ns=0, end_ns=1)["lost_gpu_s"] == 0
