"""Digests of a warehouse's tables, to compare a disturbed run with an undisturbed one."""

from __future__ import annotations

from llmprism_tasks.contract.tables import HISTORY, TABLES
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import identifier


def digests(location: str) -> dict[str, str]:
    """Return a digest of each table, whatever the order of its rows; when and how often windows ran does not count."""
    with Warehouse(location, lock_wait_s=60).reading() as connection:
        return {
            table.name: str(
                connection.execute(
                    "SELECT sha256(coalesce(string_agg(digest, '' ORDER BY digest), '')) FROM ("
                    f"SELECT sha256(row({columns})::VARCHAR) AS digest FROM {identifier(table.name)})"
                ).fetchall()[0][0]
            )
            for table in TABLES
            if (columns := ", ".join(_compared(table.name, table.column_names)))
        }


def _compared(table: str, columns: tuple[str, ...]) -> list[str]:
    return [identifier(column) for column in columns if column not in HISTORY.get(table, ())]
