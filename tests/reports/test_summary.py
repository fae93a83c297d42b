"""The summary of a warehouse: troubles joined over windows and folded under their causes, jobs, bookkeeping."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from small_windows import FIRST, SECOND, Minute, bookkept, diagnosis, frame, writer

from llmprism_tasks.reports.summary import summarise
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.store import replace


def troubles(warehouse: Warehouse) -> list[dict[str, Any]]:
    found = summarise(warehouse)["troubles"]
    assert isinstance(found, list)
    return found


def test_an_empty_warehouse_has_no_span_and_nothing_in_it(warehouse: Warehouse) -> None:
    summary = summarise(warehouse)
    assert summary["span"] is None
    assert summary["jobs"] == summary["troubles"] == []
    assert summary["windows"]["all"] == summary["windows"]["read"] == 0
    assert summary["windows"]["add_up"]
    json.dumps(summary, allow_nan=False)


def test_a_healthy_warehouse_has_jobs_and_no_troubles(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(3):
        minute(number, step_s=2.0 if number < 2 else 4.0)
    summary = summarise(warehouse)
    assert summary["troubles"] == []
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


def test_diagnoses_of_consecutive_windows_are_one_trouble_told_by_the_worst(
    warehouse: Warehouse, minute: Minute
) -> None:
    for number, severity in enumerate((0.1, 0.4, 0.2)):
        minute(number, [diagnosis(number, severity=severity, score=severity * 10, explanation=f"{severity}")])
    minute(3)
    (trouble,) = troubles(warehouse)
    assert (trouble["windows"], trouble["peak_severity"], trouble["peak_score"]) == (3, 0.4, 4.0)
    assert trouble["explanation"] == "0.4"
    assert trouble["first_seen"] == "2026-01-01T00:00:05.000Z"
    assert trouble["last_seen"] == "2026-01-01T00:02:55.000Z"
    assert not trouble["goes_on"]


def test_one_silent_window_does_not_end_a_trouble_and_two_do(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(7):
        minute(number, [diagnosis(number)] if number in (0, 2, 5, 6) else [])
    found = troubles(warehouse)
    assert sorted((one["first_seen"][14:16], one["windows"], one["goes_on"]) for one in found) == [
        ("00", 2, False),
        ("05", 2, True),
    ]


def test_the_worst_trouble_comes_first_and_one_without_a_number_before_all(
    warehouse: Warehouse, minute: Minute
) -> None:
    minute(
        0,
        [
            diagnosis(0, subject="10.3.0.0", severity=0.2),
            diagnosis(0, subject="10.3.0.1", severity=0.5),
            diagnosis(0, subject="10.3.0.2", severity=math.inf),
        ],
    )
    assert [one["peak_severity"] for one in troubles(warehouse)] == [None, 0.5, 0.2]
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
    bert, gpt = troubles(warehouse)
    assert (bert["kind"], bert["also"]) == ("cross_step", [])
    assert gpt["kind"] == "straggler"
    assert [also["kind"] for also in gpt["also"]] == ["cross_step"]


def test_what_a_job_suffered_before_is_not_put_under_a_device(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, kind="cross_step", subject_type="job", subject="gpt")])
    minute(5, [diagnosis(5)])
    assert [one["also"] for one in troubles(warehouse)] == [[], []]


def test_a_switch_that_slows_two_jobs_is_one_trouble(warehouse: Warehouse, minute: Minute) -> None:
    switch = {"kind": "switch_level", "subject_type": "switch", "subject": "leaf3"}
    minute(0, [diagnosis(0, **switch, severity=0.2), diagnosis(0, **switch, severity=0.4, job_id="bert")])
    (trouble,) = troubles(warehouse)
    assert trouble["job_id"] == "bert"
    assert [also["job_id"] for also in trouble["also"]] == ["gpt"]


def test_a_gpu_is_named_with_its_host(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0), diagnosis(0, kind="switch_level", subject_type="switch", subject="leaf3", severity=0.1)])
    assert [one["host"] for one in troubles(warehouse)] == ["gpt-01", None]


def test_a_trouble_and_a_job_of_the_last_window_to_be_finished_go_on(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0)])
    minute(1, status="stopped", reason="flows.unique broken by 7 rows")
    minute(2, status="landed")
    summary = summarise(warehouse)
    assert summary["troubles"][0]["goes_on"]
    assert all(job["seen_last"] for job in summary["jobs"])
    assert summary["windows"]["status"] == {"done": 1, "landed": 1, "stopped": 1}
    assert summary["windows"]["stopped"] == [
        {"window": "2026-01-01T00:01:00.000Z", "reason": "flows.unique broken by 7 rows"}
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
    lake = open_warehouse(f"ducklake:{tmp_path / 'lake'}", lock_wait_s=5)
    for write in (minute, writer(lake)):
        for number in range(2):
            write(number, [diagnosis(number)])
    assert summarise(lake) == summarise(warehouse)
