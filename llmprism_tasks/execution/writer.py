"""Write tables to the warehouse in a background thread, in order, while the stages go on."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Self

from llmprism_tasks.contract.plan import DERIVED, STAGES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.stage_runner import StageResults
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import Change

Work = Callable[[], object]

PARTITIONS_PER_TRANSACTION = 2
"""DuckDB logs an append that does not fill a row group and packs it again later, so several partitions are written at
once. The last ones share one transaction, which stays open while they are diagnosed, for a second or two."""

ROWS_PER_TRANSACTION = 10_000
"""Rows that are collected before they are written together: a transaction takes 25 ms of processor time, as long as
writing so many rows does. All stages of a small platform make fewer rows than that, and share one transaction."""


class Writer:
    """One background thread; each piece of work is done after those before it, and none after one that failed."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._last: Future[object] | None = None

    def submit(self, work: Work) -> None:
        """Have work done, without waiting for it."""
        self._last = self._thread.submit(_after, self._last, work)

    def wait(self) -> None:
        """Wait until all work is done; what is submitted later is done even if this raises.

        Raises
        ------
        what a piece of work raised
        """
        last, self._last = self._last, None
        if last is not None:
            last.result()


@contextmanager
def background_writer() -> Iterator[Writer]:
    """Start the thread; leaving the block waits for all work.

    Raises
    ------
    what a piece of work raised, at the block's end
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        writer = Writer(thread)
        try:
            yield writer
        finally:
            writer.wait()


def _after(before: Future[object] | None, work: Work) -> object:
    if before is not None:
        before.result()
    return work()


class TableWriter:
    """Writes what stages make of a window to the warehouse's tables, while other stages are still running.

    A context manager: leaving the block ends the open transaction, if there is one.
    """

    def __init__(self, warehouse: Warehouse, window: Window, writer: Writer) -> None:
        self._warehouse, self._window, self._writer = warehouse, window, writer
        self._stage_ns = Counter[str]()
        self._partitions: list[Change] = []
        self._waiting: list[Change] = []
        self._open: SimpleQueue[Change | None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_transaction()

    def begin(self) -> None:
        """Clear all tables that stages write, and what tells that they are there."""
        self._close_transaction()
        self._stage_ns.clear()
        self._partitions.clear()
        self._write_last(Change({}, clears=DERIVED, forgets=[stage.name for stage in STAGES]))

    def take(self, results: StageResults, jobs: Sequence[str] | None, *, more: int | None = None) -> None:
        """Write tables in the place of these jobs' rows, or of all rows if None: another run may do the same window.

        Partitions are written several at a time; the last ones as they come, together with all that follows. What is
        not of one partition waits until `ROWS_PER_TRANSACTION` rows are there, or the end.

        Parameters
        ----------
        more : the tables are of one partition, and so many partitions are still to come
        """
        self._stage_ns.update(results.stage_ns)
        change = Change(results.tables, jobs=jobs, ordered=True)
        if more is None:
            self._write_last(change)
            return
        self._partitions.append(change)
        if more < PARTITIONS_PER_TRANSACTION:
            self._open_transaction()
        elif len(self._partitions) == PARTITIONS_PER_TRANSACTION:
            self._write(self._partitions)
            self._partitions = []

    def end(self) -> None:
        """Write how long the stages took, all in all."""
        self._write_last(Change({}, stage_ns=self._stage_ns))
        self._close_transaction()

    def wait(self) -> None:
        """Wait until all that was taken is in the warehouse."""
        self._close_transaction()
        self._writer.wait()

    def _open_transaction(self) -> None:
        if self._open is None:
            self._open = SimpleQueue()
            self._write(iter(self._open.get, None))
        for partition in self._partitions:
            self._open.put(partition)
        self._partitions.clear()

    def _write_last(self, change: Change) -> None:
        """Write a change in the open transaction; without one, once enough rows wait to be worth a transaction."""
        if self._open is not None:
            self._open.put(change)
            return
        self._waiting.append(change)
        if sum(frame.height for one in self._waiting for frame in one.frames.values()) >= ROWS_PER_TRANSACTION:
            self._write([])

    def _close_transaction(self) -> None:
        if self._open is not None:
            self._open.put(None)
            self._open = None
        elif self._waiting:
            self._write([])

    def _write(self, changes: Iterable[Change]) -> None:
        """Write the changes that wait, and these after them, in one transaction."""
        waiting, self._waiting = self._waiting, []
        changes = itertools.chain(waiting, changes)
        self._writer.submit(functools.partial(store.replace_each, self._warehouse, self._window, changes))
