"""Temporary: a folder of this user's own for files that are soon gone, and are swept up where a process was killed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llmprism_tasks.contract.errors import InputError, TransientError

LONGEST_S = 3600
"""What nobody has written to for so long is swept up: tasks of a window follow each other within minutes, or somebody
is mending it."""


def home() -> Path:
    """Return the folder, which nobody else can write to.

    Raises
    ------
    InputError : something else has its name
    """
    folder = Path(tempfile.gettempdir()) / f"llmprism-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InputError(
            found=f"{folder}, which is not a folder that belongs to this user",
            expected="a folder of one's own for temporary files",
            todo="Have it removed, or set TMPDIR to another folder.",
        )
    return folder


def sweep() -> None:
    """Remove what was left behind."""
    for folder in home().iterdir():
        with suppress(OSError):  # another process sweeps as well
            if folder.stat().st_mtime < time.time() - LONGEST_S:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def written_in(folder: Path) -> Iterator[None]:
    """Say what to do when a block cannot write there.

    Raises
    ------
    TransientError : it cannot
    """
    try:
        yield
    except OSError as error:
        raise TransientError(
            found=f"{folder}, where files that pass between processes cannot be written ({error})",
            expected="room for some 30 kB for each GPU",
            todo="Make room there, or set TMPDIR to another folder; then run it again.",
        ) from error
