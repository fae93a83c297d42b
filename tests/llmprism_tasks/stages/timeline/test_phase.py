"""A timeline tells what each NIC did in each of its steps, from the step's start to its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import polars as pl
import pytest
from handmade import (
    MB,
    MS,
    WINDOW,
    Row,
    burst,
    every,
    flows,
    jobs_of,
    members,
    messages,
    pipeline,
    ring,
    settings,
    taken,
    visible,
)
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.stages.timeline.phase import phases, step_spans, timeline
from llmprism_tasks.stages.timeline.placement import placed

DEFAULT = settings()
SPAN = (1000, 2000)
"""The step in which hand-made messages are placed, in ms."""

Phase = tuple[str, float, float, str | None]
"""Phase, start and end in ms, peer."""


def spans(ends: dict[str, Sequence[float]]) -> pl.DataFrame:
    """Return steps of NICs from each time to the next."""
    rows = [
        ("j", addr, i, WINDOW.start_ns + round(start * MS), WINDOW.start_ns + round(end * MS))
        for addr, times in ends.items()
        for i, (start, end) in enumerate(pairwise(times))
    ]
    columns = ["job_id", "addr", "step_index", "start_ns", "end_ns"]
    return pl.DataFrame(
        rows, schema=dict(zip(columns, [pl.String, pl.String, *[pl.Int64] * 3], strict=True)), orient="row"
    )


def kinds(**rows: Iterable[Row]) -> pl.DataFrame:
    """Return flows of one job, by the kind of their pairs."""
    return pl.concat([flows(some).with_columns(job_id=pl.lit("j"), kind=pl.lit(kind)) for kind, some in rows.items()])


def told(rows: pl.DataFrame, addr: str, *, step: int = 0) -> list[Phase]:
    """Return what a NIC did in a step, in order."""
    mine = rows.filter(addr=addr, step_index=step).sort("start_ns", "end_ns", "phase")
    return [
        (phase, (start - WINDOW.start_ns) / MS, (end - WINDOW.start_ns) / MS, peer)
        for phase, start, end, peer in mine.select("phase", "start_ns", "end_ns", "peer").iter_rows()
    ]


def test_computing_comes_before_what_is_sent_and_waiting_before_what_is_received() -> None:
    """Stage `a` sends, waits for the gradient, then synchronises with `b`."""
    pp = [(1200, 1210, "a", "c", MB), (1500, 1520, "c", "a", MB)]
    rows = phases(placed(kinds(pp=pp, dp=burst("a", "b", 1800, length=200)), spans({"a": SPAN, "c": SPAN})))
    assert told(rows, "a") == [
        ("compute", 1000, 1200, None),
        ("pp_send", 1200, 1210, "c"),
        ("idle", 1210, 1500, None),
        ("pp_recv", 1500, 1520, "c"),
        ("compute", 1520, 1800, None),
        ("dp_sync", 1800, 2000, "b"),
    ]
    assert told(rows, "c") == [
        ("idle", 1000, 1200, None),
        ("pp_recv", 1200, 1210, "a"),
        ("compute", 1210, 1500, None),
        ("pp_send", 1500, 1520, "a"),
    ]


@pytest.mark.parametrize("received_until", [1205, 1210, 1215])
def test_a_nic_that_sends_and_receives_at_once_was_at_work_until_then(received_until: float) -> None:
    pp = [(1200, 1210, "a", "c", MB), (1200, received_until, "c", "a", MB)]
    for in_some_order in (pp, pp[::-1]):
        rows = phases(placed(kinds(pp=in_some_order), spans({"a": SPAN})))
        assert told(rows, "a")[0] == ("compute", 1000, 1200, None)


def test_both_ends_of_a_ring_compute_before_they_synchronise() -> None:
    rows = phases(placed(kinds(dp=burst("a", "b", 1800, length=200)), spans({"a": SPAN, "b": SPAN})))
    assert told(rows, "b") == [("compute", 1000, 1800, None), ("dp_sync", 1800, 2000, "a")]
    assert [row[0] for row in told(rows, "a")] == ["compute", "dp_sync"]


@pytest.mark.parametrize("kind", ["ep", "cp", "tp", "other"])
def test_what_else_moves_is_called_other(kind: str) -> None:
    rows = phases(placed(kinds(**{kind: [(1100, 1200, "a", "b", MB)]}), spans({"a": SPAN, "b": SPAN})))
    assert told(rows, "a") == [("compute", 1000, 1100, None), ("other", 1100, 1200, "b")]
    assert told(rows, "b") == [("idle", 1000, 1100, None), ("other", 1100, 1200, "a")]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ((1110, 1130), [(1100, 1130)]),
        ((1120, 1130), [(1100, 1130)]),
        ((1105, 1110), [(1100, 1120)]),
        ((1121, 1130), [(1100, 1120), (1121, 1130)]),
    ],
)
def test_messages_of_one_pair_are_one_when_they_overlap(
    second: tuple[float, float], found: list[tuple[float, float]]
) -> None:
    rows = phases(placed(kinds(pp=[(1100, 1120, "a", "b", MB), (*second, "a", "b", MB)]), spans({"a": SPAN})))
    sends = [(start, end) for phase, start, end, _ in told(rows, "a") if phase == "pp_send"]
    assert sends == found
    assert rows["bytes"].sum() == 2 * MB


def test_messages_overlap_with_the_longest_of_those_before() -> None:
    pp = [(1100, 1200, "a", "b", MB), (1110, 1120, "a", "b", MB), (1150, 1160, "a", "b", MB)]
    rows = phases(placed(kinds(pp=pp), spans({"a": SPAN})))
    assert told(rows, "a")[1:] == [("pp_send", 1100, 1200, "b")]


def test_messages_to_several_peers_stay_apart_and_nothing_lies_between_those_that_overlap() -> None:
    pp = [(1100, 1200, "a", "b", MB), (1150, 1250, "a", "c", MB), (1220, 1230, "d", "a", MB)]
    rows = phases(placed(kinds(pp=pp), spans({"a": SPAN})))
    assert told(rows, "a") == [
        ("compute", 1000, 1100, None),
        ("pp_send", 1100, 1200, "b"),
        ("pp_send", 1150, 1250, "c"),
        ("pp_recv", 1220, 1230, "d"),
    ]


def test_a_step_s_synchronisation_with_one_peer_is_one_row() -> None:
    """Buckets with computing between them; the reverse is a row of its own peer, not of its own direction."""
    dp = [*burst("a", "b", 1300, length=50), *burst("a", "b", 1800, length=200), *burst("c", "a", 1350, length=650)]
    rows = phases(placed(kinds(dp=dp), spans({"a": SPAN})))
    assert told(rows, "a")[1:] == [("dp_sync", 1300, 2000, "b"), ("dp_sync", 1350, 2000, "c")]
    assert rows.filter(peer="b")["bytes"].sum() == flows(dp).filter(src_addr="a")["bytes"].sum()


def test_a_flow_is_placed_in_the_step_in_which_it_starts_and_ends_with_it() -> None:
    steps = spans({"a": [1000, 2000, 3000]})
    rows = phases(placed(kinds(pp=[(1900, 2100, "a", "b", MB), (2500, 2600, "a", "b", MB)]), steps))
    assert told(rows, "a") == [("compute", 1000, 1900, None), ("pp_send", 1900, 2000, "b")]
    assert told(rows, "a", step=1) == [("compute", 2000, 2500, None), ("pp_send", 2500, 2600, "b")]


@pytest.mark.parametrize(
    ("times", "found"),
    [((900, 1000), []), ((900, 1100), [("pp_send", 1000, 1100, "b")]), ((2001, 2100), []), ((500, 600), [])],
)
def test_what_lies_outside_the_steps_is_cut_off(times: tuple[float, float], found: list[Phase]) -> None:
    assert told(phases(placed(kinds(pp=[(*times, "a", "b", MB)]), spans({"a": SPAN}))), "a") == found


def test_rows_come_in_the_order_of_the_table_s_key() -> None:
    """Also where a message of no length ends one step and the next begins with computing."""
    pp = [
        (1900, 1950, "a", "b", MB),
        (2000, 2000, "a", "b", MB),
        (2500, 2600, "b", "a", MB),
        (2700, 2710, "a", "b", MB),
    ]
    rows = phases(placed(kinds(pp=pp), spans({"a": [1000, 2000, 3000], "b": [1000, 3000]})))
    assert rows.equals(rows.sort("job_id", "addr", "start_ns", "phase", "peer"))
    at_once = rows.filter(addr="a", start_ns=WINDOW.start_ns + 2000 * MS)
    assert at_once.select("phase", "step_index").rows() == [("idle", 1), ("pp_send", 0)]


def test_no_flows_or_no_steps_no_rows() -> None:
    full = phases(placed(kinds(pp=[(1100, 1120, "a", "b", MB)]), spans({"a": SPAN})))
    assert_frame_equal(phases(placed(kinds(pp=[]), spans({"a": SPAN}))), full.clear())
    assert_frame_equal(phases(placed(kinds(pp=[(1100, 1120, "a", "b", MB)]), spans({}))), full.clear())


RECORD = st.tuples(
    st.integers(900, 2990),
    st.integers(1, 400),
    st.sampled_from(["ab", "ba", "ac", "ca"]),
    st.sampled_from(["dp", "pp", "ep"]),
)


@given(st.lists(RECORD, min_size=1, max_size=20), st.integers(0, 10**6))
def test_rows_cover_what_they_can_and_the_order_of_flows_does_not_matter(
    records: list[tuple[int, int, str, str]], seed: int
) -> None:
    """Within a step: nothing before its start or after its end, no gap before the last row's end, nothing beside
    computing and waiting, which last and alternate with what moves."""
    of_pair = {pair: kind for _, _, pair, kind in records}
    by_kind: dict[str, list[Row]] = {kind: [] for kind in of_pair.values()}
    for start, length, pair, _ in records:
        by_kind[of_pair[pair]].append((start, start + length, pair[0], pair[1], MB))
    table, steps = kinds(**by_kind), spans({"a": [1000, 2000, 3000]})
    rows = phases(placed(table, steps))
    for step in range(2):
        did, free = told(rows, "a", step=step), 1000.0 * (step + 1)
        for phase, start, end, peer in did:
            assert 1000 * (step + 1) <= start < end <= 1000 * (step + 2)
            assert start <= free
            assert (phase in ("compute", "idle")) == (peer is None)
            if peer is None:
                assert start == free
            free = max(free, end)
        still = [(start, end) for phase, start, end, _ in did if phase in ("compute", "idle")]
        moves = [(start, end) for phase, start, end, _ in did if phase not in ("compute", "idle")]
        assert not [1 for start, end in still for begin, until in moves if begin < end and start < until]
    again = phases(
        placed(table.sample(fraction=1, shuffle=True, seed=seed), steps.sample(fraction=1, shuffle=True, seed=seed))
    )
    assert_frame_equal(again, rows, check_row_order=False)


NICS = members({"j": {addr: f"host-{addr}" for addr in "abcd"}})
KINDS = {("a", "b"): "dp", ("b", "a"): "dp", ("c", "d"): "dp", ("d", "c"): "dp"} | dict.fromkeys(
    [("a", "c"), ("c", "a"), ("b", "d"), ("d", "b")], "pp"
)


def job(begins: Iterable[float]) -> list[Row]:
    """Return two replicas of two stages: a step begins with forward passes and ends with the rings, 100 ms long."""
    begins = list(begins)
    sync = [begin + 800 for begin in begins]
    return [*pipeline("a", "c", begins), *pipeline("b", "d", begins), *ring("ab", sync), *ring("cd", sync)]


def reconstructed(rows: Iterable[Row], window: Window = WINDOW) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return `steps`, `timeline` and `step_breakdown` as a window's run writes them."""
    pairs = pl.DataFrame(
        [(window.start_ns, "j", *pair, kind, 1, 1, 1, 1.0) for pair, kind in KINDS.items()],
        schema=frames.empty("pairs").schema,
        orient="row",
    )
    nics = NICS.with_columns(window_start_ns=pl.lit(window.start_ns))
    steps, rows_, went = timeline(
        **taken("timeline", visible(flows(rows), window), window, job_members=nics, pairs=pairs),
        jobs=jobs_of(nics),
        job_members=nics,
        pairs=pairs,
        window=window,
        settings=DEFAULT,
    )
    return steps, frames.plain(rows_), went


def ends_ms(steps: pl.DataFrame, addr: str | None) -> list[float]:
    mine = steps.filter(pl.col("addr").is_null() if addr is None else pl.col("addr") == addr)
    return [(end - WINDOW.start_ns) / MS for end in mine["end_ns"].sort()]


@pytest.mark.parametrize("addr", [*"abcd", None])
def test_a_step_ends_with_its_synchronisation_and_starts_where_the_one_before_ended(addr: str | None) -> None:
    steps, _, _ = reconstructed(job(every(1000, count=20, start=50)))
    mine = steps.filter(pl.col("addr").is_null() if addr is None else pl.col("addr") == addr)
    assert mine["end_ns"].to_list() == [WINDOW.start_ns + (950 + 1000 * i) * MS for i in range(20)]
    assert mine["start_ns"].to_list()[1:] == mine["end_ns"].to_list()[:-1]
    assert mine["step_index"].to_list() == list(range(20))


def test_the_first_step_starts_with_the_nic_s_and_the_job_s_first_flow() -> None:
    """Even a control message counts: `d` hears one 30 ms before the others begin."""
    steps, _, _ = reconstructed([*job(every(1000, count=20, start=50)), *messages("c", "d", [20], 64)])
    first = {
        addr: (start - WINDOW.start_ns) / MS
        for addr, start in steps.filter(step_index=0).select("addr", "start_ns").iter_rows()
    }
    assert first == {"a": 50, "b": 50, "c": 20, "d": 20, None: 20}


def test_a_step_belongs_to_the_window_of_its_end() -> None:
    """The 60th begins at 59.3 s and ends at 60.2 s; in the second window it starts where the 59th ended."""
    rows = job(every(1000, count=100, start=300))
    before, after = reconstructed(rows), reconstructed(rows, WINDOW.shifted(1))
    for addr in ("a", None):
        assert ends_ms(before[0], addr)[-1] == 59_200
        assert ends_ms(after[0], addr)[0] == 60_200
    first = after[0].filter(step_index=0)
    assert set(first["start_ns"]) == {WINDOW.start_ns + 59_200 * MS}
    assert after[1].filter(step_index=0)["start_ns"].min() == WINDOW.start_ns + 59_200 * MS


def test_rows_tile_each_step() -> None:
    """From its start to its end without a gap; only what moves may overlap."""
    steps, rows, _ = reconstructed(job(every(1000, count=20, start=50)))
    step = ["job_id", "addr", "step_index"]
    tiled = (
        rows.sort("start_ns")
        .group_by(step)
        .agg(
            first=pl.col("start_ns").min(),
            last=pl.col("end_ns").max(),
            gap=(pl.col("start_ns") - pl.col("end_ns").cum_max().shift()).max(),
        )
        .join(steps.drop_nulls("addr"), on=step)
    )
    assert tiled.height == 80
    assert (tiled["first"] == tiled["start_ns"]).all()
    assert (tiled["last"] == tiled["end_ns"]).all()
    assert tiled["gap"].max() <= 0
    assert set(rows["phase"]) == {"compute", "idle", "pp_send", "pp_recv", "dp_sync"}
    assert rows.filter(pl.col("phase").is_in(["compute", "idle"]) != pl.col("peer").is_null()).is_empty()


def test_without_flows_or_synchronised_pairs_there_are_no_steps() -> None:
    empty = tuple(frames.empty(table) for table in ("steps", "timeline", "step_breakdown"))
    for rows in ([], pipeline("a", "c", every(1000, count=20)), messages("a", "b", every(1000, count=20), 64)):
        for found, nothing in zip(reconstructed(rows), empty, strict=True):
            assert_frame_equal(found, nothing)


def test_the_order_of_rows_does_not_matter() -> None:
    rows = job(every(1000, count=20, start=50))
    table, nics = visible(flows(rows), WINDOW), NICS
    pairs = pl.DataFrame(
        [(WINDOW.start_ns, "j", *pair, kind, 1, 1, 1, 1.0) for pair, kind in KINDS.items()],
        schema=frames.empty("pairs").schema,
        orient="row",
    )
    for seed in (1, 2):
        shuffled = {
            name: frame.sample(fraction=1, shuffle=True, seed=seed)
            for name, frame in {"flows": table, "job_members": nics, "pairs": pairs}.items()
        }
        values = taken("timeline", shuffled.pop("flows"), **shuffled)
        again = timeline(**values, **shuffled, jobs=jobs_of(nics), window=WINDOW, settings=DEFAULT)
        for found, expected in zip(again, reconstructed(rows), strict=True):
            assert_frame_equal(frames.plain(found), expected)


@pytest.mark.parametrize(("second", "kept"), [(1000, [0, 1, 3]), (1999, [0, 1, 3]), (2000, [0, 1, 2, 3])])
def test_two_steps_of_a_nic_do_not_begin_at_one_moment(second: float, kept: list[int]) -> None:
    """A NIC that lacks a step may seem to have ended it with an earlier one."""
    ends = [WINDOW.start_ns + round(at * MS) for at in (1000, 2000, second, 3000)]
    steps = pl.DataFrame({"job_id": "j", "addr": "a", "step": range(4), "end_ns": ends}).with_columns(
        first_ns=WINDOW.start_ns, ended_before=pl.lit(value=False), ended=pl.lit(value=True), run=0
    )
    first = pl.DataFrame({"job_id": ["j"], "addr": ["a"], "run": [0], "first_ns": [WINDOW.start_ns]})
    own, _ = step_spans(steps, steps.drop("addr"), pl.DataFrame({"job_id": ["j"], "base": [0]}), first)
    assert own["step_index"].to_list() == kept
    assert own["start_ns"].to_list()[1:] == own["end_ns"].to_list()[:-1]
    rows = phases(placed(kinds(dp=[row for at in (600, 1600, 2600) for row in burst("a", "b", at, length=300)]), own))
    assert not rows.select("addr", "start_ns", "phase", "peer").is_duplicated().any()


@pytest.mark.parametrize(("late", "kept"), [(2000, ["a", "b"]), (2001, ["a"])])
def test_who_ends_a_step_after_its_job_has_no_part_in_it(late: float, kept: list[str]) -> None:
    """A job does not wait for a NIC that rarely takes part."""
    begin = WINDOW.start_ns
    rows = [("a", 0, 1000.0), ("a", 1, 2000.0), ("b", 1, late)]
    steps = pl.DataFrame(
        [("j", addr, step, begin + round(end * MS)) for addr, step, end in rows],
        schema={"job_id": pl.String, "addr": pl.String, "step": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    ).with_columns(first_ns=begin, ended_before=pl.lit(value=False), ended=pl.lit(value=True), run=0)
    first = pl.DataFrame({"job_id": "j", "addr": ["a", "b"], "run": 0, "first_ns": begin})
    own, jobs = step_spans(
        steps, steps.filter(addr="a").drop("addr"), pl.DataFrame({"job_id": ["j"], "base": [0]}), first
    )
    assert own.filter(step_index=1)["addr"].to_list() == kept
    assert (
        jobs["end_ns"].to_list()
        == own.group_by("step_index").agg(pl.col("end_ns").max()).sort("step_index")["end_ns"].to_list()
    )
