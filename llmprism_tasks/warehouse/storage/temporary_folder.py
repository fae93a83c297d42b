"""Temporary folders of this user's own: what a killed process leaves there is deleted after an hour."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llmprism_tasks.contract.errors import InputError, TransientError

KEPT_S = 3600
"""Seconds after which a folder that nobody has written to is deleted: its process was killed, or its run given up."""


def private_folder() -> Path:
    """Return `llmprism-<user id>` in the folder for temporary files; only this user can write there.

    Raises
    ------
    InputError : something else has that name
    """
    return _own(Path(tempfile.gettempdir()) / f"llmprism-{os.getuid()}", "TMPDIR")


def handover_folder(place: str) -> Path:
    """Return the folder in which tasks leave files for each other.

    Parameters
    ----------
    place : a folder that all machines share; empty: the private folder of this machine

    Raises
    ------
    InputError : something else has its name, or it cannot be made
    """
    if not place:
        return private_folder()
    with writing_to(Path(place)):
        Path(place).mkdir(parents=True, exist_ok=True)
    return _own(Path(place) / f"llmprism-handover-{os.getuid()}", "places.handover")


def _own(folder: Path, setting: str) -> Path:
    with writing_to(folder), suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InputError(
            found=f"{folder}, which is not a folder that belongs to this user",
            expected="a private folder for temporary files",
            todo=f"Have it removed, or set {setting} to another folder.",
        )
    return folder


def unfinished(path: Path) -> Path:
    """Return the name under which something is made that is to be at `path`; no other process of any machine has it."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def delete_old_folders(place: Path) -> None:
    """Delete what killed processes left in a folder of this user's own more than `KEPT_S` ago."""
    for folder in place.iterdir():
        with suppress(OSError):  # another process deletes it as well
            if folder.stat().st_mtime < time.time() - KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder in the private folder; it is deleted at the block's end. Frames read from it stay valid."""
    place = private_folder()
    delete_old_folders(place)
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn a failure to write into an error that says what to do.

    Raises
    ------
    TransientError : the block could not write to the folder
    """
    try:
        yield
    except OSError as error:
        raise TransientError(
            found=f"{folder}, where files that pass between processes cannot be written ({error})",
            expected="room for some 60 bytes for each flow record, look-back included",
            todo="Make room there, or set TMPDIR, or places.handover, to another folder; then run it again.",
        ) from error
