"""A NIC that is slow while its job hides it is told, and nothing that only looks so."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, flows
from job_evidence import DEFAULT, shuffled, together, with_flows, without_rows
from network_evidence import Hop, both, job, late, ring
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, FOREIGN_TRAFFIC_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.network import best_pace, latent

STAGES = ("abcd", "efgh", "ijkl", "mnop")
PAIRS = [
    sender + receiver for one, following in pairwise(STAGES) for sender, receiver in zip(one, following, strict=True)
]
ALWAYS = (2.0,) * 12


def piped(slow: str = "f", factor: float = 2, *, changed: Sequence[Hop] = (), steps: int = 0, **more: Any) -> Evidence:
    """Return four replicas of four stages; what touches the NIC `slow` takes `factor` times as long in four steps.

    Parameters
    ----------
    steps : their number, if what is slow in which is in `changed`
    """
    rings = [ring(stage, factor if slow in stage else 1) for stage in STAGES]
    pairs = [both(pair[0], pair[1], factor if slow in pair else 1) for pair in PAIRS]
    instead = {(hop.src, hop.dst): hop for hop in changed}
    hops = [instead.get((hop.src, hop.dst), hop) for part in (*rings, *pairs) for hop in part]
    return late(job(hops, lost=0, slow=[False] * steps, **more), 8)


def told(evidence: Evidence) -> list[str]:
    return latent.find(evidence, DEFAULT)["subject"].to_list()


def test_a_nic_that_is_slower_than_its_peers_is_told_and_costs_nothing_yet() -> None:
    (row,) = latent.find(piped(), DEFAULT).rows(named=True)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("latent", "addr", "f")
    assert row["score"] == pytest.approx(2)
    assert row["severity"] == 0
    assert row["peers"] == list("acdhiklmnop"), "those that exchange nothing with it"
    assert "2.0 times the time per byte of its peers and 2.0 times the time per byte that it took" in row["explanation"]


@pytest.mark.parametrize(("factor", "names"), [(1.45, []), (1.55, ["f"])])
def test_it_is_half_slower_at_least(factor: float, names: list[str]) -> None:
    assert told(piped(factor=factor)) == names
    assert [*told(piped()), *latent.find(piped(), dataclasses.replace(DEFAULT, latent_rate=2.1))["subject"]] == ["f"]


def test_a_nic_that_was_always_slow_is_known_by_its_peers() -> None:
    mine = [dataclasses.replace(hop, factors=ALWAYS) for hop in _touching("f")]
    assert told(piped(slow="-", changed=mine)) == ["f"]


def test_a_sender_that_computes_between_packets_slows_one_way_only() -> None:
    mine = [hop for hop in _touching("f") if hop.src == "f"]
    assert told(piped(slow="-", changed=mine)) == []


def test_smaller_messages_are_compared_with_none() -> None:
    """They take as long for half of the bytes."""
    mine = [dataclasses.replace(hop, gbps=50, factor=1) for hop in _touching("f")]
    assert told(piped(slow="-", changed=mine)) == []


def test_a_longer_path_is_compared_with_none() -> None:
    far = [dataclasses.replace(hop, path=("leaf", "spine", "leaf"), factors=ALWAYS) for hop in _touching("f")]
    assert told(piped(slow="-", changed=far)) == []


@pytest.mark.parametrize(("share", "names"), [(0.09, ["f"]), (0.11, [])])
def test_a_nic_that_others_use_too_is_not_told(share: float, names: list[str]) -> None:
    evidence = piped()
    mine = (pl.col("src_addr") == "f") | (pl.col("dst_addr") == "f")
    now = pl.col("flow_start_ns") >= evidence.window.start_ns
    moved = int(share * evidence.flows.filter(mine, now)["bytes"].sum())
    beside = pl.DataFrame([("j", "f", WINDOW.start_ns, moved)], schema=FOREIGN_TRAFFIC_SCHEMA, orient="row")
    assert told(dataclasses.replace(evidence, beside=beside)) == names


def test_what_is_slow_in_some_steps_only_waits() -> None:
    now_and_then = (1.0,) * 8 + (2.0, 1.0, 2.0, 1.0)
    mine = [dataclasses.replace(hop, factors=now_and_then) for hop in _touching("f")]
    assert told(piped(slow="-", changed=mine)) == []


def test_of_a_ring_that_is_slow_alike_no_member_is_told() -> None:
    assert told(late(job(ring("abcd", 2), *(ring(stage) for stage in STAGES[1:]), lost=0), 8)) == []


def test_without_peers_its_own_past_tells() -> None:
    few = late(job(both("a", "b", 2), both("b", "c"), both("d", "a", 2), lost=0), 8)
    assert told(few) == ["a"]


def test_most_hops_that_are_slower_than_others_are_no_peers() -> None:
    """A class of which half is slow differs by so much that nothing in it stands out."""
    judged = best_pace.verdicts(
        late(job(*(both(a, b, 2) for a, b in ("ab", "cd", "ef")), *(both(a, b) for a, b in ("gh", "ij", "kl"))), 12),
        DEFAULT,
    )
    assert judged.filter("slow").is_empty()


@pytest.mark.parametrize(
    ("steps", "now", "count"), [(range(3), 1, 0), (range(12), 1, 0), (range(12), 1.4, 0), (range(12), 1.6, 4)]
)
def test_like_is_compared_with_like(steps: Sequence[int], now: float, count: int) -> None:
    """The first 4 MB of a message are quicker than the rest, which waits; now and then they have their own record."""
    evidence = late(job(ring("abcd"), lost=0), 8)
    hops = evidence.flows.select("src_addr", "dst_addr").unique().cast(pl.String).rows()
    begins = evidence.history["start_ns"]
    chunks = [
        ((at := (begins[step] - WINDOW.start_ns) / MS), at + 0.1 * (now if step >= 8 else 1), src, dst, 4 * MB)
        for step in steps
        for src, dst in hops
    ]
    rows = flows(chunks).with_columns(job_id=pl.lit("j"), kind=pl.lit("dp"), switch_path=None)
    judged = best_pace.verdicts(with_flows(evidence, rows), DEFAULT)
    assert judged["slow"].sum() == count


def test_jobs_are_judged_apart_in_whatever_order_rows_come() -> None:
    other = late(job(ring("ABCD"), ring("EFGH"), lost=0, name="other"), 8)
    both_jobs = together(piped(name="ill"), other)
    rows = latent.find(both_jobs, DEFAULT)
    assert rows["job_id"].to_list() == ["ill"]
    assert_frame_equal(latent.find(shuffled(both_jobs, 3), DEFAULT), rows)


def test_no_evidence_no_rows() -> None:
    assert_frame_equal(latent.find(without_rows(piped()), DEFAULT), pl.DataFrame(schema=FINDING_SCHEMA))


def _touching(nic: str) -> list[Hop]:
    pairs = [hop for pair in PAIRS if nic in pair for hop in both(pair[0], pair[1], 2)]
    return [*pairs, *(hop for stage in STAGES if nic in stage for hop in ring(stage, 2))]


def test_roles_that_are_always_slower_hide_nothing_that_became_slow() -> None:
    """Two hops of each of four other rings always take twice as long as their peers, one way."""
    rings = [[dataclasses.replace(hop, factors=ALWAYS) if at in (0, 2) else hop for at, hop in enumerate(ring(nics))]
             for nics in ("ABCD", "EFGH", "IJKL", "MNOP")]  # fmt: skip
    hops = [hop for part in rings for hop in part]
    pairs = [both(pair[0], pair[1], 2 if "f" in pair else 1) for pair in PAIRS]
    stages = [ring(stage, 2 if "f" in stage else 1) for stage in STAGES]
    assert told(late(job(hops, *pairs, *stages, lost=0), 8)) == ["f"]


@pytest.mark.parametrize(("leaves", "told_one"), [(("x", "x"), False), (("x", "z"), True)], ids=["one pair", "two"])
def test_which_device_of_one_path_is_slow_its_traffic_alone_cannot_tell(
    leaves: tuple[str, str], told_one: bool
) -> None:
    """Pairs between two leaves cross two links and the spine between them; a third leaf behind the spine tells."""
    slow = [both(a, b, 2, f"{leaf} s y") for (a, b), leaf in zip(("ab", "cd"), leaves, strict=True)]
    well = [both(a, b, 1, "x t y") for a, b in ("ef", "gh", "ij", "kl")]
    (row,) = latent.find(late(job(*slow, *well, lost=0), 8), DEFAULT).rows(named=True)
    assert row["kind"] == "latent"
    assert row["subject"] == ("s - y" if told_one else "s - x")
    assert (row["candidates"] or [])[:2] == (["s - y", "s"] if told_one else ["s - x", "s - y"])
    assert ("may be any of s - x (43%), s - y (43%), s (13%)" in row["explanation"]) == (not told_one)


@pytest.mark.parametrize(("one_host", "told_"), [("ac", []), ("ab", ["s - x"])])
def test_what_one_host_has_in_common_accuses_no_link(one_host: str, told_: list[str]) -> None:
    """Two of the four NICs are in one host: an end of both pairs, or the two ends of one."""
    slow = [both("a", "b", 2, "x s y"), both("c", "d", 2, "x s y")]
    well = [both(a, b, 1, "x t y") for a, b in ("ef", "gh", "ij", "kl")]
    evidence = late(job(*slow, *well, lost=0), 8)
    host = pl.when(pl.col("addr").is_in(list(one_host))).then(pl.lit("both")).otherwise("host")
    assert told(dataclasses.replace(evidence, members=evidence.members.with_columns(host=host))) == told_


def test_a_nic_is_named_only_where_it_is_sure() -> None:
    """The NICs of a pair by itself are slow alike."""
    alone = late(job(both("a", "b", 2), *(both(a, b) for a, b in ("ef", "gh", "ij", "kl")), lost=0), 8)
    assert told(alone) == []


def _was_slow(steps: int, well: int, since: int = 8, factor: float = 2) -> Evidence:
    """Return a job whose NIC `f` was slow in steps from the ninth on, and well again in the last ones."""
    factors = (1.0,) * 8 + (factor,) * steps + (1.0,) * well
    mine = [dataclasses.replace(hop, factors=factors) for hop in _touching("f")]
    return late(piped(slow="-", changed=mine, steps=len(factors)), since)


@pytest.mark.parametrize(("slow", "well", "names"), [(11, 11, ["f"]), (10, 12, [])])
def test_what_was_slow_and_is_well_again_is_told_of_the_steps_in_which_it_was(
    slow: int, well: int, names: list[str]
) -> None:
    """Of twelve steps of a second, that end ten seconds before the last one, the second quickest counts."""
    evidence = _was_slow(slow, well)
    rows = latent.find(evidence, DEFAULT)
    assert rows["subject"].to_list() == names
    block = evidence.history[8:20]
    assert rows.select("start_ns", "end_ns").rows() == [(block["start_ns"][0], block["end_ns"][-1])] * len(names)


@pytest.mark.parametrize(("since", "names"), [(19, ["f"]), (20, [])])
def test_steps_are_judged_in_the_window_in_which_the_last_of_them_ends(since: int, names: list[str]) -> None:
    assert told(_was_slow(12, 10, since)) == names


def test_what_is_slow_throughout_is_told_once() -> None:
    assert told(_was_slow(22, 0)) == ["f"]


def test_more_questions_ask_for_more_evidence() -> None:
    """The NIC takes 1.55 times as long, whose logarithm is 8.77 times the least deviation."""
    strict = dataclasses.replace(DEFAULT, sigmas=8.72)
    found = [latent.find(_was_slow(12, well, factor=1.55), strict)["subject"].to_list() for well in (0, 10)]
    assert found == [["f"], []]
    assert told(_was_slow(12, 10, factor=1.55)) == ["f"]
