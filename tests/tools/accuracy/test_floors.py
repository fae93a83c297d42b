"""What no record shows: how far the last record of a step is from its end."""

from __future__ import annotations

import polars as pl
from places import REAL

from accuracy.pages.markdown_tables import floors_table
from accuracy.runs.duration_floor import ended_by_records, floor
from llmprism_tasks.reports.evaluation.steps import duration_errors


def test_a_step_ends_with_the_last_gradients_that_a_rank_saw_before_it_was_done() -> None:
    """Not with activations, nor with what a quicker rank sent of the next step, nor with another job's."""
    bulk = pl.DataFrame(
        [("a", "b", 80), ("b", "a", 90), ("a", "b", 180), ("b", "a", 170), ("b", "a", 205), ("c", "d", 199)],
        schema=["src_addr", "dst_addr", "flow_end_ns"],
        orient="row",
    )
    pairs = pl.DataFrame(
        [("j", "a", "b", "dp"), ("j", "b", "a", "dp"), ("j", "a", "b", "cp"), ("j", "c", "d", "pp")],
        schema=["job", "src_addr", "dst_addr", "kind"],
        orient="row",
    )
    ranks = pl.DataFrame(
        [("j", "a", 0, 100), ("j", "b", 0, 95), ("j", "a", 1, 200), ("j", "b", 1, 190), ("k", "c", 0, 200)],
        schema=["job", "addr", "step", "end_ns"],
        orient="row",
    )
    found = ended_by_records(bulk, pairs, ranks)
    assert found.rows() == [("j", 0, 100, 90), ("j", 1, 200, 180)]
    assert duration_errors(found)["error"].to_list() == [0.1]


def test_an_optimizer_on_busy_cores_hides_more_of_a_duration_than_is_allowed_elsewhere() -> None:
    assert 0.03 < (floor(REAL / "ddp4_healthy", "flows.parquet")["p95"] or 0) < 0.045
    assert (floor(REAL / "dp2pp4_healthy", "flows.parquet")["p95"] or 0) < 0.005


def test_floors_are_a_table() -> None:
    assert floors_table({"one": {"median": 0.004, "p95": 0.041, "max": 1.0}}).splitlines()[2:] == [
        "| one | 0.400 % | 4.1 % |"
    ]
