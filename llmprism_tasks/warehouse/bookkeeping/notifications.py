"""Claims on notifications, so that no message is sent twice; and mutes, so that some are not sent at all.

A message is recorded before it is sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import polars as pl

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.frames import conform
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import statement
from llmprism_tasks.warehouse.storage import insertion

Row = dict[str, Any]

PIPELINE = "pipeline"
"""Family of the messages that are about the pipeline itself; no incident is of it."""

EVEN_CHANCE = 0.5
"""Confidence below which an incident opens without a message: most of the loss is not its subject's, or it is more
likely nothing. If the topology lacks NICs of its job, an even chance sends none, either: one of these may as well be at
fault."""

KEY = ("window_start_ns", "incident_id", "change", "told_ns")
LONGEST_REASON = 500
"""Characters of a mute's reason: a sentence and a link, not a log."""


def claim(
    warehouse: Warehouse,
    window: Window,
    *,
    kinds: Sequence[str],
    least_severity: float,
    one_step_gpu_s: float = 0.0,
    now_ns: int,
    message: Callable[[Row], str],
) -> list[Row]:
    """Claim the changes of incidents' states for which no message was claimed before.

    Parameters
    ----------
    window : the window that just ended, to which the rows belong
    kinds : kinds of incidents for which a message is sent; empty for all
    least_severity : ratio of time lost; incidents below it send no message when they open
    one_step_gpu_s : GPU-seconds below which an incident of one slow step, or of a slow group of unknown cause, sends
        none
    message : function from a row of the view `incidents`, with `change` (opened or closed), to the message

    Returns
    -------
    rows of `notifications`; no other caller gets the same changes
    """
    values = {"kinds": list(kinds), "least_severity": least_severity, "slack_ns": 2 * window.length_ns}
    values |= {"now_ns": now_ns, "even_chance": EVEN_CHANCE, "one_step_gpu_s": one_step_gpu_s}

    def due(connection: duckdb.DuckDBPyConnection) -> list[Row]:
        """Return the changes, as rows of `notifications` without a time and an outcome."""
        names = ("incident_id", "change", "family", "place", "tenant")
        return [
            {name: one[name] for name in names}
            | {"seen_window_start_ns": one["last_window_start_ns"], "message": functools.partial(message, one)}
            for one in store.frame(connection.execute(statement("changes_of_state"), values)).to_dicts()
        ]

    return _claim(warehouse, window, due, now_ns=now_ns)


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

    now = {name: "opened" if held else "closed" for name, held in holds.items() if held is not None}

    def due(connection: duckdb.DuckDBPyConnection) -> list[Row]:
        """Return the changes, as rows of `notifications` without a time and an outcome."""
        told = dict(connection.execute(statement("pipeline_changes"), {"family": PIPELINE}).fetchall())
        return [
            {"incident_id": f"{PIPELINE}-{name}", "change": change, "family": PIPELINE, "place": name, "tenant": ""}
            | {"seen_window_start_ns": window.start_ns, "message": functools.partial(message, name, change)}
            for name, change in now.items()
            if told.get(name, "closed") != change
        ]

    return _claim(warehouse, window, due, now_ns=now_ns)


def _claim(
    warehouse: Warehouse, window: Window, due: Callable[[duckdb.DuckDBPyConnection], list[Row]], *, now_ns: int
) -> list[Row]:
    """Record changes as claimed, unless another caller did so before, and return their rows of `notifications`.

    Parameters
    ----------
    due : the changes that nobody has claimed, as rows without a time and an outcome; `message` makes the message
    """

    def work(connection: duckdb.DuckDBPyConnection) -> list[Row]:
        """Insert the changes that are due as rows of `notifications`; return these."""
        first_ns = _next_told_ns(connection, now_ns)
        rows = [
            one
            | {"window_start_ns": window.start_ns, "told_ns": first_ns + number, "message": one["message"]()}
            | {"outcome": "claimed", "detail": None}
            for number, one in enumerate(due(connection))
        ]
        if rows:
            frame = conform(pl.DataFrame(rows, infer_schema_length=None), "notifications")
            insertion.insert(connection, "notifications", frame)
        return rows

    with warehouse.reading() as connection:  # usually nothing has changed, and reading does not block other readers
        if not due(connection):
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


def mute(
    warehouse: Warehouse, incident_id: str, *, now_ns: int, until_ns: int, reason: str, muted_by: str | None
) -> None:
    """Send no message about an incident until a time.

    Parameters
    ----------
    now_ns, until_ns : nanoseconds since the Unix epoch; `until_ns` is the later one
    reason : why, for whoever looks next; not empty, of at most `LONGEST_REASON` characters

    Raises
    ------
    InputError : there is no such incident, the time is over, or the reason is empty or too long
    """
    reason = reason.strip()
    if until_ns <= now_ns:
        raise InputError(
            found=f"a mute of {incident_id} until a time that is over",
            expected="a time in the future",
            todo="Choose a later time; `llmprism unmute` ends a mute.",
        )
    if not 0 < len(reason) <= LONGEST_REASON:
        raise InputError(
            found=f"a mute of {incident_id} with a reason of {len(reason):,} characters",
            expected=f"1 to {LONGEST_REASON:,} characters",
            todo="Say in a sentence why nobody needs to hear of it.",
        )

    def work(connection: duckdb.DuckDBPyConnection) -> None:
        place = _place(connection, incident_id)
        row = {"muted_ns": now_ns, "until_ns": until_ns, "reason": reason, "muted_by": muted_by}
        insertion.insert(connection, "mutes", conform(pl.DataFrame([place | row], infer_schema_length=None), "mutes"))

    warehouse.write(work)


def unmute(warehouse: Warehouse, incident_id: str, *, now_ns: int) -> int:
    """End all mutes of an incident now; returns how many were in force.

    Raises
    ------
    InputError : there is no such incident
    """

    def work(connection: duckdb.DuckDBPyConnection) -> int:
        _place(connection, incident_id)
        ended = connection.execute(statement("end_mutes"), {"incident_id": incident_id, "now_ns": now_ns}).fetchone()
        return int(ended[0]) if ended else 0

    return warehouse.write(work)


def _place(connection: duckdb.DuckDBPyConnection, incident_id: str) -> Row:
    """Return what a mute keeps of an incident, to find it again under another id."""
    named = store.frame(
        connection.execute(
            "SELECT last_window_start_ns AS window_start_ns, incident_id, family, place, tenant FROM incidents "
            "WHERE incident_id = $incident_id",
            {"incident_id": incident_id},
        )
    )
    if named.is_empty():
        raise InputError(
            found=f"no incident {incident_id[:100]}",
            expected="the id of an incident, such as incident-0123456789ab",
            todo='See the ids with: llmprism sql "SELECT incident_id, state, explanation FROM incidents"',
        )
    return named.row(0, named=True)
