"""Sharing: the parts of a platform taken through the stages by this process and a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import polars as pl

from llmprism_tasks import deriving
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.deriving import Derived
from llmprism_tasks.settings import Settings
from llmprism_tasks.worker import Worker


@contextmanager
def shared(
    parts: Any,
    worker: Worker | None,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
    turns: Sequence[Collection[str]],
) -> Iterator[Iterator[tuple[int, Derived]]]:
    """Lend an iterator over what the stages of each turn make of each part, and which part, as soon as it is made.

    The worker begins with the largest part, this process with the smallest, in a thread. Each takes another when it is
    done.

    Parameters
    ----------
    parts : `stages.parts.Parts`
    turns : as for `deriving.derive_in_turn`

    Raises
    ------
    whatever a stage raised, where the part's turn would be
    """
    waiting, done = deque(range(parts.number)), SimpleQueue[tuple[int, Derived] | Exception]()

    def work(derive_in_turn: Callable[..., Iterator[Derived]], take: Callable[[], int]) -> None:
        try:
            for number in _until_none_is_left(take):
                for derived in derive_in_turn(parts.part(number), topology, window, settings, turns):
                    done.put((number, derived))
        except Exception as error:  # it is raised where results are asked for
            done.put(error)

    def each() -> Iterator[tuple[int, Derived]]:
        for _ in range(parts.number * len(turns)):
            told = done.get()
            if isinstance(told, Exception):
                raise told
            yield told

    with ThreadPoolExecutor() as threads:
        if worker is not None:
            threads.submit(work, worker.derive_in_turn, waiting.popleft)
        threads.submit(work, deriving.derive_in_turn, waiting.pop)
        try:
            yield each()
        finally:
            waiting.clear()


def _until_none_is_left(take: Callable[[], int]) -> Iterator[int]:
    """Yield what is taken: to ask first whether anything is left would be too early, where another takes as well."""
    with suppress(IndexError):
        while True:
            yield take()
