"""Incidents as they are stored: found anew when a window has ended, so that a reader need not find them."""

from __future__ import annotations

import duckdb

from llmprism_tasks.warehouse.sql_files import statement


def renew(connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the stored incidents up to what the diagnoses say, within the caller's transaction.

    Over a week of 2,880 GPUs it takes some tenths of a second. Only rows that differ are written: in a DuckLake each
    write is a file, and an empty delete makes other writers' commits fail.
    """
    connection.execute(f"CREATE OR REPLACE TEMP TABLE found_incidents AS {statement('find_incidents')}")
    for differing, change in (
        ("FROM stored.incidents EXCEPT FROM found_incidents", "drop_changed_incidents"),
        ("FROM found_incidents EXCEPT FROM stored.incidents", "add_found_incidents"),
    ):
        if connection.execute(f"{differing} LIMIT 1").fetchone():
            connection.execute(statement(change))
    connection.execute("DROP TABLE found_incidents")
