"""Worker processes that take partitions through the stages: a process pool of the library loky.

This module imports nothing heavy: the workers start, and import what the stages need, before this process imports it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources import flows as sources

if TYPE_CHECKING:
    from loky import ProcessPoolExecutor

MIN_BYTES_FOR_POOL = 4_000_000
"""Bytes of flow files from which workers save more time than their start costs: in Parquet, some 250,000 flows."""

MIN_FLOWS_FOR_POOL = 2_500_000
"""Flows of a window, look-back included, from which workers save the task of a single stage more time than their start
costs: a stage takes half a second to a second for a million flows, a worker a second and a half to get ready."""

IDLE_S = 60
"""Seconds without work after which a worker ends, so that those of a killed process do not stay."""

ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",  # a worker has one processor
    "PYTHONSAFEPATH": "1",  # a file in the current directory is never taken for the library of that name
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e12",  # what a partition took, the next one uses again: no reason to start anew
}
"""Environment variables of the workers, besides those of this process."""

FEEDER = "QueueFeederThread"
"""Name of the thread of a pool that hands calls over to its workers."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Pool:
    """Worker processes.

    Attributes
    ----------
    workers : how many there are
    """

    def __init__(self, executor: ProcessPoolExecutor, workers: int) -> None:
        self._executor = executor
        self.workers = workers

    def call(
        self, function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Call a function of a module in a worker, and wait for what it returns.

        Raises
        ------
        TransientError : the worker process ended
        whatever the function raises
        """
        from loky.process_executor import BrokenProcessPool  # noqa: PLC0415 - only where there is a pool

        try:
            result: Result = self._executor.submit(function, *arguments, **named).result()
        except BrokenProcessPool as error:
            raise TransientError(
                found=f"a worker process that ended ({str(error).splitlines()[0]})",
                expected="a process that takes part of the window's flows through the stages",
                todo="Run it again; if it was killed for want of memory, set batches.at_once to a smaller number.",
            ) from error
        return result

    def start(self) -> None:
        """Start the workers without waiting for them."""
        self._executor.submit(os.getpid)


@contextmanager
def process_pool(settings: Settings) -> Iterator[Pool | None]:
    """Start a worker for each processor but one; they end with the block. None if there is but one processor.

    Workers import and compile what the stages need at once, while this process goes on.
    """
    from loky import ProcessPoolExecutor, cpu_count  # noqa: PLC0415 - only where there is a pool

    workers = cpu_count() - 1
    if workers == 0:
        yield None
        return
    threads_before = threading.enumerate()
    executor = ProcessPoolExecutor(
        max_workers=workers,
        timeout=IDLE_S,
        env=ENVIRONMENT,
        initializer=_get_ready,
        initargs=(settings.method.name,),
    )
    pool = Pool(executor, workers)
    try:
        pool.start()
        yield pool
    finally:
        executor.shutdown(kill_workers=True)
        _join_feeder(threads_before)


def _join_feeder(threads_before: list[threading.Thread]) -> None:
    """Wait for the thread that hands calls over, which loky 3.7 leaves behind when a pool is shut down.

    The thread gives a semaphore back as its last act. A process that ends in the midst of that would warn of a leak.
    """
    for thread in threading.enumerate():
        if thread.name == FEEDER and thread not in threads_before:
            thread.join()


def pool_for_files(settings: Settings) -> AbstractContextManager[Pool | None]:
    """Start workers if the files of flows are so large that it pays; they get ready while the flows are landed."""
    files = sources.find(settings.places.flows, length_ns=settings.window.length_ns)
    size = sum(Path(file.path).stat().st_size for file in files)
    return process_pool(settings) if size >= MIN_BYTES_FOR_POOL else nullcontext()


def pool_for_flows(flows: int, settings: Settings) -> AbstractContextManager[Pool | None]:
    """Start workers if there are so many flows that it pays."""
    return process_pool(settings) if flows >= MIN_FLOWS_FOR_POOL else nullcontext()


def _get_ready(method: str) -> None:
    """Prepare a worker: it leaves interruptions to the process that started it, and imports what the stages need.

    Who interrupts a command at the terminal, or ends its service, signals to all of its processes.
    """
    for interruption in (signal.SIGINT, signal.SIGTERM):
        signal.signal(interruption, signal.SIG_IGN)
    from llmprism_tasks.execution.partitions import stage_runner  # noqa: PLC0415 - heavy, and for the workers

    stage_runner.stage_functions(method)
