"""Metrics in Prometheus' text format: read back by its grammar, they say what the tables say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from small_windows import Minute, diagnosis, writer

from llmprism_tasks.execution.notify import metrics
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

Sample = tuple[str, dict[str, str], float]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return empty_warehouse(tmp_path / "warehouse.duckdb")


@pytest.fixture
def minute(warehouse: Warehouse) -> Minute:
    """Return a function that writes one window of both jobs."""
    return writer(warehouse)


def parsed(text: str) -> Iterator[Sample]:
    """Read samples by the documented grammar: each after the help and type of its name, a name's lines together."""
    seen: list[str] = []
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines):
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert lines[number + 1] == f"# TYPE {name} gauge"
            assert name not in seen
            seen.append(name)
        elif not line.startswith("# TYPE "):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == seen[-1]
            labels = {
                one: re.sub(r'\\[\\"n]', lambda escape: UNESCAPED[escape[0]], value)
                for one, value in re.findall(LABEL, match[2] or "")
            }
            yield match[1], labels, float(match[match.lastindex or 0])


def of(samples: list[Sample], name: str, **labels: str) -> list[float]:
    """Return the values of a metric's samples that have these labels."""
    return [value for one, has, value in samples if one == f"llmprism_{name}" and labels.items() <= has.items()]


def told(warehouse: Warehouse, now_ns: int = 0) -> list[Sample]:
    return list(parsed(metrics.exposition(warehouse, now_ns=now_ns)))


def test_an_empty_warehouse_has_no_window_and_no_incident(warehouse: Warehouse) -> None:
    assert told(warehouse) == [("llmprism_stopped_windows", {}, 0.0), ("llmprism_open_incidents", {}, 0.0)]


def test_jobs_and_windows_are_those_of_the_latest_finished_window(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, step_s=2.0)
    last = minute(1, [diagnosis(1, lost_gpu_s=12.5)], step_s=3.0, rows_quarantined=7)
    minute(2, status="stopped")
    minute(3, status="running")
    samples = told(warehouse)
    assert of(samples, "latest_window_end_timestamp_seconds") == [last.end_ns / 1e9]
    assert of(samples, "latest_window_quarantined_records") == [7]
    assert of(samples, "latest_window_stages_seconds") == [1.5]
    assert of(samples, "stopped_windows") == [1]
    assert of(samples, "job_gpus") == [16, 32]
    assert of(samples, "job_step_median_seconds", job_id="gpt") == [3.0]
    assert of(samples, "job_lost_gpu_seconds") == [12.5]
    assert of(samples, "job_worst_severity_ratio", job_id="gpt") == [0.3]


def test_open_incidents_have_their_cost_and_closed_ones_are_gone(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(2):
        minute(number, [diagnosis(number, lost_gpu_s=10.0)])
    samples = told(warehouse)
    (incident,) = query(warehouse, "SELECT * FROM incidents").to_dicts()
    labels = {"incident_id": incident["incident_id"], "kind": "straggler", "job_id": "gpt", "subject_type": "addr"}
    assert of(samples, "open_incidents") == [1]
    assert of(samples, "incident_lost_gpu_seconds", **labels, subject="10.3.1.5", host="gpt-01", muted="no") == [20.0]
    assert of(samples, "incident_start_timestamp_seconds", **labels) == [incident["start_ns"] / 1e9]
    minute(2)
    minute(3)
    assert of(told(warehouse), "open_incidents") == [0]
    assert of(told(warehouse), "incident_lost_gpu_seconds") == []


def test_a_split_of_the_time_has_a_sample_for_each_part(warehouse: Warehouse, minute: Minute) -> None:
    window = minute(0)
    row = f"({window.start_ns}, 'gpt', '10.3.1.5', 0, 100, 50, 20, 10, 15, NULL, 5)"
    warehouse.write(lambda connection: connection.execute(f"INSERT INTO step_breakdown VALUES {row}"))
    samples = told(warehouse)
    assert [of(samples, "job_time_ratio", job_id="gpt", part=part) for part in metrics.PARTS] == [
        [0.5], [0.2], [0.1], [0.15], [0.05]
    ]  # fmt: skip
    assert of(samples, "job_time_ratio", job_id="bert") == []


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a\nb", "a\\nb", '"} 1\nllmprism_up{x="', "\x1b[31m\r\t", "x" * 10_000]
)
def test_hostile_names_come_back_as_they_were(warehouse: Warehouse, minute: Minute, name: str) -> None:
    minute(0, [diagnosis(0, subject_type="host", subject=name)])
    samples = told(warehouse)
    assert of(samples, "incident_severity_ratio", subject=name) == [0.3]
    assert "llmprism_up" not in {one for one, _, _ in samples}


def test_infinite_values_are_written_as_prometheus_reads_them(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, severity=math.inf)])
    assert of(told(warehouse), "incident_severity_ratio") == [math.inf]


def test_a_muted_incident_says_so_until_its_mute_is_over(warehouse: Warehouse, minute: Minute) -> None:
    window = minute(0, [diagnosis(0)])
    (incident,) = query(warehouse, "SELECT * FROM incidents").to_dicts()
    names = [incident[name] for name in ("incident_id", "family", "place", "tenant")]
    row = f"({window.start_ns}, '{names[0]}', 1, 100, 'known', NULL, '{names[1]}', '{names[2]}', '{names[3]}')"
    warehouse.write(lambda connection: connection.execute(f"INSERT INTO mutes VALUES {row}"))
    for now_ns, muted in ((99, "yes"), (100, "no")):
        assert of(told(warehouse, now_ns), "incident_severity_ratio", muted=muted) == [0.3]
