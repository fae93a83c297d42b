"""Schema: create a warehouse's tables and views from the texts in `sql/`, and migrate older warehouses.

`sql/stored` has the tables behind those contract tables that are views; `sql/migrations` has the changes since version
0.

A warehouse records the number of its last migration. Version 0 did not, so tables without a number are of version 0.
Views hold no rows, so they are created again whenever their texts have changed; incidents are then found again.
"""

from __future__ import annotations

import hashlib

import duckdb

from llmprism_tasks.contract.errors import ContractError
from llmprism_tasks.warehouse.sql_files import quoted, statement, texts
from llmprism_tasks.warehouse.storage import incidents
from llmprism_tasks.warehouse.storage.value_codes import NUMBERED


def current() -> tuple[int, str]:
    """Return the last migration's number, and a digest of the texts of tables and views and of what incidents are."""
    told = (*texts("tables").values(), *texts("views").values(), statement("find_incidents"))
    digest = hashlib.sha256("\0".join(told).encode()).hexdigest()
    return max(int(name.partition("_")[0]) for name in texts("migrations")), digest


def is_current(connection: duckdb.DuckDBPyConnection, location: str) -> bool:
    """Return whether the warehouse needs no change.

    Raises
    ------
    ContractError : the warehouse was written by a later version of llmprism
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


def is_there(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the warehouse has tables of llmprism."""
    try:
        connection.execute("FROM schema_version LIMIT 0")  # DuckDB's list of tables asks a DuckLake for figures of each
    except duckdb.CatalogException:
        return False
    return True


def bring_up_to_date(connection: duckdb.DuckDBPyConnection, location: str) -> None:
    """Create missing tables, run the migrations that the warehouse has not had, and renew its views.

    All of it runs in the caller's transaction, so a warehouse is never between two versions.

    Raises
    ------
    ContractError : the warehouse was written by a later version of llmprism
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
    incidents.renew(connection)
    _record(connection)


def create_results(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the tables and views of results alone, without what is behind numbered texts, in an empty database."""
    connection.execute("CREATE SCHEMA stored")
    connection.execute(texts("stored")["incidents"])
    for name, text in (*texts("tables").items(), *texts("views").items()):
        if name not in NUMBERED:
            connection.execute(text)
    _record(connection)


def _record(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("DELETE FROM schema_version")
    version, views = current()
    # Not bound: for the first bound value, DuckDB checks for pandas types, and imports pandas to do so.
    connection.execute(f"INSERT INTO schema_version (version, views) VALUES ({version}, {quoted(views)})")


def _found(connection: duckdb.DuckDBPyConnection) -> tuple[int, str] | None:
    """Return the warehouse's version and the digest of its views; None if it has no tables at all."""
    tables = {str(row[0]) for row in connection.execute("SHOW TABLES").fetchall()}
    if "schema_version" in tables:
        row = connection.execute("SELECT version, views FROM schema_version").fetchone()
        if row is not None:
            return int(row[0]), str(row[1])
    return (0, "") if "flows" in tables else None
