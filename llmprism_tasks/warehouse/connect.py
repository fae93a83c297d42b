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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import duckdb

from llmprism_tasks.contract import system_errors
from llmprism_tasks.contract.errors import InputError, WarehouseBusy
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse import schema
from llmprism_tasks.warehouse.lake import postgres
from llmprism_tasks.warehouse.lake.attach import LAKE, attached, check_data_path, in_postgres
from llmprism_tasks.warehouse.storage.failures import file_of, gone, identity, named_failures

Result = TypeVar("Result")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.25  # a short read takes milliseconds, writing a window some tenths of 1 s
STORAGE_VERSION = "v1.3.0"  # the first that packs texts in two thirds of the time; older DuckDBs cannot open the file
WRITING_THREADS = 1  # two threads took half as much CPU time again for a minute of flows, and longer on the clock
WRITING: dict[str, str | bool | int | float | list[str]] = {
    "storage_compatibility_version": STORAGE_VERSION,
    "threads": WRITING_THREADS,
}
CONFLICT_RETRIES = 5  # a DuckLake's commit may conflict with a writer on another host, which no lock file keeps out
MOST_VALUES_TO_SKIP_BY = 20_000  # windows of two weeks; DuckDB's own 50 made it read a whole week for a few minutes
HOLDER = re.compile(r"Conflicting lock is held in (?P<program>.*?) ?\(PID (?P<pid>\d+)\)")


@dataclass(frozen=True)
class Warehouse:
    """Location of the tables, and how long to wait for them.

    Attributes
    ----------
    location : path of a DuckDB file; or `ducklake:` and the path of a DuckLake's catalog, or `ducklake:postgres:` and
        PostgreSQL's connection string to the database that holds it
    lock_wait_s : longest wait for other processes, seconds
    data_path : folder of a DuckLake's files; empty: the one that its catalog names, or beside a new catalog the folder
        of the catalog's name with the ending `.files`
    catalog_password : for PostgreSQL; empty: from where its clients find it, such as `PGPASSFILE`
    was_there : whether its tables have been seen: then nothing else is opened, or made, in its place
    """

    location: str
    lock_wait_s: float
    data_path: str = ""
    catalog_password: str = field(default="", repr=False)
    was_there: bool = field(default=False, compare=False)

    @contextmanager
    def reading(self, *, shared: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a read-only connection; keep it only as long as the query takes.

        Parameters
        ----------
        shared : whether others of this process may have the same DuckDB; not if its configuration is to be changed

        Raises
        ------
        WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
        InputError : there is no warehouse, or the file is no DuckDB file
        and the errors of `named_failures`
        """
        with named_failures(self.location), postgres.named_refusals(self.location):
            connection = self._connected(read_only=True, shared=shared)
            try:
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
        WarehouseGone : the warehouse was removed or replaced meanwhile; what was written may be lost with it
        and the errors of `named_failures`
        """
        with self.alone() as connection:
            before = identity(self.location)
            connection.begin()
            try:
                yield connection
                connection.commit()
            except BaseException:
                with suppress(duckdb.Error):  # after a failed commit there is nothing to roll back
                    connection.rollback()
                raise
            if before not in (None, identity(self.location)):
                raise gone(self.location)

    @contextmanager
    def alone(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide the only connection that can write, outside a transaction, for what DuckDB does in none.

        Raises
        ------
        WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
        InputError : the file is no warehouse
        and the errors of `named_failures`
        """
        with self._only_writer(), named_failures(self.location), postgres.named_refusals(self.location):
            connection = self._connected(read_only=False)
            try:
                yield connection
            finally:
                connection.close()

    def write(self, work: Callable[[duckdb.DuckDBPyConnection], Result]) -> Result:
        """Run `work` within one transaction; run it again if another writer's commit came in between.

        Raises
        ------
        WarehouseBusy : commits of others came in between each time
        and the errors of `writing`
        """
        tries = 0
        while True:
            try:
                with self.writing() as connection:
                    return work(connection)
            except duckdb.TransactionException as error:
                tries += 1
                if tries > CONFLICT_RETRIES:
                    raise WarehouseBusy(
                        found=f"other processes wrote to the warehouse {self.location} in each of {tries} tries",
                        expected="a commit that no other comes before",
                        todo="Try again later, or let fewer processes write at a time.",
                    ) from error
            time.sleep(random.uniform(0.5, 1) * FIRST_PAUSE_S * 4 ** (tries - 1))

    def _connected(self, *, read_only: bool, shared: bool = True) -> duckdb.DuckDBPyConnection:
        """Connect to the warehouse, and to no other in its place.

        Raises
        ------
        WarehouseGone : it was there, and is not, or what is there has no tables of llmprism
        """
        file = file_of(self.location)
        if self.was_there and file is not None and not file.exists():  # DuckDB would make a new one
            raise gone(self.location)
        connection = _patiently(self, lambda: _connect(self, read_only=read_only, shared=shared))
        if self.was_there and not schema.is_there(connection):
            connection.close()
            raise gone(self.location)
        return connection

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
        with system_errors.named():
            lock.parent.mkdir(parents=True, exist_ok=True)
            file = lock.open("a+", encoding="utf-8")
        with file:
            _patiently(self, lambda: _lock(file.fileno(), lock))
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield  # closing the file releases the lock, and so does the end of the process


class _LockTakenError(Exception):
    """Another process holds the lock file; the message names the process."""


class _ReplacedError(Exception):
    """Between opening the file and locking it, a smaller copy took its place: what was written would be lost."""


def configured(settings: Settings) -> Warehouse:
    """Return the warehouse that the settings name; nothing is opened yet."""
    one = settings.warehouse
    return Warehouse(settings.places.warehouse, one.lock_wait_s, one.data_path, one.catalog_password)


def open_warehouse(warehouse: Warehouse) -> Warehouse:
    """Open a warehouse: create it if there is none, and bring its tables and views up to date.

    A new catalog in PostgreSQL needs a data path. The warehouse that is returned knows that its tables were there.

    Raises
    ------
    ContractError : the warehouse was written by a later llmprism
    InputError : the location cannot be opened
    TransientError : the disk is full, or PostgreSQL does not answer
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    location = warehouse.location
    if _exists(warehouse):
        with warehouse.reading() as connection:
            if schema.is_current(connection, location):
                return replace(warehouse, was_there=True)
    if in_postgres(location):
        check_data_path(warehouse.data_path)
    path = Path(warehouse.data_path if in_postgres(location) else location.removeprefix(LAKE))
    with system_errors.named():
        path.parent.mkdir(parents=True, exist_ok=True)
    warehouse.write(lambda connection: schema.bring_up_to_date(connection, location))
    return replace(warehouse, was_there=True)


def existing_warehouse(warehouse: Warehouse) -> Warehouse:
    """Open a warehouse to look at: one that is not there is a mistyped name, not one to create.

    Raises
    ------
    InputError : there is no such warehouse
    ContractError, WarehouseBusy : as `open_warehouse`
    """
    if not _exists(warehouse):
        raise InputError(
            found=f"no warehouse {warehouse.location}",
            expected="the warehouse of an earlier `llmprism analyze`",
            todo="Correct places.warehouse (--warehouse), or run `llmprism analyze` or the task `landing` first.",
        )
    return open_warehouse(warehouse)


def _exists(warehouse: Warehouse) -> bool:
    """Tell whether there is a warehouse: only then it can be opened for reading."""
    file = file_of(warehouse.location)
    if file is None:
        return postgres.has_lake(warehouse.location, warehouse.catalog_password)
    with system_errors.named():
        return file.exists()


def _connect(warehouse: Warehouse, *, read_only: bool, shared: bool) -> duckdb.DuckDBPyConnection:
    location = warehouse.location
    if in_postgres(location):
        connect = postgres.connect if shared else attached
        return _quiet(connect(location, warehouse.data_path, warehouse.catalog_password, read_only=read_only))
    if location.startswith(LAKE):
        catalog = location.removeprefix(LAKE)
        data_path = warehouse.data_path or f"{catalog}.files/"
        if not read_only:
            place = catalog if os.sep in catalog else f".{os.sep}{catalog}"  # a bare word would be a secret's name
            return _quiet(attached(f"{LAKE}{place}", data_path, "", read_only=False))
        with _catalog_copy(Path(catalog)) as copy:
            return _quiet(attached(f"{LAKE}{copy}", data_path, "", read_only=True))
    before = identity(location)
    connection = duckdb.connect(location, read_only=read_only, config={} if read_only else WRITING)
    if before is not None and identity(location) != before:
        connection.close()
        raise _ReplacedError
    return _quiet(connection)


@contextmanager
def _catalog_copy(catalog: Path) -> Iterator[str]:
    """Copy a DuckLake's catalog between two commits: who has the catalog open keeps writers out, and a copy does not.

    By DuckDB's documentation, one process may write a catalog that is a DuckDB file, or several may read it, and never
    both. The data that the copy names stay where they are. The copy has no name in any folder, so that a killed process
    leaves nothing behind; DuckDB opens it by its descriptor, and keeps it open when the block has ended.
    """
    lock = Path(f"{catalog}.lock")
    with (
        lock.open(encoding="utf-8") if lock.exists() else nullcontext() as held,
        tempfile.TemporaryFile() as copy,
    ):
        if held is not None:
            _lock(held.fileno(), lock, fcntl.LOCK_SH)
        if Path(f"{catalog}.wal").exists() or not catalog.exists():  # of a killed process, for the next writer to apply
            yield str(catalog)
            return
        with catalog.open("rb") as file:
            shutil.copyfileobj(file, copy)
        copy.flush()
        yield f"/proc/self/fd/{copy.fileno()}"


def _quiet(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Switch off DuckDB's progress bars and Python's names in queries, and let joins skip windows.

    Progress bars would appear in the output of commands. An unknown table would be looked for among the variables of
    whoever asks. Where a join has few values on one side, DuckDB skips the row groups of the other side that hold none
    of them.
    """
    connection.execute("SET enable_progress_bar = false; SET python_enable_replacements = false")
    connection.execute(f"SET dynamic_or_filter_threshold = {MOST_VALUES_TO_SKIP_BY}")
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
                raise system_errors.typed(error, f"warehouse {warehouse.location}") or _unreadable(
                    warehouse, error
                ) from error
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
    file = file_of(warehouse.location)
    with system_errors.named():
        foreign = file is not None and file.is_file() and _is_foreign(file)
    reason = "it is no DuckDB file" if foreign else str(error).splitlines()[0]
    return InputError(
        found=f"warehouse {warehouse.location} that cannot be opened ({reason})",
        expected="a DuckDB file, a DuckLake's catalog, or a path where one can be created",
        todo="Check the path and its permissions; `llmprism analyze` creates a new warehouse.",
    )


def _is_foreign(file: Path) -> bool:
    """Return whether a file lacks the mark of DuckDB's files, which follows a checksum of eight bytes."""
    with file.open("rb") as opened:
        return opened.read(12)[8:] != b"DUCK"
