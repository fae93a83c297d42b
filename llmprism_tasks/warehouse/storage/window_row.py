"""The row of a window in `windows`: what its run has come to, and which stages made the rows that are there."""

from __future__ import annotations

import json
from collections.abc import Sequence

import duckdb

from llmprism_tasks.contract.errors import ContractError, ReplacedMeanwhileError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.sql_files import statement
from llmprism_tasks.warehouse.storage import incidents

ENDED = ("done", "stopped")


def record(
    connection: duckdb.DuckDBPyConnection,
    window: Window,
    *,
    status: str | None,
    reason: str | None = None,
    stage: str | None = None,
    elapsed_ns: int | None = None,
) -> None:
    """Update a window's row in `windows`; a stage's run time replaces an earlier one.

    Once the window has ended, the incidents that it may have changed are found anew.
    """
    if _row(connection, window) is None:
        raise ContractError(
            found=f"no row in windows for window {window}",
            expected="a window that was landed before stages run",
            todo="Land the window first.",
        )
    values = {"status": status, "reason": reason, "stage": stage or "", "elapsed_ns": elapsed_ns}
    connection.execute(statement("record_window"), {"start_ns": window.start_ns} | values)
    if status in ENDED:
        incidents.renew(connection, window.start_ns)


def stages_made(connection: duckdb.DuckDBPyConnection, window: Window) -> str:
    """Return `stage_ns` of a window, empty if it was never landed: no two runs of its stages take equally long, so this
    tells whose rows are there."""
    row = _row(connection, window)
    return "" if row is None else row[0]


def refuse_others(connection: duckdb.DuckDBPyConnection, window: Window, made: str | None) -> None:
    """Refuse to go on if a window's rows are not those that are meant; call it in the transaction that goes on.

    Parameters
    ----------
    made : what `stages_made` returned when they were there; None for any

    Raises
    ------
    ReplacedMeanwhileError : they are others
    """
    if made is not None and stages_made(connection, window) != made:
        raise ReplacedMeanwhileError(
            found=f"window {window}: its rows were replaced by another run of it",
            expected="the rows that this run had made",
            todo="Run it again once the other run has ended.",
        )


def forget_stages(connection: duckdb.DuckDBPyConnection, window: Window, stages: Sequence[str]) -> None:
    """Record that what some stages made of a window is no longer there; call it in the transaction that clears it."""
    values = {"start_ns": window.start_ns, "nothing": json.dumps(dict.fromkeys(stages))}
    connection.execute(statement("forget_stages"), values)


def _row(connection: duckdb.DuckDBPyConnection, window: Window) -> tuple[str] | None:
    """Return `stage_ns` of the window's row; None if it was never landed."""
    found = connection.execute(
        "SELECT coalesce(stage_ns, '') FROM windows WHERE window_start_ns = $start_ns", {"start_ns": window.start_ns}
    ).fetchone()
    return None if found is None else (found[0],)
