"""A window of the warehouse as the batch of Great Expectations: one connection in which there is nothing else.

In that connection, each table's name stands for the window's rows alone. So a query of a suite says `jobs`, and means
the jobs of the window; where Great Expectations is given the whole warehouse, the same query means all jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import duckdb_engine
from sqlalchemy.pool import StaticPool

from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.sql_files import identifier
from llmprism_tasks.warehouse.storage.value_codes import NUMBERED

URL = "duckdb://"
"""What SQLAlchemy needs to choose the dialect; the connection itself is lent, see `engine_arguments`."""


def narrow(
    connection: duckdb.DuckDBPyConnection, window: Window, *, tables: Sequence[str], without: Sequence[str] = ()
) -> None:
    """Let the names of tables stand for a window's rows, in this connection, by temporary views of these names.

    Of a DuckLake, the rows of the tables that are to be checked are copied into temporary tables, and DuckDB's own
    database in memory is chosen. For every query that names a table of the lake, or a function while the lake is
    chosen, DuckLake would ask its catalog anew, which takes longer than most queries here. `flows` and `timeline`,
    whose rows are many, stay views.

    Parameters
    ----------
    tables : those that are to be checked
    without : jobs whose rows are left out, in all tables that have a `job_id`
    """
    connection.execute("SET VARIABLE jobs_left_out = ?", [list(without)])
    lake = connection.execute("SELECT database_name FROM duckdb_databases() WHERE type = 'ducklake'").fetchone()
    (catalog,) = lake or connection.execute("SELECT current_database()").fetchall()[0]
    copied = set() if lake is None else set(tables) - set(NUMBERED)
    for table in TABLES:
        left_out = " AND NOT list_contains(getvariable('jobs_left_out'), job_id)"
        connection.execute(
            f"CREATE OR REPLACE TEMP {'TABLE' if table.name in copied else 'VIEW'} {identifier(table.name)} AS "
            f"FROM {identifier(catalog)}.main.{identifier(table.name)} WHERE window_start_ns = {window.start_ns}"
            + (left_out if without and "job_id" in table.column_names else "")
        )
    if lake is not None:
        connection.execute("USE memory")


def engine_arguments(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Return arguments of `sqlalchemy.create_engine` for an engine that borrows an open connection.

    A DuckDB file is one process's at a time, and a temporary view one connection's: so there can be no second one.
    """
    return {"creator": lambda: _Lent(connection), "poolclass": StaticPool}


class _Lent(duckdb_engine.ConnectionWrapper):  # type: ignore[misc]
    """A connection that its lender closes, and whose transactions, all of which only read, are its lender's.

    Great Expectations fetches rows after SQLAlchemy has rolled back the transaction that selected them, which in DuckDB
    are gone then.
    """

    def begin(self) -> None:
        """Begin nothing: what only reads needs no transaction."""

    def rollback(self) -> None:
        """Leave rows that were selected where they can be fetched."""

    def close(self) -> None:
        """Leave the connection open."""
