"""Landing: good records to flows, the others to quarantine with their reason, and nothing lost in between."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from flowfiles import LATENESS_NS, MINUTE_NS, NAMES, WINDOW, csv_text, flow, json_text, pack, write

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.plan import DERIVED
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources.flows import REASONS
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import landing

ENDINGS = (".parquet", ".csv", ".csv.gz", ".csv.zst", ".jsonl", ".json", ".ndjson.gz", ".jsonl.zst")

BAD: dict[str, list[dict[str, Any]]] = {
    "missing_field": [flow(1, bytes=None), flow(1, src_addr=""), flow(1, flow_start_ns=None)],
    "not_a_number": [flow(1, bytes="many"), flow(1, src_port="x"), flow(1, bytes="1.5"), flow(1, bytes=str(2**63))],
    "not_a_path": [flow(1, switch_path="[leaf0")],
    "not_a_time": [flow(1, flow_start_ns=-1), flow(1, flow_end_ns=2**63 - 1)],
    "not_an_address": [
        flow(1, src_addr="gpu-7"),
        flow(1, dst_addr="10.0.0"),
        flow(1, dst_addr="4791"),
        flow(1, src_addr="10.0.0.300"),
        flow(1, dst_addr="fe80::1::2"),
    ],
    "end_before_start": [flow(1, flow_end_ns=WINDOW.start_ns)],
    "no_bytes": [flow(1, bytes=0), flow(1, bytes=-5)],
    "source_is_destination": [flow(1, dst_addr="10.0.0.1")],
}


def land(warehouse: Warehouse, flows: Path | str, window: Window = WINDOW) -> dict[str, int]:
    return landing.land(warehouse, window, str(flows), lateness_ns=LATENESS_NS)


def quarantine(warehouse: Warehouse, window: Window = WINDOW) -> list[tuple[str, int]]:
    rows = store.read(warehouse, "flows_quarantine", window)
    return rows.select("reason", "source_position").rows()


def tables(warehouse: Warehouse, span: Window) -> dict[str, list[tuple[object, ...]]]:
    found = store.read_each(warehouse, {table.name: span for table in TABLES})
    return {name: frame.rows() for name, frame in found.items()}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_lands_the_same_rows(warehouse: Warehouse, tmp_path: Path, ending: str) -> None:
    records = [
        flow(2),
        flow(1, src_addr="fe80::1%eth0", dst_addr="2001:db8::10.0.0.1"),
        flow(1, src_port=None, dst_port=None, protocol=None, packets=None, switch_path=None),
        flow(0, bytes=2**62),
        flow(59.999),
    ]
    counts = land(warehouse, write(tmp_path / f"flows{ending}", records))
    assert counts == {"read": 5, "landed": 5, "quarantined": 0, "duplicate": 0}
    expected = pl.DataFrame(records).with_columns(window_start_ns=WINDOW.start_ns)
    order = ("flow_start_ns", "src_addr", "dst_addr")
    rows = store.read(warehouse, "flows", WINDOW)
    assert rows.rows() == frames.conform(expected, "flows").sort(order).rows()


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
@pytest.mark.parametrize("reason", BAD)
def test_a_bad_record_is_quarantined_with_its_reason(
    warehouse: Warehouse, tmp_path: Path, reason: str, ending: str
) -> None:
    records = [flow(0), *BAD[reason], flow(2)]
    path = write(tmp_path / f"flows{ending}", records)
    counts = land(warehouse, path)
    bad = len(BAD[reason])
    assert counts == {"read": bad + 2, "landed": 2, "quarantined": bad, "duplicate": 0}
    rows = store.read(warehouse, "flows_quarantine", WINDOW)
    assert rows["reason"].to_list() == [reason] * bad
    assert rows["source_file"].to_list() == [str(path)] * bad
    assert rows["source_position"].to_list() == list(range(2, bad + 2))
    for record, kept in zip(BAD[reason], rows["record"], strict=True):
        told = json.loads(kept)
        assert told["bytes"] in {record["bytes"], str(record["bytes"]), "" if record["bytes"] is None else None}
        assert set(told) == set(NAMES)


def test_bad_values_in_parquet_are_quarantined_too(warehouse: Warehouse, tmp_path: Path) -> None:
    records = [
        flow(0),
        flow(1, bytes=0),
        flow(1, src_addr=None),
        flow(3, dst_addr="10.0.0.1"),
        flow(1, flow_start_ns=None),
    ]
    land(warehouse, write(tmp_path / "flows.parquet", records))
    assert quarantine(warehouse) == [
        ("no_bytes", 2),
        ("missing_field", 3),
        ("source_is_destination", 4),
        ("missing_field", 5),
    ]
    kept = json.loads(store.read(warehouse, "flows_quarantine", WINDOW)["record"][0])
    assert kept == records[1]


def test_a_malformed_line_costs_only_itself(warehouse: Warehouse, tmp_path: Path) -> None:
    good = csv_text([flow(0), flow(1), flow(2)]).splitlines()
    lines = [good[0], good[1], good[2] + ",surplus", '"stray', good[2], "1,2,3", good[3]]
    path = pack(tmp_path / "flows.csv", "\r\n".join(lines).encode())
    assert land(warehouse, path) == {"read": 6, "landed": 3, "quarantined": 3, "duplicate": 0}
    assert quarantine(warehouse) == [("malformed_record", 2), ("malformed_record", 3), ("malformed_record", 5)]
    kept = [json.loads(text) for text in store.read(warehouse, "flows_quarantine", WINDOW)["record"]]
    assert kept == [lines[2], lines[3], lines[5]]


def test_a_line_that_is_no_json_object_is_malformed(warehouse: Warehouse, tmp_path: Path) -> None:
    lines = [json_text([flow(0)]).strip(), '{"flow_start_ns": 1', "[1, 2]", "7", json_text([flow(1)]).strip()]
    path = pack(tmp_path / "flows.jsonl", "\n".join(lines).encode())
    assert land(warehouse, path) == {"read": 5, "landed": 2, "quarantined": 3, "duplicate": 0}
    kept = [json.loads(text) for text in store.read(warehouse, "flows_quarantine", WINDOW)["record"]]
    assert kept == lines[1:4]


@pytest.mark.parametrize("path", ['["leaf0","spine0"]', "['leaf0', 'spine0']", "leaf0|spine0"])
def test_a_switch_path_may_be_written_in_three_ways(warehouse: Warehouse, tmp_path: Path, path: str) -> None:
    land(warehouse, write(tmp_path / "flows.csv", [flow(0, switch_path=path)]))
    assert store.read(warehouse, "flows", WINDOW)["switch_path"].to_list() == [["leaf0", "spine0"]]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_escape_in_a_switch_path_is_what_json_says(warehouse: Warehouse, tmp_path: Path, ending: str) -> None:
    text = '["l\\u00e9af0", "a\\"b\\\\c"]'
    write(tmp_path / f"flows.{ending}", [flow(0, switch_path=text if ending == "csv" else json.loads(text))])
    write(tmp_path / "odd.csv", [flow(1, switch_path='["a\\x"]')])
    land(warehouse, tmp_path)
    assert store.read(warehouse, "flows", WINDOW)["switch_path"].to_list() == [["l\u00e9af0", 'a"b\\c']]
    assert store.read(warehouse, "flows_quarantine", WINDOW)["reason"].to_list() == ["not_a_path"]


def test_exact_duplicates_are_kept_once_and_counted(warehouse: Warehouse, tmp_path: Path) -> None:
    folder = tmp_path / "flows"
    write(folder / "a.csv", [flow(0), flow(0), flow(1, switch_path=None), flow(0, packets=None)])
    write(folder / "b" / "b.jsonl.gz", [flow(1, switch_path=None), flow(0)])
    assert land(warehouse, folder) == {"read": 6, "landed": 3, "quarantined": 3, "duplicate": 3}
    rows = store.read(warehouse, "flows_quarantine", WINDOW)
    assert [(Path(file).name, position) for file, position in rows.select("source_file", "source_position").rows()] == [
        ("a.csv", 2),
        ("b.jsonl.gz", 1),
        ("b.jsonl.gz", 2),
    ]
    assert json.loads(rows["record"][0]) == flow(0)


def test_unknown_columns_are_ignored_and_named_once(
    warehouse: Warehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.csv", "b.csv"):
        pack(tmp_path / name, csv_text([flow(0) | {"vlan": 7, "tos": 0}], [*NAMES, "vlan", "tos"]).encode())
    pack(tmp_path / "c.jsonl", json_text([flow(1) | {"flags": 1}]).encode())
    with caplog.at_level(logging.WARNING):
        assert land(warehouse, tmp_path / "*.*[vl]")["landed"] == 2
    assert [record.getMessage() for record in caplog.records] == [
        "ignored unknown columns in files of flows: flags, tos, vlan"
    ]


def test_numbers_may_come_as_text_or_whole_fractions(warehouse: Warehouse, tmp_path: Path) -> None:
    texts = {
        name: value if isinstance(value, list) else str(value) for name, value in flow(0, dst_port="4791.0").items()
    }
    pack(tmp_path / "flows.jsonl", json_text([texts]).encode())
    land(warehouse, tmp_path / "flows.jsonl")
    assert store.read(warehouse, "flows", WINDOW).drop("window_start_ns").to_dicts() == [flow(0)]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_a_window_without_records_is_a_success(warehouse: Warehouse, tmp_path: Path, ending: str) -> None:
    nothing = {"read": 0, "landed": 0, "quarantined": 0, "duplicate": 0}
    assert land(warehouse, tmp_path / "{window:%Y%m%dT%H%M}.parquet") == nothing
    assert land(warehouse, write(tmp_path / f"flows{ending}", [])) == nothing
    assert land(warehouse, write(tmp_path / f"late{ending}", [flow(60)])) == nothing
    assert store.read(warehouse, "windows", WINDOW).select("status", "rows_read", "stage_ns").rows() == [
        ("landed", 0, "{}")
    ]


def test_a_window_that_is_landed_again_starts_over(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path / "flows.csv", [flow(0), flow(1, bytes=0)])
    land(warehouse, path)
    after = WINDOW.shifted(1)
    for window in (WINDOW, after):
        member = {"window_start_ns": window.start_ns, "job_id": "j", "addr": "a", "host": "h"}
        store.replace(warehouse, window, {"job_members": pl.DataFrame([member])})
    land(warehouse, write(path, [flow(2)]))
    assert store.read(warehouse, "flows", WINDOW)["flow_start_ns"].to_list() == [flow(2)["flow_start_ns"]]
    left = tables(warehouse, WINDOW)
    assert all(not left[table] for table in (*DERIVED, "flows_quarantine"))
    assert store.read(warehouse, "job_members", after).height == 1


def test_reasons_are_a_closed_list() -> None:
    assert set(BAD) | {"malformed_record", "outside_window", "unlisted_flood", "duplicate"} == set(REASONS)


def test_all_at_once_is_the_same_as_window_by_window_in_any_order(tmp_path: Path) -> None:
    folder = tmp_path / "flows"
    write(folder / "a.parquet", [flow(seconds) for seconds in (0, 1, 1, 70, 300)] + [flow(71, bytes=0)])
    write(folder / "b.csv", [flow(1), flow(5, flow_start_ns="never"), flow(310, src_addr="?")])
    write(folder / "c.jsonl", [flow(1, flow_start_ns=None)])
    span = Window(WINDOW.start_ns, 6 * MINUTE_NS)
    answers = []
    for order in ("all", "forwards", "backwards"):
        warehouse = empty_warehouse(tmp_path / f"{order}.duckdb")
        windows = landing.windows_in(str(folder), MINUTE_NS)
        assert windows == [WINDOW.shifted(number) for number in range(6)]
        if order == "all":
            assert landing.land_all(warehouse, str(folder), length_ns=MINUTE_NS) == windows
        else:
            for window in windows if order == "forwards" else reversed(windows):
                land(warehouse, folder, window)
        answers.append(tables(warehouse, span))
    assert answers[0] == answers[1] == answers[2]
    assert [row[4] for row in answers[0]["windows"]] == [6, 2, 0, 0, 0, 2]
