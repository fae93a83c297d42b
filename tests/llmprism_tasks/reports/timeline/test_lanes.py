"""Lanes hold every row of the timeline, and steps that the tables know."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.frames import empty
from llmprism_tasks.contract.windows import ALL_TIME
from llmprism_tasks.reports.timeline import reading
from llmprism_tasks.reports.timeline.lanes import KINDS, Lanes, lanes
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse

LENGTH = pl.col("end_ns") - pl.col("start_ns")


@pytest.fixture(scope="module")
def every(captured: Warehouse, job: str) -> Lanes:
    return reading.read_lanes(captured, job, 0, ALL_TIME.end_ns)


def test_every_message_of_the_timeline_is_in_its_lane(captured: Warehouse, every: Lanes) -> None:
    flights = store.read(captured, "timeline", ALL_TIME).filter(~pl.col("phase").is_in(["compute", "idle"]))
    columns = ["addr", "start_ns", "end_ns", "kind", "peer", "bytes"]
    told = flights.with_columns(kind=pl.col("phase").cast(pl.String), peer=pl.col("peer").cast(pl.String))
    measured = every.slices.filter(~pl.col("inferred"))
    assert_frame_equal(measured.select(columns).sort(columns), told.select(columns).sort(columns), check_dtypes=False)


def test_slices_of_one_row_do_not_overlap(every: Lanes) -> None:
    before = pl.col("end_ns").shift(1).over("addr", "kind", "row")
    assert every.slices.filter(pl.col("start_ns") < before).is_empty()
    assert set(every.slices["kind"]) <= set(KINDS)


def test_computing_and_idling_of_each_step_are_those_of_its_breakdown(captured: Warehouse, every: Lanes) -> None:
    told = store.read(captured, "step_breakdown", ALL_TIME).join(
        every.steps, on=["addr", "window_start_ns", "step_index"]
    )
    sums = every.slices.filter("inferred").group_by("addr", "step", "kind").agg(ns=LENGTH.sum())
    wide = told.join(sums.pivot("kind", index=["addr", "step"], values="ns"), on=["addr", "step"]).fill_null(0)
    idle = pl.col("bubble_ns") + pl.col("waiting_ns") + pl.col("unexplained_ns")
    off = wide.select(
        compute=(pl.col("compute") - pl.col("compute_ns")).abs() / pl.col("step_ns"),
        idle=(pl.col("idle") - idle).abs() / pl.col("step_ns"),
    )
    assert wide.height == told.height > 250
    assert off["compute"].max() < 1e-6  # type: ignore[operator]
    assert off["idle"].max() < 0.005  # type: ignore[operator]


def test_a_pipelines_micro_batches_are_numbered_and_go_forward_and_backward(every: Lanes) -> None:
    first, second = (every.nics.filter(pp_stage=stage)["addr"][0] for stage in (0, 1))
    sent = every.slices.filter(addr=first, kind="pp_send", step=2)
    assert sent["micro_batch"].to_list() == list(range(8))
    assert set(sent["direction"]) == {"forward"}
    assert set(sent["peer"]) == {second}
    assert set(every.slices.filter(addr=second, kind="pp_send")["direction"]) == {"forward", "backward"}
    assert every.slices.filter(pl.col("kind") == "dp_sync")["micro_batch"].null_count() > 0


def test_a_part_has_whole_steps_and_the_same_slices_as_the_whole(captured: Warehouse, job: str, every: Lanes) -> None:
    own = every.steps.filter(pl.col("addr").is_null())
    middle = own.filter(step=10)
    start, end = middle["start_ns"][0], middle["end_ns"][0]
    addr = every.nics["addr"][3]
    part = reading.read_lanes(captured, job, start, end, addrs=[addr])
    assert part.steps["step"].unique().to_list() == [0]
    expected = every.slices.filter(pl.col("addr") == addr, pl.col("step") == 10).with_columns(step=pl.lit(0))
    assert_frame_equal(part.slices, expected, check_dtypes=False)
    both = reading.read_lanes(captured, job, start, end + 1, addrs=[addr])
    assert both.steps["step"].unique().sort().to_list() == [0, 1]


def test_where_a_job_has_no_step_there_are_no_lanes(captured: Warehouse, job: str) -> None:
    for found in (
        reading.read_lanes(captured, job, 0, 1),
        reading.read_lanes(captured, "another", 0, ALL_TIME.end_ns),
        lanes({name: empty(name) for name in reading.TABLES}, 0, 1),
    ):
        assert found.slices.is_empty()
        assert found.nics.is_empty()


def test_more_rows_than_can_be_looked_at_are_refused(captured: Warehouse, job: str) -> None:
    with pytest.raises(InputError, match=f"more than 100 rows of the timeline of {job}.*shorter time"):
        reading.read_lanes(captured, job, 0, ALL_TIME.end_ns, most=100)
