"""Storage, tenants that do not train, chatter and acknowledgements: they are there, and the truth tells them apart."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import polars as pl
import pytest

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.simulate import Scenario, Simulation, build_scenario, simulate, simulate_minute
from llmprism_tasks.simulate.scenario.scenario_file import presets

START_NS = 1_760_000_400 * 10**9
MINUTE_NS = 60 * 10**9
WIDE = {"hosts": 10, "gpus_per_host": 4, "hosts_per_leaf": 2, "spines": 2}
SERVER = pl.col("src_addr").str.starts_with("10.0.") | pl.col("dst_addr").str.starts_with("10.0.")
KEY = ["src_addr", "dst_addr"]


def small(**changes: Any) -> Scenario:
    content = tomllib.loads(presets()["small"].read_text(encoding="utf-8"))
    return build_scenario("small", content | {"fabric": WIDE} | changes)


def run(scenario: Scenario) -> Simulation:
    return simulate(scenario, minutes=1, seed=3, start_ns=START_NS)


@pytest.fixture(scope="module")
def plain() -> Simulation:
    return run(small())


def seconds(made: Simulation, job: str) -> np.ndarray:
    ends = made.truth["truth_steps"].filter(job=job)["end_ns"].to_numpy()
    return np.diff(ends) / 1e9


def test_background_leaves_the_jobs_own_traffic_alone(plain: Simulation) -> None:
    made = run(small(background={"chatter_per_s": 20, "heartbeat_s": 5, "copies_per_minute": 2}))
    jobs = made.flows.filter(pl.col("protocol") == 17).join(made.truth["truth_pairs"], on=KEY, how="semi")
    copies = pl.col("bytes") > 2e8  # nothing of these jobs is as large
    assert jobs.filter(~copies).drop("switch_path").equals(plain.flows.drop("switch_path"))
    for name, table in made.truth.items():
        assert table.equals(plain.truth[name], null_equal=True)


def test_chatter_joins_all_hosts_and_reaches_beyond_the_topology() -> None:
    made = run(small(background={"chatter_per_s": 20, "outside": 0.5, "heartbeat_s": 5}))
    other = made.flows.filter(pl.col("protocol") == 6)
    asked = other.filter(pl.col("dst_port") < 10_000, pl.col("dst_port") != 9090)
    assert asked.height == pytest.approx(1200, rel=0.15)
    assert asked.filter(SERVER).height / asked.height == pytest.approx(0.5, abs=0.06)
    beats = other.filter(dst_port=9090)
    assert beats.group_by("src_addr").len()["len"].to_list() == [12] * 9
    assert other.select("src_addr", "dst_addr", "src_port", "dst_port", "flow_start_ns").is_unique().all()


def test_a_copy_goes_once_over_one_rail() -> None:
    made = run(small(background={"copies_per_minute": 5, "copy_gb": 2}))
    copies = made.flows.join(made.truth["truth_pairs"], on=KEY, how="anti")
    totals = copies.group_by(KEY).agg(pl.col("bytes").sum() / 1e9)
    assert 1 <= totals.height <= 10
    assert totals["bytes"].is_between(0.3, 10).all()
    rails = copies.select(pl.col("src_addr", "dst_addr").str.split(".").list.get(1)).unique()
    assert (rails["src_addr"] == rails["dst_addr"]).all()


def test_a_job_waits_for_its_checkpoints(plain: Simulation) -> None:
    made = run(small(habits=[{"job": "replicas", "checkpoint_steps": 20}], storage={"servers": 2, "gbps": 40}))
    healthy, found = np.median(seconds(plain, "replicas")), seconds(made, "replicas")
    slow = np.flatnonzero(found > 1.2 * healthy)
    assert len(slow) >= 2
    assert (np.diff(slow) == 20).all()
    written = made.flows.filter(pl.col("dst_addr").str.starts_with("10.0."))
    assert written["dst_addr"].n_unique() == 2
    steps = made.truth["truth_steps"].filter(job="replicas")
    (first, last) = (
        steps.filter(pl.col("end_ns") - pl.col("start_ns") > 1.2e9 * healthy)
        .select(pl.col("start_ns").min(), pl.col("end_ns").max())
        .row(0)
    )
    assert written["flow_start_ns"].is_between(first, last).all()
    # All ranks write a share of fp32 weights and two moments, the first replica its bf16 weights: 14 bytes in all.
    each = written["bytes"].sum() / len(slow)
    shape = 24 * (12 * 2048**2 // 4 + 2 * 2048) + 2 * 32_000 * 2048 // 4 + 2048
    assert each == pytest.approx(14 * 4 * shape, rel=0.05)


def test_replicas_read_their_samples_each_step(plain: Simulation) -> None:
    made = run(small(habits=[{"job": "pipeline", "read_mb": 30}]))
    read = made.flows.filter(pl.col("src_addr").str.starts_with("10.0."), pl.col("packets") > 10)
    assert set(read["dst_addr"]) == {"10.1.0.0", "10.1.0.1"}  # first ranks of the first pp_stage's two replicas
    steps = made.truth["truth_steps"].filter(job="pipeline").height
    assert read.height == pytest.approx(2 * steps, abs=4)
    assert (read["bytes"].median() or 0) / 1e6 == pytest.approx(30, rel=0.15)
    assert np.array_equal(seconds(made, "pipeline"), seconds(plain, "pipeline"))


@pytest.mark.parametrize("kind", ["disaggregated", "experts", "shuffle"])
def test_a_tenant_that_does_not_train_is_other(kind: str) -> None:
    tenant = {"name": "else", "kind": kind, "hosts": "6-9", "per_s": 1.0, "mb": 1.0}
    made = run(small(tenants=[tenant]))
    members = made.truth["truth_jobs"].filter(job="else")
    assert set(members["kind"]) == {"other"}
    assert set(members["host"]) == {"node0006", "node0007", "node0008", "node0009"}
    pairs = made.truth["truth_pairs"].filter(job="else")
    assert set(pairs["kind"]) == {"other"}
    sent = made.flows.filter(pl.col("src_addr").is_in(members["addr"].implode()))
    assert set(sent.select(KEY).unique().iter_rows()) == set(pairs.select(KEY).iter_rows())
    assert "else" not in made.truth["layouts"]["job"]
    if kind == "disaggregated":
        assert set(sent["src_addr"].str.slice(-1)) == {"6", "7"}
        assert set(sent["dst_addr"].str.slice(-1)) == {"8", "9"}
    # Irregular: the times between requests spread as widely as their mean.
    starts = np.sort(sent["flow_start_ns"].to_numpy())
    apart = np.diff(starts[np.append(True, np.diff(starts) > 2e8)])
    assert apart.std() / apart.mean() > 0.4


def test_acknowledgements_come_back_small_and_the_truth_calls_them_other(plain: Simulation) -> None:
    made = run(small(background={"ack_packets": 10**9}))
    assert made.flows.height == pytest.approx(2 * plain.flows.height, rel=0.02)
    small_ones = made.flows.filter(pl.col("bytes") == 62)
    assert small_ones.height > 0.9 * plain.flows.height
    pairs = set(made.truth["truth_pairs"].select(KEY).iter_rows())
    assert pairs == set(made.flows.select(KEY).unique().iter_rows())
    before = plain.truth["truth_pairs"].filter(pl.col("kind") != "other")
    assert set(before.iter_rows()) <= set(made.truth["truth_pairs"].iter_rows())
    leaf = made.topology.select(src_addr="addr", leaf="leaf_switch")
    assert made.flows.join(leaf, on="src_addr").filter(pl.col("switch_path").list.first() != pl.col("leaf")).is_empty()


def test_a_feed_with_everything_is_the_same_whichever_minutes_are_asked_for() -> None:
    scenario = small(
        habits=[{"job": "replicas", "checkpoint_steps": 15, "read_mb": 5, "cost_spread": 0.1}],
        tenants=[{"name": "else", "kind": "shuffle", "hosts": "6-9", "per_s": 0.3, "mb": 300.0}],
        background={"chatter_per_s": 10, "copies_per_minute": 5, "ack_packets": 32},
        collector={"lost": 0.1, "doubled": 0.1, "retransmitted": 0.1, "pathless": 0.3, "active_timeout_s": 1.0},
    )
    windows = [Window(START_NS, MINUTE_NS).shifted(minute) for minute in range(2)]
    minutes = [simulate_minute(scenario, window=window, seed=3) for window in windows]
    whole = simulate_minute(scenario, window=Window(START_NS, 2 * MINUTE_NS), seed=3)
    order = ["flow_start_ns", "src_addr", "dst_addr", "src_port", "flow_end_ns", "bytes"]
    assert pl.concat(minutes).sort(order).equals(whole.sort(order))


def test_steps_vary_as_habits_say(plain: Simulation) -> None:
    habits = [{"job": "pipeline", "cost_spread": 0.2}, {"job": "replicas", "pauses": 0.1, "pause_ms": 400}]
    made = run(small(habits=habits))
    assert seconds(made, "pipeline").std() > 5 * seconds(plain, "pipeline").std()
    found, healthy = seconds(made, "replicas"), np.median(seconds(plain, "replicas"))
    paused = found > healthy + 0.2
    assert paused.mean() == pytest.approx(0.1, abs=0.07)
    assert np.median(found[paused]) == pytest.approx(healthy + 0.4, rel=0.05)
    drifting = seconds(run(small(habits=[{"job": "replicas", "drift": 0.1}])), "replicas")
    assert drifting[-5:].mean() / drifting[:5].mean() == pytest.approx(1 + 0.1 * (len(drifting) - 5) / 100, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"habits": [{"job": "nobody"}]}, "nobody"),
        ({"tenants": [{"name": "pipeline", "hosts": "6-7"}]}, "name of its own"),
        ({"tenants": [{"name": "else", "hosts": "6"}]}, "two hosts"),
        ({"tenants": [{"name": "else", "hosts": "5-6"}]}, "no job"),
        ({"tenants": [{"name": "else", "hosts": "9-10"}]}, "of the fabric"),
        ({"background": {"outside": 2}}, "outside"),
    ],
)
def test_surroundings_that_cannot_be_are_refused(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(SettingsError, match=names):
        small(**changes)
