"""Steps of the second source take the time that the order of operations says; rings move the bytes they should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from accuracy.second_source.execution import Run
from accuracy.second_source.fabric import Fabric, double_tree
from accuracy.second_source.fault_cases import STRIKES, draw
from accuracy.second_source.folder import SECOND, START_NS, Platform, cut_off, measured, nic, write
from accuracy.second_source.network import Network, Slow, end_of
from accuracy.second_source.schedules import operations
from accuracy.second_source.training import Training
from accuracy.second_source.verdicts import asked, fault_verdicts, healthy_hours

NICS = tuple(f"10.0.{host}.1" for host in range(4))
EXACT = Training("job", "ddp", NICS, 0.0, 20.0, jitter=0.0, optimizer_s=0.1, overlap=False)


def run(job: Training, slow: tuple[Slow, ...] = (), host_of: dict[str, str] | None = None) -> tuple[Run, pl.DataFrame]:
    """Return the job after its end, and its messages."""
    rng = np.random.default_rng(1)
    network = Network({nic: f"leaf{place // 2}" for place, nic in enumerate(job.nics)}, 2, slow)
    under_way = Run(job, Fabric(rng, 1e9, network, spread=0.0, host_of=host_of or {}), rng)
    under_way.run()
    columns = ["start", "end", "src", "dst", "channel", "size"]
    return under_way, pl.DataFrame(under_way.fabric.records, schema=columns, orient="row")


def seconds(under_way: Run) -> list[float]:
    return [end - start for _, start, end, _ in under_way.steps]


def test_a_replicated_step_computes_then_reduces_in_a_ring() -> None:
    done, messages = run(EXACT)
    gradients = EXACT.layer_bytes * (EXACT.layers + 2 * EXACT.head)
    carried = 2 * 3 / 4 * gradients
    expected = 3 * EXACT.layers * EXACT.layer_s + carried / 1e9 + EXACT.optimizer_s
    assert seconds(done) == pytest.approx([expected] * len(done.steps), rel=0.01)
    sent = messages.filter(pl.col("src") == NICS[0])
    assert sent["dst"].unique().to_list() == [NICS[1]]
    assert sent["size"].sum() / len(done.steps) == pytest.approx(carried, rel=1 / len(done.steps))


def test_a_pipeline_fills_and_drains_as_1f1b_does() -> None:
    job = replace(EXACT, schedule="1f1b", pp=4, micro_batches=6, activation_bytes=1.0, layers=2)
    done, messages = run(job)
    apart = np.diff([end for _, _, end, _ in done.steps])
    assert apart == pytest.approx((6 + 4 - 1) * 3 * job.layers * job.layer_s + job.optimizer_s, rel=0.06)
    assert {kind for kinds in done.kinds.values() for kind in kinds} == {"pp"}
    forward = messages.filter(pl.col("src") == NICS[0]).height
    assert forward == pytest.approx(6 * len(done.steps), abs=6)


def test_sharded_parameters_are_gathered_twice_and_reduced_once() -> None:
    done, messages = run(replace(EXACT, schedule="fsdp", head=0.0, channels=1))
    each = messages.filter(pl.col("src") == NICS[0])["size"].sum() / len(done.steps)
    assert each == pytest.approx(3 * 3 / 4 * EXACT.layers * EXACT.layer_bytes, rel=1 / len(done.steps))


def test_a_slow_rank_holds_all_up() -> None:
    slow = replace(EXACT, slow=((2, 0.0, 20.0, 2.0),))
    assert np.mean(seconds(run(slow)[0])) > 1.5 * np.mean(seconds(run(EXACT)[0]))


def test_pauses_come_between_two_steps() -> None:
    done, _ = run(replace(EXACT, pause_every=5, pause_s=3.0))
    between = [later[1] - sooner[2] for sooner, later in zip(done.steps, done.steps[1:], strict=False)]
    assert max(between) == pytest.approx(3.0)
    assert between[4] == pytest.approx(3.0)


def test_an_interleaved_pipeline_drains_in_a_part_of_the_time() -> None:
    plain = replace(EXACT, schedule="1f1b", pp=2, micro_batches=4, activation_bytes=1.0, layers=4)
    apart = [np.diff([end for _, _, end, _ in run(replace(plain, chunks=chunks))[0].steps]) for chunks in (1, 2)]
    layer_s = 3 * plain.layer_s * plain.layers
    assert np.median(apart[0]) - np.median(apart[1]) == pytest.approx(layer_s / 2, rel=0.1)


@pytest.mark.parametrize(("pp", "chunks", "micro_batches"), [(2, 1, 4), (4, 1, 2), (2, 2, 4), (4, 3, 8)])
def test_each_stage_does_everything_once(pp: int, chunks: int, micro_batches: int) -> None:
    wanted = {(kind, chunk, number) for kind in "FB" for chunk in range(chunks) for number in range(micro_batches)}
    for stage in range(pp):
        done = operations(stage, pp, chunks, micro_batches)
        assert len(done) == len(wanted)
        assert set(done) == wanted


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 16])
def test_nobody_is_inside_both_trees(ranks: int) -> None:
    first, second = double_tree(ranks)
    assert all(len({child for child, _ in edges}) == ranks - 1 for edges in (first, second))
    inside = [{parent for _, parent in edges} for edges in (first, second)]
    assert len(inside[0] & inside[1]) <= (1 if ranks % 2 else 0) + (ranks == 2)


def test_a_message_goes_at_the_pace_of_the_slowest_device_at_a_time() -> None:
    slow = (Slow("addr:a", 10.0, 20.0, 0.5), Slow("switch:b", 12.0, 14.0, 0.1))
    assert end_of(0.0, 5.0, slow) == 5.0
    assert end_of(9.0, 2.0, slow) == 12.0
    assert end_of(11.0, 1.0, slow) == pytest.approx(14.0 + 0.3 / 0.5)
    assert end_of(19.0, 2.0, slow) == pytest.approx(20.0 + 1.5)


def test_rings_stay_inside_hosts_and_leave_them_at_another_nic_per_channel() -> None:
    nics = tuple(f"10.0.{host}.{gpu}" for host in range(2) for gpu in (1, 2))
    host_of = {nic: nic[:6] for nic in nics}
    _, messages = run(replace(EXACT, nics=nics, channels=2), host_of=host_of)
    hops = set(messages.select("src", "dst", "channel").rows())
    assert hops == {("10.0.0.1", "10.0.1.1", 0), ("10.0.1.1", "10.0.0.1", 0)} | {
        ("10.0.0.2", "10.0.1.2", 1), ("10.0.1.2", "10.0.0.2", 1),
    }  # fmt: skip


def test_relayed_tokens_leave_a_host_on_the_receivers_rail() -> None:
    nics = tuple(f"10.0.{host}.{gpu}" for host in range(2) for gpu in (1, 2))
    job = replace(EXACT, schedule="experts", nics=nics, ep=4, relayed=True)
    done, messages = run(job, host_of={nic: nic[:6] for nic in nics})
    assert all(src[-1] == dst[-1] for src, dst in messages.select("src", "dst").rows())
    assert {kind for kinds in done.kinds.values() for kind in kinds} == {"ep", "dp"}


def test_who_is_silent_holds_all_up_for_good() -> None:
    done, messages = run(replace(EXACT, silent=(2, 8.0)))
    assert max(end for _, _, end, _ in done.steps) < 8.5
    late = messages.filter(pl.col("start") > 8.5)
    assert late.filter(pl.col("src") == NICS[2]).is_empty()


@pytest.mark.parametrize(("dies", "begin"), [(False, 3), (True, 0)])
def test_who_is_not_silent_begins_the_next_step_and_waits_in_it(dies: bool, begin: int) -> None:
    """A rank falls silent in the optimizer, when its gradients are reduced. The others come to their next ones, unless
    the job dies before."""
    gradients = replace(EXACT, layer_bytes=80e6)
    reduced = next(end for _, start, _, end in run(gradients)[0].steps if start > 7.0)
    done, messages = run(replace(gradients, silent=(2, reduced - 0.001), end_s=reduced + 0.2 if dies else 20.0))
    late = messages.filter(pl.col("start") > reduced)
    assert set(late["src"]) == set([NICS[0], NICS[1], NICS[3]][:begin])
    assert done.steps[-1][2] < reduced


def test_a_checkpoint_stops_all_and_is_written_to_the_storage() -> None:
    rng = np.random.default_rng(1)
    job = replace(EXACT, stall=(5.0, 4.0), save_bytes=1e6, storage=("10.200.0.1",))
    network = Network(dict.fromkeys((*NICS, "10.200.0.1"), "leaf0"))
    done = Run(job, Fabric(rng, 1e9, network, spread=0.0), rng)
    done.run()
    assert [round(end - start, 3) for start, end in done.saves] == [4.0]
    assert {dst for *_, dst, _, _ in done.fabric.records if dst.startswith("10.200")} == {"10.200.0.1"}


@pytest.mark.parametrize("channels", [1, 3])
def test_members_are_seen_that_exchange_something_not_that_write_checkpoints(channels: int, tmp_path: Path) -> None:
    """Each channel leaves a host at another of its four NICs; all of these write to the storage."""
    nics = tuple(nic(host, gpu) for host in range(2) for gpu in range(4))
    job = replace(EXACT, nics=nics, channels=channels, save_every=3, save_s=0.5, save_bytes=1e6,
                  storage=("10.200.0.1",))  # fmt: skip
    write(Platform([job], hosts=2, gpus=4, inner=True, end_s=20.0), tmp_path, 1)
    written = pl.read_parquet(tmp_path / "flows.parquet").filter(pl.col("dst_addr") == "10.200.0.1")
    assert written["src_addr"].n_unique() == len(nics)
    members = pl.read_parquet(tmp_path / "truth" / "truth_jobs.parquet")
    assert members["visible"].sum() == 2 * channels


def test_evaluations_are_pauses_on_purpose(tmp_path: Path) -> None:
    """Nothing is sent in them. A job without any has an empty table."""
    jobs = [replace(EXACT, pause_every=3, pause_s=2.0), replace(EXACT, name="other", nics=("10.0.4.1", "10.0.5.1"))]
    write(Platform(jobs, hosts=6, gpus=1, end_s=20.0), tmp_path / "some", 1)
    pauses = pl.read_parquet(tmp_path / "some" / "truth" / "truth_pauses.parquet")
    flows = pl.read_parquet(tmp_path / "some" / "flows.parquet")
    starts = flows.filter(pl.col("src_addr").is_in(NICS))["flow_start_ns"]
    assert pauses.height > 1
    assert (pauses["kind"].unique().to_list(), pauses["job"].unique().to_list()) == (["evaluation"], ["job"])
    for start_ns, end_ns in pauses.select("start_ns", "end_ns").iter_rows():
        assert end_ns - start_ns == pytest.approx(2.0 * SECOND)
        assert not starts.is_between(start_ns, end_ns).any()
    write(Platform(jobs[1:], hosts=6, gpus=1, end_s=20.0), tmp_path / "none", 1)
    assert pl.read_parquet(tmp_path / "none" / "truth" / "truth_pauses.parquet").is_empty()


@pytest.mark.parametrize("turn", range(len(STRIKES)))
def test_every_kind_of_fault_is_drawn_for_both_halves(turn: int) -> None:
    for seed in (2 * turn, 2 * turn + 1):
        drawn = draw(seed)
        assert len(drawn.ill.faults) == 1
        assert not drawn.well.faults
        assert not drawn.well.slow


def test_an_effect_is_the_same_steps_with_and_without() -> None:
    def steps(ends: list[float]) -> pl.DataFrame:
        ns = [START_NS + round(end * SECOND) for end in ends]
        return pl.DataFrame({"job": "ill", "step": range(len(ends)), "grad_end_ns": ns})

    (fault,) = draw(0).ill.faults
    fault = replace(fault, start_s=2.5, end_s=3.5)
    found = measured([fault], steps([1, 2, 3, 5, 6]), steps([1, 2, 3, 4, 5])).to_dicts()[0]
    assert (found["effect"], found["longest"], found["noise"]) == (0.5, 1.0, 0.0)
    assert found["accept"][0] == f"addr:{fault.subject}"


FAULT = {
    "kind": "slow_nic", "job": "ill", "subject_type": "addr", "subject": "a", "severity": 0.5, "effect": 0.1,
    "longest": 0.1, "noise": 0.01, "halved": False, "accept": ["addr:a", "host:h"], "right_kinds": ["slow_nic"],
    "start_ns": 70, "end_ns": 110,
}  # fmt: skip
ROW = {
    "window_start_ns": 60, "job": "ill", "kind": "slow_nic", "subject_type": "addr", "subject": "a", "start_ns": 80,
    "end_ns": 100, "rank": 1, "severity": 0.1, "candidates": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "told", "first", "kind"),
    [
        ({}, True, True, True),
        ({"subject": "b"}, True, False, True),
        ({"subject_type": "host", "subject": "h", "kind": "slow_compute"}, True, True, False),
        ({"subject_type": "job", "subject": "1", "candidates": ["addr:b", "addr:a"]}, True, True, True),
        ({"subject_type": "job", "candidates": ["addr:b", "addr:c", "addr:d", "addr:a"]}, True, False, True),
        ({"job": "other", "subject": "b"}, False, False, False),
        ({"start_ns": 111, "end_ns": 119}, False, False, False),
    ],
    ids=["named", "another", "its host", "of two", "of four", "another job", "afterwards"],
)  # fmt: skip
def test_what_was_said_is_judged(row: dict[str, object], told: bool, first: bool, kind: bool) -> None:
    windows = pl.DataFrame({"window_start_ns": [60], "window_end_ns": [120]})
    said = pl.DataFrame([ROW | row], schema_overrides={"candidates": pl.List(pl.String)})
    (verdict,) = fault_verdicts(pl.DataFrame([FAULT]), said, windows)
    assert (verdict["told"], verdict["first_right"], verdict["kind_right"]) == (told, first, kind)
    assert verdict["seconds"] == (50e-9 if told else None)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [({}, True), ({"longest": 0.02}, False), ({"longest": None}, True), ({"longest": 0.0, "halved": True}, True)],
)
def test_faults_beyond_noise_are_asked_for(changes: dict[str, object], wanted: bool) -> None:
    assert asked(FAULT | changes) is wanted


def test_hours_in_which_nothing_was_wrong_leave_out_the_fault() -> None:
    hour = 3600 * SECOND
    jobs = pl.DataFrame({"job": ["ill", "well"], "start_ns": [0, 0], "end_ns": [4 * hour, 2 * hour]})
    faults = pl.DataFrame({"job": ["ill"], "start_ns": [3 * hour], "end_ns": [9 * hour]})
    assert healthy_hours(jobs, faults) == 5.0


def test_a_job_that_is_cut_off_has_stopped_and_one_that_ends_in_order_has_not() -> None:
    moved = replace(EXACT, nics=(*NICS[:3], "10.0.9.1"), start_s=30.0, end_s=60.0)
    (stopped,) = cut_off(Platform([EXACT, moved], hosts=10, end_s=60.0))
    assert (stopped.start_s, stopped.end_s) == (EXACT.end_s, moved.start_s)
    assert stopped.accept == ("addr:10.0.3.1", "host:host-3")
    assert not cut_off(Platform([replace(EXACT, in_order=True), replace(EXACT, name="b", end_s=60.0)], 4, end_s=60.0))
