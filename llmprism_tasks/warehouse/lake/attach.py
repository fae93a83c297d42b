"""Attach a DuckLake to a DuckDB of this process."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse.lake import extensions
from llmprism_tasks.warehouse.sql_files import quoted

LAKE = "ducklake:"
IN_POSTGRES = "ducklake:postgres:"
STORE = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
"""How the address of an object store begins, such as `s3://`."""


def in_postgres(location: str) -> bool:
    """Tell whether a warehouse is a DuckLake whose catalog is in PostgreSQL."""
    return location.startswith(IN_POSTGRES)


def attached(location: str, data_path: str, password: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB in memory with the DuckLake attached as `lake`, and chosen.

    Parameters
    ----------
    location : `ducklake:` and the path of a catalog file, or `ducklake:postgres:` and PostgreSQL's connection string
    data_path : folder of the Parquet files; empty: the one that the catalog names
    password : of PostgreSQL; empty: from `PGPASSWORD` or the file that `PGPASSFILE` names, as all of its clients do

    Raises
    ------
    InputError : an extension cannot be loaded, as `extensions.load` says
    duckdb.Error : the catalog cannot be opened
    """
    connection = extensions.connect()
    try:
        connection.execute("SET enable_progress_bar = false")  # attaching may take long enough for one to be printed
        extensions.load(connection, extensions.LAKE)
        if in_postgres(location):
            extensions.load(connection, extensions.POSTGRES)
        if password:  # not as part of the location, which errors repeat
            connection.execute(f"CREATE SECRET (TYPE postgres, PASSWORD {quoted(password)})")
        options = [f"DATA_PATH {quoted(data_path)}"] if data_path else []
        options += ["READ_ONLY"] if read_only else []
        connection.execute(f"ATTACH {quoted(location)} AS lake" + (f" ({', '.join(options)})" if options else ""))
        connection.execute("USE lake")
    except BaseException:
        connection.close()
        raise
    return connection


def check_data_path(data_path: str) -> None:
    """Refuse what cannot hold the files of a DuckLake that several machines share.

    Raises
    ------
    InputError : there is no data path, or it is not an absolute folder
    """
    if STORE.match(data_path):
        raise InputError(
            found=f"warehouse.data_path = {data_path}, an object store",
            expected="a folder: the store needs DuckDB's extension httpfs and keys of its own, which llmprism does not "
            "pass on yet",
            todo="Use a folder that all machines share, for example by NFS, or mount the store as one.",
        )
    if not data_path or not Path(data_path).is_absolute():
        raise InputError(
            found=f"warehouse.data_path = {data_path!r} for a warehouse whose catalog is in PostgreSQL",
            expected="the absolute path of a folder, the same on all machines that write or read the warehouse",
            todo="Set LLMPRISM_WAREHOUSE__DATA_PATH to it.",
        )
