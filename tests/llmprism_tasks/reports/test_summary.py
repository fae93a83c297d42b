"""The summary of a warehouse: incidents folded under their causes, jobs, bookkeeping."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from empty_warehouse import empty_lake
from small_windows import FIRST, SECOND, Minute, bookkept, diagnosis, frame, writer

from llmprism_tasks.reports.summary import summarise
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import replace


def incidents(warehouse: Warehouse) -> list[dict[str, Any]]:
    found = summarise(warehouse)["incidents"]
    assert isinstance(found, list)
    return found


def test_an_empty_warehouse_has_no_span_and_nothing_in_it(warehouse: Warehouse) -> None:
    summary = summarise(warehouse)
    assert summary["span"] is None
    assert summary["jobs"] == summary["incidents"] == []
    assert summary["windows"]["all"] == summary["windows"]["read"] == 0
    assert summary["windows"]["add_up"]
    json.dumps(summary, allow_nan=False)


def test_a_healthy_warehouse_has_jobs_and_no_incidents(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(3):
        minute(number, step_s=2.0 if number < 2 else 4.0)
    summary = summarise(warehouse)
    assert summary["incidents"] == []
    assert summary["span"] == {
        "start": "2026-01-01T00:00:00.000Z",
        "end": "2026-01-01T00:03:00.000Z",
        "start_ns": FIRST.start_ns,
        "end_ns": FIRST.end_ns + 120 * SECOND,
    }
    gpt, bert = summary["jobs"]
    assert (gpt["job_id"], gpt["tp"], gpt["pp"], gpt["dp"]) == ("gpt", 8, 2, 2)
    assert (bert["tp"], bert["pp"], bert["dp"]) == (None, None, 16)
    assert gpt["host_names"] == "gpt-[00-03]"
    assert gpt["endpoints"] == 32
    assert gpt["steps"] == 29 + 29 + 14
    assert gpt["median_step_s"] == 2.0
    assert gpt["p95_step_s"] == 4.0
    assert gpt["seen_last"]
    json.dumps(summary, allow_nan=False)


def test_the_worst_incident_comes_first_and_one_without_a_number_before_all(
    warehouse: Warehouse, minute: Minute
) -> None:
    minute(
        0,
        [
            diagnosis(0, subject="10.3.0.0", severity=0.2),
            diagnosis(0, subject="10.3.1.0", severity=0.5),
            diagnosis(0, subject="10.3.2.0", severity=math.inf),
        ],
    )
    assert [one["peak_severity"] for one in incidents(warehouse)] == [None, 0.5, 0.2]
    json.dumps(summarise(warehouse), allow_nan=False)


def test_what_a_job_suffers_is_put_under_the_device_that_causes_it(warehouse: Warehouse, minute: Minute) -> None:
    slow_steps = {"kind": "cross_step", "subject_type": "job", "severity": 0.9}
    minute(
        0,
        [
            diagnosis(0),
            diagnosis(0, **slow_steps, subject="gpt"),
            diagnosis(0, **slow_steps, subject="bert", job_id="bert"),
        ],
    )
    bert, gpt = incidents(warehouse)
    assert (bert["kind"], bert["also"]) == ("cross_step", [])
    assert gpt["kind"] == "straggler"
    assert [also["kind"] for also in gpt["also"]] == ["cross_step"]


def test_what_a_job_suffered_before_is_not_put_under_a_device(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, kind="cross_step", subject_type="job", subject="gpt")])
    minute(5, [diagnosis(5)])
    assert [one["also"] for one in incidents(warehouse)] == [[], []]


def test_open_incidents_come_first_and_of_those_the_dearest(warehouse: Warehouse, minute: Minute) -> None:
    over = diagnosis(0, subject="10.3.0.0", severity=0.9, lost_gpu_s=900.0)
    cheap = diagnosis(3, subject="10.3.1.1", severity=0.5, lost_gpu_s=5.0)
    dear = diagnosis(3, subject="10.3.2.2", severity=0.2, lost_gpu_s=50.0)
    for number, found in enumerate(([over], [], [], [cheap, dear])):
        minute(number, found)
    assert [(one["subject"], one["state"]) for one in incidents(warehouse)] == [
        ("10.3.2.2", "open"),
        ("10.3.1.1", "open"),
        ("10.3.0.0", "closed"),
    ]


def test_an_incident_says_what_it_costs_what_to_do_and_what_proves_it(warehouse: Warehouse, minute: Minute) -> None:
    price = {"lost_gpu_s": 120.0, "recoverable_gpu_s": 100.0, "confidence": 0.9, "evidence_sql": "SELECT 1"}
    for number in range(2):
        minute(number, [diagnosis(number, kind="slow_compute", **price)])
    (incident,) = incidents(warehouse)
    assert (incident["lost_gpu_s"], incident["recoverable_gpu_s"], incident["confidence"]) == (240.0, 200.0, 0.9)
    assert (incident["started"], incident["last_seen"], incident["ended"]) == (
        "2026-01-01T00:00:05.000Z",
        "2026-01-01T00:01:55.000Z",
        None,
    )
    assert "clocks" in incident["next"]
    assert incident["evidence_sql"] == "SELECT 1"


def test_a_gpu_is_named_with_its_host(warehouse: Warehouse, minute: Minute) -> None:
    minute(
        0, [diagnosis(0), diagnosis(0, kind="degraded_switch", subject_type="switch", subject="leaf3", severity=0.1)]
    )
    assert [one["host"] for one in incidents(warehouse)] == ["gpt-01", None]


def test_what_the_last_window_to_be_finished_shows_is_open(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0)])
    minute(1, status="stopped", reason="flows.unique broken by 7 rows")
    minute(2, status="landed")
    summary = summarise(warehouse)
    assert summary["windows"]["looked_at"] == 1
    assert summary["incidents"][0]["state"] == "open"
    assert all(job["seen_last"] for job in summary["jobs"])
    assert summary["windows"]["status"] == {"done": 1, "landed": 1, "stopped": 1}
    assert summary["windows"]["stopped"] == [
        {"window": "2026-01-01T00:01:00.000Z", "reason": "flows.unique broken by 7 rows"}
    ]


def test_jobs_that_were_set_aside_are_told_job_by_job(warehouse: Warehouse, minute: Minute) -> None:
    for number, job in enumerate(("gpt", "bert", "gpt")):
        minute(number, aside=job)
    told = {"expectations": ["pairs.kind"]}
    assert summarise(warehouse)["set_aside"] == [
        {"job_id": "bert", "windows": 1, "last_window": "2026-01-01T00:01:00.000Z"} | told,
        {"job_id": "gpt", "windows": 2, "last_window": "2026-01-01T00:02:00.000Z"} | told,
    ]


def test_records_are_counted_and_must_add_up(warehouse: Warehouse, minute: Minute) -> None:
    window = minute(0, rows_read=1_003, rows_quarantined=3, rows_duplicate=2)
    bad = [
        {"reason": reason, "source_file": "f", "source_position": n, "record": "{}"}
        for n, reason in enumerate(("duplicate", "duplicate", "zero_bytes"))
    ]
    replace(warehouse, window, {"flows_quarantine": frame("flows_quarantine", window, bad)})
    windows = summarise(warehouse)["windows"]
    assert (windows["read"], windows["landed"], windows["quarantined"], windows["duplicate"]) == (1_003, 1_000, 3, 2)
    assert windows["reasons"] == {"duplicate": 2, "zero_bytes": 1}
    assert windows["add_up"]
    assert windows["median_run_s"] == 1.5
    replace(warehouse, window, {"windows": frame("windows", window, [bookkept(window, rows_read=2_000)])})
    assert not summarise(warehouse)["windows"]["add_up"]


def test_a_ducklake_is_summarised_as_a_file_is(warehouse: Warehouse, minute: Minute, tmp_path: Path) -> None:
    lake = empty_lake(tmp_path / "lake", lock_wait_s=5)
    for write in (minute, writer(lake)):
        for number in range(2):
            write(number, [diagnosis(number)])
    assert summarise(lake) == summarise(warehouse)
