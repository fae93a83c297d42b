"""Each receiver gets what it understands: programs, Slack and Alertmanager; names are text to all of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from empty_warehouse import empty_warehouse
from receiver import receiving
from small_windows import SECOND, diagnosis, writer

from llmprism_tasks.execution.notify.formats import LONGEST_HEADER, alertmanager, body, slack
from llmprism_tasks.execution.notify.incidents import send_messages
from llmprism_tasks.settings.load import load

DAY_S = 86_400


def posted(tmp_path: Path, form: str, *minutes: dict[str, Any] | None) -> list[Any]:
    """Return what a receiver is sent over some minutes, each with a diagnosis or none."""
    warehouse = empty_warehouse(tmp_path / f"{form}.duckdb")
    write = writer(warehouse)
    with receiving() as receiver:
        told = load(environment={}, overrides={"notify.webhook": receiver.address, "notify.format": form})
        for number, found in enumerate(minutes):
            window = write(number, [] if found is None else [diagnosis(number, **found)])
            counts = send_messages(warehouse, window, told, now_ns=window.end_ns)
            assert counts["not_sent"] == 0
    return receiver.bodies


def row(**changes: Any) -> dict[str, Any]:
    """Return a row of `notifications` about an incident that opened."""
    incident = {
        "incident_id": "incident-1", "state": "open", "job_id": "gpt", "jobs": ["gpt"], "kind": "slow_compute",
        "subject_type": "addr", "subject": "10.3.1.5", "host": "gpt-01", "windows": 1, "peak_severity": 0.3,
        "confidence": 0.9, "lost_gpu_s": 1234.5, "recoverable_gpu_s": None, "explanation": "It is slow.",
        "evidence_sql": None, "started": "2026-01-01T00:00:05.000Z", "last_seen": "2026-01-01T00:00:55.000Z",
        "ended": None, "coverage": {"expected": 1, "done": 1}, "next": "check it.",
    } | changes  # fmt: skip
    message = {"change": "opened", "text": f"Opened: {incident['subject']} is slow. Very.", "incident": incident}
    names = {"change": "opened", "family": "slow_host", "place": "gpt-01", "tenant": "gpt", "told_ns": 0}
    return names | {"message": json.dumps(message)}


def of_pipeline(change: str) -> dict[str, Any]:
    about = {
        "condition": "overload",
        "lag_s": 400.0,
        "due": {"late_records": 2},
        "next": "Give more cores.",
    }
    message = {"change": change, "text": "llmprism is behind: lag 400 s. Hurry.", "pipeline": about}
    names = {"change": change, "family": "pipeline", "place": "overload", "tenant": "", "told_ns": 60 * SECOND}
    return names | {"message": json.dumps(message)}


def test_slack_gets_a_text_and_blocks(tmp_path: Path) -> None:
    (sent,) = posted(tmp_path, "slack", {"kind": "slow_compute", "lost_gpu_s": 90.0})
    assert set(sent) == {"text", "blocks"}
    assert sent["text"].startswith("Opened: addr 10.3.1.5 on gpt-01 computes slowly. It starts its sends 0.60 s")
    header, explanation, facts, advice = sent["blocks"]
    assert header["text"]["text"] == "Opened: addr 10.3.1.5 on gpt-01 computes slowly"
    assert "It starts its sends 0.60 s" in explanation["text"]["text"]
    told = [field["text"] for field in facts["fields"]]
    assert {"*Job*\ngpt", "*Host*\ngpt-01", "*Time lost*\n30%", "*Lost GPU-seconds*\n90"} <= set(told)
    assert advice["text"]["text"].startswith("*Next*: wait for a second window")


def test_alertmanager_gets_one_alert_that_opens_and_ends(tmp_path: Path) -> None:
    """Under the same labels, although its cause was found in between, or Alertmanager would take it for another."""
    opened, closed = posted(tmp_path, "alertmanager", {}, {"kind": "slow_compute"}, None, None)
    (alert,), (over,) = opened, closed
    assert alert["labels"] == over["labels"] == {
        "alertname": "llmprism_slow_host", "family": "slow_host", "place": "gpt-01", "job_id": "gpt"
    }  # fmt: skip
    assert (alert["startsAt"], alert["endsAt"]) == ("2026-01-01T00:00:05.000Z", "2026-01-02T00:01:00+00:00")
    assert (over["startsAt"], over["endsAt"]) == ("2026-01-01T00:00:05.000Z", "2026-01-01T00:01:55.000Z")
    assert alert["annotations"]["summary"].startswith("Opened: ")
    assert over["annotations"]["summary"].startswith("Closed: ")
    assert over["annotations"]["kind"] == "slow_compute"
    assert all(isinstance(value, str) for one in (alert, over) for value in one["annotations"].values())


def test_an_incident_of_a_switch_has_no_job_for_a_label() -> None:
    (alert,) = alertmanager(row() | {"tenant": "", "family": "slow_switch", "place": "leaf3"})
    assert alert["labels"] == {"alertname": "llmprism_slow_switch", "family": "slow_switch", "place": "leaf3"}


def test_a_message_about_the_pipeline_is_understood_too() -> None:
    told = slack(of_pipeline("opened"))
    assert told["blocks"][0]["text"]["text"] == "llmprism is behind: lag 400 s"
    assert told["blocks"][-1]["text"]["text"] == "*Next*: Give more cores."
    (opened,), (closed,) = (alertmanager(of_pipeline(change)) for change in ("opened", "closed"))
    assert opened["labels"] == closed["labels"]
    assert opened["labels"]["alertname"] == "llmprism_pipeline"
    assert (opened["endsAt"], closed["endsAt"]) == ("1970-01-02T00:01:00+00:00", "1970-01-01T00:01:00+00:00")
    assert opened["annotations"]["lag_s"] == "400.0"


@pytest.mark.parametrize("name", ["<!channel>", "a & b", "<" * 10_000, "&" * 10_000, "x" * 10_000])
def test_slack_takes_names_for_text_within_its_limits(name: str) -> None:
    sent = slack(row(subject=name, host=name, jobs=[name], next=name))
    sections = [one for block in sent["blocks"][1:] for one in block.get("fields") or [block["text"]]]
    texts = [sent["text"], *(one["text"] for one in sections)]
    for text in texts:
        assert "<" not in text
        assert not text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").count("&")
        assert len(text) <= 3_000
    assert len(sent["blocks"][0]["text"]["text"]) <= LONGEST_HEADER


@pytest.mark.parametrize("form", ["json", "slack", "alertmanager"])
def test_what_is_not_known_is_left_out(form: str) -> None:
    about = row(host=None, confidence=None, lost_gpu_s=None, peak_severity=math.inf, next=None)
    assert "None" not in body(about, form)
