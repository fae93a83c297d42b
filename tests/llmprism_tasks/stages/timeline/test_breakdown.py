"""Steps small enough to check by hand: what each NIC's time went to, in ms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, flows
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.contract import frames
from llmprism_tasks.stages.timeline.breakdown import breakdown
from llmprism_tasks.stages.timeline.placement import placed


class Split(NamedTuple):
    """Parts of one step, in ms."""

    compute: float
    communication: float
    bubble: float = 0
    waiting: float = 0
    waiting_for: str | None = None
    unexplained: float = 0


Nics = Mapping[str, tuple[int | None, int | None]]
"""Each NIC's pp_stage and gradient group."""


def split(
    rows: Iterable[Row], nics: Nics, ends: Mapping[str, float] | float, *, sharded: bool = False, kind: str = ""
) -> dict[str, Split]:
    """Split each NIC's step that begins at 0; flows within a gradient group are `dp`, others `pp` unless said."""
    known = flows(rows).with_columns(job_id=pl.lit("j"), kind=pl.lit(kind or "pp"))
    group = {addr: place[1] for addr, place in nics.items()}
    same = pl.col("src_addr").replace_strict(group) == pl.col("dst_addr").replace_strict(group)
    known = known.with_columns(kind=pl.when(same).then(pl.lit("dp")).otherwise("kind"))
    last = dict.fromkeys(nics, ends) if isinstance(ends, (int, float)) else ends
    members = [(WINDOW.start_ns, "j", addr, "h", *place) for addr, place in nics.items()]
    steps = [
        (WINDOW.start_ns, "j", addr, 0, WINDOW.start_ns, WINDOW.start_ns + round(last[addr] * MS)) for addr in nics
    ]
    jobs = pl.DataFrame({"job_id": ["j"], "sharded": [sharded]})
    found = breakdown(placed(known, table("steps", steps)), jobs, table("job_members", members), WINDOW)
    parts = ["compute_ns", "communication_ns", "bubble_ns", "waiting_ns", "waiting_for", "unexplained_ns"]
    in_ms = found.with_columns(pl.col(*(part for part in parts if part.endswith("_ns"))) / MS)
    return {row["addr"]: Split(*(row[part] for part in parts)) for row in in_ms.iter_rows(named=True)}


def table(name: str, rows: list[tuple[object, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=frames.empty(name).schema, orient="row")


def hops(addrs: str, start: float, end: float, size: int = 80 * MB) -> list[Row]:
    """Return a ring's records: all of its hops at once."""
    return [(start, end, src, dst, size) for src, dst in zip(addrs, addrs[1:] + addrs[0], strict=True)]


REPLICAS: Nics = dict.fromkeys("abc", (0, 0))


def test_time_before_gradients_is_computing_and_their_flight_is_communication() -> None:
    assert split(hops("abc", 60, 100), REPLICAS, 100) == {addr: Split(60, 40) for addr in "abc"}


def test_a_slow_network_takes_longer_for_the_same_bytes() -> None:
    assert split(hops("abc", 60, 140), REPLICAS, 140) == {addr: Split(60, 80) for addr in "abc"}


def test_who_comes_early_waits_for_who_comes_last() -> None:
    early: list[Row] = [(60, 61, "a", "b", 4 * MB)]
    found = split([*early, *hops("abc", 80, 100)], REPLICAS, 100)
    assert found == {"a": Split(60, 20, 0, 20, "c"), "b": Split(60, 20, 0, 20, "c"), "c": Split(80, 20)}


def test_an_early_record_that_stalls_without_a_break_is_waiting_too() -> None:
    rows: list[Row] = [(60, 100, "a", "b", 80 * MB), *hops("abc", 80, 100)[1:]]
    assert split(rows, REPLICAS, 100)["a"] == Split(60, 20, 0, 20, "c")


def test_buckets_reduced_behind_the_backward_pass_cost_nothing_but_the_last() -> None:
    rows = [row for start, end in ((50, 55), (60, 65), (70, 90)) for row in hops("abc", start, end)]
    assert split(rows, REPLICAS, 90)["a"] == Split(70, 20)


@pytest.mark.parametrize("precision", [1, 2])
def test_parameters_are_gathered_on_their_own_account(precision: int) -> None:
    rows = [*hops("abc", 50, 70, 80 * MB), *hops("abc", 80, 100, 80 * MB // precision)]
    assert split(rows, REPLICAS, 100)["a"] == Split(60, 40)


def test_a_gather_that_begins_with_a_message_of_a_pipeline_is_no_update() -> None:
    """The stages are not known, so that nothing computes what is received, and none of the time to it is the update."""
    nics = {addr: (None, place) for place, addrs in enumerate(("ab", "cd")) for addr in addrs}
    rows = [*hops("ab", 100, 150), *hops("cd", 100, 200), *hops("ab", 250, 300), *hops("cd", 250, 300)]
    parts = split([*rows, (245, 255, "a", "c", MB)], nics, 300)["c"]
    assert parts == Split(compute=100, communication=155, bubble=45)


def test_nics_without_traffic_in_a_step_are_not_explained() -> None:
    assert split(hops("abc", 60, 100), {**REPLICAS, "x": (0, 0)}, 100)["x"] == Split(0, 0, 0, 0, None, 100)


def test_sharded_parameters_are_in_flight_all_the_time() -> None:
    rows = [row for start in (10, 40, 70) for row in hops("abc", start, start + 20)]
    assert split(rows, REPLICAS, 90, sharded=True)["a"] == Split(30, 60)
    late: list[Row] = [(31, 32, "a", "b", 4 * MB)]
    assert split([*rows, *late], REPLICAS, 90, sharded=True)["a"] == Split(21, 60, 0, 9, "c")


def test_traffic_of_experts_is_communication_in_flight() -> None:
    alone: Nics = {"a": (0, None), "b": (0, None)}
    rows: list[Row] = [(10, 30, "a", "b", MB), (20, 40, "b", "a", MB), (90, 100, "a", "b", MB)]
    assert split(rows, alone, 100, kind="ep") == dict.fromkeys("ab", Split(60, 40))


def one_replica(first: str, second: str) -> list[Row]:
    """Return the messages of a pipeline of 2 pp_stages, 3 micro-batches; passes take 10 and 20 ms, messages 2 ms.

    first   F0 0-10 | F1 12-22, waits | B0 44-64 F2 64-74 | B1 76-96, waits | B2 108-128
    second  waits | F0 12-22 B0 22-42 | F1 44-54 B1 54-74 | F2 76-86 B2 86-106
    """
    return _messages(first, second, down=(10, 42, 74), up=(42, 74, 106))


def slow_replica(first: str, second: str) -> list[Row]:
    """Return the same with a first pp_stage that takes twice as long.

    first   F0 0-20 | F1 22-42, waits | B0 54-94 F2 94-114 | B1 116-156 | B2 158-198
    second  waits | F0 22-32 B0 32-52 | F1 54-64 B1 64-84, waits | F2 116-126 B2 126-146, waits
    """
    return _messages(first, second, down=(20, 52, 114), up=(52, 114, 156))


def _messages(first: str, second: str, down: Iterable[float], up: Iterable[float]) -> list[Row]:
    return [(t, t + 2, first, second, MB) for t in down] + [(t, t + 2, second, first, MB) for t in up]


PIPELINES: Nics = {**dict.fromkeys("ace", (0, 0)), **dict.fromkeys("bdf", (1, 1))}


def test_a_healthy_pipeline_computes_communicates_and_has_its_bubble() -> None:
    rows = [*one_replica("a", "b"), *one_replica("c", "d"), *one_replica("e", "f")]
    ends = {addr: 148.0 if addr in "ace" else 128.0 for addr in PIPELINES}
    found = split([*rows, *hops("ace", 128, 148), *hops("bdf", 108, 128)], PIPELINES, ends)
    assert found == {addr: Split(90, 28, 30) if addr in "ace" else Split(90, 28, 10) for addr in PIPELINES}


def test_a_slow_gpu_computes_longer_and_all_others_wait_for_it() -> None:
    rows = [*one_replica("a", "b"), *slow_replica("c", "d"), *one_replica("e", "f")]
    early: list[Row] = [(128, 129, "e", "a", 4 * MB), (108, 109, "f", "b", 4 * MB)]
    ends = {addr: 218.0 if addr in "ace" else 178.0 for addr in PIPELINES}
    found = split([*rows, *early, *hops("ace", 198, 218), *hops("bdf", 158, 178)], PIPELINES, ends)
    assert found["c"] == Split(180, 28, 10)
    assert found["d"] == Split(90, 28, 10, 50, "c")
    assert found["a"] == found["e"] == Split(90, 28, 30, 70, "c")
    # They wait for d, their group's last member, which itself waited for c.
    assert found["b"] == found["f"] == Split(90, 28, 10, 50, "c")


def test_the_update_waits_for_the_pp_stage_that_reduces_last() -> None:
    rows = [*one_replica("a", "b"), *one_replica("c", "d"), *one_replica("e", "f")]
    rows += [*hops("ace", 128, 148, 80 * MB), *hops("bdf", 108, 128, 80 * MB)]
    found = split([*rows, *hops("ace", 158, 168, 40 * MB), *hops("bdf", 158, 168, 40 * MB)], PIPELINES, 168)
    assert found["a"] == Split(100, 38, 30)
    assert found["b"] == Split(100, 38, 30)


def test_where_the_schedule_is_not_known_what_is_sent_was_computed() -> None:
    unknown: Nics = {"a": (None, None), "b": (None, None)}
    found = split([(10, 12, "a", "b", MB), (52, 54, "b", "a", MB)], unknown, 54)
    assert found == {"a": Split(10, 4, 40), "b": Split(40, 4, 10)}


PAIRS = [(src, dst) for src in "abcd" for dst in "abcd" if src != dst]
RECORDS = st.lists(
    st.tuples(st.integers(-20, 120), st.integers(0, 40), st.sampled_from(PAIRS), st.integers(1, 9)), max_size=30
)
PLACES = st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from([None, 0, 1]))


@given(RECORDS, st.tuples(*[PLACES] * 4), st.booleans(), st.sampled_from(["pp", "ep", "other"]))
def test_the_parts_add_up_and_none_is_negative(
    records: list[tuple[int, int, tuple[str, str], int]],
    places: tuple[tuple[int | None, int | None], ...],
    sharded: bool,
    kind: str,
) -> None:
    rows = [(start, start + length, *pair, size * MB) for start, length, pair, size in records]
    nics = dict(zip("abcd", places, strict=True))
    found = split(rows, nics, 100, sharded=sharded, kind=kind)
    assert set(found) == set(nics)
    for addr, one in found.items():
        parts = (one.compute, one.communication, one.bubble, one.waiting, one.unexplained)
        assert min(parts) >= 0
        assert sum(parts) == 100
        assert one.waiting_for in {None, *nics} - {addr}
