"""What a NIC had always received before it sent its next message it needs, and it waits for it."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.stages.liveness.needed import due_after_needed

Heard = tuple[str, int, int]
"""Sender, when its message had come, bytes."""

SILENT = 5000


def heard(rows: list[Heard], step: int = 0) -> pl.DataFrame:
    """Return what `a` receives, each in no time."""
    table = pl.DataFrame(rows, schema={"src_addr": pl.String, "flow_end_ns": pl.Int64, "bytes": pl.Int64}, orient="row")
    at = pl.col("flow_end_ns")
    return table.with_columns(dst_addr=pl.lit("a"), flow_start_ns=at, since_ns=at, step=pl.lit(step, pl.Int64))


def due(steps: list[tuple[int, list[Heard]]], begun: list[Heard]) -> tuple[float, float] | None:
    """Return when `a` was due, and with what deviation.

    Parameters
    ----------
    steps : when `a` sent its next message, and what it received
    """
    times = [at for at, _ in steps]
    nexts = pl.DataFrame({"addr": "a", "step": range(len(steps)), "next_ns": times}).with_columns(
        pl.col("step").cast(pl.Int64)
    )
    earlier = pl.concat(heard(rows, step) for step, (_, rows) in enumerate(steps))
    other = heard([("z", SILENT, 1)]).with_columns(dst_addr=pl.lit("y"))
    found = due_after_needed(nexts, earlier, pl.concat([heard(begun), other]), 0.02)
    return found.select("needed_ns", "needed_noise_ns").row(0) if found.height else None


def test_it_is_due_as_long_after_what_it_needs_as_before() -> None:
    steps = [(at + 300, [("b", at, 10)]) for at in (0, 100, 200)]
    assert due(steps, [("b", 1000, 10)]) == (1300, 0)


@pytest.mark.parametrize(("late", "needs"), [(300, True), (301, False)])
def test_what_came_later_in_any_step_it_does_not_need(late: int, needs: bool) -> None:
    steps = [(300, [("b", at, 10)]) for at in (100, 100, late)]
    assert (due(steps, [("b", 1000, 10)]) is not None) == needs


@pytest.mark.parametrize(("pushed", "needs"), [(2, False), (3, True)])
def test_the_little_that_is_pushed_early_it_does_not_need(pushed: int, needs: bool) -> None:
    """Two of 100 bytes of a step are as much as steps differ by."""
    steps = [(300, [("b", 100, pushed), ("b", 400, 100 - pushed)])] * 3
    assert (due(steps, [("b", 1000, pushed)]) is not None) == needs


def test_what_has_not_come_was_waited_for_until_the_end() -> None:
    """`a` needs two messages, of which one has come."""
    steps = [(300, [("b", 0, 10), ("b", 100, 10)])] * 3
    assert due(steps, [("b", 1000, 10)]) == (SILENT + 200, 0)
    assert due(steps, []) == (SILENT + 200, 0)


def test_of_what_it_needs_of_several_the_last_counts() -> None:
    steps = [(300, [("b", 0, 10), ("c", 100, 10)])] * 3
    assert due(steps, [("b", 1000, 10), ("c", 900, 10)]) == (1200, 0)


def test_who_sends_no_more_needs_nothing() -> None:
    nexts = pl.DataFrame({"addr": ["a"], "step": [0], "next_ns": [None]}, schema_overrides={"next_ns": pl.Int64})
    flows = heard([("b", 0, 10)])
    assert due_after_needed(nexts, flows, flows, 0.02).is_empty()
