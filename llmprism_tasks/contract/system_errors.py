"""Errors of the operating system as errors of llmprism: what is wrong with which path, and what to do about it.

Libraries report them in their own exceptions, but keep the system's words: so they are known by these.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llmprism_tasks.contract.errors import InputError, LlmprismError, TransientError


@dataclass(frozen=True)
class Trouble:
    """What to say of an error number.

    Attributes
    ----------
    expected : what would have been right
    todo : what the reader can do
    kind : whether trying again later may help
    """

    expected: str
    todo: str
    kind: type[LlmprismError] = InputError


_ROOM = Trouble(
    "room to write", "Make room there, then run it again: what was written before is complete.", TransientError
)
_PATH = Trouble("a path whose folders are there or can be made", "Correct the path.")
_RIGHTS = Trouble(
    "a path that this user may use", "Change its permissions, choose another path, or run it as another user."
)
_STORAGE = Trouble(
    "storage that answers", "See to the disk, or to the connection to it, then run it again.", TransientError
)
_LIMIT = Trouble("fewer open files", "Raise the limit (ulimit -n), or run less at a time.", TransientError)

TROUBLES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: Trouble(
        "files as large as this process needs", "Raise the limit (ulimit -f), or choose another file system."
    ),
    errno.EROFS: Trouble(
        "a path that can be written", "Choose another path, or have the file system mounted writable."
    ),
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOENT: _PATH,
    errno.ENOTDIR: _PATH,
    errno.EEXIST: Trouble("a path whose folders are folders, not files", "Correct the path."),
    errno.EISDIR: Trouble("a file, not a folder", "Correct the path."),
    errno.ENAMETOOLONG: Trouble("a name of at most 255 bytes", "Choose a shorter name."),
    errno.ELOOP: Trouble("links that lead to a file", "Correct the path, or the links in it."),
    errno.EIO: _STORAGE,
    errno.ESTALE: _STORAGE,
    errno.ETIMEDOUT: _STORAGE,
    errno.EMFILE: _LIMIT,
    errno.ENFILE: _LIMIT,
    errno.ENOMEM: Trouble(
        "memory for it", "End other programs, or give it more memory; then run it again.", TransientError
    ),
}
_WORDS = {os.strerror(number): number for number in TROUBLES} | {"Out of Memory Error": errno.ENOMEM}


def number_of(error: BaseException) -> int | None:
    """Return the system's error number that an exception has, or whose words end its message; None if there is none."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    found = [words for words in _WORDS if words in text]
    return _WORDS[max(found, key=len)] if found else None


def typed(error: BaseException, place: str = "") -> LlmprismError | None:
    """Return an exception as an error of llmprism; None if it is not one of the operating system.

    Parameters
    ----------
    place : path, or other words for where it happened, if the exception does not name a file
    """
    number = number_of(error)
    if number is None or isinstance(error, BrokenPipeError):
        return None
    trouble = TROUBLES.get(number, _STORAGE)
    named = error.filename if isinstance(error, OSError) else None
    where = os.fsdecode(named) if isinstance(named, str | bytes) else place
    words = os.strerror(number) if where else " ".join(str(error).split())
    return trouble.kind(found=f"{where}: {words}" if where else words, expected=trouble.expected, todo=trouble.todo)


@contextmanager
def named(place: str = "") -> Iterator[None]:
    """Raise errors of the operating system as errors of llmprism; `place` is that of `typed`."""
    try:
        yield
    except Exception as error:
        known = typed(error, place)
        if known is None or isinstance(error, LlmprismError):
            raise
        raise known from error
