"""Messages about incidents: one for each that opened or closed, to the address in the settings."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import polars as pl

from llmprism_tasks.contract.fault_catalogue import KINDS, advice, work_of
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.execution.notify import delivery
from llmprism_tasks.reports.minute_states import Coverage, coverage, part_of_the_price, read_states
from llmprism_tasks.reports.terminal import cost
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.bookkeeping import notifications
from llmprism_tasks.warehouse.connect import Warehouse

Row = dict[str, Any]


def send_messages(warehouse: Warehouse, window: Window, settings: Settings, *, now_ns: int) -> dict[str, int]:
    """Send a message for each incident that opened or closed, as far as is known when a window ends.

    A window that ended long ago sends none, so that a backfill pages nobody. A message is claimed before it is sent:
    if this process dies in between, it is lost rather than sent twice. A message that the receiver refuses is tried
    again by the next window. A receiver that cannot be reached is not tried again in this window.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch

    Returns
    -------
    how many messages were `sent`, and how many were `not_sent`
    """
    if not settings.notify.webhook or now_ns - window.end_ns > settings.notify.oldest_s * NANOSECONDS_PER_SECOND:
        return {"sent": 0, "not_sent": 0}
    found = read_states(warehouse, settings, now_ns=now_ns)
    claimed = notifications.claim(
        warehouse,
        window,
        kinds=settings.notify.kind_names,
        least_severity=settings.notify.least_severity,
        one_step_gpu_s=settings.notify.one_step_gpu_s,
        now_ns=now_ns,
        message=lambda row: json.dumps(
            message(row, coverage(during(found, row), settings, now_ns=now_ns)), ensure_ascii=False
        ),
    )
    return delivery.deliver(warehouse, claimed, settings.notify)


def during(found: pl.DataFrame, incident: Row) -> pl.DataFrame:
    """Return the rows of `states` from an incident's first window to its last."""
    span = (incident["first_window_start_ns"], incident["last_window_start_ns"])
    return found.filter(pl.col("window_start_ns").is_between(*span))


def message(incident: Row, seen: Coverage) -> Row:
    """Return the message about an incident that changed its state.

    Parameters
    ----------
    incident : a row of the view `incidents`, with `change`
    seen : of the windows from the incident's first to its last

    Returns
    -------
    `change` (opened or closed), `text` (one line for people) and `incident`, its columns: times as ISO 8601 UTC,
    severity as ratio of time lost, costs in GPU-seconds of the windows that are done; `coverage`, how many windows were
    `expected` and how many of them are `done`; and `next`, what to do
    """
    kind = KINDS.get(incident["kind"])
    kept = (
        *("incident_id", "state", "job_id", "jobs", "kind", "subject_type", "subject", "host", "windows"),
        *("peak_severity", "confidence", "lost_gpu_s", "recoverable_gpu_s", "explanation", "evidence_sql"),
        *("single_steps", "candidates", "odds"),
    )
    where = f" on {incident['host']}" if incident["subject_type"] == "addr" and incident["host"] else ""
    words = (
        incident["kind"].replace("_", " ")
        if kind is None
        else kind.phrase_for(incident["subject_type"], went_on=incident["went_on"])
    )
    subject = f"{incident['subject_type'].replace('_', ' ')} {incident['subject']}{where}"
    over = ""
    if incident["change"] == "closed":
        lasted = f" after {(incident['last_seen_ns'] - incident['start_ns']) / 60e9:.0f} min"
        lost = "" if incident["lost_gpu_s"] is None else f", {cost(incident['lost_gpu_s'])} lost"
        over = f" (until {_iso(incident['last_seen_ns'])[:16]}Z,{lasted}{lost})"
    missing = "" if seen.done >= seen.expected else f" {part_of_the_price(seen)}"
    return {
        "change": incident["change"],
        "text": f"{incident['change'].capitalize()}: {subject} {words}{over}. {incident['explanation']}{missing}",
        "incident": {name: incident[name] for name in kept}
        | {"started": _iso(incident["start_ns"]), "last_seen": _iso(incident["last_seen_ns"])}
        | {"ended": None if incident["end_ns"] is None else _iso(incident["end_ns"])}
        | {"work": work_of(incident["kind"])}
        | {"coverage": {"expected": seen.expected, "done": seen.done}}
        | {"next": advice(incident)},
    }


def _iso(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, NANOSECONDS_PER_SECOND)
    return f"{dt.datetime.fromtimestamp(seconds, tz=dt.UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"
