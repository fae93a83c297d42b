"""Work done aside, in a thread of its own, while the caller goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

Work = Callable[[], object]


def at_once(work: Work) -> None:
    """Do work here and now: for who may be given something that does it aside."""
    work()


class Aside:
    """Takes work to do; each piece is done after those before it, and none after one that failed."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._latest: Future[None] | None = None

    def __call__(self, work: Work) -> None:
        self._latest = self._thread.submit(_after, self._latest, work)

    def wait(self) -> None:
        """Wait until all that was given is done; what is given later is done whatever came of it.

        Raises
        ------
        what a piece of work raised
        """
        latest, self._latest = self._latest, None
        if latest is not None:
            latest.result()


@contextmanager
def aside() -> Iterator[Aside]:
    """Lend what takes work to do, all of which is done at the block's end.

    Raises
    ------
    what a piece of work raised, at the block's end. So what is left behind is as if each piece had been done where it
    was given.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        taken = Aside(thread)
        try:
            yield taken
        finally:
            taken.wait()


def _after(before: Future[None] | None, work: Work) -> None:
    if before is not None:
        before.result()
    work()
