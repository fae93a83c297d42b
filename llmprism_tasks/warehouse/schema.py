"""Bring a warehouse's tables and views up to date: what the texts of `sql/` say.

`sql/stored` has tables for some of the contract's, which are views of these; `sql/migrations` what changed since.

A warehouse knows the number of the last migration it has seen. Version 0 had no such number: tables without it are of
that version. Views hold no rows, so they are simply made anew when their text differs from when they were last made.
"""

from __future__ import annotations

import hashlib

import duckdb

from llmprism_tasks.contract.errors import ContractError
from llmprism_tasks.warehouse.sql_files import quoted, texts


def current() -> tuple[int, str]:
    """Return the schema's version, which is the last migration's number, and the digest of tables' and views' texts."""
    digest = hashlib.sha256("\0".join((*texts("tables").values(), *texts("views").values())).encode()).hexdigest()
    return max(int(name.partition("_")[0]) for name in texts("migrations")), digest


def is_current(connection: duckdb.DuckDBPyConnection, location: str) -> bool:
    """Tell whether nothing is to be done.

    Raises
    ------
    ContractError : the warehouse is of a later version than this software knows
    """
    found = _found(connection)
    known, _ = current()
    if found is not None and found[0] > known:
        raise ContractError(
            found=f"warehouse {location} with schema version {found[0]}",
            expected=f"version {known} or earlier, which this llmprism knows",
            todo="Install the llmprism that wrote it, or a later one, or choose another warehouse.",
        )
    return found == current()


def bring_up_to_date(connection: duckdb.DuckDBPyConnection, location: str) -> None:
    """Create what is missing, run the migrations the warehouse has not seen, and renew its views.

    Runs within the caller's transaction, so a warehouse is of one version or another, never between two.

    Raises
    ------
    ContractError : the warehouse is of a later version than this software knows
    """
    if is_current(connection, location):  # another process was faster
        return
    found = _found(connection)
    if found is not None:
        for name, text in texts("migrations").items():
            if int(name.partition("_")[0]) > found[0]:
                connection.execute(text)
    connection.execute("CREATE SCHEMA IF NOT EXISTS stored")
    for text in (*texts("stored").values(), *texts("tables").values(), *texts("views").values()):
        connection.execute(text)
    connection.execute("DELETE FROM schema_version")
    version, views = current()
    # Not bound: of the first value that it binds, DuckDB asks whether it is one of pandas, and imports that for it.
    connection.execute(f"INSERT INTO schema_version (version, views) VALUES ({version}, {quoted(views)})")


def _found(connection: duckdb.DuckDBPyConnection) -> tuple[int, str] | None:
    """Return the warehouse's version and views' digest; None when it has no tables at all."""
    tables = {str(row[0]) for row in connection.execute("SHOW TABLES").fetchall()}
    if "schema_version" in tables:
        row = connection.execute("SELECT version, views FROM schema_version").fetchone()
        if row is not None:
            return int(row[0]), str(row[1])
    return (0, "") if "flows" in tables else None
