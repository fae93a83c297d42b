"""Read copy: the results in a DuckDB file of their own, for people and programs that read for as long as they like.

It has the tables and views of all windows that are finished, without flows and timeline. It is published by renaming,
and never written to under its name: who has it open keeps what is open, and who opens it finds whole windows.

The file that was published before the last, `<name>.next`, receives the windows that have changed since, and takes the
name. If somebody still reads it, a copy of the published file takes its part. So a publication costs what has changed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import polars as pl

from llmprism_tasks.contract.errors import InputError, LlmprismError, TransientError
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.warehouse import schema, store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import identifier
from llmprism_tasks.warehouse.storage import incidents, insertion
from llmprism_tasks.warehouse.storage.value_codes import NUMBERED

COPIED = tuple(table.name for table in TABLES if table.name not in NUMBERED and "window_start_ns" in table.column_names)
COPIED_WHOLE = ("windows", "minutes", "notifications", "mutes", "flow_files")
"""Tables of which a row changes whenever anything of its window does."""

UNFINISHED = ("landed", "running")
"""States of windows that are copied only once they are finished; until then, the copy has what they were before."""

WINDOWS_AT_A_TIME = 10
"""Read in one go: a run waits for a reader for some tenths of a second at the most."""

IN_WINDOWS = "window_start_ns IN (SELECT unnest($starts::BIGINT[]))"


def publish(warehouse: Warehouse, path: Path) -> int:
    """Publish what is finished in a warehouse; may be killed at any moment and run again.

    Parameters
    ----------
    path : the copy; `<path>.next` and `<path>.lock` are beside it

    Returns
    -------
    how many windows were copied

    Raises
    ------
    TransientError : the copy cannot be written; the one before is still there
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    coming = path.with_name(f"{path.name}.next")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_publisher(path):
            _tidy(path, coming)
            _prepare(path, coming)
            changed = _update(warehouse, Warehouse(str(coming), 0))
            _publish(path, coming)
    except (OSError, duckdb.Error) as error:
        raise TransientError(
            found=f"read copy {path} that cannot be written ({str(error).splitlines()[0]})",
            expected="a folder with room for the results, where places.read_copy may be written",
            todo="Make room, or correct places.read_copy. The next window that is finished publishes again.",
        ) from error
    return changed


def open_copy(path: Path, *, lock_wait_s: float) -> Warehouse:
    """Return a published copy, to read.

    Raises
    ------
    InputError : there is none, or it is of another version of llmprism
    """
    copy = Warehouse(str(path), lock_wait_s)
    if path.is_file():
        with copy.reading() as connection:
            if schema.is_current(connection, copy.location):
                return copy
    raise InputError(
        found=f"{'a read copy of another version' if path.is_file() else 'no read copy'}, {path}",
        expected="the read copy that is published when a window is finished",
        todo="Wait for the next window, or read the warehouse itself with --live.",
    )


@contextmanager
def _only_publisher(path: Path) -> Iterator[None]:
    with path.with_name(f"{path.name}.lock").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases the lock, and so does the end of the process


def _tidy(path: Path, coming: Path) -> None:
    """Finish what a killed process began: `.last` is the file that was published before, or a second name of it."""
    last = path.with_name(f"{path.name}.last")
    if last.exists():
        if coming.exists():
            last.unlink()
        else:
            last.rename(coming)


def _prepare(path: Path, coming: Path) -> None:
    """Leave a file that nobody reads, with the tables of this version, where the next copy is written."""
    if coming.exists() and not _usable(coming):
        _remove(coming)
    if not coming.exists() and path.exists() and _usable(path, read_only=True):
        shutil.copyfile(path, coming)
    if not coming.exists():
        Warehouse(str(coming), 0).write(schema.create_results)


def _usable(file: Path, *, read_only: bool = False) -> bool:
    """Tell whether a file has the tables of this version and, if it is to be written, nobody reads it."""
    copy = Warehouse(str(file), 0)
    try:
        with copy.reading() if read_only else copy.alone() as connection:
            return schema.is_current(connection, copy.location)
    except (LlmprismError, duckdb.Error):
        return False


def _update(warehouse: Warehouse, copy: Warehouse) -> int:
    """Bring the windows that have changed into a copy; returns how many."""
    with copy.reading() as connection:
        there = _digests(connection)
    with warehouse.reading() as connection:
        here = _digests(connection)
    changed = sorted(start for start in {*here, *there} if here.get(start) != there.get(start))
    copied = 0
    with copy.writing() as connection:
        for first in range(0, len(changed), WINDOWS_AT_A_TIME):
            some = changed[first : first + WINDOWS_AT_A_TIME]
            finished, tables = _rows(warehouse, some)
            copied += len(finished)
            for table, rows in tables.items():
                connection.execute(f"DELETE FROM {identifier(table)} WHERE {IN_WINDOWS}", {"starts": finished})
                insertion.insert(connection, table, rows)
        if changed:
            incidents.renew(connection, changed[0])
    return copied


def _digests(connection: duckdb.DuckDBPyConnection) -> dict[int, list[object]]:
    """Return, for each window, what its rows of telling tables amount to."""
    found: dict[int, list[object]] = {}
    for table in COPIED_WHOLE:
        asked = f"SELECT window_start_ns, sum(hash({table})) FROM {table} GROUP BY ALL"
        for start, digest in connection.execute(asked).fetchall():
            found.setdefault(start, []).append((table, digest))
    return found


def _rows(warehouse: Warehouse, starts: Sequence[int]) -> tuple[list[int], dict[str, pl.DataFrame]]:
    """Return which of some windows are finished or gone, and all rows of these, as of one moment."""
    with warehouse.reading() as connection:
        connection.begin()
        asked = f"SELECT window_start_ns FROM windows WHERE {IN_WINDOWS} AND status IN (SELECT unnest($unfinished))"
        values = {"starts": list(starts), "unfinished": list(UNFINISHED)}
        unfinished = {start for (start,) in connection.execute(asked, values).fetchall()}
        finished = [start for start in starts if start not in unfinished]
        return finished, {
            table: store.frame(
                connection.execute(f"SELECT * FROM {identifier(table)} WHERE {IN_WINDOWS}", {"starts": finished})
            )
            for table in COPIED
        }


def _publish(path: Path, coming: Path) -> None:
    """Give the new file the name, and keep the one that had it, to be written next."""
    last = path.with_name(f"{path.name}.last")
    if path.exists():
        os.link(path, last)
    coming.replace(path)
    if last.exists():
        last.rename(coming)


def _remove(file: Path) -> None:
    for one in (file, Path(f"{file}.wal")):
        one.unlink(missing_ok=True)
