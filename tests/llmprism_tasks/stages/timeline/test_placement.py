"""A flow is placed once for each of its ends, in the step in which it starts there."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
from handmade import MB, MS, WINDOW, Row, flows
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.timeline.placement import Placed, placed

ROWS: list[Row] = [
    (100, 300, "a", "b", MB),
    (150, 200, "a", "b", MB),
    (400, 450, "b", "a", MB),
    (500, 600, "a", "x", MB),
    (950, 1200, "a", "b", MB),
]


def steps(**ends: list[int]) -> pl.DataFrame:
    """Return steps of NICs from each time to the next, in ms."""
    rows = [
        ("j", addr, i, WINDOW.start_ns + start * MS, WINDOW.start_ns + end * MS)
        for addr, times in ends.items()
        for i, (start, end) in enumerate(pairwise(times))
    ]
    columns = {"job_id": pl.String, "addr": pl.String, "step_index": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(rows, schema=columns, orient="row")


STEPS = steps(a=[0, 250, 1000], b=[200, 1000])


def known() -> pl.DataFrame:
    return flows(ROWS).with_columns(job_id=pl.lit("j"), kind=pl.lit("pp"))


def told(found: Placed) -> pl.DataFrame:
    """Return what was placed, in ms."""
    messages = found.messages
    times = messages.select(((pl.col("start_ns", "end_ns") - WINDOW.start_ns) / MS).cast(pl.Int64))
    side = found.sides.select("phase", "peer", "sends")[messages["side"]]
    return found.parts.select("addr", "step_index")[messages["part"]].hstack(side).hstack(times)


def test_each_end_has_the_flow_as_far_as_it_lies_in_its_own_step() -> None:
    assert told(placed(known(), STEPS)).rows() == [
        ("a", 0, "pp_send", "b", True, 100, 250),
        ("a", 0, "pp_send", "b", True, 150, 200),
        ("a", 1, "pp_recv", "b", False, 400, 450),
        ("a", 1, "pp_send", "b", True, 950, 1000),
        ("a", 1, "pp_send", "x", True, 500, 600),
        ("b", 0, "pp_recv", "a", False, 200, 300),
        ("b", 0, "pp_recv", "a", False, 950, 1000),
        ("b", 0, "pp_send", "a", True, 400, 450),
    ]


def test_the_order_of_flows_and_whether_pairs_have_numbers_does_not_matter() -> None:
    number = known().with_columns(pair=pl.struct("src_addr", "dst_addr").rank("dense").cast(pl.Int32))
    for table in (known().reverse(), number, number.reverse()):
        assert_frame_equal(told(placed(table, STEPS)), told(placed(known(), STEPS)))


def test_kinds_may_be_told_of_pairs_and_flows_of_others_are_left_out() -> None:
    kinds = pl.DataFrame({"src_addr": ["a"], "dst_addr": ["b"], "kind": ["dp"]})
    found = told(placed(known().drop("kind"), STEPS, kinds))
    assert found["phase"].to_list() == ["dp_sync"] * 5
    assert found["peer"].to_list() == ["b"] * 3 + ["a"] * 2


def test_without_flows_or_steps_nothing_is_placed() -> None:
    for found in (placed(known().clear(), STEPS), placed(known(), steps(a=[]))):
        assert found.messages.is_empty()
        assert found.rows.offsets.size == found.parts.height + 1
