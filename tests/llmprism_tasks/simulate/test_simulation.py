"""The simulator: its truth agrees with its flows, and what goes wrong shows as arithmetic says it must."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.contract.frames import conform, schema
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.simulate import (
    Scenario,
    Simulation,
    build_scenario,
    load_scenario,
    simulate,
    simulate_minute,
    write_minute,
    write_scenario,
)
from llmprism_tasks.simulate.scenario.scenario_file import presets

START_NS = 1_760_000_400 * 10**9
MINUTE_NS = 60 * 10**9
SPREAD_NS = 20_000  # peers' first and last packets lie this close together


def content(scenario: str) -> dict[str, Any]:
    return tomllib.loads(presets()[scenario].read_text(encoding="utf-8"))


def small(**changes: Any) -> Scenario:
    return build_scenario("small", content("small") | changes)


def run(scenario: Scenario, minutes: int = 1) -> Simulation:
    return simulate(scenario, minutes=minutes, seed=3, start_ns=START_NS)


@pytest.fixture(scope="module")
def healthy() -> Simulation:
    return run(small())


def step_seconds(made: Simulation, job: str) -> np.ndarray:
    ends = made.truth["truth_steps"].filter(job=job)["end_ns"].to_numpy()
    return np.diff(ends) / 1e9


def carried(made: Simulation, job: str, kind: str) -> pl.DataFrame:
    pairs = made.truth["truth_pairs"].filter(job=job, kind=kind)
    return made.flows.join(pairs, on=["src_addr", "dst_addr"], how="semi")


def rates(made: Simulation, job: str, kind: str) -> pl.DataFrame:
    bulk = carried(made, job, kind).filter(pl.col("packets") > 100)
    bps = pl.col("bytes") * 8e9 / (pl.col("flow_end_ns") - pl.col("flow_start_ns"))
    return bulk.group_by("src_addr", "dst_addr", "src_port", "switch_path").agg(bps.median().alias("bps"))


# --- the same again -------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(healthy: Simulation) -> None:
    again = run(small())
    assert again.flows.equals(healthy.flows)
    assert all(table.equals(healthy.truth[name], null_equal=True) for name, table in again.truth.items())
    assert not simulate(small(), minutes=1, seed=4, start_ns=START_NS).flows.equals(healthy.flows)


def test_a_longer_run_begins_like_a_shorter_one(healthy: Simulation) -> None:
    longer = run(small(), minutes=2).flows.filter(pl.col("flow_start_ns") < START_NS + MINUTE_NS)
    assert longer.drop("switch_path").equals(healthy.flows.drop("switch_path"))


# --- flows ----------------------------------------------------------------------------------------------------------


def test_flows_keep_the_contract(healthy: Simulation) -> None:
    flows = healthy.flows
    assert flows.schema == schema(FLOW_COLUMNS)
    assert conform(flows.with_columns(window_start_ns=START_NS), "flows").height == flows.height
    assert sum(flows.null_count().row(0)) == 0
    assert flows["flow_start_ns"].is_sorted()
    assert flows["flow_start_ns"].is_between(START_NS, START_NS + MINUTE_NS, closed="left").all()
    assert (flows["flow_end_ns"] > flows["flow_start_ns"]).all()
    assert (flows["src_addr"] != flows["dst_addr"]).all()
    assert flows["protocol"].unique().to_list() == [17]
    assert flows["dst_port"].unique().to_list() == [4791]
    assert flows["src_port"].min() >= 49_152


def test_paths_lead_from_the_senders_leaf_to_the_receivers(healthy: Simulation) -> None:
    leaf = healthy.topology.select("addr", "leaf_switch")
    seen = (
        healthy.flows.select("src_addr", "dst_addr", "src_port", "switch_path")
        .unique()
        .join(leaf.rename({"addr": "src_addr", "leaf_switch": "first"}), on="src_addr")
        .join(leaf.rename({"addr": "dst_addr", "leaf_switch": "last"}), on="dst_addr")
    )
    assert (seen["switch_path"].list.first() == seen["first"]).all()
    assert (seen["switch_path"].list.last() == seen["last"]).all()
    assert set(seen["switch_path"].list.len()) == {1, 3}
    assert seen.select("src_addr", "dst_addr", "src_port").is_unique().all()


def test_no_record_is_faster_than_its_line(healthy: Simulation) -> None:
    for job, kind in (("pipeline", "dp"), ("pipeline", "pp"), ("replicas", "dp")):
        # Two queue pairs share a NIC of 400 Gbit/s, of which RDMA reaches nine tenths.
        assert rates(healthy, job, kind)["bps"].is_between(140e9, 180e9).all()


def test_a_ring_carries_gradients_once_and_parameters_once(healthy: Simulation) -> None:
    job = next(job for job in small().jobs if job.name == "replicas")
    width, layers = job.hidden, job.layers
    split = (12 * width * width * layers + 2 * job.vocabulary * width) / job.tp
    parameters = split + 2 * width * layers + width
    steps = healthy.truth["truth_steps"].filter(job="replicas")
    first, last = steps["end_ns"][0], steps["end_ns"][-1]
    inside = carried(healthy, "replicas", "dp").filter(
        (pl.col("flow_start_ns") >= first) & (pl.col("flow_start_ns") < last)
    )
    payload = inside.group_by("src_addr", "dst_addr").agg((pl.col("bytes") - 58 * pl.col("packets")).sum())
    sent = (4 + 2) * parameters * (job.dp - 1) / job.dp  # fp32 gradients, bf16 parameters
    assert payload["bytes"].to_numpy() / (steps.height - 1) == pytest.approx(sent, rel=1e-4)


def test_a_pipeline_pair_sends_each_micro_batch_over_two_queue_pairs(healthy: Simulation) -> None:
    job = next(job for job in small().jobs if job.name == "pipeline")
    flows = carried(healthy, "pipeline", "pp")
    half = job.micro_batch * job.sequence * job.hidden * 2 // job.tp // 2
    assert flows["bytes"].unique().to_list() == [half + 58 * half // 4096]
    steps = healthy.truth["truth_steps"].filter(job="pipeline")
    inside = flows.filter(
        (pl.col("flow_start_ns") >= steps["end_ns"][0]) & (pl.col("flow_start_ns") < steps["end_ns"][-1])
    )
    counts = inside.group_by("src_addr", "dst_addr", "src_port").len()
    assert set(counts["len"]) == {job.micro_batches * (steps.height - 1)}
    assert set(counts.group_by("src_addr", "dst_addr").len()["len"]) == {2}


# --- the truth ------------------------------------------------------------------------------------------------------


def test_every_true_pair_carries_flows_and_no_other_pair_does(healthy: Simulation) -> None:
    pairs = set(healthy.truth["truth_pairs"].select("src_addr", "dst_addr").iter_rows())
    assert pairs == set(healthy.flows.select("src_addr", "dst_addr").unique().iter_rows())
    assert set(healthy.truth["truth_pairs"]["kind"]) == {"dp", "pp", "other"}


@pytest.mark.parametrize("job", ["pipeline", "replicas"])
def test_steps_end_with_the_last_flow_of_their_gather_and_synchronisation(healthy: Simulation, job: str) -> None:
    ends = carried(healthy, job, "dp").filter(pl.col("packets") > 100)["flow_end_ns"].sort().to_numpy()
    for step in healthy.truth["truth_steps"].filter(job=job)[1:].iter_rows(named=True):
        for end in (step["end_ns"], step["grad_end_ns"]):
            last = ends[np.searchsorted(ends, end, side="right") - 1]
            assert 0 <= end - last <= SPREAD_NS


@pytest.mark.parametrize("job", ["pipeline", "replicas"])
def test_healthy_steps_vary_by_the_jitter_of_their_operations(healthy: Simulation, job: str) -> None:
    seconds = step_seconds(healthy, job)
    assert len(seconds) > 70
    assert 0.001 < seconds.std() / seconds.mean() < 0.01


def test_a_job_inside_one_host_leaves_no_flows() -> None:
    alone = small(jobs=[{"name": "alone", "hosts": [0], "tp": 2, "dp": 2, "layers": 4, "forward_ms": 50}])
    made = run(alone)
    assert made.flows.height == 0
    assert made.flows.schema == schema(FLOW_COLUMNS)
    assert made.truth["truth_jobs"]["visible"].to_list() == [False] * 4
    assert made.truth["truth_pairs"].height == 0


# --- faults ---------------------------------------------------------------------------------------------------------


def test_a_slow_gpu_stretches_steps_by_what_its_micro_batches_take_longer(healthy: Simulation) -> None:
    factor, job = 1.3, next(job for job in small().jobs if job.name == "pipeline")
    last_stage = job.tp * job.dp + 1
    fault = {"kind": "slow_gpu", "job": "pipeline", "rank": last_stage, "start_s": 20, "end_s": 40, "factor": factor}
    made = run(small(faults=[fault]))
    steps = made.truth["truth_steps"].filter(job="pipeline")
    seconds = (steps["end_ns"] - steps["start_ns"]) / 1e9
    (true,) = made.truth["truth_faults"].to_dicts()
    slow = (steps["start_ns"] >= true["start_ns"]) & (steps["end_ns"] <= true["end_ns"])
    well = (steps["end_ns"] < true["start_ns"]) | (steps["start_ns"] > true["end_ns"])
    # The slow stage is the pipeline's bottleneck: it computes all micro-batches, one after the other.
    longer = (factor - 1) * job.micro_batches * job.forward_ms / 1e3 * (1 + job.backward_ratio)
    found = seconds.filter(slow).mean() - seconds.filter(well).mean()
    assert found == pytest.approx(longer, rel=0.05)
    assert step_seconds(made, "replicas") == pytest.approx(step_seconds(healthy, "replicas"))
    # A step feels what is there when it begins, so the truth is off the scenario's times by less than a step.
    assert abs(true["start_ns"] - START_NS - 20e9) < seconds.max() * 1e9
    assert abs(true["end_ns"] - START_NS - 40e9) < seconds.max() * 1e9
    assert true["subject"] == "10.2.0.2"
    assert true["accept"] == ["addr:10.2.0.2", "host:node0002", "addr:10.1.0.2", "addr:10.3.0.2", "addr:10.4.0.2"]


@pytest.mark.parametrize(("switch", "kind"), [("spine-01", "pp"), ("leaf-002", "pp"), ("leaf-002", "dp")])
def test_a_degraded_switch_slows_exactly_the_flows_that_cross_it(healthy: Simulation, switch: str, kind: str) -> None:
    made = run(small(faults=[{"kind": "degraded_switch", "switch": switch, "factor": 0.5}]))
    both = rates(healthy, "pipeline", kind).join(
        rates(made, "pipeline", kind), on=["src_addr", "dst_addr", "src_port"], suffix="_degraded"
    )
    ratio = (both["bps_degraded"] / both["bps"]).to_numpy()
    crosses = both["switch_path"].list.contains(switch).to_numpy()
    assert 0 < crosses.sum() < len(crosses)
    assert ratio[crosses] == pytest.approx(0.5, rel=0.15)
    assert ratio[~crosses] == pytest.approx(1.0, rel=0.05)
    (true,) = made.truth["truth_faults"].to_dicts()
    assert (true["subject_type"], true["subject"], true["severity"]) == ("switch", switch, 2.0)


def test_ranks_that_come_early_push_what_the_buffers_hold_and_stall() -> None:
    jobs = content("small")["jobs"]
    slow = {"kind": "slow_gpu", "job": "replicas", "rank": 0, "factor": 1.3}
    # A ring of three: the hop between the two that wait fills its buffers.
    three = jobs[1] | {"hosts": [0, 1, 2], "dp": 3}
    made = run(small(jobs=[three], faults=[slow]))
    early = made.flows.filter(pl.col("bytes") == (4 << 20) + 1024 * 58)
    pairs = {(row["src_addr"], row["dst_addr"]) for row in early.iter_rows(named=True)}
    assert pairs == {(f"10.{rail}.0.1", f"10.{rail}.0.2") for rail in range(1, 5)}


# --- feeds and files ------------------------------------------------------------------------------------------------


def test_a_feed_is_the_same_whichever_minutes_are_asked_for() -> None:
    scenario = small(
        faults=[{"kind": "slow_gpu", "job": "pipeline", "rank": 3, "start_s": 30, "end_s": 70, "factor": 1.5}]
    )
    windows = [Window(START_NS, MINUTE_NS).shifted(minute) for minute in range(3)]
    minutes = [simulate_minute(scenario, window=window, seed=3) for window in windows]
    whole = simulate_minute(scenario, window=Window(START_NS, 3 * MINUTE_NS), seed=3)
    assert pl.concat(minutes).equals(whole)
    assert not minutes[0].is_empty()


def test_a_feed_goes_on_from_loop_to_loop() -> None:
    around = Window(START_NS - MINUTE_NS, 4 * MINUTE_NS)  # loops are two minutes, START_NS is a multiple
    assert START_NS % (2 * MINUTE_NS) == 0
    flows = simulate_minute(small(), window=around, seed=3)
    sizes = flows.filter(src_addr="10.1.0.4").filter(pl.col("packets") > 1000)
    gathers = sizes.filter(pl.col("bytes") == sizes["bytes"].max()).group_by("src_port").agg("flow_end_ns")
    for ends in gathers["flow_end_ns"]:
        seconds = np.diff(np.sort(ends.to_numpy())) / 1e9
        assert len(seconds) > 300
        assert seconds.max() / np.median(seconds) < 1.05
        assert seconds.min() / np.median(seconds) > 0.95


def test_write_minute_gives_the_same_file_each_time(tmp_path: Path) -> None:
    window = Window(START_NS, MINUTE_NS).shifted(7)
    paths = [write_minute(tmp_path / folder, scenario="small", window=window, seed=1) for folder in ("a", "b", "a")]
    assert [path.name for path in paths] == ["20251009T0907.parquet"] * 3
    first, second = pl.read_parquet(paths[0]), pl.read_parquet(paths[1])
    assert first.equals(second)
    assert first["flow_start_ns"].is_between(window.start_ns, window.end_ns, closed="left").all()
    assert sorted(path.name for path in (tmp_path / "a").rglob("*")) == [
        "20251009T0907.parquet",
        "flows",
        "topology.csv",
    ]


def test_minutes_of_another_span_do_not_stay_beside_those_written(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_scenario(tmp_path, scenario="small", minutes=1, seed=seed, start_ns=START_NS)
    with pytest.raises(SettingsError, match="with other minutes in it"):
        write_scenario(tmp_path, scenario="small", minutes=1, seed=1, start_ns=START_NS + MINUTE_NS)
    assert len(list((tmp_path / "flows").iterdir())) == 1


def test_a_scenario_without_anybody_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    with pytest.raises(SettingsError, match="neither"):
        load_scenario(str(tmp_path / "empty.toml"))


def test_write_scenario_leaves_a_file_per_minute_and_the_truth(tmp_path: Path) -> None:
    counts = write_scenario(tmp_path, scenario="small", minutes=2, seed=1, start_ns=START_NS)
    files = sorted((tmp_path / "flows").iterdir())
    assert [file.name for file in files] == ["20251009T0900.parquet", "20251009T0901.parquet"]
    minutes = [pl.read_parquet(file) for file in files]
    assert counts["flows"] == sum(minute.height for minute in minutes)
    assert minutes[1]["flow_start_ns"].min() >= START_NS + MINUTE_NS
    assert pl.read_csv(tmp_path / "topology.csv").columns == ["addr", "host", "gpu", "leaf_switch", "pod"]
    assert sorted(file.name for file in (tmp_path / "truth").iterdir()) == [
        "layouts.csv",
        "truth_faults.parquet",
        "truth_jobs.parquet",
        "truth_pairs.parquet",
        "truth_steps.parquet",
    ]
    layouts = pl.read_csv(tmp_path / "truth" / "layouts.csv").select("job", "dp", "pp", "tp", "hosts").rows()
    assert layouts == [("pipeline", 2, 2, 4, 4), ("replicas", 2, 1, 4, 2)]
    assert counts["jobs"] == 2
    assert counts["steps"] == pl.read_parquet(tmp_path / "truth" / "truth_steps.parquet").height


# --- scenarios ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_the_scenarios_we_ship_can_be_read_by_name_and_by_path(name: str) -> None:
    assert load_scenario(name) == load_scenario(str(presets()[name]))


def test_the_demo_is_the_healthy_scenario_with_two_faults() -> None:
    demo, well = load_scenario("demo"), load_scenario("healthy")
    assert (demo.fabric, demo.jobs, demo.collector) == (well.fabric, well.jobs, well.collector)
    assert [fault.kind for fault in demo.faults] == ["slow_gpu", "degraded_switch"]


def _job(**changes: Any) -> dict[str, Any]:
    return {"jobs": [content("small")["jobs"][1] | changes]}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"fabrick": {}}, "fabrick"),
        ({"fabric": {"hosts": 6, "spine": 3}}, "spine"),
        ({"fabric": {"hosts": 0}}, "hosts"),
        ({"fabric": {"leaves": "torus"}}, "leaves"),
        ({"fabric": 3}, "fabric"),
        ({"loop_minutes": 0}, "loop_minutes"),
        ({"jobs": {"name": "one"}}, "jobs"),
        (_job(tp="four"), "tp"),
        (_job(tp=True), "tp"),
        (_job(forward_ms=float("nan")), "forward_ms"),
        (_job(dp=3), "24 GPUs|12 GPUs"),
        (_job(tp=3, dp=8, hosts="0-5"), "tp that divides"),
        (_job(pp=1, layers=0), "layers"),
        (_job(hosts="5-6"), "host 6"),
        (_job(hosts="5-4"), "hosts"),
        (_job(hosts="4,4"), "hosts"),
        (_job(optimizer="lion"), "optimizer"),
        ({"jobs": [content("small")["jobs"][1], content("small")["jobs"][1]]}, "name of its own"),
        ({"jobs": [content("small")["jobs"][1], content("small")["jobs"][1] | {"name": "b"}]}, "'replicas'"),
        ({"faults": [{"kind": "slow_gpu", "job": "nobody"}]}, "nobody"),
        ({"faults": [{"kind": "slow_gpu", "job": "replicas", "rank": 8}]}, "rank"),
        ({"faults": [{"kind": "slow_gpu", "job": "replicas", "factor": 0.9}]}, "factor"),
        ({"faults": [{"kind": "degraded_switch", "switch": "leaf-999", "factor": 0.5}]}, "leaf-999"),
        ({"faults": [{"kind": "degraded_switch", "switch": "leaf-000", "factor": 1.5}]}, "factor"),
        ({"faults": [{"kind": "slow_gpu", "job": "replicas", "start_s": 9, "end_s": 9}]}, "end after"),
        ({"collector": {"lost": 1.5}}, "lost"),
    ],
)
def test_a_bad_scenario_is_refused_with_what_is_wrong(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(SettingsError, match=names):
        small(**changes)


@pytest.mark.parametrize("text", [None, "fabric = ["])
def test_a_scenario_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "mine.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"mine\.toml"):
        load_scenario(str(file))


def test_a_span_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="0 minutes"):
        simulate(small(), minutes=0, seed=1, start_ns=0)
    with pytest.raises(SettingsError, match="whole minute"):
        write_scenario(tmp_path, scenario="small", minutes=1, seed=1, start_ns=1)


# --- parts ----------------------------------------------------------------------------------------------------------


def test_leaf_switches_have_clocks_of_their_own(healthy: Simulation) -> None:
    key = ["src_addr", "dst_addr", "src_port"]
    seen = run(small(collector={"skew_us": 50.0})).flows.select(*key, "flow_start_ns", at=pl.col("flow_start_ns"))
    # Records of a queue pair are more than a millisecond apart, so the nearest one is the same one.
    met = healthy.flows.join_asof(
        seen, on="flow_start_ns", by=key, strategy="nearest", tolerance=400_000, check_sortedness=False
    )
    ahead = met.group_by(pl.col("switch_path").list.first()).agg((pl.col("at") - pl.col("flow_start_ns")).unique())
    assert ahead["at"].list.drop_nulls().list.len().to_list() == [1] * 12
    assert ahead["at"].list.drop_nulls().list.first().n_unique() == 12
