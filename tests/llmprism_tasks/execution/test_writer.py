"""The background writer works in order, is done at the block's end, and stops at the first failure."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import polars as pl
import pytest

from llmprism_tasks.contract.plan import STAGES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.stage_runner import StageResults
from llmprism_tasks.execution.writer import ROWS_PER_TRANSACTION, TableWriter, background_writer
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import Change


def test_each_piece_is_done_after_those_before_it_and_all_at_the_end() -> None:
    done: list[int] = []
    goes_on = threading.Event()
    with background_writer() as writer:
        writer.submit(lambda: done.append(1 if goes_on.wait(10) else 0))
        writer.submit(lambda: done.append(2))
        assert done == []  # the caller is not held up
        goes_on.set()
    assert done == [1, 2]


def test_nothing_is_done_after_a_failure_which_is_raised() -> None:
    done: list[int] = []

    def fail() -> None:
        raise OSError("disk full")

    def give() -> None:
        with background_writer() as writer:
            writer.submit(lambda: done.append(1))
            writer.submit(fail)
            writer.submit(lambda: done.append(2))

    with pytest.raises(OSError, match="disk full"):
        give()
    assert done == [1]


def test_what_was_given_before_the_caller_failed_is_done() -> None:
    done: list[int] = []

    def give_and_fail() -> None:
        with background_writer() as writer:
            writer.submit(lambda: done.append(1))
            raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        give_and_fail()
    assert done == [1]


def test_who_waited_for_a_failure_may_go_on() -> None:
    done: list[int] = []

    def fail() -> None:
        raise OSError("disk full")

    with background_writer() as writer:
        writer.submit(fail)
        writer.submit(lambda: done.append(1))
        with pytest.raises(OSError, match="disk full"):
            writer.wait()
        writer.submit(lambda: done.append(2))
        writer.wait()
    assert done == [2]


@pytest.mark.parametrize(
    ("more", "transactions"),
    [(0, [["jobs"], ["pairs"], ["a stage"]]), (-1, [["jobs", "pairs"], ["a stage"]])],
    ids=["many rows", "few rows"],
)
def test_few_rows_wait_for_those_that_follow(
    more: int, transactions: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[list[Change]] = []

    def replace_each(_: Warehouse, __: Window, changes: Iterable[Change]) -> None:
        written.append(list(changes))

    monkeypatch.setattr(store, "replace_each", replace_each)
    rows = {"jobs": ROWS_PER_TRANSACTION + more, "pairs": ROWS_PER_TRANSACTION}
    with background_writer() as thread, TableWriter(Warehouse("", 1), Window(0, 60), thread) as tables:
        tables.begin()
        for table, height in rows.items():
            results = StageResults({"a stage": {table: pl.DataFrame({"row": range(height)})}}, {"a stage": 1})
            tables.take(results, None)
        tables.end()
    named = [[one for change in changes for one in change.frames or change.stage_ns] for changes in written]
    assert named == transactions
    assert written[0][0].forgets == [stage.name for stage in STAGES]  # first all is cleared, with what comes then


def test_what_waits_is_written_when_a_stage_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[list[Change]] = []
    monkeypatch.setattr(store, "replace_each", lambda _, __, changes: written.append(list(changes)))

    def begin_and_fail() -> None:
        with background_writer() as thread, TableWriter(Warehouse("", 1), Window(0, 60), thread) as tables:
            tables.begin()
            raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        begin_and_fail()
    assert [change.forgets for changes in written for change in changes] == [[stage.name for stage in STAGES]]
