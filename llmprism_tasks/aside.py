"""Work done aside, in a thread of its own, while the caller goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

Work = Callable[[], object]


def at_once(work: Work) -> None:
    """Do work here and now: for who may be given something that does it aside."""
    work()


@contextmanager
def aside() -> Iterator[Callable[[Work], None]]:
    """Lend a function that takes work to do; each piece is done after those before it, and all are at the block's end.

    Raises
    ------
    what a piece of work raised, at the block's end; those after it are not done. So what is left behind is as if each
    piece had been done where it was given.
    """
    given: list[Future[None]] = []

    def after(before: Future[None] | None, work: Work) -> None:
        if before is not None:
            before.result()
        work()

    with ThreadPoolExecutor(max_workers=1) as thread:
        try:
            yield lambda work: given.append(thread.submit(after, given[-1] if given else None, work))
        finally:
            for piece in given:
                piece.result()
