"""Claims on notifications: a message is recorded before it is sent, so that no other process sends it as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import polars as pl

from llmprism_tasks.contract.frames import conform
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import statement

Row = dict[str, Any]

KEY = ("window_start_ns", "incident_id", "change", "told_ns")


def claim(
    warehouse: Warehouse,
    window: Window,
    *,
    kinds: Sequence[str],
    least_severity: float,
    now_ns: int,
    message: Callable[[Row], str],
) -> list[Row]:
    """Claim the changes of incidents' states for which no message was claimed before.

    Parameters
    ----------
    window : the window that just ended, to which the rows belong
    kinds : kinds of incidents for which a message is sent; empty for all
    least_severity : ratio of time lost; incidents below it send no message when they open
    message : function from a row of the view `incidents`, with `change` (opened or closed), to the message

    Returns
    -------
    rows of `notifications`; no other caller gets the same changes
    """
    values = {"kinds": list(kinds), "least_severity": least_severity, "slack_ns": 2 * window.length_ns}

    def due(connection: duckdb.DuckDBPyConnection) -> list[Row]:
        return store.frame(connection.execute(statement("changes_of_state"), values)).to_dicts()

    def work(connection: duckdb.DuckDBPyConnection) -> list[Row]:
        last = connection.execute("SELECT max(told_ns) FROM notifications").fetchone()
        first_ns = max(now_ns, (last[0] or 0) + 1 if last else 0)  # ascending by claim, whatever the clock says
        names = ("incident_id", "change", "family", "place", "tenant")
        rows = [
            {name: one[name] for name in names}
            | {"window_start_ns": window.start_ns, "seen_window_start_ns": one["last_window_start_ns"]}
            | {"told_ns": first_ns + number, "outcome": "claimed", "detail": None, "message": message(one)}
            for number, one in enumerate(due(connection))
        ]
        if rows:
            store.insert(
                connection, "notifications", conform(pl.DataFrame(rows, infer_schema_length=None), "notifications")
            )
        return rows

    with warehouse.reading() as connection:  # usually nothing has changed, and reading does not block other readers
        if not due(connection):
            return []
    return warehouse.write(work)


def settle(warehouse: Warehouse, row: Mapping[str, Any], *, outcome: str, detail: str | None) -> None:
    """Record the outcome of a claimed message."""
    values = {name: row[name] for name in KEY} | {"outcome": outcome, "detail": detail}
    warehouse.write(lambda connection: connection.execute(statement("settle_notification"), values))
