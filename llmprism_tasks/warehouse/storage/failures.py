"""What DuckDB says went wrong with a warehouse, as errors of llmprism: a full disk, a path, a file that is gone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb

from llmprism_tasks.contract import system_errors
from llmprism_tasks.contract.errors import ContractError, InputError, LlmprismError, WarehouseGone
from llmprism_tasks.settings.secrets import WITH_SERVER
from llmprism_tasks.warehouse.lake.attach import LAKE

DAMAGED = (duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException)
CHANGED = (duckdb.CatalogException, duckdb.BinderException)


class Identity(NamedTuple):
    """Which file a path leads to; another one has the path when it was replaced."""

    device: int
    inode: int


def file_of(location: str) -> Path | None:
    """Return the file that a warehouse is, or that is a DuckLake's catalog; None if the catalog is in a server."""
    return None if WITH_SERVER.match(location) else Path(location.removeprefix(LAKE))


def identity(location: str) -> Identity | None:
    """Return which file a warehouse is; None if there is none, or its catalog is in a server."""
    file = file_of(location)
    try:
        found = None if file is None else file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if found is None else Identity(found.st_dev, found.st_ino)


def gone(location: str) -> WarehouseGone:
    """Return the error for a warehouse that was there and is not any more."""
    return WarehouseGone(
        found=f"the warehouse {location} was removed or replaced while it was in use",
        expected="the warehouse that was there when this began",
        todo="Put it back, or run the same command again: `llmprism analyze` makes a new one.",
    )


def of_storage(error: Exception) -> bool:
    """Tell whether an error of DuckDB is about files, memory or damage, and not about what was asked."""
    return system_errors.number_of(error) is not None or isinstance(
        error, (*DAMAGED, duckdb.IOException, duckdb.ConnectionException)
    )


@contextmanager
def named_failures(location: str) -> Iterator[None]:
    """Raise what DuckDB says of a warehouse as an error of llmprism; a conflict between writers stays as it is.

    Raises
    ------
    TransientError : the disk is full, memory is short, or storage does not answer
    WarehouseGone : a file of it was removed
    InputError : its path or permissions do not allow it, or the file is damaged
    ContractError : its tables are not those of llmprism
    """
    try:
        yield
    except duckdb.Error as error:
        known = _typed(error, location)
        if known is None:
            raise
        raise known from error


def _typed(error: duckdb.Error, location: str) -> LlmprismError | None:
    if system_errors.number_of(error) == errno.ENOENT:  # of a file in a DuckLake: no others are opened here
        return gone(location)
    known = system_errors.typed(error, f"warehouse {location}")
    if known is not None:
        return known
    first = str(error).partition("\n")[0]
    if isinstance(error, DAMAGED) or "Corrupt database file" in first:
        return InputError(
            found=f"the warehouse {location} is damaged ({first})",
            expected="a file that only DuckDB has written to",
            todo="Put a backup in its place, or remove it and run the windows again.",
        )
    if isinstance(error, CHANGED):
        return ContractError(
            found=f"the warehouse {location} is not as llmprism made it ({first})",
            expected="its own tables and views",
            todo="Undo what was changed by other means. If nothing was, this is a bug: please report it.",
        )
    return None
