"""All published stages together: a plain job comes out right, odd input does no harm, windows agree at their edges."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MS, WINDOW, flows
from polars.testing import assert_frame_equal
from published_chain import A0, A1, B0, B1, BURST, NICS, PERIOD, SYNCHRONISATION, derive, run, training

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.plan import DERIVED, STAGES


@pytest.fixture(scope="module")
def found() -> dict[str, pl.DataFrame]:
    return derive(flows(training(28)))


def test_buckets_in_a_ring_and_messages_of_one_size_tell_the_layout(found: dict[str, pl.DataFrame]) -> None:
    job = found["jobs"].row(0, named=True)
    assert found["jobs"].height == 1
    assert (job["kind"], job["endpoints"], job["tp"], job["pp"], job["dp"]) == ("training", 4, 1, 2, 2)
    kinds = {(src, dst): kind for src, dst, kind in found["pairs"].select("src_addr", "dst_addr", "kind").rows()}
    assert kinds == dict.fromkeys([(A0, B0), (B0, A0), (A1, B1), (B1, A1)], "pp") | dict.fromkeys(
        [(A0, A1), (A1, A0), (B0, B1), (B1, B0)], "dp"
    )
    assert (found["pairs"]["confidence"] == 1).all()


def test_a_step_ends_with_its_synchronisation(found: dict[str, pl.DataFrame]) -> None:
    ends = [WINDOW.start_ns + round((i * PERIOD + SYNCHRONISATION + BURST) * MS) for i in range(28)]
    for (addr,), steps in found["steps"].group_by("addr"):
        assert steps.sort("step_index")["end_ns"].to_list() == ends, addr
        assert steps.sort("step_index")["step_index"].to_list() == list(range(28))
    assert found["steps"]["addr"].n_unique() == 5  # the job itself, and four members


def test_a_step_is_filled_without_gaps(found: dict[str, pl.DataFrame]) -> None:
    phases = found["timeline"].filter(pl.col("addr") == A0, pl.col("step_index") == 3).sort("start_ns")
    assert set(phases["phase"]) == {"compute", "idle", "pp_send", "pp_recv", "dp_sync"}
    step = found["steps"].filter(pl.col("addr") == A0, pl.col("step_index") == 3).row(0, named=True)
    assert (phases["start_ns"].min(), phases["end_ns"].max()) == (step["start_ns"], step["end_ns"])
    assert (phases["start_ns"] <= phases["end_ns"].cum_max().shift().fill_null(step["start_ns"])).all()


def test_a_healthy_job_has_no_diagnosis(found: dict[str, pl.DataFrame]) -> None:
    assert_frame_equal(found["diagnoses"], frames.empty("diagnoses"))


@pytest.mark.parametrize("name", [stage.name for stage in STAGES])
def test_nothing_in_nothing_out(name: str) -> None:
    reads = next(stage.reads for stage in STAGES if stage.name == name)
    for table, frame in run(name, {table: frames.empty(table) for table in reads}).items():
        assert_frame_equal(frame, frames.empty(table))


def test_one_flow_is_a_job_without_steps() -> None:
    found = derive(flows([(5, 6, A0, B0, 4096)]))
    assert found["job_members"]["addr"].to_list() == [A0, B0]
    assert found["pairs"]["kind"].to_list() == ["other"]
    assert found["steps"].is_empty()


def test_the_same_rows_in_another_order_give_the_same_rows(found: dict[str, pl.DataFrame]) -> None:
    shuffled = derive(
        flows(training(28)).sample(fraction=1, shuffle=True, seed=7), NICS.sample(fraction=1, shuffle=True, seed=7)
    )
    for table in DERIVED:
        assert_frame_equal(shuffled[table], found[table])


@pytest.mark.parametrize("start", [0, 350, 930, 1_650])
def test_windows_tell_of_each_step_once_wherever_their_edges_cut(start: float) -> None:
    table = flows(training(88, start))
    windows = [derive(table, window=WINDOW.shifted(i)) for i in range(3)]
    steps = pl.concat([found["steps"] for found in windows]).filter(pl.col("addr").is_null()).sort("end_ns")
    ends = [WINDOW.start_ns + round((start + i * PERIOD + SYNCHRONISATION + BURST) * MS) for i in range(88)]
    told = [end for end in ends if end < WINDOW.shifted(2).end_ns - 500 * MS]
    assert steps["end_ns"].to_list()[: len(told)] == told
    pair_steps = pl.concat([found["pair_steps"] for found in windows])
    assert not pair_steps.select("src_addr", "dst_addr", "start_ns").is_duplicated().any()


def test_a_step_not_seen_to_be_over_at_the_edge_is_left_to_the_next_window() -> None:
    """Its last record ends 10 ms before the edge: no gap has ended it, and the next window may not go back in time."""
    table = flows(training(88, 60_000 - 27 * PERIOD - SYNCHRONISATION - BURST - 10))
    first, second = (derive(table, window=WINDOW.shifted(i))["steps"].filter(pl.col("addr").is_null()) for i in (0, 1))
    assert first["end_ns"].max() == WINDOW.end_ns - round((10 + PERIOD) * MS)
    assert second["end_ns"].min() == WINDOW.end_ns
    assert second["start_ns"].min() == first["end_ns"].max()
