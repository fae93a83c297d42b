"""Frames as Arrow files in a folder of this user's own: how processes hand tables to each other.

The files are memory-mapped: a reader shares the pages that the writer wrote, and copies nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from llmprism_tasks.contract.errors import InputError, TransientError
from llmprism_tasks.numerics import encoding

KEPT_S = 3600
"""Seconds after which a folder that nobody has written to is deleted: its process was killed, or its run given up."""

CATEGORIES = b"categories"
"""Key in a file's metadata: the columns whose numbers stand for the texts of a second file, `<name>.texts.arrow`."""


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


def write_frame(frame: pl.DataFrame, folder: Path, name: str) -> None:
    """Write a frame to `<folder>/<name>.arrow`, replacing it in one step.

    Categories are written as this process's numbers, with the text of each number in a second file: Polars would number
    them anew for each column, which takes twice as long as everything else.

    Raises
    ------
    TransientError : there is no room
    """
    categories = [column for column, kind in frame.schema.items() if kind == pl.Categorical]
    if categories:
        _write(_texts(frame.select(categories)), folder, f"{name}.texts", [])
    _write(frame.with_columns(pl.col(categories).to_physical()), folder, name, categories)


def read_frame(folder: Path, name: str) -> pl.DataFrame:
    """Return the frame that `write_frame` wrote, memory-mapped: the files may be deleted while the frame is in use.

    Raises
    ------
    OSError, pyarrow.ArrowException : the file is missing or damaged
    """
    frame, categories = _read(folder, name)
    if not categories:
        return frame
    texts, _ = _read(folder, f"{name}.texts")
    written, here = texts["number"].to_numpy(), texts["text"].cast(pl.Categorical)
    numbers = np.zeros(np.max(written, initial=0) + 1, np.uint32)
    numbers[written] = here.to_physical().to_numpy()
    return frame.with_columns(
        pl.Series(column, numbers).gather(frame[column]).cat.to(here.dtype) for column in categories
    )


def _texts(columns: pl.DataFrame) -> pl.DataFrame:
    """Return each `number` that occurs in columns of categories, and the `text` that it stands for."""
    met = [encoding.distinct_codes(column.to_physical().drop_nulls().to_numpy()) for column in columns]
    numbers = pl.Series("number", np.unique(np.concatenate(met)))
    return pl.DataFrame({"number": numbers, "text": numbers.cat.to(pl.Categorical()).cast(pl.String)})


def _write(frame: pl.DataFrame, folder: Path, name: str, categories: list[str]) -> None:
    rows = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    rows = rows.replace_schema_metadata({CATEGORIES: json.dumps(categories)})
    path = folder / f"{name}.arrow"
    made = unfinished(path)
    with writing_to(folder):
        with pa.OSFile(str(made), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        made.replace(path)


def _read(folder: Path, name: str) -> tuple[pl.DataFrame, list[str]]:
    with pa.memory_map(str(folder / f"{name}.arrow")) as file:
        rows = pa.ipc.open_file(file).read_all()
    return pl.DataFrame(pl.from_arrow(rows)), json.loads(rows.schema.metadata[CATEGORIES])
