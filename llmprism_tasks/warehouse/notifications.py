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

PIPELINE = "pipeline"
"""Family of the messages that are about the pipeline itself; no incident is of it."""

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
        first_ns = _next_told_ns(connection, now_ns)
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


def claim_states(
    warehouse: Warehouse,
    window: Window,
    holds: Mapping[str, bool | None],
    *,
    now_ns: int,
    message: Callable[[str, str], str],
) -> list[Row]:
    """Claim the changes of the pipeline's own conditions for which no message was claimed before.

    Parameters
    ----------
    window : the window to which the rows belong
    holds : whether each condition holds; None where it is left as it was told
    message : function from a condition and its change, opened or closed, to the message

    Returns
    -------
    rows of `notifications`; no other caller gets the same changes
    """

    def changes(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
        told = dict(connection.execute(statement("pipeline_changes"), {"family": PIPELINE}).fetchall())
        now = {name: "opened" if held else "closed" for name, held in holds.items() if held is not None}
        return {name: change for name, change in now.items() if told.get(name, "closed") != change}

    def work(connection: duckdb.DuckDBPyConnection) -> list[Row]:
        first_ns = _next_told_ns(connection, now_ns)
        rows = [
            {"window_start_ns": window.start_ns, "incident_id": f"{PIPELINE}-{name}", "change": change}
            | {"told_ns": first_ns + number, "family": PIPELINE, "place": name, "tenant": ""}
            | {"seen_window_start_ns": window.start_ns, "outcome": "claimed", "detail": None}
            | {"message": message(name, change)}
            for number, (name, change) in enumerate(changes(connection).items())
        ]
        if rows:
            store.insert(connection, "notifications", conform(pl.DataFrame(rows), "notifications"))
        return rows

    with warehouse.reading() as connection:
        if not changes(connection):
            return []
    return warehouse.write(work)


def _next_told_ns(connection: duckdb.DuckDBPyConnection, now_ns: int) -> int:
    """Return a time for the next claim: times ascend by claim, whatever the clock says."""
    last = connection.execute("SELECT max(told_ns) FROM notifications").fetchone()
    return max(now_ns, (last[0] or 0) + 1 if last else 0)


def settle(warehouse: Warehouse, row: Mapping[str, Any], *, outcome: str, detail: str | None) -> None:
    """Record the outcome of a claimed message."""
    values = {name: row[name] for name in KEY} | {"outcome": outcome, "detail": detail}
    warehouse.write(lambda connection: connection.execute(statement("settle_notification"), values))
