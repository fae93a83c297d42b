"""Sharing: the parts of a platform taken through the stages by this process and a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import polars as pl

from llmprism_tasks import deriving
from llmprism_tasks.deriving import Derived
from llmprism_tasks.plan import ALL
from llmprism_tasks.settings import Settings
from llmprism_tasks.windows import Window
from llmprism_tasks.worker import Worker


@contextmanager
def shared(
    parts: Any,
    worker: Worker | None,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
    only: Collection[str] = ALL,
) -> Iterator[Iterator[Derived]]:
    """Lend an iterator over what the stages make of each part, each as soon as it is done.

    The worker begins with the largest part, this process with the smallest, in a thread. Each takes another when it is
    done.

    Parameters
    ----------
    parts : `stages.parts.Parts`
    only : as for `deriving.derive`

    Raises
    ------
    whatever a stage raised, where the part's turn would be
    """
    waiting, done = deque(range(parts.number)), SimpleQueue[Derived | Exception]()

    def work(derive: Callable[..., Derived], take: Callable[[], int]) -> None:
        try:
            for number in _until_none_is_left(take):
                done.put(derive(parts.part(number), topology, window, settings, only))
        except Exception as error:  # it is raised where results are asked for
            done.put(error)

    def each() -> Iterator[Derived]:
        for _ in range(parts.number):
            told = done.get()
            if isinstance(told, Exception):
                raise told
            yield told

    with ThreadPoolExecutor() as threads:
        if worker is not None:
            threads.submit(work, worker.derive, waiting.popleft)
        threads.submit(work, deriving.derive, waiting.pop)
        try:
            yield each()
        finally:
            waiting.clear()


def _until_none_is_left(take: Callable[[], int]) -> Iterator[int]:
    """Yield what is taken: to ask first whether anything is left would be too early, where another takes as well."""
    with suppress(IndexError):
        while True:
            yield take()
