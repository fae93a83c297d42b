"""Open a warehouse, a DuckDB file or a DuckLake, for a short time, and wait for other processes that hold it.

A DuckDB file admits one writing process or several reading ones. So a connection is opened only when there is something
to read or write, and closed right after. A process that finds the file locked tries again until its wait time is over.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import duckdb

from llmprism_tasks.contract.errors import InputError, WarehouseBusy
from llmprism_tasks.warehouse import schema
from llmprism_tasks.warehouse.lake import postgres
from llmprism_tasks.warehouse.lake.attach import LAKE, attached, check_data_path, in_postgres

Result = TypeVar("Result")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.25  # a short read takes milliseconds, writing a window some tenths of 1 s
STORAGE_VERSION = "v1.3.0"  # the first that packs texts in two thirds of the time; older DuckDBs cannot open the file
WRITING_THREADS = 1  # two threads took half as much CPU time again for a minute of flows, and longer on the clock
WRITING: dict[str, str | bool | int | float | list[str]] = {
    "storage_compatibility_version": STORAGE_VERSION,
    "threads": WRITING_THREADS,
}
CONFLICT_RETRIES = 5  # a DuckLake's commit may conflict with a writer on another host, which no lock file keeps out
HOLDER = re.compile(r"Conflicting lock is held in (?P<program>.*?) ?\(PID (?P<pid>\d+)\)")


@dataclass(frozen=True)
class Warehouse:
    """Location of the tables, and how long to wait for them.

    Attributes
    ----------
    location : path of a DuckDB file; or `ducklake:` and the path of a DuckLake's catalog, or `ducklake:postgres:` and
        the connection string of the database that holds it
    lock_wait_s : longest wait for other processes, seconds
    data_path : folder of a DuckLake's files; empty: the one that its catalog names, or beside a new catalog
    catalog_password : for PostgreSQL; empty: from where its clients find it, such as `PGPASSFILE`
    """

    location: str
    lock_wait_s: float
    data_path: str = ""
    catalog_password: str = field(default="", repr=False)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a read-only connection; keep it only as long as the query takes.

        Raises
        ------
        WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
        InputError : there is no warehouse, or the file is no DuckDB file
        """
        connection = _patiently(self, lambda: _connect(self, read_only=True))
        try:
            with postgres.named_refusals(self.location):
                yield connection
        finally:
            connection.interrupt()  # closing would otherwise wait for an abandoned query to end
            connection.close()

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a connection within one transaction: committed at the end, rolled back on any exception.

        Raises
        ------
        WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
        InputError : the file is no warehouse
        """
        with self.alone() as connection:
            connection.begin()
            try:
                yield connection
                connection.commit()
            except BaseException:
                with suppress(duckdb.Error):  # after a failed commit there is nothing to roll back
                    connection.rollback()
                raise

    @contextmanager
    def alone(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide the only connection that can write, outside a transaction, for what DuckDB does in none.

        Raises
        ------
        WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
        InputError : the file is no warehouse
        """
        with self._only_writer(), postgres.named_refusals(self.location):
            connection = _patiently(self, lambda: _connect(self, read_only=False))
            try:
                yield connection
            finally:
                connection.close()

    def write(self, work: Callable[[duckdb.DuckDBPyConnection], Result]) -> Result:
        """Run `work` within one transaction; run it again if another writer's commit came in between."""
        for attempt in range(CONFLICT_RETRIES):
            try:
                with self.writing() as connection:
                    return work(connection)
            except duckdb.TransactionException:
                time.sleep(random.uniform(0.5, 1) * FIRST_PAUSE_S * 4**attempt)
        with self.writing() as connection:
            return work(connection)

    @contextmanager
    def _only_writer(self) -> Iterator[None]:
        """Keep other writers of a DuckLake out: a commit that deletes rows makes other commits to the table fail."""
        if not self.location.startswith(LAKE):
            yield
            return
        if in_postgres(self.location):
            with postgres.only_writer(self.location, self.catalog_password, self.lock_wait_s):
                yield
            return
        lock = Path(self.location.removeprefix(LAKE) + ".lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("a+", encoding="utf-8") as file:
            _patiently(self, lambda: _lock(file.fileno(), lock))
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield  # closing the file releases the lock, and so does the end of the process


class _LockTakenError(Exception):
    """Another process holds the lock file; the message names the process."""


class _ReplacedError(Exception):
    """Between opening the file and locking it, a smaller copy took its place: what was written would be lost."""


def open_warehouse(location: str, *, lock_wait_s: float, data_path: str = "", catalog_password: str = "") -> Warehouse:
    """Open a warehouse: create it if there is none, and bring its tables and views up to date.

    Parameters
    ----------
    location : path of a DuckDB file; or `ducklake:` and the path of a catalog file, whose data are in a folder of the
        same name with the ending `.files`; or `ducklake:postgres:` and PostgreSQL's connection string
    lock_wait_s : longest wait for other processes, seconds
    data_path, catalog_password : as of `Warehouse`; a new catalog in PostgreSQL needs a data path

    Raises
    ------
    ContractError : the warehouse was written by a later llmprism
    InputError : the location cannot be opened
    TransientError : PostgreSQL does not answer
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    warehouse = Warehouse(location, lock_wait_s, data_path, catalog_password)
    if _exists(warehouse):
        with warehouse.reading() as connection:
            if schema.is_current(connection, location):
                return warehouse
    if in_postgres(location):
        check_data_path(data_path)
    path = Path(data_path if in_postgres(location) else location.removeprefix(LAKE))
    path.parent.mkdir(parents=True, exist_ok=True)
    warehouse.write(lambda connection: schema.bring_up_to_date(connection, location))
    return warehouse


def existing_warehouse(
    location: str, *, lock_wait_s: float, data_path: str = "", catalog_password: str = ""
) -> Warehouse:
    """Open a warehouse to look at: one that is not there is a mistyped name, not one to create.

    Raises
    ------
    InputError : there is no such warehouse
    ContractError, WarehouseBusy : as `open_warehouse`
    """
    warehouse = Warehouse(location, lock_wait_s, data_path, catalog_password)
    if not _exists(warehouse):
        raise InputError(
            found=f"no warehouse {location}",
            expected="the warehouse of an earlier `llmprism analyze`",
            todo="Name it with --warehouse, or run `llmprism analyze` first.",
        )
    return open_warehouse(location, lock_wait_s=lock_wait_s, data_path=data_path, catalog_password=catalog_password)


def _exists(warehouse: Warehouse) -> bool:
    """Tell whether there is a warehouse: only then it can be opened for reading."""
    if not in_postgres(warehouse.location):
        return Path(warehouse.location.removeprefix(LAKE)).exists()
    return postgres.has_lake(warehouse.location, warehouse.catalog_password)


def _connect(warehouse: Warehouse, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    location = warehouse.location
    if in_postgres(location):
        return _quiet(postgres.connect(location, warehouse.data_path, warehouse.catalog_password, read_only=read_only))
    if location.startswith(LAKE):
        catalog = location.removeprefix(LAKE)
        data_path = warehouse.data_path or f"{catalog}.files/"
        if not read_only:
            return _quiet(attached(location, data_path, "", read_only=False))
        with _catalog_copy(Path(catalog)) as copy:
            return _quiet(attached(f"{LAKE}{copy}", data_path, "", read_only=True))
    before = _inode(location)
    connection = duckdb.connect(location, read_only=read_only, config={} if read_only else WRITING)
    if before is not None and _inode(location) != before:
        connection.close()
        raise _ReplacedError
    return _quiet(connection)


@contextmanager
def _catalog_copy(catalog: Path) -> Iterator[Path]:
    """Copy a DuckLake's catalog between two commits: who has the catalog open keeps writers out, and a copy does not.

    The data that it names stay where they are. The copy lives on in the process that opens it, and goes with it.
    """
    with tempfile.TemporaryDirectory(prefix="llmprism-catalog-") as folder:
        copy, lock = Path(folder) / catalog.name, Path(f"{catalog}.lock")
        with lock.open(encoding="utf-8") if lock.exists() else nullcontext() as file:
            if file is not None:
                _lock(file.fileno(), lock, fcntl.LOCK_SH)
            shutil.copyfile(catalog, copy)
            if Path(f"{catalog}.wal").exists():  # of a process that was killed
                shutil.copyfile(f"{catalog}.wal", f"{copy}.wal")
        yield copy


def _inode(location: str) -> int | None:
    """Return the number of the file itself, whatever its name; None if there is none."""
    try:
        return Path(location).stat().st_ino
    except FileNotFoundError:
        return None


def _quiet(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Switch DuckDB's progress bars off, which would appear in the output of commands."""
    connection.execute("SET enable_progress_bar = false")
    return connection


def _lock(descriptor: int, lock: Path, kind: int = fcntl.LOCK_EX) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = lock.read_text(encoding="utf-8") or "unknown"
        raise _LockTakenError(f"Conflicting lock is held in llmprism (PID {holder})") from error


def _patiently(warehouse: Warehouse, attempt: Callable[[], Result]) -> Result:
    """Try until it works or the wait time is over; pauses grow and are random, so that waiting processes spread."""
    began, pause = time.monotonic(), FIRST_PAUSE_S
    while True:
        try:
            return attempt()
        except _ReplacedError:
            continue
        except (duckdb.IOException, duckdb.ConnectionException, duckdb.CatalogException, _LockTakenError) as error:
            if not _is_taken(error):
                raise _unreadable(warehouse, error) from error
            waited = time.monotonic() - began
            if waited >= warehouse.lock_wait_s:
                raise _busy(warehouse, waited, error) from error
        time.sleep(min(random.uniform(0.5, 1) * pause, warehouse.lock_wait_s))
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _is_taken(error: Exception) -> bool:
    text = str(error)
    return (
        isinstance(error, _LockTakenError) or "Could not set lock on file" in text or "different configuration" in text
    )


def _busy(warehouse: Warehouse, waited: float, error: Exception) -> WarehouseBusy:
    holder = HOLDER.search(str(error))
    who = f"process {holder['pid']} ({holder['program']})" if holder else f"this process itself, {os.getpid()}"
    return WarehouseBusy(
        found=f"process {os.getpid()} waited {waited:.1f} s for the warehouse {warehouse.location}, held by {who}",
        expected=f"the warehouse to be free within warehouse.lock_wait_s = {warehouse.lock_wait_s:g} s",
        todo="Try again later, end the other process, or raise warehouse.lock_wait_s.",
    )


def _unreadable(warehouse: Warehouse, error: Exception) -> InputError:
    return InputError(
        found=f"warehouse {warehouse.location} that cannot be opened ({str(error).splitlines()[0]})",
        expected="a DuckDB file, a DuckLake's catalog, or a path where one can be created",
        todo="Check the path and its permissions; `llmprism analyze` creates a new warehouse.",
    )
