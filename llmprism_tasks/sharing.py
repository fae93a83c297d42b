"""Sharing: the parts of a platform taken through the stages by this process and a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import polars as pl

from llmprism_tasks import deriving
from llmprism_tasks.deriving import Derived
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
    only: Collection[str] = deriving.ALL,
) -> Iterator[Iterator[Derived]]:
    """Lend an iterator over what the stages make of each part, as they are done.

    The worker begins at once, with the largest part. This process begins when the iterator is asked, with the smallest.
    Each takes another when it is done.

    Parameters
    ----------
    parts : `stages.parts.Parts`
    only : as for `deriving.derive`
    """
    waiting, done = deque(range(parts.number)), SimpleQueue[Derived]()

    def work(derive: Callable[..., Derived], take: Callable[[], int]) -> None:
        while waiting:
            done.put(derive(parts.part(take()), topology, window, settings, only))

    def ours() -> Iterator[Derived]:
        while waiting:
            yield deriving.derive(parts.part(waiting.pop()), topology, window, settings, only)
            while not done.empty():
                yield done.get()
        if theirs is not None:
            theirs.result()
        while not done.empty():
            yield done.get()

    with ThreadPoolExecutor(max_workers=1) as thread:
        theirs = None if worker is None else thread.submit(work, worker.derive, waiting.popleft)
        try:
            yield ours()
        finally:
            waiting.clear()
