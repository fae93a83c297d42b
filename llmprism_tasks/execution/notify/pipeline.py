"""Messages about the pipeline itself: it falls behind, falls silent, or gives windows up; and when that is over."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.notify import delivery
from llmprism_tasks.reports.minute_states import Coverage
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.bookkeeping import notifications
from llmprism_tasks.warehouse.connect import Warehouse

logger = logging.getLogger(__name__)

OVERLOAD, SILENCE, GIVEN_UP = "overload", "silence", "given_up"

WHAT_TO_DO = {
    OVERLOAD: "Give the workers more cores; `llmprism due` lists what waits.",
    SILENCE: "Look at the latest runs of llmprism_minute in the Airflow UI: where tasks wait, see that executor, "
    "workers and triggerer run; where they failed, their logs say what to do.",
    GIVEN_UP: "`llmprism due` lists them; their runs' logs say why. Mend it, then `llmprism due --run`.",
}


def tell(warehouse: Warehouse, counted: Coverage, settings: Settings, *, now_ns: int) -> dict[str, int]:
    """Log what is wrong with the pipeline, and send a message for each change of that.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch

    Returns
    -------
    how many messages were `sent`, and how many were `not_sent`
    """
    found = conditions(counted, settings)
    for condition, holds in found.items():
        if holds:
            logger.warning("%s %s", sentence(condition, counted, settings), WHAT_TO_DO[condition])
    if not settings.notify.webhook:
        return {"sent": 0, "not_sent": 0}
    claimed = notifications.claim_states(
        warehouse,
        Window.containing(now_ns, settings.window.length_ns),
        found,
        now_ns=now_ns,
        message=lambda condition, change: json.dumps(message(condition, change, counted, settings), ensure_ascii=False),
    )
    return delivery.deliver(warehouse, claimed, settings.notify)


def conditions(counted: Coverage, settings: Settings) -> Mapping[str, bool | None]:
    """Return which conditions hold; None for one that neither begins nor ends at this value.

    Overload ends only at half of what began it, so that it is not told again and again.
    """
    rules = settings.catch_up
    lag_s, silent_s = counted.lag_s or 0.0, counted.silent_s or 0.0
    behind = lag_s > rules.lag_s or counted.due_count > rules.backlog
    level = lag_s <= rules.lag_s / 2 and counted.due_count <= rules.backlog / 2
    return {
        OVERLOAD: True if behind else False if level else None,
        SILENCE: silent_s > rules.silent_after_s,
        GIVEN_UP: counted.given_up > 0,
    }


def sentence(condition: str, counted: Coverage, settings: Settings) -> str:
    """Say that a condition holds, with its numbers."""
    rules = settings.catch_up
    if condition == OVERLOAD:
        lag = "unknown" if counted.lag_s is None else f"{counted.lag_s:.0f} s"
        return (
            f"llmprism is behind: lag {lag} (catch_up.lag_s = {rules.lag_s}), "
            f"windows due: {counted.due_count} (catch_up.backlog = {rules.backlog})."
        )
    if condition == SILENCE:
        silent_s = counted.silent_s or 0.0
        return f"No window was finished for {silent_s:.0f} s (catch_up.silent_after_s = {rules.silent_after_s})."
    return f"Windows given up after {rules.tries} tries (catch_up.tries): {counted.given_up}."


def message(condition: str, change: str, counted: Coverage, settings: Settings) -> dict[str, Any]:
    """Return the message about a condition that began (opened) or ended (closed).

    Returns
    -------
    `change`, `text` (one line for people) and `pipeline`: the `condition`, `lag_s`, `silent_s`, windows `expected`,
    `done`, `due` by reason, `given_up` and `expired`, and `next` (what to do)
    """
    over = change == "closed"
    text = f"Over: {condition.replace('_', ' ')}." if over else sentence(condition, counted, settings)
    names = ("lag_s", "silent_s", "expected", "done", "due", "given_up", "expired")
    numbers = {name: getattr(counted, name) for name in names}
    return {
        "change": change,
        "text": text,
        "pipeline": {"condition": condition} | numbers | {"next": None if over else WHAT_TO_DO[condition]},
    }
