"""Who is named when transfers are slow in slow steps: what all of them cross and no quick one does, and nobody else."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import polars as pl
import pytest
from handmade import WINDOW
from hypothesis import given
from hypothesis import settings as generated
from hypothesis import strategies as st
from job_evidence import DEFAULT, groups, shuffled, together, without_rows
from network_evidence import HEALTHY, SLOW, Hop, both, job, late, ring
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, FOREIGN_TRAFFIC_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.network import devices

Named = list[tuple[str, str]]


def found(evidence: Evidence, **changed: Any) -> pl.DataFrame:
    return devices.find(evidence, dataclasses.replace(DEFAULT, **changed))


def named(evidence: Evidence, **changed: Any) -> Named:
    return found(evidence, **changed).select("kind", "subject").rows()


def slow_nic(factor: float = 2, **more: Any) -> Evidence:
    """Return a pipeline of two stages of three replicas; `a` slows its ring and its pairs."""
    return job(ring("abc", factor), ring("def"), both("a", "d", factor), both("b", "e"), both("c", "f"), **more)


def test_a_slow_nic_slows_its_ring_and_its_pairs_and_nobody_else_s() -> None:
    rows = found(slow_nic())
    row = rows.row(0, named=True)
    assert rows.height == 1
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("slow_nic", "addr", "a")
    assert row["score"] == pytest.approx(2)
    assert row["severity"] == pytest.approx(0.1)
    assert row["confidence"] == 1
    assert row["start_ns"] == WINDOW.start_ns + HEALTHY * 10**9
    assert row["end_ns"] == WINDOW.start_ns + (HEALTHY * 1000 + SLOW * 1100) * 10**6
    assert "Traffic through a takes 2.00 times the usual time per byte (50.00 Gbit/s)" in row["explanation"]
    assert "in steps of 1.10 s instead of 1.00 s. This explains 100% of the loss" in row["explanation"]


@pytest.mark.parametrize(("factor", "names"), [(1.24, []), (1.26, [("slow_nic", "a")])])
def test_a_quarter_slower_is_slow(factor: float, names: Named) -> None:
    assert named(slow_nic(factor, lost=45)) == names
    assert named(slow_nic(factor, lost=45), slow_rate=1.2) == [("slow_nic", "a")]


@pytest.mark.parametrize(("lost", "names"), [(39, []), (41, [("slow_nic", "a")])])
def test_what_costs_no_time_is_no_news(lost: float, names: Named) -> None:
    """A slow NIC hidden behind computing: the steps are as long as ever."""
    assert named(slow_nic(lost=lost)) == names
    assert named(slow_nic(lost=0)) == []


@pytest.mark.parametrize(("lost", "names"), [(590, [("slow_nic", "a")]), (610, [])])
def test_a_cause_explains_most_of_the_loss(lost: float, names: Named) -> None:
    """The ring takes 100 ms longer, and each of the pairs: 300 in all."""
    assert named(slow_nic(lost=lost)) == names


@pytest.mark.parametrize(("slow", "names"), [(2, []), (3, [("slow_nic", "a")])])
def test_slow_steps_are_three_at_least(slow: int, names: Named) -> None:
    assert named(slow_nic(slow=[False] * 8 + [True] * slow)) == names


@pytest.mark.parametrize(
    ("share", "in_all", "names"),
    [(0.2, False, [("slow_nic", "a")]), (0.3, False, []), (0.3, True, [("slow_nic", "a")])],
)
def test_a_nic_that_moves_much_for_others_in_slow_steps_alone_is_shared(
    share: float, in_all: bool, names: Named
) -> None:
    """At half its pace it lacks half of its rate, which a copy of files takes if it moves a quarter or more."""
    evidence = with_foreign(slow_nic(lost=100), "a", share, in_all=in_all)
    assert named(evidence) == names


def with_foreign(evidence: Evidence, addr: str, share: float, *, in_all: bool = False) -> Evidence:
    """Return the evidence with traffic of others at a NIC, in slow steps or in all, which takes a share of its rate."""
    steps = evidence.history.with_row_index("step")
    usual = evidence.flows.select((pl.col("flow_end_ns") - pl.col("flow_start_ns")) / pl.col("bytes")).min().item()
    rows = [
        ("j", addr, start, round(share * (end - start) / usual))
        for step, start, end in steps.select("step", "start_ns", "end_ns").iter_rows()
        if in_all or step >= HEALTHY
    ]
    return dataclasses.replace(evidence, beside=pl.DataFrame(rows, schema=FOREIGN_TRAFFIC_SCHEMA, orient="row"))


def with_copy(evidence: Evidence, share: float, src: str, dst: str) -> Evidence:
    """Return the evidence with a copy between members in the slow steps, which takes a share of the usual rate."""
    usual = evidence.flows.select((pl.col("flow_end_ns") - pl.col("flow_start_ns")) / pl.col("bytes")).min().item()
    spans = evidence.history.tail(SLOW)
    length = spans["end_ns"][0] - spans["start_ns"][0]
    moved = round(share * length / usual)
    rows = [(start, start + round(2 * usual * moved), src, dst, moved) for start in spans["start_ns"]]
    copied = pl.DataFrame(rows, schema=["flow_start_ns", "flow_end_ns", "src_addr", "dst_addr", "bytes"], orient="row")
    copied = copied.with_columns(job_id=pl.lit("j"), kind=pl.lit("dp"))
    fits = pl.Schema({name: kind for name, kind in evidence.flows.schema.items() if name in copied.columns})
    every = pl.concat([evidence.flows, copied.cast(fits)], how="diagonal")
    return dataclasses.replace(evidence, flows=every.sort("flow_start_ns", "src_addr", "dst_addr"))


@pytest.mark.parametrize(("share", "names"), [(0.2, [("slow_nic", "a")]), (0.3, [])])
def test_a_copy_between_members_takes_the_way_of_their_training(share: float, names: Named) -> None:
    assert named(with_copy(slow_nic(lost=100), share, "a", "b")) == names


@pytest.mark.parametrize(("dst", "names"), [("c", []), ("g", [("degraded_link", "leaf-0 - s1")])])
def test_a_link_is_well_where_half_of_its_slow_hops_end_at_shared_nics(dst: str, names: Named) -> None:
    """Of eight slow hops, `b` has two and `c` as many; none is at `g`."""
    assert named(with_copy(hashed(), 0.3, "b", dst)) == names


@pytest.mark.parametrize(("share", "names"), [(0.2, ["a"]), (0.3, [])])
def test_a_group_is_well_where_half_of_its_slow_hops_end_at_shared_nics(share: float, names: list[str]) -> None:
    """What the two NICs of the slow ring send down the pipeline is quick, so no device is at fault."""
    rings = job(ring("ab", 2), ring("cd"), both("a", "c"), both("b", "d"), lost=100)
    assert found(with_foreign(rings, "a", share))["subject"].to_list() == names


def test_what_was_slow_before_the_window_is_no_news() -> None:
    """The window's slow steps are slow for another reason."""
    by_nic = (1.0,) * 8 + (2.0,) * 4 + (1.0,) * 8
    slow = [factor > 1 for factor in by_nic[:12]] + [False] * 4 + [True] * 4
    hops = [dataclasses.replace(hop, factors=by_nic) for hop in (*ring("abc"), *both("a", "d"))]
    evidence = job(hops, ring("def"), both("b", "e"), slow=slow)
    assert named(late(evidence, 8)) == []
    assert named(late(evidence, 0)) == []
    assert named(job(hops, ring("def"), both("b", "e"), slow=[*slow[:16], *[False] * 4])) == [("slow_nic", "a")]


def test_a_ring_that_is_slow_alike_names_nobody_but_its_group() -> None:
    rows = found(job(ring("abc", 2), ring("def"), ring("ghi")))
    row = rows.row(0, named=True)
    assert rows.height == 1
    assert (row["kind"], row["subject_type"], row["subject"]) == ("cross_group", "dp_group", "a")
    assert (row["confidence"], row["peers"]) == (None, ["d", "g"])
    assert (row["candidates"], sum(row["odds"])) == (["a", "b", "c"], 1)
    assert "The data-parallel group of a takes 2.00 times" in row["explanation"]
    assert "2 of 3 groups are not slower" in row["explanation"]


@pytest.mark.parametrize(("slow", "candidates"), [("abcdefgh", list("abcdefgh")), ("abcdefghi", None)])
def test_a_ring_of_many_nics_has_no_candidates(slow: str, candidates: list[str] | None) -> None:
    rows = found(job(ring(slow, 2), ring("wxyz")))
    assert rows.select("kind", "candidates").rows() == [("cross_group", candidates)]


@pytest.mark.parametrize(("factor", "names"), [(1.45, []), (1.55, ["a"])])
def test_a_ring_that_is_a_little_slower_now_and_then_is_no_news(factor: float, names: list[str]) -> None:
    now_and_then = [False] * 6 + [True, False] * 3
    rings = ring("abc", factor), ring("def"), ring("ghi")
    assert found(job(*rings, slow=now_and_then, lost=60))["subject"].to_list() == names
    assert found(job(*rings, lost=60))["subject"].to_list() == ["a"]


@pytest.mark.parametrize(("slow", "well", "names"), [("abcdef", "ghi", []), ("abc", "def", ["a"])])
def test_of_two_groups_the_slow_one_is_told_and_of_three_not_two(slow: str, well: str, names: list[str]) -> None:
    rings = [ring(slow[at : at + 3], 2) for at in range(0, len(slow), 3)]
    assert found(job(*rings, ring(well)))["subject"].to_list() == names


@pytest.mark.parametrize(("others", "names"), [(2.65, [("slow_nic", "c")]), (2.75, [("slow_network", "c")]), (2.9, [])])
def test_where_a_ring_s_hops_differ_its_slowest_are_to_blame(others: float, names: Named) -> None:
    """They break into pieces elsewhere, each at a better pace; 2.7 is better than 3 by a tenth, two deviations."""
    hops = ring("abcd")
    slower = [dataclasses.replace(hop, factor=3 if "c" in (hop.src, hop.dst) else others) for hop in hops]
    assert named(job(slower)) == names


@pytest.mark.parametrize(
    ("next_", "told"), [(1.7, ("slow_nic", ["b", "c"])), (1.84, ("slow_network", ["b", "c"])), (1.94, None)]
)
def test_hops_that_wait_for_a_nic_do_not_accuse_the_leaf_that_they_share_with_it(
    next_: float, told: tuple[str, list[str]] | None
) -> None:
    """Records that a collector joined over pauses make each hop as slow as it waits, and one just quick enough to
    stand out. Where the next hop is nearly as slow as those of `b`, its NICs may be at fault as well."""
    around = ["leaf-0"] * 3 + ["leaf-0 s leaf-1"] + ["leaf-1"] * 3 + ["leaf-1 s leaf-0"]
    paces = (1.97, 1.94, next_, 1.75, 1.68, 1.7, 1.65, 1.57)
    hops = [
        dataclasses.replace(hop, factor=pace) for hop, pace in zip(ring("abcdefgh", 1, *around), paces, strict=True)
    ]
    rows = [(row["kind"], row["candidates"] and row["candidates"][:2]) for row in found(job(hops)).to_dicts()]
    assert rows == ([told] if told else [])


def test_of_the_only_two_nics_of_a_slow_direction_both_may_be_at_fault() -> None:
    """Nobody else sends to the one or receives from the other, and what they exchange the other way is quick."""
    evidence = job(both("a", "b", 2, back=1), both("c", "d"), lost=100)
    (row,) = found(evidence).to_dicts()
    assert (row["kind"], row["subject_type"]) == ("slow_network", "addr")
    assert dict(zip(row["candidates"], row["odds"], strict=True)) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("to", "back", "names"),
    [("de", 1.2, [("slow_nic", "c")]), ("d", 1.2, [("slow_nic", "c")]), ("d", 1.3, [("slow_nic", "c")])],
    ids=["two that it sends to", "one, which receives well from another", "one, but what it receives is slower too"],
)
def test_a_nic_that_is_slow_in_one_direction_is_named_by_others(to: str, back: float, names: Named) -> None:
    """What it receives at its usual pace clears it; what is slower, though less than what it sends, does not."""
    slow = [Hop("c", addr, factor=3, kind="dp") for addr in to]
    less = [Hop(addr, "c", factor=back, kind="dp") for addr in "de"]
    well = [Hop("d", "f", kind="dp"), Hop("e", "f", kind="dp"), Hop("f", "d", kind="dp"), Hop("f", "e", kind="dp")]
    evidence = dataclasses.replace(job(slow, less, well, lost=150), groups=groups("cdef"))
    assert named(evidence) == names


@pytest.mark.parametrize(("lost", "names"), [(390, [("slow_nic", "c")]), (410, [])])
def test_what_a_nic_sends_to_several_others_of_its_rings_adds_up(lost: float, names: Named) -> None:
    """Each of two hops takes 100 ms longer, one after the other."""
    slow = [Hop("c", addr, factor=2, kind="dp") for addr in "de"]
    well = [Hop("d", "f", kind="dp"), Hop("e", "f", kind="dp"), Hop("f", "c", kind="dp")]
    evidence = dataclasses.replace(job(slow, well, lost=lost), groups=groups("cdef"))
    assert named(evidence) == names


@pytest.mark.parametrize(("other", "nic"), [(2.0, "c"), (4.0, "b")])
def test_of_nics_that_are_as_suspect_the_one_with_one_pace_is_named(other: float, nic: str) -> None:
    """`b` sends slowly to `a` and `c`, or `c` receives slowly from `b` and `d`."""
    line = (both("a", "b", 1, back=2), [Hop("b", "c", None, 2), Hop("c", "b")], both("c", "d", 1, back=other))
    slower = [dataclasses.replace(hop, factor=2.1) if (hop.src, hop.dst) == ("b", "a") else hop for hop in line[0]]
    told = found(job(slower, *line[1:], lost=200))
    assert told["subject"].to_list()[:1] == [nic]


@pytest.mark.parametrize(("less", "names"), [(1.3, ["leaf - spine"]), (1.2, [])])
def test_of_hops_that_share_a_slow_link_one_gets_more_than_another(less: float, names: list[str]) -> None:
    """A hop at its usual pace clears the link; one that is slow, though far less than the others, does not."""
    over = "leaf spine"
    evidence = job(both("a", "d", 3, over), both("b", "e", less, over), both("c", "f", 1, "leaf"), lost=150)
    found_ = {name for row in found(evidence).iter_rows(named=True) for name in (row["candidates"] or [row["subject"]])}
    assert [name for name in names if name in found_] == names
    assert bool(names) or "leaf - spine" not in found_


@pytest.mark.parametrize(
    ("pushes", "names"),
    [
        ({"b": 6, "c": 1, "d": 1, "e": 1}, [("slow_nic", "b")]),
        ({"b": 6, "c": 6, "d": 6, "e": 1, "f": 1, "g": 1}, [("degraded_switch", "leaf-0")]),
        ({"c": 1, "d": 1, "e": 1}, []),
    ],
)
def test_in_a_ring_who_pushes_slowly_accuses_and_who_pushes_quickly_clears(
    pushes: dict[str, float], names: Named
) -> None:
    """Half of the ring is on either leaf; who never comes early to it might be slow, or not."""
    around = ["leaf-0"] * 3 + ["leaf-0 s leaf-1"] + ["leaf-1"] * 3 + ["leaf-1 s leaf-0"]
    hops = [dataclasses.replace(hop, pushes=pushes.get(hop.src)) for hop in ring("abcdefgh", 6, *around)]
    assert [row for row in named(job(hops, lost=500)) if row[0] != "cross_group"] == names


@pytest.mark.parametrize(
    ("pushes", "names"),
    [
        ({"a": 6, "c": 1, "d": 1}, [("slow_nic", "b")]),
        ({"a": 6, "d": 1}, [("slow_nic", "b")]),
    ],
)
def test_a_nic_that_nothing_clears_is_likelier_than_the_leaf_that_something_does(
    pushes: dict[str, float], names: Named
) -> None:
    """All of the ring is on one leaf. Who never comes early waits for `b`; a leaf spares nobody."""
    hops = [dataclasses.replace(hop, pushes=pushes.get(hop.src)) for hop in ring("abcd", 6, *["leaf-0"] * 4)]
    assert [row for row in named(job(hops, lost=500)) if row[0] != "cross_group"] == names


@pytest.mark.parametrize(("other", "names"), [("leaf-0 s leaf-1", [("slow_nic", "b")]), ("leaf-0", [])])
def test_a_channel_at_its_usual_pace_on_another_path_does_not_accuse_who_pushes_quickly(
    other: str, names: Named
) -> None:
    """The second channel goes from `c` to `d`; on the same path, it is that hop which is at its usual pace."""
    pushes = {"a": 6.0, "c": 1.0, "d": 1.0}
    hops = [dataclasses.replace(hop, pushes=pushes.get(hop.src)) for hop in ring("abcd", 6, *["leaf-0"] * 4)]
    if other == "leaf-0":
        hops[2] = dataclasses.replace(hops[2], factor=1, pushes=None)
    channel = Hop("c", "d", tuple(other.split()), kind="dp")
    assert [row for row in named(job(hops, [channel], lost=500)) if row[1] == "b"] == names


def test_a_leaf_slows_all_its_nics() -> None:
    """Three of the pairs' ends are on it; the rings inside each leaf go along."""
    slow = [both(a, b, 2, "leaf-0 s leaf-1") for a, b in ("ad", "be", "cf")]
    well = [both(a, b, 1, "leaf-2 s leaf-1") for a, b in ("jd", "ke", "lf")]
    rings = [ring("abc", 2, "leaf-0"), ring("def", 1, "leaf-1"), ring("jkl", 1, "leaf-2")]
    rows = found(job(*slow, *well, *rings))
    assert rows.select("kind", "subject_type", "subject").rows() == [("degraded_switch", "switch", "leaf-0")]


def hashed(factor: float = 2, back: float | None = None, quick: int = 0, **more: Any) -> Evidence:
    """Return pairs between leaves 0 and 1, 2 and 3, each over two spines; what crosses leaf-0 and s1 is slow.

    `quick` pairs cross them and are not.
    """
    slow = [both(a, b, factor, "leaf-0 s1 leaf-1", back) for a, b in ("ad", "be", "cf")]
    slow += [both("m", "n", factor, "leaf-0 s1 leaf-3", back)]
    also = [both(a, b, 1, "leaf-0 s1 leaf-1") for a, b in ("op", "qr", "tu")][:quick]
    well = [both(a, b, 1, "leaf-0 s2 leaf-1") for a, b in ("ad", "be", "cf", "mn")]
    well += [both(a, b, 1, f"leaf-2 {s} leaf-3") for a, b in ("gj", "hk") for s in ("s1", "s2")]
    well += [both("g", "d", 1, "leaf-2 s1 leaf-1")]
    return job(*slow, *also, *well, **more)


def test_a_link_slows_what_crosses_it_both_ways() -> None:
    rows = found(hashed())
    assert rows.select("kind", "subject_type", "subject").rows() == [("degraded_link", "link", "leaf-0 - s1")]


def test_a_link_that_is_slow_one_way_is_congested() -> None:
    rows = found(hashed(back=1))
    assert rows.select("kind", "subject_type", "subject").rows() == [("congestion", "link", "leaf-0 - s1")]
    assert "the opposite direction is not slower" in rows["explanation"][0]


@pytest.mark.parametrize(("quick", "names"), [(1, [("degraded_link", "leaf-0 - s1")]), (2, [])])
def test_most_of_what_crosses_a_device_is_slow(quick: int, names: Named) -> None:
    """Eight hops of ten are four fifths, of twelve two thirds."""
    assert named(hashed(quick=quick)) == names
    assert named(hashed(quick=quick), persistence=0.6) == [("degraded_link", "leaf-0 - s1")]


def test_a_spine_slows_what_hashing_sends_over_it() -> None:
    """Rings cross all spines and are all slow; only pairs tell."""
    slow = [both(a, b, 2, f"leaf-{a} s1 leaf-{b}") for a, b in ("ad", "be", "cf")]
    well = [both(a, b, 1, f"leaf-{a} s2 leaf-{b}") for a, b in ("ad", "be", "cf")]
    rings = [ring(addrs, 2, *(f"leaf-{a} s{1 + i % 2} leaf" for i, a in enumerate(addrs))) for addrs in ("abc", "def")]
    assert named(job(*slow, *well, *rings)) == [("degraded_switch", "s1")]


def test_without_paths_no_switch_is_named() -> None:
    evidence = hashed()
    blind = evidence.flows.with_columns(switch_path=pl.lit(None, dtype=pl.List(pl.String)))
    assert named(dataclasses.replace(evidence, flows=blind)) == []


def test_a_hop_that_is_no_better_than_the_slow_ones_clears_nobody() -> None:
    """Something else keeps it at a third of the others' rate; a NIC at half of its own changes nothing."""
    kept = [Hop("a", "x", gbps=30), Hop("x", "a", gbps=30), Hop("y", "a", gbps=30)]
    quick = [dataclasses.replace(hop, gbps=90) for hop in kept]
    slow = [both("a", "d", 2), both("a", "e", 2)]
    assert named(job(*slow, both("b", "d"), both("b", "e"), kept)) == [("slow_nic", "a")]
    assert named(job(*slow, both("b", "d"), both("b", "e"), quick)) == []


@pytest.mark.parametrize(("within", "names"), [(1.0, ["l1"]), (1.5, ["l0 - s0", "l1 - s0", "s0"])])
def test_a_hop_that_waits_for_the_slow_one_of_its_ring_clears_its_leaf(within: float, names: list[str]) -> None:
    """A hop within `l1` always took longer than others. It takes longer now as it waits, but not as long as the slow
    ones do; or as long as ever, as something else limits it. Behind `l1`, another ring is slow, for whichever reason.
    """
    first = [Hop("a", "b", ("l0", "s0", "l1"), 2, 100, "dp"), Hop("b", "c", ("l1",), within, 60, "dp")]
    second = [Hop("c", "d", ("l1", "s0", "l0"), 2, 100, "dp"), Hop("d", "a", ("l0",), 1.3, 100, "dp")]
    row = found(job(first, second, ring("ef", 1.4, "l1"))).row(0, named=True)
    assert (row["candidates"] or [row["subject"]]) == names


def test_of_two_links_that_cannot_be_told_apart_both_are_named() -> None:
    """All pairs are between two leaves; other pairs clear the spine at which both links meet."""
    slow = [both(a, b, 2, "leaf-0 s1 leaf-1") for a, b in ("ad", "be")]
    well = [both(a, b, 1, "leaf-0 s2 leaf-1") for a, b in ("ad", "be", "cf")]
    beside = [both("g", "h", 1, "leaf-2 s1 leaf-3"), both("i", "j", 1, "leaf-2 s1 leaf-3")]
    rows = found(job(*slow, *well, *beside))
    assert rows.select("kind", "subject_type", "subject").rows() == [("slow_network", "link", "leaf-0 - s1")]
    assert "any one of leaf-0 - s1 (50%), leaf-1 - s1 (50%)" in rows["explanation"][0]


FLAPS = (1.0,) * 6 + (9.0,) + (1.0,) * 3 + (9.0,) + (1.0,) * 3 + (9.0,) + (1.0,) * 3


def flapping(factors: tuple[float, ...], lost: float = 800) -> Evidence:
    hops = [dataclasses.replace(hop, factors=factors) for hop in (*ring("abc"), *both("a", "d"))]
    slow = [factor > 1 for factor in factors]
    return job(hops, ring("def"), both("b", "e"), both("c", "f"), slow=slow, lost=lost)


@pytest.mark.parametrize(("factor", "kinds"), [(1.7, ["link_flap"]), (1.45, [])])
def test_what_is_slow_by_turns_and_by_less_than_half_is_no_lost_link(factor: float, kinds: list[str]) -> None:
    by_turns = tuple(factor if slow > 1 else 1.0 for slow in FLAPS)
    assert found(flapping(by_turns, lost=100 * (factor - 1)))["kind"].to_list() == kinds


@pytest.mark.parametrize(("factor", "kinds"), [(1.7, ["slow_network"]), (1.45, [])])
def test_nor_is_it_where_two_nics_may_be_at_fault(factor: float, kinds: list[str]) -> None:
    slow = [turn > 1 for turn in FLAPS]
    by_turns = tuple(factor if is_slow else 1.0 for is_slow in slow)
    hops = [dataclasses.replace(hop, factors=by_turns if hop.factor > 1 else ()) for hop in both("a", "b", 2, back=1)]
    assert found(job(hops, both("c", "d"), slow=slow, lost=100 * (factor - 1)))["kind"].to_list() == kinds


@pytest.mark.parametrize(("lost", "kinds"), [(60, ["link_flap"]), (45, [])])
def test_steps_that_are_longer_by_turns_as_by_chance_show_no_flap(lost: float, kinds: list[str]) -> None:
    """Three of sixteen steps are 6 % longer, or 4.5 %; steps of other jobs vary by 4 %."""
    assert found(flapping(tuple(1.7 if slow > 1 else 1.0 for slow in FLAPS), lost=lost))["kind"].to_list() == kinds


def test_a_nic_that_is_slow_by_turns_flaps() -> None:
    rows = found(flapping(FLAPS))
    assert rows.select("kind", "subject_type", "subject").rows() == [("link_flap", "addr", "a")]
    assert "in 3 stretches of steps with healthy steps between them" in rows["explanation"][0]


@pytest.mark.parametrize(
    ("factors", "kind"),
    [
        ((1.0,) * 8 + (9.0,) * 4 + (1.0,) * 4, "slow_nic"),
        ((1.0,) * 8 + (9.0, 9.0, 1.0, 9.0, 1.0), "link_flap"),
        ((1.0,) * 8 + (9.0, 9.0, 9.0, 1.0, 9.0), "link_flap"),
        ((1.0,) * 8 + (3.0, 3.0, 3.0, 1.24, 3.0), "link_flap"),
        ((1.0,) * 8 + (3.0, 3.0, 3.0, 1.26, 3.0), "slow_nic"),
        ((1.0,) * 8 + (9.0, 9.0, 9.0, 1.0, 5.1), "link_flap"),
        ((1.0,) * 8 + (9.0, 9.0, 9.0, 1.0, 4.9), "slow_nic"),
    ],
)
def test_what_is_never_healthy_between_is_a_trouble_that_lasts(factors: tuple[float, ...], kind: str) -> None:
    assert named(flapping(factors)) == [(kind, "a")]


@pytest.mark.parametrize(
    ("before", "names"),
    [((9.0, 9.0, 9.0, 1.0), []), ((1.0, 9.0, 9.0, 9.0), ["a"]), ((9.0, 1.0, 9.0, 1.0), ["a"])],
    ids=["over long ago", "goes on", "comes and goes"],
)
def test_a_step_alone_after_healthy_ones_is_chance(before: tuple[float, ...], names: list[str]) -> None:
    """The window holds the last seven of sixteen steps, the first of which is slow."""
    evidence = flapping((1.0,) * 5 + before + (9.0,) + (1.0,) * 6)
    now = pl.Series([False] * 9 + [True] * 7)
    windowed = dataclasses.replace(evidence, history=evidence.history.with_columns(current=now))
    assert [subject for _, subject in named(windowed)] == names


def test_each_job_that_a_slow_switch_touches_is_told() -> None:
    def half(a: str, b: str, c: str, d: str, *, name: str) -> Evidence:
        slow, well = both(a, b, 2, "leaf-0 s1 leaf-1"), both(a, b, 1, "leaf-0 s2 leaf-1")
        return job(slow, well, both(c, d, 2, "leaf-2 s1 leaf-3"), both(c, d, 1, "leaf-2 s2 leaf-3"), name=name)

    rows = found(together(half(*"abcd", name="left"), half(*"efgh", name="right")))
    assert rows.select("job_id", "kind", "subject").rows() == [
        ("left", "degraded_switch", "s1"),
        ("right", "degraded_switch", "s1"),
    ]


def test_two_troubles_have_two_culprits() -> None:
    left = slow_nic(name="left")
    right = job(ring("ABC", 3), ring("DEF"), both("A", "D", 3), both("B", "E"), name="right")
    assert sorted(named(together(left, right))) == [("slow_nic", "A"), ("slow_nic", "a")]


@pytest.mark.parametrize(("of_c", "names"), [(1, ["a"]), (3, ["a", "c"])])
def test_hops_around_a_ring_at_the_pace_of_a_slow_nic_wait_for_it(of_c: float, names: list[str]) -> None:
    """Tokens of experts go from each of four NICs to each, and gradients around them in a ring, over the same pairs."""
    around = [Hop(src, dst, None, max(2, of_c), 100, "ep") for src, dst in ("ab", "bc", "cd", "da")]
    of_a = [Hop(src, dst, None, 2, 60, "ep") for src, dst in ("ac", "ad", "ba", "ca")]
    others = [Hop(src, dst, None, of_c if "c" in (src, dst) else 1, 60, "ep") for src, dst in ("bd", "cb", "db", "dc")]
    assert found(job(around, of_a, others, lost=200))["subject"].sort().to_list() == names


def test_a_job_that_is_well_is_silent() -> None:
    assert named(slow_nic(1, lost=0)) == []
    assert named(slow_nic(1)) == []


def test_no_evidence_no_rows() -> None:
    assert_frame_equal(found(without_rows(slow_nic())), pl.DataFrame(schema=FINDING_SCHEMA))


@generated(max_examples=15)
@given(st.sampled_from("abcdef"), st.floats(1.4, 8), st.integers(0, 10**6))
def test_the_slow_nic_is_named_whoever_it_is_in_whatever_order_rows_come(nic: str, factor: float, seed: int) -> None:
    def of(nics: str) -> float:
        return factor if nic in nics else 1

    rings = [ring(nics, of(nics)) for nics in ("abc", "def")]
    evidence = job(*rings, *(both(a, b, of(a + b)) for a, b in ("ad", "be", "cf")))
    rows = found(evidence)
    assert rows["subject"].to_list() == [nic]
    assert_frame_equal(found(shuffled(evidence, seed)), rows)


def crossing(count: int, factor: float, path: str, *, first: int) -> list[Hop]:
    """Return rings of four NICs each, two on either leaf of a path; all hops of a ring have the pace of its slowest."""
    one, spine, two = path.split()
    there, back = path, f"{two} {spine} {one}"
    return [
        hop
        for number in range(first, first + count)
        for hop in ring([f"{letter}{number}" for letter in "abcd"], factor, one, there, two, back)
    ]


def test_sixteen_rings_behind_one_link_are_one_finding() -> None:
    """Rings to other leaves share the spine, and those over another spine share the leaves."""
    slow = [*crossing(8, 2, "leaf-0 s1 leaf-1", first=0), *crossing(8, 2, "leaf-0 s1 leaf-2", first=10)]
    well = [*crossing(4, 1, "leaf-1 s1 leaf-2", first=20), *crossing(4, 1, "leaf-0 s2 leaf-1", first=30)]
    rows = found(job(slow, well))
    assert rows.select("kind", "subject_type", "subject").rows() == [("degraded_link", "link", "leaf-0 - s1")]


def test_what_all_rings_cross_is_told_with_the_odds_of_each_device() -> None:
    (row,) = found(job(crossing(4, 8, "leaf-0 s1 leaf-1", first=0), lost=700)).rows(named=True)
    assert (row["kind"], row["subject"]) == ("slow_network", "leaf-0 - s1")
    assert row["candidates"][:2] == ["leaf-0 - s1", "leaf-1 - s1"]
    assert sum(row["odds"]) == pytest.approx(1)
    assert row["odds"] == sorted(row["odds"], reverse=True)


def test_a_job_that_loses_nothing_tells_a_leaf_from_its_nics() -> None:
    """A ring on the leaf may be slow because of any of its members, or of the leaf."""
    ill = job(ring("abcd", 4, "leaf-0"), ring("efgh", 1, "leaf-1"), ring("ijkl", 1, "leaf-2"), name="ill")
    rings = [ring("ABCD", 4, "leaf-0"), *(ring(nics, 1, "leaf-1") for nics in ("EFGH", "IJKL", "MNOP"))]
    unfelt = job(*rings, lost=0, name="unfelt")
    assert named(ill) == [("cross_group", "a")]
    assert named(together(late(ill, 8), late(unfelt, 8))) == [("degraded_switch", "leaf-0")]


def test_several_slow_groups_are_one_finding_about_the_network() -> None:
    """Without paths nobody knows what they share; at best they are slower than before, so it is the network."""
    ill = job(ring("abc", 8), ring("def", 8), ring("ghi"), lost=700)
    rows = found(late(ill, 8))
    assert rows.select("kind", "subject_type", "subject").rows() == [("slow_network", "job", "j")]
    assert named(late(job(ring("abc", 8), lost=700), 8)) == [("slow_network", "j")]


@pytest.mark.parametrize(("sick", "name"), [("g", ("addr", "g")), ("gh", ("host", "host-gh")), ("fg", ("addr", "g"))])
def test_a_host_is_named_if_all_its_nics_are_slow(sick: str, name: tuple[str, str]) -> None:
    """Experts of four hosts with two NICs each: each NIC of a rail exchanges tokens with all others of the rail."""
    pairs = [both(*two, 2 if set(two) & set(sick) else 1) for rail in ("aceg", "bdfh") for two in combinations(rail, 2)]
    exchanging = job(*([dataclasses.replace(hop, kind="ep") for hop in hops] for hops in pairs))
    evidence = on_hosts(exchanging, "ab", "cd", "ef", "gh")
    first = found(evidence).sort("confidence", "subject", descending=True).row(0, named=True)
    assert (first["kind"], first["subject_type"], first["subject"]) == ("slow_nic", *name)
    assert found(evidence).height == len(sick) - (sick == "gh")


def on_hosts(evidence: Evidence, *hosts: str) -> Evidence:
    names = {addr: f"host-{addrs}" for addrs in hosts for addr in addrs}
    members = evidence.members.with_columns(host=pl.col("addr").replace_strict(names))
    return dataclasses.replace(evidence, members=members)


def test_a_link_that_one_host_alone_uses_is_not_told_as_that_host() -> None:
    """Two rings leave the leaf at `c` and `d`, which push slowly; what these receive is as slow, as they wait."""
    around = ["leaf-0", "leaf-0 s leaf-1", "leaf-1", "leaf-1 s leaf-0"]
    pushes = {"c": 6, "d": 6, "e": 1, "f": 1, "g": 1, "h": 1}
    rings = [hop for rail in ("aceg", "bdfh") for hop in ring(rail, 6, *around)]
    hops = [dataclasses.replace(hop, pushes=pushes.get(hop.src)) for hop in rings]
    (row,) = found(on_hosts(job(hops, lost=500), "ab", "cd", "ef", "gh")).rows(named=True)
    assert (row["subject"], row["candidates"]) == ("leaf-0 - s", ["leaf-0 - s", "leaf-1 - s", "host-cd"])
    assert sum(row["odds"]) == pytest.approx(1)
