"""A result is kept for the flows it was made of, and for nothing else."""

from __future__ import annotations

import gc

import polars as pl

from llmprism_tasks.stages.traffic.remembered import KEPT, forget, remembered, remembered_by

CALLS: list[int] = []


@remembered
def total(flows: pl.DataFrame, members: pl.DataFrame | None = None, *, factor: int = 1) -> int:
    CALLS.append(1)
    return int(flows["bytes"].sum()) * factor + (0 if members is None else members.height)


def calls_of(*calls: tuple[pl.DataFrame, pl.DataFrame | None, int]) -> int:
    CALLS.clear()
    for flows, members, factor in calls:
        expected = int(flows["bytes"].sum()) * factor + (0 if members is None else members.height)
        assert total(flows, members, factor=factor) == expected
    return len(CALLS)


def frame(*sizes: int) -> pl.DataFrame:
    return pl.DataFrame({"bytes": sizes})


def test_the_same_flows_are_worked_out_once() -> None:
    flows = frame(1, 2)
    assert calls_of((flows, None, 1), (flows, None, 1)) == 1


def test_other_flows_are_not_taken_for_them_even_if_equal() -> None:
    assert calls_of((frame(1, 2), None, 1), (frame(1, 2), None, 1)) == 2


def test_equal_tables_beside_them_are_alike_and_others_are_not() -> None:
    flows = frame(1)
    assert calls_of((flows, frame(7), 1), (flows, frame(7), 1), (flows, frame(8), 1), (flows, frame(8), 2)) == 3


def test_only_the_latest_are_kept() -> None:
    flows = frame(1)
    many = [(flows, None, factor) for factor in range(KEPT + 1)]
    assert calls_of(*many, many[-1], many[0]) == KEPT + 2


def test_nothing_is_kept_of_flows_that_are_gone() -> None:
    flows = frame(1)
    calls_of((flows, None, 1))
    del flows
    gc.collect()
    (kept,) = (cell.cell_contents for cell in total.__closure__ or () if isinstance(cell.cell_contents, list))
    assert kept == []


def test_what_is_forgotten_is_worked_out_again() -> None:
    flows = frame(1, 2)
    calls_of((flows, None, 1))
    forget()
    assert calls_of((flows, None, 1)) == 1


@remembered_by("bytes", "addr")
def counted(flows: pl.DataFrame) -> dict[object, object]:
    CALLS.append(1)
    return dict(flows.group_by("addr").agg(pl.col("bytes").sum()).cast({"addr": pl.String}).rows())


def test_flows_are_the_same_that_have_what_is_looked_at_in_the_same_memory() -> None:
    flows = frame(1, 2, 3).with_columns(addr=pl.Series(["a", "b", "a"], dtype=pl.Enum(["a", "b"])))
    named = flows.with_columns(job_id=pl.lit("j")).select("job_id", "addr", "bytes")
    CALLS.clear()
    assert counted(flows) == counted(named) == {"a": 4, "b": 2}
    assert len(CALLS) == 1


def test_flows_with_other_values_in_other_memory_are_others() -> None:
    flows = frame(1, 2, 3).with_columns(addr=pl.Series(["a", "b", "a"], dtype=pl.Enum(["a", "b"])))
    CALLS.clear()
    assert counted(flows) == {"a": 4, "b": 2}
    assert counted(flows.with_columns(pl.col("bytes") * 2)) == {"a": 8, "b": 4}
    assert counted(flows.head(2)) == {"a": 1, "b": 2}
    assert counted(pl.concat([flows, flows])) == {"a": 8, "b": 4}
    assert counted(flows.clear()) == counted(flows.clear()) == {}
    assert len(CALLS) == 6


def test_text_may_lie_anywhere() -> None:
    flows = frame(1, 2).with_columns(addr=pl.Series(["a", "b"]))
    CALLS.clear()
    assert counted(flows) == counted(flows) == counted(flows.select("addr", "bytes")) == {"a": 1, "b": 2}
    assert len(CALLS) == 2
