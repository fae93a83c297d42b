"""Formats of a message: the JSON that is posted to a program, to Slack and to Alertmanager.

Each function takes a row of `notifications` whose message is about an incident, or about the pipeline itself.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]

LONGEST_HEADER, LONGEST_TEXT, LONGEST_FACT = 150, 2_900, 200
"""Characters that Slack takes in a header, and in a section (3,000); and those of a fact that are worth reading."""

HALF_ESCAPE = re.compile(r"&\w*$")

OPEN_FOR = dt.timedelta(days=1)
"""After this an open alert ends in Alertmanager, which otherwise ends after five minutes what nobody repeats."""


def body(row: Row, form: str) -> str:
    """Return what is posted in one of the `FORMATS`; the stored message is JSON for programs as it is."""
    return str(row["message"]) if form == "json" else json.dumps(FORMATS[form](row), ensure_ascii=False)


def slack(row: Row) -> dict[str, Any]:
    """Return a message for an incoming webhook of Slack: a text for notifications, and blocks."""
    told = json.loads(row["message"])
    about = told.get("incident", {})
    header, _, _ = told["text"].partition(". ")
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": header[:LONGEST_HEADER], "emoji": False}},
        _section(_slack_text(told["text"])),
    ]
    fields = [_markup(f"*{name}*\n{_slack_text(value, LONGEST_FACT)}") for name, value in _facts(about) if value]
    if fields:
        blocks.append({"type": "section", "fields": fields})
    advice = (about or told["pipeline"])["next"]
    if advice:
        blocks.append(_section(f"*Next*: {_slack_text(advice)}"))
    return {"text": _slack_text(told["text"]), "blocks": blocks}


def alertmanager(row: Row) -> list[dict[str, Any]]:
    """Return a message for Alertmanager's `POST /api/v2/alerts`.

    Alertmanager knows an alert by its labels. So these are what stays the same while an incident goes on, even if its
    cause is found later or earlier windows are run; all that may change is an annotation.
    """
    told = json.loads(row["message"])
    about = told.get("incident") or told["pipeline"]
    now = dt.datetime.fromtimestamp(row["told_ns"] / 1e9, tz=dt.UTC)
    began, ended = about.get("started"), about.get("ended") or now.isoformat()
    labels = {"alertname": f"llmprism_{row['family']}", "family": row["family"], "place": row["place"]}
    known = {name: value for name, value in about.items() if isinstance(value, str | int | float)}
    times = {"startsAt": began, "endsAt": ended if row["change"] == "closed" else (now + OPEN_FOR).isoformat()}
    return [
        {
            "labels": labels | ({"job_id": row["tenant"]} if row["tenant"] else {}),
            "annotations": {"summary": told["text"]} | {name: str(value) for name, value in known.items()},
        }
        | {name: time for name, time in times.items() if time is not None}
    ]


FORMATS: Mapping[str, Callable[[Row], Any]] = {"slack": slack, "alertmanager": alertmanager}


def _facts(incident: Row) -> list[tuple[str, str]]:
    """Return what a reader of an incident wants to know at a glance; empty for what is not known."""
    if not incident:
        return []
    return [
        ("Job", ", ".join(incident["jobs"])),
        ("Host", incident["host"] or ""),
        ("Since", incident["started"]),
        ("Until", incident["ended"] or ""),
        ("Time lost", _number(incident["peak_severity"], ".0%")),
        ("Lost GPU-seconds", _number(incident["lost_gpu_s"], ",.0f")),
        ("A repair gives back GPU-seconds", _number(incident["recoverable_gpu_s"], ",.0f")),
        ("Confidence", _number(incident["confidence"], ".0%")),
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None or not math.isfinite(value) else format(value, form)


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _markup(text)}


def _markup(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text}


def _slack_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """Escape what Slack takes for a link or a call to everybody (`<!channel>`), and cut what is too long then."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped if len(escaped) <= longest else HALF_ESCAPE.sub("", escaped[: longest - 1]) + "…"
