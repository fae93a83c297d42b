"""From what the processes logged to the tables: which steps are a job's, and which pairs carried what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import truth

FOUR = ["10.0.1.1", "10.0.2.1", "10.0.3.1", "10.0.4.1"]
BULK, SMALL = 1_000_000, 48


def write_logs(
    folder: Path,
    *,
    dp_group: list[str],
    pp_group: list[str],
    ep_group: list[str] | None = None,
    direction: int = 0,
    last_steps: Sequence[int] = (2,) * 4,
    evaluate_every: int = 0,
    faults: Sequence[dict[str, object]] = (),
    again_ns: int = 0,
    saved: Sequence[tuple[int, int]] = (),
    checkpoint_every: int = 0,
) -> None:
    """Log a job of four ranks with steps of 100 ns from 1000 on; `last_steps` are those each rank finished last."""
    habits = {"storage": "10.0.100.1", "evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every}
    (folder / "jobA.json").write_text(json.dumps(habits))
    (folder / "faults.json").write_text(json.dumps(list(faults)))
    launched = [{"job": "jobA", "addr": addr, "start_ns": 500} for addr in FOUR]
    again = [{"job": "jobA_again", "addr": addr, "start_ns": again_ns} for addr in FOUR if again_ns]
    (folder / "launched.json").write_text(json.dumps(launched + again))
    for rank, addr in enumerate(FOUR):
        place = {"rank": rank, "pp_index": 0, "dp_index": rank, "dp_group": dp_group, "pp_group": pp_group}
        place["ep_group"] = ep_group or []
        events = [{"event": "rank", "addr": addr, **place}]
        if direction:
            events.append({"event": "ring", "addr": addr, "towards": FOUR[(rank + direction) % 4]})
        for step in range(last_steps[rank] + 1):
            start = 1000 + 100 * step + rank
            events.append({"event": "step", "addr": addr, "step": step, "start_ns": start, "end_ns": start + 90})
        for step, (start, end) in enumerate(saved):
            spent = {"step": step, "start_ns": start, "end_ns": end, "bytes": BULK}
            events.append({"event": "checkpoint", "addr": addr, **spent})
        (folder / f"jobA-{rank}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def flows(*sent: tuple[int, int, int, int]) -> pl.DataFrame:
    """Return records from rank to rank with a number of bytes at a time."""
    rows = [(FOUR[src], FOUR[dst], size, time_ns, 1) for src, dst, size, time_ns in sent]
    return pl.DataFrame(rows, schema=["src_addr", "dst_addr", "bytes", "flow_start_ns", "packets"], orient="row")


def ring(direction: int) -> list[tuple[int, int, int, int]]:
    return [(rank, (rank + direction) % 4, BULK, 1050) for rank in range(4)]


def kinds(tables: dict[str, pl.DataFrame]) -> set[tuple[str, str, str]]:
    return set(tables["truth_pairs"].select("src_addr", "dst_addr", "kind").rows())


def test_a_step_lasts_from_the_first_rank_to_the_last(tmp_path: Path) -> None:
    write_logs(tmp_path, dp_group=FOUR, pp_group=[])
    steps = truth.tables(tmp_path, flows(*ring(-1)))["truth_steps"]
    assert steps.select("step", "start_ns", "end_ns").rows() == [(0, 1000, 1093), (1, 1100, 1193), (2, 1200, 1293)]


def test_a_step_that_a_crash_cut_short_is_not_the_jobs(tmp_path: Path) -> None:
    write_logs(tmp_path, dp_group=FOUR, pp_group=[], last_steps=(2, 2, 1, 2))
    tables = truth.tables(tmp_path, flows(*ring(-1)))
    assert tables["truth_steps"]["step"].to_list() == [0, 1]
    assert tables["truth_rank_steps"].height == 11


def test_control_messages_and_the_first_broadcast_make_no_bulk_pair(tmp_path: Path) -> None:
    write_logs(tmp_path, dp_group=FOUR, pp_group=[])
    tables = truth.tables(tmp_path, flows(*ring(-1), (0, 1, SMALL, 1060), (0, 2, 9 * BULK, 900)))
    assert kinds(tables) == {(FOUR[rank], FOUR[rank - 1], "dp") for rank in range(4)}
    assert tables["truth_pairs_minor"].select("dst_addr", "group_kind", "bytes").rows() == [
        (FOUR[1], "dp", SMALL),
        (FOUR[2], "dp", 9 * BULK),
    ]


def test_a_pipeline_without_replicas_has_pp_pairs_only(tmp_path: Path) -> None:
    write_logs(tmp_path, dp_group=[], pp_group=FOUR)
    tables = truth.tables(tmp_path, flows((0, 1, BULK, 1050), (1, 0, BULK, 1060), (3, 0, SMALL, 1060)))
    assert kinds(tables) == {(FOUR[0], FOUR[1], "pp"), (FOUR[1], FOUR[0], "pp")}


@pytest.mark.parametrize(("direction", "of_ring"), [(1, {"cp"}), (-1, {"cp", "dp"})])
def test_a_ring_of_blocks_shares_pairs_with_the_all_reduce_if_it_goes_the_same_way(
    tmp_path: Path, direction: int, of_ring: set[str]
) -> None:
    write_logs(tmp_path, dp_group=FOUR, pp_group=[], direction=direction)
    found = kinds(truth.tables(tmp_path, flows(*ring(1), *ring(-1))))
    assert {kind for src, dst, kind in found if (src, dst) == (FOUR[0], FOUR[direction])} == of_ring
    assert (FOUR[0], FOUR[3], "dp") in found


def test_ranks_that_exchange_tokens_share_gradients_with_the_rank_before_them_only(tmp_path: Path) -> None:
    write_logs(tmp_path, dp_group=FOUR, pp_group=[], ep_group=FOUR)
    everybody = [(src, dst, BULK, 1050) for src in range(4) for dst in range(4) if src != dst]
    found = kinds(truth.tables(tmp_path, flows(*everybody)))
    assert {(src, dst) for src, dst, kind in found if kind == "dp"} == {(FOUR[at], FOUR[at - 1]) for at in range(4)}
    assert len([kind for *_, kind in found if kind == "ep"]) == 12


@pytest.mark.parametrize(("tokens", "met"), [(BULK, 12), (SMALL, 4)])
def test_few_tokens_beside_many_gradients_are_an_exchange_and_control_messages_are_none(
    tmp_path: Path, tokens: int, met: int
) -> None:
    write_logs(tmp_path, dp_group=FOUR, pp_group=[], ep_group=FOUR)
    everybody = [(src, dst, tokens, 1050) for src in range(4) for dst in range(4) if src != dst]
    control = [(0, 2, BULK, 1050)] if tokens == SMALL else []
    gradients = [(src, (src - 1) % 4, 20 * BULK, 1060) for src in range(4)]
    found = kinds(truth.tables(tmp_path, flows(*everybody, *control, *gradients)))
    assert len([kind for *_, kind in found if kind == "ep"]) == met + len(control)
    assert len([kind for *_, kind in found if kind == "dp"]) == 4


def test_what_a_fault_did_is_measured_on_the_steps_that_it_overlaps() -> None:
    ends = [0, 100, 200, 300, 500, 600, 700]
    steps = pl.DataFrame({"job": "jobA", "step": range(7), "end_ns": ends})
    struck = {"kind": "slow_rank", "job": "jobA", "start_ns": 310, "end_ns": 490}
    silent = {"kind": "killed_rank", "job": "jobA", "start_ns": 710, "end_ns": 720}
    measured = truth.effects(pl.DataFrame([struck, silent]), steps)
    assert measured.select("effect", "longest", "noise").rows() == [(1.0, 1.0, 0.0), (None, None, 0.0)]


def test_an_evaluation_lasts_from_a_step_to_the_next_one(tmp_path: Path) -> None:
    write_logs(tmp_path, dp_group=FOUR, pp_group=[], evaluate_every=2)
    pauses = truth.tables(tmp_path, flows(*ring(-1)))["truth_pauses"]
    assert pauses.rows() == [("evaluation", "jobA", 1193, 1200)]


@pytest.mark.parametrize(
    ("every", "last", "slow_until", "habit"),
    [
        (2, 1119, None, [(1000, 1010), (1100, 1119)]),
        (2, 1121, None, [(1000, 1010)]),
        (0, 1119, None, []),
        (2, 1119, 1150, [(1000, 1010)]),
        (2, 1119, 0, [(1000, 1010)]),
    ],
    ids=["alike", "twice as long", "no habit", "slow storage", "slow until the end"],
)
def test_checkpoints_by_habit_that_are_alike_are_pauses(
    tmp_path: Path, every: int, last: int, slow_until: int | None, habit: list[tuple[int, int]]
) -> None:
    fault = {"kind": "slow_storage", "job": "jobA", "subject_type": "addr", "subject": FOUR[0], "severity": 0.5}
    fault |= {"start_ns": 1050} | ({"end_ns": slow_until} if slow_until else {})
    faults = [] if slow_until is None else [fault]
    saved = [(1000, 1010), (1100, last)]
    write_logs(tmp_path, dp_group=FOUR, pp_group=[], saved=saved, checkpoint_every=every, faults=faults)
    tables = truth.tables(tmp_path, flows(*ring(-1)))
    pauses = tables["truth_pauses"].filter(pl.col("kind") == "checkpoint")
    assert pauses.select("start_ns", "end_ns").rows() == habit
    stalls = tables["truth_faults"].filter(pl.col("kind") == "checkpoint_stall")
    assert stalls["severity"].to_list() == [1.0, 1.0 if slow_until is None else 0.5]


@pytest.mark.parametrize(
    ("kind", "again_ns", "until"), [("killed_rank", 0, 3000), ("killed_rank", 2000, 2000), ("slow_rank", 0, 1210)]
)
def test_who_was_killed_is_dead_until_its_job_is_launched_again(
    tmp_path: Path, kind: str, again_ns: int, until: int
) -> None:
    fault = {"kind": kind, "job": "jobA", "subject_type": "addr", "subject": FOUR[0], "severity": 1.0}
    fault |= {"start_ns": 1205, "end_ns": 1210}
    write_logs(tmp_path, dp_group=FOUR, pp_group=[], faults=[fault], again_ns=again_ns)
    tables = truth.tables(tmp_path, flows(*ring(-1), (0, 1, SMALL, 3000)))
    assert tables["truth_faults"].select("start_ns", "end_ns").rows() == [(1205, until)]


def test_tables_that_nothing_happened_in_have_their_columns(tmp_path: Path) -> None:
    write_logs(tmp_path, dp_group=FOUR, pp_group=[])
    tables = truth.tables(tmp_path, flows(*ring(-1)))
    assert tables["truth_faults"].is_empty()
    assert dict(tables["truth_faults"].schema) == truth.FAULT | truth.EFFECT
    assert dict(tables["truth_noise"].schema) == truth.NOISE
    assert dict(tables["truth_pauses"].schema) == truth.PAUSE
