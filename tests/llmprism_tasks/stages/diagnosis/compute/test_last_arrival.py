"""In lock step all are silent alike, and whom they wait for is silent a little longer, step after step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from handmade import MB
from job_evidence import DEFAULT, kinds, shuffled, with_flows, without_rows, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.compute import last_arrival, slow_compute
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.step_times import slow_run

SETTINGS = dataclasses.replace(DEFAULT, least_lasting_s=0)
NICS = "abcdefgh"
NIC_SCHEMA = {"job_id": pl.String, "addr": pl.String}
QUICK, SLOW = 12, 8
LATE = 300


def lock_step(
    last: Sequence[str], *, usually: Sequence[str] = NICS, hosts: Mapping[str, str] | None = None
) -> Evidence:
    """Return a ring all of whose members become 300 ms later after a dozen steps: in each step those named are 10 ms
    later still, in quick steps one after another."""
    slow = {addr: [500.0 + LATE + 10 * (addr in which) for which in last] for addr in NICS}
    return becoming(slow, usually=usually, hosts=hosts)


def becoming(
    slow: Mapping[str, Sequence[float]], *, usually: Sequence[str] = NICS, hosts: Mapping[str, str] | None = None
) -> Evidence:
    """Return the same ring whose members are ready in its slow steps when it is said, in ms after a step's start."""
    quick = {addr: [500.0 + 10 * (addr in usually[step % len(usually)]) for step in range(QUICK)] for addr in NICS}
    return working([{addr: [*quick[addr], *slow[addr]] for addr in NICS}], hosts=hosts)


def found(evidence: Evidence) -> pl.DataFrame:
    slower = slow_run.find(evidence, SETTINGS)
    assert slower.height == 1
    return last_arrival.find(slower, evidence, SETTINGS)


def blamed(evidence: Evidence) -> list[tuple[str, str, str]]:
    return found(evidence).select("kind", "subject_type", "subject").rows()


def test_who_is_the_last_in_all_slow_steps_is_named() -> None:
    rows = found(lock_step(["c"] * SLOW))
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    row = rows.row(0, named=True)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("slow_compute", "addr", "c")
    assert "c on host-c computes 1.62 times as long as it used to" in row["explanation"]
    assert "810 ms against 500 ms) in 8 of 8 steps" in row["explanation"]
    assert row["peers"] is None


def test_the_last_one_is_named_though_its_own_steps_are_not_known() -> None:
    """All that c moves goes over pairs that exchange in every layer, and d, next to it in the ring, waits for it."""
    slow = {addr: [800.0 + {"c": 20, "d": 10}.get(addr, 0)] * SLOW for addr in NICS}
    evidence = becoming(slow)
    steps = evidence.steps.filter(pl.col("addr") != "c")
    assert blamed(dataclasses.replace(evidence, steps=steps)) == [("slow_compute", "addr", "c")]


def test_nics_of_one_host_are_named_as_the_host_and_of_two_hosts_nobody_can_tell() -> None:
    together = dict.fromkeys("cd", "node1")
    assert blamed(lock_step(["cd"] * SLOW, hosts=together)) == [("slow_compute", "host", "node1")]
    row = found(lock_step(["cd"] * SLOW)).row(0, named=True)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("straggler", "job", "j")
    assert row["explanation"].startswith("c, d begin late together, step after step")
    assert (row["candidates"], row["odds"]) == (["c", "d"], [0.5, 0.5])


@pytest.mark.parametrize(("less", "named"), [(10.0, [("slow_compute", "host", "host-c")]), (-10.0, [])])
def test_all_nics_of_a_host_are_last_if_each_is_later_than_those_of_other_hosts(
    less: float, named: list[tuple[str, str, str]]
) -> None:
    """GPUs that share a model wait for each other: now one is last by 20 ms, now the other, each in its own ring."""
    hosts = {f"{addr}{rail}": f"host-{addr}" for addr in "abcd" for rail in range(2)}
    rings = []
    for rail in range(2):
        late = [800.0 + (30 if step % 2 == rail else less) for step in range(SLOW)]
        usually = {
            addr: [500.0 + 10 * ((step + rail) % 4 == "abcd".index(addr)) for step in range(QUICK)] for addr in "abcd"
        }
        rings.append({f"{addr}{rail}": [*usually[addr], *(late if addr == "c" else [800.0] * SLOW)] for addr in "abcd"})
    assert blamed(working(rings, hosts=hosts)) == named


@pytest.mark.parametrize(("other", "named"), [("b1", []), ("c1", [("slow_compute", "host", "host-c")])])
def test_nics_that_share_no_transfer_and_no_host_wait_for_another(
    other: str, named: list[tuple[str, str, str]]
) -> None:
    """A NIC of each of two rings is last in all slow steps: both rings pause, as while a third one is slow."""
    hosts = {f"{addr}{rail}": f"host-{addr}" for addr in "abcd" for rail in range(2)}
    rings: list[dict[str, Sequence[float]]] = [{}, {}]
    for addr in hosts:
        rail = int(addr[1])
        usually = [500.0 + 10 * ((step + rail) % 4 == "abcd".index(addr[0])) for step in range(QUICK)]
        rings[rail][addr] = [*usually, *[800.0 + 10 * (addr in ("c0", other))] * SLOW]
    assert blamed(working(rings, hosts=hosts)) == named


@pytest.mark.parametrize(("late", "named"), [("cde", True), ("cdef", False)])
def test_up_to_three_that_nobody_can_tell_apart_are_candidates(late: str, named: bool) -> None:
    row = found(lock_step([late] * SLOW)).row(0, named=True)
    assert row["candidates"] == (list(late) if named else None)


@pytest.mark.parametrize(("sooner", "names"), [(1, ["j"]), (2, ["c"])], ids=["too close to call", "told apart"])
def test_who_is_silent_for_nearly_as_long_is_as_long(sooner: float, names: list[str]) -> None:
    """Of 810 ms a 500th is 1.6."""
    slow = {addr: [800.0] * SLOW for addr in NICS} | {"c": [810.0] * SLOW, "f": [810.0 - sooner] * SLOW}
    assert found(becoming(slow))["subject"].to_list() == names


@pytest.mark.parametrize(("ahead", "names"), [(3.7, ["c"]), (3.8, ["j"])])
def test_who_sent_a_little_ahead_was_ready_then(ahead: float, names: list[str]) -> None:
    """Its mean burst is of 16 MB in twenty steps and of what it sent ahead in eight: 0.3 of it are 3.75 MB."""
    late = dict.fromkeys("cdefg", [810.0] * SLOW)
    evidence = becoming(dict.fromkeys(NICS, [800.0] * SLOW) | late)
    begins = [QUICK * 1000 + step * (1000 + LATE) for step in range(SLOW)]
    pairs = ("de", "fg")
    pushed = [(at + 500.0, at + 501.0, src, dst, round(ahead * MB)) for at in begins for src, dst in pairs]
    assert found(with_flows(evidence, kinds(dp=pushed)))["subject"].to_list() == names


@pytest.mark.parametrize(
    ("last", "names"),
    [("cccccccc", ["c"]), ("ccccccca", ["c"]), ("ccccccab", []), ("abcdefgh", [])],
    ids=["always", "seven of eight", "six of eight", "in turn"],
)
def test_it_is_the_last_in_more_slow_steps_than_by_chance(last: str, names: list[str]) -> None:
    """Who is so in a sixth of the quick ones is in six of eight by chance in a case of eight hundred."""
    assert found(lock_step([*last]))["subject"].to_list() == names


@pytest.mark.parametrize(("usually", "names"), [("cabcdefgh", ["c"]), ("cab", []), ("ca", [])])
def test_who_is_often_the_last_in_quick_steps_too_is_so_by_its_place_or_by_chance(
    usually: str, names: list[str]
) -> None:
    """In two of twelve, four, or six of them: eight times in a row by chance in one case of a thousand and more."""
    assert found(lock_step(["c"] * 6, usually=usually))["subject"].to_list() == names


@pytest.mark.parametrize(("last", "names"), [("cd", []), ("f", ["f"])])
def test_where_who_was_always_the_last_still_is_all_compute_longer(last: str, names: list[str]) -> None:
    """As over longer samples. A neighbour in the ring ends its waits with the same transfer."""
    assert found(lock_step([last] * SLOW, usually="c"))["subject"].to_list() == names


def test_steps_that_are_longer_for_what_they_send_blame_nobody() -> None:
    quick = {addr: [500.0 + 10 * (addr == NICS[step % 8]) for step in range(QUICK)] for addr in NICS}
    ready = {addr: [*begins, *([500.0 + 10 * (addr == "c")] * SLOW)] for addr, begins in quick.items()}
    evidence = working([ready], paid=False)
    later = pl.col("step_index").sub(QUICK).clip(lower_bound=0).cast(pl.Int64) * 300_000_000
    more = pl.when(pl.col("step_index") >= QUICK).then(300_000_000).otherwise(0)
    steps = evidence.steps.with_columns(start_ns=pl.col("start_ns") + later, end_ns=pl.col("end_ns") + later + more)
    slower = pl.DataFrame({"job_id": ["j"], "severity": [0.3]})
    longer = dataclasses.replace(evidence, steps=steps)
    assert last_arrival.last_arrivals(slower, longer, SETTINGS).is_empty()


@pytest.mark.parametrize("kind", ["cross_group", "slow_nic", "stalls"])
def test_where_more_is_known_silences_grow_for_its_sake(kind: str) -> None:
    evidence = lock_step(["c"] * SLOW)
    slower = slow_run.find(evidence, SETTINGS)
    known = slower.with_columns(kind=pl.lit(kind))
    assert last_arrival.find(pl.concat([slower, known]), evidence, SETTINGS).is_empty()
    unknown = slower.with_columns(kind=pl.lit("straggler"))
    assert last_arrival.find(pl.concat([slower, unknown]), evidence, SETTINGS)["subject"].to_list() == ["c"]


@pytest.mark.parametrize(
    ("seen", "rival", "kept"),
    [("", 0.999, "ab"), ("b", 0.999, "ab"), ("bc", 0.999, "ab"), ("c", 0.999, ""), ("c", 0.997, "ab")],
)
def test_where_all_traffic_shows_only_others_what_is_sent_shows_nobody(seen: str, rival: float, kept: str) -> None:
    """Unless those that are named are longer without sending than any other host, by more than 0.2 %."""
    first, second = (pl.DataFrame({"job_id": "j", "addr": list(some)}, schema=NIC_SCHEMA) for some in ("ab", seen))
    first = first.with_columns(rival=pl.lit(rival))
    assert "".join(last_arrival.uncontradicted(first, second)["addr"]) == kept
    another = second.with_columns(job_id=pl.lit("k"))
    assert "".join(last_arrival.uncontradicted(first, another)["addr"]) == "ab"


def test_the_order_of_rows_does_not_matter_and_no_rows_are_none() -> None:
    evidence = lock_step(["c"] * SLOW)
    expected = found(evidence)
    for seed in range(3):
        assert_frame_equal(found(shuffled(evidence, seed)), expected)
    nothing = without_rows(evidence)
    assert last_arrival.find(slow_run.find(nothing, SETTINGS), nothing, SETTINGS).is_empty()


@pytest.mark.parametrize(("kind", "named"), [("dp", ["c"]), ("ep", []), ("cp", [])])
def test_in_every_layer_all_may_be_waiting_so_only_the_last_of_all_is_named(kind: str, named: list[str]) -> None:
    """`c` is ready 300 ms after all others, from the first step on: silences show it, if nobody waits within a step."""
    ready = {addr: [500.0 + LATE * (addr == "c")] * (QUICK + SLOW) for addr in NICS}
    evidence = working([ready])
    exchanging = dataclasses.replace(evidence, flows=evidence.flows.with_columns(kind=pl.lit(kind)))
    assert slow_compute.find(exchanging, SETTINGS)["subject"].to_list() == named
