"""A DuckLake whose catalog is in PostgreSQL: connections that stay attached, and a lock between writers of all hosts.

Attaching takes a tenth of a second and several connections to PostgreSQL, so a process attaches once to write and once
to read. Every transaction sees what was committed before it began.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import duckdb

from llmprism_tasks.contract.errors import InputError, TransientError, WarehouseBusy
from llmprism_tasks.warehouse.lake.attach import IN_POSTGRES, attached, in_postgres

LOCK = int.from_bytes(b"llmprism")
"""The number of the writers' advisory lock. PostgreSQL keeps such locks apart by database."""

KEEPALIVES = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
"""Seconds, and how often: PostgreSQL frees a lock 25 s after its holder's machine went away, not after two hours."""

CONNECT_TIMEOUT_S = 10

UNREACHABLE = re.compile(
    r"Unable to connect to Postgres|server closed the connection|terminating connection|connection to server"
    r"|could not receive data|could not send data|no connection to the server|SSL connection has been closed",
    re.IGNORECASE,
)
"""What DuckDB's and PostgreSQL's messages say when the server is not there, or went away."""

MAY_ONLY_READ = re.compile(r"permission denied for [^\n]+|cannot execute \w+ in a read-only transaction")
"""What PostgreSQL says to a user who may not write."""

HOLDER = """
SELECT activity.application_name, activity.client_addr, activity.pid
FROM pg_locks AS lock JOIN pg_stat_activity AS activity USING (pid)
WHERE lock.locktype = 'advisory' AND lock.granted AND lock.objsubid = 1
  AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND lock.classid::BIGINT = %(number)s >> 32 AND lock.objid::BIGINT = %(number)s & 4294967295
"""

_kept: dict[tuple[int, str, str, bool], duckdb.DuckDBPyConnection] = {}
_guard = threading.Lock()


def connect(location: str, data_path: str, password: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Return a connection to the DuckDB of this process that has the DuckLake attached; it is attached if none has.

    Raises
    ------
    what `attach.attached` raises
    """
    key = (os.getpid(), location, data_path, read_only)  # a forked child must not use its parent's
    with _guard:
        if key not in _kept:
            _kept[key] = attached(location, data_path, password, read_only=read_only)
        connection = _kept[key].cursor()
    connection.execute("USE lake")
    return connection


def has_lake(location: str, password: str) -> bool:
    """Tell whether the database holds a DuckLake's catalog.

    Raises
    ------
    TransientError : PostgreSQL does not answer
    InputError : the connection string is wrong, or psycopg2 is not installed
    """
    connection = _session(location, password)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('ducklake_metadata') IS NOT NULL")
            return bool(cursor.fetchone()[0])
    finally:
        connection.close()


def forget(location: str) -> None:
    """Attach anew before the next transaction: PostgreSQL went away."""
    with _guard:
        for key in [key for key in _kept if key[1] == location]:
            _kept.pop(key)  # whoever still uses it closes it


def away(location: str, error: Exception) -> TransientError | None:
    """Return what to raise if an error says that PostgreSQL is not there; None if it says something else."""
    if not UNREACHABLE.search(str(error)):
        return None
    forget(location)
    reason = str(error).strip().splitlines()[0].rpartition('": ')[2]
    return TransientError(
        found=f"the catalog of the warehouse {location}, where PostgreSQL does not answer ({reason})",
        expected="PostgreSQL with the catalog's database, reachable from this machine",
        todo="See that it runs and that host, port, user and password are right; then run it again. "
        "Nothing is half written.",
    )


@contextmanager
def named_refusals(location: str) -> Iterator[None]:
    """Raise what DuckDB says of a PostgreSQL that is not there, or refuses to be written to, as an error of llmprism.

    Raises
    ------
    TransientError : PostgreSQL does not answer
    InputError : the user of the connection string may only read
    """
    try:
        yield
    except duckdb.Error as error:
        known = (_refused(location, error) or away(location, error)) if in_postgres(location) else None
        if known is None:
            raise
        raise known from error


@contextmanager
def only_writer(location: str, password: str, wait_s: float) -> Iterator[None]:
    """Keep other writers of all hosts out: a commit that deletes rows makes other commits to the table fail.

    The lock belongs to a connection of its own. PostgreSQL frees it when the connection ends, however the process
    does.

    Parameters
    ----------
    wait_s : longest wait for other writers, seconds

    Raises
    ------
    WarehouseBusy : another process held the lock for longer
    TransientError : PostgreSQL does not answer
    InputError : the connection string is wrong, or psycopg2 is not installed
    """
    connection = _session(location, password)
    try:
        _take(connection, location, wait_s)
        yield
    finally:
        connection.close()


def _session(location: str, password: str) -> Any:
    try:
        import psycopg2  # noqa: PLC0415 - only with the extra `distributed`
    except ModuleNotFoundError as error:
        raise InputError(
            found="no package psycopg2",
            expected="PostgreSQL's client, for a lock between the machines that write the warehouse",
            todo="Install llmprism[distributed].",
        ) from error
    secret = {"password": password} if password else {}
    name = f"llmprism {os.getpid()} on {socket.gethostname()}"
    options = " ".join(f"-c {setting}={value}" for setting, value in KEEPALIVES.items())
    try:
        return psycopg2.connect(
            location.removeprefix(IN_POSTGRES),
            application_name=name,
            options=options,
            connect_timeout=CONNECT_TIMEOUT_S,
            **secret,
        )
    except psycopg2.OperationalError as error:
        raise away(location, error) or _wrong(location, error) from error
    except psycopg2.Error as error:
        raise _wrong(location, error) from error


def _take(connection: Any, location: str, wait_s: float) -> None:
    import psycopg2.errors  # noqa: PLC0415

    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{max(round(wait_s * 1000), 1)}ms"])
        try:
            cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        except psycopg2.errors.LockNotAvailable as error:
            raise WarehouseBusy(
                found=f"process {os.getpid()} waited {wait_s:.1f} s for the warehouse {location}, "
                f"held by {_holder(cursor)}",
                expected=f"the warehouse to be free within warehouse.lock_wait_s = {wait_s:g} s",
                todo="Try again later, end the other process, or raise warehouse.lock_wait_s.",
            ) from error
        except psycopg2.OperationalError as error:
            raise away(location, error) or _wrong(location, error) from error


def _holder(cursor: Any) -> str:
    """Say who holds the lock: its process and host, as it named itself, and where PostgreSQL sees it."""
    with suppress(Exception):
        cursor.execute(HOLDER, {"number": LOCK})
        found = cursor.fetchone()
        if found is not None:
            name, address, session = found
            return f"process {name.removeprefix('llmprism ')} (address {address}, PostgreSQL session {session})"
    return "another process, which has just given it free"


def _refused(location: str, error: Exception) -> InputError | None:
    reason = MAY_ONLY_READ.search(str(error))
    return reason and InputError(
        found=f"the warehouse {location}, whose user may not write ({reason[0]})",
        expected="the owner of the catalog's tables, to write; any other user may only read",
        todo="Name the owner in places.warehouse, with its password, or only read: llmprism report, llmprism sql.",
    )


def _wrong(location: str, error: Exception) -> InputError:
    return InputError(
        found=f"warehouse {location} that cannot be opened ({str(error).strip().splitlines()[0]})",
        expected="PostgreSQL's connection string after `ducklake:postgres:`, such as dbname=lake host=db user=llmprism",
        todo="Correct places.warehouse; a password belongs in warehouse.catalog_password, PGPASSWORD or PGPASSFILE.",
    )
