"""Formats of a message: what is posted about an incident that opened or closed, for each kind of receiver.

Each function takes a row of the view `incidents`, with `change` (opened or closed), and returns a value for JSON.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from typing import Any

from llmprism_tasks.contract.fault_catalogue import KINDS
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND

Row = dict[str, Any]

LONGEST_HEADER, LONGEST_TEXT, LONGEST_FACT = 150, 2_900, 200
"""Characters that Slack takes in a header, and in a section (3,000); and those of a fact that are worth reading."""

HALF_ESCAPE = re.compile(r"&\w*$")

OPEN_FOR_NS = 86_400 * NANOSECONDS_PER_SECOND
"""After this an open alert ends in Alertmanager, which otherwise ends after five minutes what nobody repeats."""


def plain(incident: Row) -> Row:
    """Return the message about an incident that changed its state, for programs.

    Parameters
    ----------
    incident : a row of the view `incidents`, with `change`

    Returns
    -------
    `change` (opened or closed), `text` (one line for people) and `incident`, its columns: times as ISO 8601 UTC,
    severity as ratio of time lost, costs in GPU-seconds; and `next`, what to do
    """
    kind = KINDS.get(incident["kind"])
    kept = (
        *("incident_id", "state", "job_id", "jobs", "kind", "subject_type", "subject", "host", "windows"),
        *("peak_severity", "confidence", "lost_gpu_s", "recoverable_gpu_s", "explanation", "evidence_sql"),
    )
    where = f" on {incident['host']}" if incident["subject_type"] == "addr" and incident["host"] else ""
    words = (
        incident["kind"].replace("_", " ")
        if kind is None
        else kind.phrase_for(incident["subject_type"], went_on=incident["went_on"])
    )
    subject = f"{incident['subject_type'].replace('_', ' ')} {incident['subject']}{where}"
    return {
        "change": incident["change"],
        "text": f"{incident['change'].capitalize()}: {subject} {words}. {incident['explanation']}",
        "incident": {name: incident[name] for name in kept}
        | {"started": _iso(incident["start_ns"]), "last_seen": _iso(incident["last_seen_ns"])}
        | {"ended": None if incident["end_ns"] is None else _iso(incident["end_ns"])}
        | {
            "next": None
            if kind is None
            else kind.next_for(incident["subject_type"], over=incident["state"] == "closed" or incident["went_on"])
        },
    }


def slack(incident: Row) -> Row:
    """Return a message for an incoming webhook of Slack: a text for notifications, and blocks."""
    told = plain(incident)
    about = told["incident"]
    facts = {
        "Job": ", ".join(about["jobs"]),
        "Host": about["host"],
        "Since": about["started"],
        "Until": about["ended"],
        "Time lost": _percent(about["peak_severity"]),
        "Lost GPU-seconds": _rounded(about["lost_gpu_s"]),
        "A repair gives back": _rounded(about["recoverable_gpu_s"]),
        "Confidence": _percent(about["confidence"]),
    }
    fields = [_markup(f"*{name}*\n{_slack_text(value, LONGEST_FACT)}") for name, value in facts.items() if value]
    header, _, _ = told["text"].partition(". ")
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": header[:LONGEST_HEADER], "emoji": False}},
        {"type": "section", "text": _markup(_slack_text(about["explanation"], LONGEST_TEXT))},
        {"type": "section", "fields": fields},
    ]
    if about["next"]:
        blocks.append({"type": "section", "text": _markup(f"*Next*: {_slack_text(about['next'], LONGEST_TEXT)}")})
    return {"text": _slack_text(told["text"], LONGEST_TEXT), "blocks": blocks}


def alertmanager(incident: Row) -> list[Row]:
    """Return a message for Alertmanager's `POST /api/v2/alerts`.

    Alertmanager knows an alert by its labels. So these are what stays the same while an incident goes on, even if its
    cause is found later or earlier windows are run; all that may change is an annotation.
    """
    told = plain(incident)
    about = told["incident"]
    labels = {
        "alertname": f"llmprism_{incident['family']}",
        "family": incident["family"],
        "place": incident["place"],
        "job_id": incident["tenant"],
    }
    notes = {"summary": told["text"]} | {name: about[name] for name in about if name not in ("jobs", "state")}
    closed = incident["end_ns"] is not None
    ends_ns = incident["end_ns"] if closed else incident["last_seen_ns"] + OPEN_FOR_NS
    return [
        {
            "labels": {name: value for name, value in labels.items() if value},
            "annotations": {name: str(value) for name, value in notes.items() if value is not None},
            "startsAt": _iso(incident["start_ns"]),
            "endsAt": _iso(ends_ns),
        }
    ]


FORMATS: dict[str, Callable[[Row], Any]] = {"json": plain, "slack": slack, "alertmanager": alertmanager}


def _markup(text: str) -> Row:
    return {"type": "mrkdwn", "text": text}


def _slack_text(text: str, longest: int) -> str:
    """Escape what Slack takes for a link or a call to everybody (`<!channel>`), and cut what is too long then."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped if len(escaped) <= longest else HALF_ESCAPE.sub("", escaped[: longest - 1]) + "…"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None or not math.isfinite(ratio) else f"{ratio:.0%}"


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _iso(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, NANOSECONDS_PER_SECOND)
    return f"{dt.datetime.fromtimestamp(seconds, tz=dt.UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"
