"""Tiles keep to the measured times in flight, and add up to the parts of `step_breakdown`."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.reports.timeline.split import tiles

Row = tuple[str, int, int]

TIMELINE = {"addr": pl.String, "step": pl.Int64, "phase": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
BREAKDOWN = {"addr": pl.String, "step": pl.Int64, "compute_ns": pl.Int64, "communication_ns": pl.Int64}


def tiled(rows: list[Row], *parts: tuple[int, int]) -> pl.DataFrame:
    """Tile one step; `parts` is what computing and communication have of it, if that is known."""
    timeline = pl.DataFrame([("a", 7, *row) for row in rows], schema=TIMELINE, orient="row")
    return tiles(timeline, pl.DataFrame([("a", 7, *one) for one in parts], schema=BREAKDOWN, orient="row"))


def shown(found: pl.DataFrame) -> list[tuple[Any, ...]]:
    return found.select("start_ns", "end_ns", "part", "in_flight").rows()


def test_computing_fills_the_gaps_that_end_with_a_message_and_then_the_beginnings_of_others() -> None:
    rows = [("compute", 0, 20), ("pp_send", 20, 30), ("idle", 30, 90), ("dp_sync", 90, 100)]
    assert shown(tiled(rows, (50, 20))) == [
        (0, 20, "compute", ""),
        (20, 30, "communication", "pp_send"),
        (30, 60, "compute", ""),
        (60, 90, "idle", ""),
        (90, 100, "communication", "dp_sync"),
    ]


def test_computing_beyond_the_gaps_goes_on_behind_gradients_and_the_last_member_is_waited_for() -> None:
    rows = [("compute", 0, 10), ("pp_recv", 10, 20), ("dp_sync", 20, 100), ("dp_sync", 30, 100)]
    assert shown(tiled(rows, (40, 40))) == [
        (0, 10, "compute", ""),
        (10, 20, "communication", "pp_recv"),
        (20, 50, "compute", "dp_sync"),
        (50, 70, "idle", "dp_sync"),
        (70, 100, "communication", "dp_sync"),
    ]


@pytest.mark.parametrize(
    ("compute", "lengths"), [(50, [10, 20, 20]), (30, [10, 10, 10]), (89, [10, 30, 49]), (90, [10, 30, 50]), (0, [])]
)
def test_computing_is_spread_so_that_no_gap_has_more_than_a_common_limit(compute: int, lengths: list[int]) -> None:
    rows = [("idle", 0, 10), ("pp_recv", 10, 20), ("idle", 20, 50), ("pp_recv", 50, 60), ("idle", 60, 110)]
    found = tiled(rows, (compute, 20)).filter(part="compute")
    assert (found["end_ns"] - found["start_ns"]).to_list() == lengths


def test_a_step_without_a_breakdown_keeps_the_names_of_the_timeline() -> None:
    rows = [("compute", 0, 20), ("pp_send", 20, 30), ("pp_recv", 25, 35), ("idle", 35, 40)]
    assert shown(tiled(rows)) == [
        (0, 20, "compute", ""),
        (20, 25, "communication", "pp_send"),
        (25, 30, "communication", "pp_send+pp_recv"),
        (30, 35, "communication", "pp_recv"),
        (35, 40, "idle", ""),
    ]


def test_no_rows_have_no_tiles() -> None:
    assert tiled([]).is_empty()
    assert tiled([("dp_sync", 5, 5)], (0, 0)).is_empty()


PHASES = st.sampled_from(["compute", "idle", "pp_send", "pp_recv", "dp_sync", "other"])


@given(st.lists(st.tuples(PHASES, st.integers(1, 40)), min_size=1, max_size=12), st.integers(0, 400), st.data())
def test_tiles_neither_overlap_nor_leave_a_gap_and_add_up(
    phases: list[tuple[str, int]], compute: int, data: st.DataObject
) -> None:
    """Whatever can be satisfied: there cannot be more communication than there is time in flight beside computing."""
    rows, at = [], 0
    for phase, length in phases:
        rows.append((phase, at, at + length))
        at += length
    flown = sum(end - start for phase, start, end in rows if phase not in {"compute", "idle"})
    compute = min(compute, at)
    room = flown - max(compute - (at - flown), 0)
    communication = data.draw(st.integers(0, room))
    found = tiled(rows, (compute, communication))
    assert [found["start_ns"][0], *found["end_ns"]] == [*found["start_ns"], at]
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    sums = dict(found.group_by("part").agg(length).rows())
    assert sums.get("compute", 0) == pytest.approx(compute, abs=len(phases))
    assert sums.get("communication", 0) == pytest.approx(communication, abs=len(phases))
