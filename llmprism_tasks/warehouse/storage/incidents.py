"""Incidents as they are stored: found anew when a window has ended, so that a reader need not find them."""

from __future__ import annotations

import duckdb

from llmprism_tasks.warehouse.sql_files import statement


def renew(connection: duckdb.DuckDBPyConnection, since_ns: int = 0) -> None:
    """Bring the stored incidents up to what the diagnoses say, within the caller's transaction.

    Only the incidents that changes may touch are found anew, so the cost of a minute does not grow with the months that
    are kept. Only rows that differ are written: in a DuckLake each write is a file, and an empty delete makes other
    writers' commits fail. Where nothing is diagnosed and nothing stored, as in most minutes, nothing is looked for.

    Parameters
    ----------
    since_ns : start of the first window whose rows have changed, ns; 0 if any may have
    """
    while (first := _first_touched(connection, since_ns)) is not None:
        since_ns = first
    since = {"since_ns": since_ns}
    if connection.execute(statement("any_trouble"), since).fetchone() is None:
        return
    connection.execute(f"CREATE OR REPLACE TEMP TABLE found_incidents AS {statement('find_incidents')}", since)
    stored = "FROM stored.incidents WHERE first_window_start_ns >= $since_ns"
    if connection.execute(f"{stored} EXCEPT FROM found_incidents LIMIT 1", since).fetchone():
        connection.execute(statement("drop_changed_incidents"), since)
    if connection.execute("FROM found_incidents EXCEPT FROM stored.incidents LIMIT 1").fetchone():
        connection.execute(statement("add_found_incidents"))
    connection.execute("DROP TABLE found_incidents")


def _first_touched(connection: duckdb.DuckDBPyConnection, since_ns: int) -> int | None:
    """Return the start of the first earlier incident that changes from a window on may touch; None without one."""
    row: tuple[int | None] | None = connection.execute(statement("first_touched"), {"since_ns": since_ns}).fetchone()
    return None if row is None else row[0]
