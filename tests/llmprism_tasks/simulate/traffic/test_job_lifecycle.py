"""Jobs that start, stop, come back elsewhere and grow: flows and truth agree about when each is where."""

from __future__ import annotations

import tomllib
from typing import Any

import polars as pl
import pytest

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.simulate import Scenario, Simulation, build_scenario, simulate, simulate_minute
from llmprism_tasks.simulate.scenario.scenario_file import presets

START_NS = 1_760_000_400 * 10**9
SECOND_NS = 10**9
SPARE = {"hosts": 8, "gpus_per_host": 4, "hosts_per_leaf": 2, "spines": 2}


def small(**changes: Any) -> Scenario:
    content = tomllib.loads(presets()["small"].read_text(encoding="utf-8"))
    return build_scenario("small", content | {"fabric": SPARE} | changes)


def run(scenario: Scenario) -> Simulation:
    return simulate(scenario, minutes=1, seed=3, start_ns=START_NS)


def stays(made: Simulation, job: str) -> list[tuple[float, float, int]]:
    members = made.truth["truth_jobs"].filter(job=job)
    spans = members.group_by("start_ns", "end_ns", maintain_order=True).len()
    return [((start - START_NS) / SECOND_NS, (end - START_NS) / SECOND_NS, n) for start, end, n in spans.iter_rows()]


def of_job(made: Simulation, job: str) -> pl.DataFrame:
    members = made.truth["truth_jobs"].filter(job=job)["addr"].implode()
    return made.flows.filter(pl.col("src_addr").is_in(members) | pl.col("dst_addr").is_in(members))


def of_kind(made: Simulation, kind: str) -> list[dict[str, Any]]:
    return made.truth["truth_faults"].filter(kind=kind).to_dicts()


def test_a_job_starts_with_traffic_that_is_no_step_and_stops_after_a_whole_one() -> None:
    made = run(small(lives=[{"job": "replicas", "start_s": 10, "end_s": 40}]))
    ((start_s, end_s, members),) = stays(made, "replicas")
    steps, flows = made.truth["truth_steps"].filter(job="replicas"), of_job(made, "replicas")
    assert (start_s, members) == (10, 8)
    assert 40 <= end_s < 41
    (end_ns,) = made.truth["truth_jobs"].filter(job="replicas")["end_ns"].unique()
    assert steps["end_ns"][-1] == end_ns
    assert steps["step"].to_list() == list(range(steps.height))
    assert (steps["start_ns"][1:] == steps["end_ns"][:-1]).all()
    before = flows.filter(pl.col("flow_start_ns") < steps["start_ns"][0])
    assert before["flow_start_ns"].min() >= START_NS + 10 * SECOND_NS
    assert 6 in before["protocol"]  # ranks meet over TCP
    assert before.filter(pl.col("src_addr").str.starts_with("10.0."))["bytes"].sum() > 10**9  # storage
    assert flows["flow_end_ns"].max() <= end_ns


def test_weights_reach_every_replica_once_before_the_first_step() -> None:
    job = {"name": "wide", "hosts": "0-6", "tp": 4, "dp": 7, "layers": 8, "hidden": 2048, "forward_ms": 100}
    made = run(small(jobs=[job], lives=[{"job": "wide", "start_s": 5}]))
    steps = made.truth["truth_steps"]
    bulk = pl.col("bytes") > 10**8
    nics = made.topology["addr"].implode()
    before = made.flows.filter(bulk, pl.col("src_addr").is_in(nics), pl.col("flow_start_ns") < steps["start_ns"][0])
    assert before.group_by("dst_addr").len()["len"].to_list() == [1] * 24  # all but the first replica's four
    assert before["flow_end_ns"].max() <= steps["start_ns"][0] + SECOND_NS // 10
    # A node of a binary tree sends to two children at most.
    assert before.group_by("src_addr").len()["len"].max() == 2


def test_a_crashed_job_comes_back_with_another_host_as_the_same_job() -> None:
    back = {"job": "pipeline", "at_s": 20, "pause_s": 10, "hosts": "0,6,2-3"}
    made = run(small(restarts=[back]))
    assert [(start, end) for start, end, _ in stays(made, "pipeline")] == [(0, 20), (30, 60)]
    members = made.truth["truth_jobs"].filter(job="pipeline")
    hosts = members.group_by("start_ns", maintain_order=True).agg(pl.col("host").unique(maintain_order=True))
    assert hosts["host"].to_list()[1] == ["node0000", "node0006", "node0002", "node0003"]
    started = (of_job(made, "pipeline")["flow_start_ns"] - START_NS) / SECOND_NS
    assert not started.is_between(20, 30, closed="left").any()
    ended = (of_job(made, "pipeline")["flow_end_ns"] - START_NS) / SECOND_NS
    assert ended.filter(started < 20).max() <= 20
    steps = made.truth["truth_steps"].filter(job="pipeline")
    assert steps["step"].to_list() == list(range(steps.height))
    inside = (steps["end_ns"] - START_NS) / SECOND_NS
    assert not inside.is_between(20, 32).any()
    # Everything between NICs belongs to a true pair.
    pairs = made.truth["truth_pairs"].select("src_addr", "dst_addr")
    nics = made.topology["addr"].implode()
    between = made.flows.filter(pl.col("src_addr").is_in(nics), pl.col("dst_addr").is_in(nics))
    assert between.join(pairs, on=["src_addr", "dst_addr"], how="anti").is_empty()


def test_a_job_that_grows_has_two_layouts() -> None:
    more = {"job": "replicas", "at_s": 20, "pause_s": 5, "stop": "in_order", "hosts": "4-6", "dp": 3}
    made = run(small(restarts=[more]))
    (first, second) = stays(made, "replicas")
    assert first[2] == 8
    assert second[2] == 12
    assert 20 < first[1] < 21
    layouts = made.truth["layouts"].filter(job="replicas")
    assert layouts.select("dp", "hosts").rows() == [(2, 2), (3, 3)]
    assert layouts["end_ns"].to_list() == [START_NS + round(first[1] * SECOND_NS), START_NS + 60 * SECOND_NS]


def test_a_feed_repeats_a_life_in_each_loop_whichever_minutes_are_asked_for() -> None:
    scenario = small(lives=[{"job": "replicas", "start_s": 50, "end_s": 100}])  # loops of two minutes
    windows = [Window(START_NS, 60 * SECOND_NS).shifted(minute) for minute in range(4)]
    minutes = [simulate_minute(scenario, window=window, seed=3) for window in windows]
    whole = simulate_minute(scenario, window=Window(START_NS, 240 * SECOND_NS), seed=3)
    assert pl.concat(minutes).equals(whole)
    host = pl.col("src_addr").is_in([f"10.{rail}.0.4" for rail in range(1, 5)])
    seconds = (whole.filter(host)["flow_start_ns"] - START_NS) / SECOND_NS
    assert seconds.is_between(50, 101).any()
    assert seconds.is_between(170, 221).any()
    assert not (seconds.is_between(102, 170) | (seconds < 50) | (seconds > 222)).any()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"lives": [{"job": "nobody"}]}, "nobody"),
        ({"restarts": [{"job": "nobody"}]}, "nobody"),
        ({"lives": [{"job": "replicas", "start_s": 9, "end_s": 9}]}, "end after"),
        ({"restarts": [{"job": "replicas", "at_s": 30, "hosts": "0-1"}]}, "'pipeline'|'replicas'"),
        ({"restarts": [{"job": "replicas", "at_s": 30, "hosts": "7-8"}]}, "host 8"),
        ({"restarts": [{"job": "replicas", "at_s": 30, "dp": 3}]}, "12 GPUs"),
    ],
)
def test_a_life_that_cannot_be_is_refused(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(SettingsError, match=names):
        small(**changes)


def test_jobs_may_follow_each_other_on_the_same_hosts() -> None:
    jobs = tomllib.loads(presets()["small"].read_text(encoding="utf-8"))["jobs"]
    after = jobs[1] | {"name": "after"}
    lives = [{"job": "replicas", "end_s": 20}, {"job": "after", "start_s": 25}]
    made = run(small(jobs=[*jobs, after], lives=lives))
    assert made.truth["truth_jobs"].group_by("job").len().sort("job").rows() == [
        ("after", 8),
        ("pipeline", 16),
        ("replicas", 8),
    ]
    with pytest.raises(SettingsError, match="'replicas' does not use"):
        small(jobs=[*jobs, after], lives=[lives[0] | {"end_s": 26}, lives[1]])


def test_a_fault_is_named_where_the_job_met_it() -> None:
    back = {"job": "pipeline", "at_s": 20, "pause_s": 5, "hosts": "6,1-3"}
    slow = {"kind": "slow_gpu", "job": "pipeline", "rank": 1, "start_s": 40, "factor": 1.5}
    (fault,) = of_kind(run(small(restarts=[back], faults=[slow])), "slow_gpu")
    assert fault["subject"] == "10.2.0.6"
    assert fault["start_ns"] == pytest.approx(START_NS + 40 * SECOND_NS, abs=2 * SECOND_NS)
    cured = of_kind(run(small(restarts=[back], faults=[slow | {"start_s": 0, "end_s": 22}])), "slow_gpu")
    assert [row["subject"] for row in cured] == ["10.2.0.0"]
    assert cured[0]["end_ns"] <= START_NS + 22 * SECOND_NS


HANG = {"job": "pipeline", "at_s": 20, "pause_s": 25, "stop": "hang"}


def test_a_job_that_hangs_sends_nothing_but_keeps_its_gpus_until_it_is_restarted() -> None:
    made = run(small(restarts=[HANG]))
    assert [(start, end) for start, end, _ in stays(made, "pipeline")] == [(0, 45), (45, 60)]
    started = (of_job(made, "pipeline")["flow_start_ns"] - START_NS) / SECOND_NS
    assert not started.is_between(23, 45, closed="left").any()
    ended = (made.truth["truth_steps"].filter(job="pipeline")["end_ns"] - START_NS) / SECOND_NS
    assert not ended.is_between(20, 45).any()
    assert (ended > 45).any()


@pytest.mark.parametrize("rank", [0, 6, 15])
def test_who_hangs_sends_no_more_while_the_others_run_on_until_they_wait_for_it(rank: int) -> None:
    made = run(small(restarts=[HANG | {"rank": rank}]))
    (fault,) = of_kind(made, "hang")
    assert f"addr:{fault['subject']}" in fault["accept"]
    assert fault["start_ns"] <= START_NS + 20 * SECOND_NS < fault["end_ns"] == START_NS + 45 * SECOND_NS
    sent = of_job(made, "pipeline").filter(pl.col("flow_start_ns") < fault["end_ns"], pl.col("bytes") > 16_384)
    last = sent.group_by("src_addr").agg(pl.col("flow_start_ns").max())
    own = last.filter(src_addr=fault["subject"])["flow_start_ns"].item()
    assert own < last["flow_start_ns"].max() - SECOND_NS // 10


def test_a_crash_is_a_fault_of_the_job_and_a_stop_in_order_is_none() -> None:
    made = run(
        small(restarts=[{"job": "pipeline", "at_s": 20, "pause_s": 25}], lives=[{"job": "replicas", "end_s": 30}])
    )
    (fault,) = made.truth["truth_faults"].to_dicts()
    assert (fault["kind"], fault["job"], fault["accept"]) == ("crash", "pipeline", ["job:pipeline"])
    assert fault["start_ns"] == START_NS + 20 * SECOND_NS


def test_who_is_replaced_after_a_crash_counts_as_right() -> None:
    made = run(small(restarts=[{"job": "pipeline", "at_s": 20, "pause_s": 10, "hosts": "0,6,2-3"}]))
    (fault,) = made.truth["truth_faults"].to_dicts()
    left = made.truth["truth_jobs"].filter(job="pipeline", host="node0001")["addr"].unique().sort()
    assert fault["accept"] == ["job:pipeline", *(f"addr:{addr}" for addr in left), "host:node0001"]


def test_who_hangs_is_a_rank_of_the_job() -> None:
    with pytest.raises(SettingsError, match="rank 16"):
        small(restarts=[HANG | {"rank": 16}])
