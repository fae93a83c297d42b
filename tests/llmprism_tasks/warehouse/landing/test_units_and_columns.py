"""Columns and units: IPFIX's names and a user's are known; other units and separators are refused with the factor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from flowfiles import LATENESS_NS, WINDOW, csv_text, flow, json_text, pack, write

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import landing
from llmprism_tasks.warehouse.landing.intake import Intake

IPFIX = {
    "src_addr": "sourceIPv4Address",
    "dst_addr": "destinationIPv4Address",
    "src_port": "sourceTransportPort",
    "dst_port": "destinationTransportPort",
    "protocol": "protocolIdentifier",
    "bytes": "octetDeltaCount",
    "packets": "packetDeltaCount",
    "switch_path": "switch_path",
}
DIVISORS = {"Nanoseconds": 1, "Microseconds": 1_000, "Milliseconds": 1_000_000, "Seconds": 1_000_000_000}


def land(warehouse: Warehouse, path: Path, **columns: str) -> dict[str, int]:
    return landing.land(warehouse, WINDOW, str(path), lateness_ns=LATENESS_NS, intake=Intake(columns=columns))


def refusal(warehouse: Warehouse, path: Path, **columns: str) -> str:
    with pytest.raises(InputError) as caught:
        land(warehouse, path, **columns)
    assert store.read(warehouse, "windows", WINDOW).is_empty()
    return str(caught.value)


def renamed(record: dict[str, Any], unit: str) -> dict[str, Any]:
    times = {f"flow{end}{unit}": record[f"flow_{end.lower()}_ns"] // DIVISORS[unit] for end in ("Start", "End")}
    return times | {name: record[field] for field, name in IPFIX.items()}


def write_as(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write records with whatever fields they have."""
    if path.suffix == ".parquet":
        pl.DataFrame(records).write_parquet(path)
        return path
    text = csv_text(records, list(records[0])) if path.suffix == ".csv" else json_text(records)
    return pack(path, text.encode())


def flows(warehouse: Warehouse) -> list[dict[str, Any]]:
    return store.read(warehouse, "flows", WINDOW).drop("window_start_ns").to_dicts()


@pytest.mark.parametrize("unit", DIVISORS)
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_the_names_of_ipfix_are_known_with_their_units(
    warehouse: Warehouse, tmp_path: Path, ending: str, unit: str
) -> None:
    record = flow(7)
    end_ns = record["flow_end_ns"] // DIVISORS[unit] * DIVISORS[unit]
    path = write_as(tmp_path / f"flows{ending}", [renamed(record, unit)])
    assert land(warehouse, path)["landed"] == 1
    assert flows(warehouse) == [record | {"flow_end_ns": end_ns}]


def test_the_finest_time_counts_and_either_kind_of_address(warehouse: Warehouse, tmp_path: Path) -> None:
    six = {"sourceIPv6Address": None, "destinationIPv6Address": None, "flowStartMilliseconds": 0, "flowEndSeconds": 0}
    one = renamed(flow(1), "Nanoseconds") | six
    other = renamed(flow(2), "Nanoseconds") | six
    other |= {"sourceIPv4Address": None, "sourceIPv6Address": "fe80::1"}
    assert land(warehouse, write_as(tmp_path / "flows.csv", [one, other]))["landed"] == 2
    assert [row["src_addr"] for row in flows(warehouse)] == ["10.0.0.1", "fe80::1"]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_a_user_names_columns_and_units(warehouse: Warehouse, tmp_path: Path, ending: str) -> None:
    record = flow(7) | {"flow_end_ns": WINDOW.start_ns + 7_500_000_000}
    seconds = WINDOW.start_ns // 1_000_000_000
    mine = {"from": f"{seconds + 7}.000000", "to": "2025-10-09T11:00:07.5+02:00", "a:b": record["bytes"]}
    mine |= {name: value for name, value in record.items() if name not in ("flow_start_ns", "flow_end_ns", "bytes")}
    path = write_as(tmp_path / f"flows{ending}", [mine])
    assert land(warehouse, path, flow_start_ns="from:s", flow_end_ns="to:ms", bytes="a:b")["landed"] == 1
    assert flows(warehouse) == [record]


def test_a_column_that_the_user_names_and_that_is_not_there_is_told(warehouse: Warehouse, tmp_path: Path) -> None:
    said = refusal(warehouse, write(tmp_path / "flows.csv", [flow(0)]), packets="pkts")
    assert "has no column pkts (for packets, as --columns or [columns] has it), only " in said
    said = refusal(warehouse, tmp_path / "flows.csv", bytes="octets", flow_start_ns="first:ms")
    assert "has no column octets (for bytes, as --columns or [columns] has it), first:ms (for flow_start_ns, " in said


@pytest.mark.parametrize(
    ("divisor", "unit", "factor"),
    [(1_000, "microseconds", "1,000"), (10**6, "milliseconds", "1,000,000"), (10**9, "seconds", "1,000,000,000")],
)
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("field", ["flow_start_ns", "flow_end_ns"])
def test_times_in_another_unit_are_refused_with_the_factor(
    warehouse: Warehouse, tmp_path: Path, field: str, ending: str, divisor: int, unit: str, factor: str
) -> None:
    value = flow(0)[field] // divisor
    said = refusal(warehouse, write(tmp_path / f"flows{ending}", [flow(0) | {field: value}, flow(1) | {field: value}]))
    assert f"column {field}: {value} looks like {unit}, and so do 2 of 2 records (a factor of {factor})" in said
    assert f"--columns {field}={field}:" in said


@pytest.mark.parametrize("value", ["2025-10-09T09:00:01Z", "2025-10-09 09:00:01.123456", "1760000401.25"])
def test_times_as_text_are_refused(warehouse: Warehouse, tmp_path: Path, value: str) -> None:
    said = refusal(warehouse, write(tmp_path / "flows.csv", [flow(0) | {"flow_start_ns": value}]))
    assert f"{value} looks like {'ISO 8601 text' if '-' in value else 'seconds'}" in said


@pytest.mark.parametrize(("odd", "is_refused"), [(1, False), (2, True)])
def test_a_few_odd_times_cost_only_themselves(
    warehouse: Warehouse, tmp_path: Path, odd: int, *, is_refused: bool
) -> None:
    records = [flow(0), flow(1, flow_start_ns=1_760_000_401), flow(2, flow_start_ns=1_760_000_402)][: odd + 1]
    path = write(tmp_path / "flows.csv", records)
    if is_refused:
        assert "2 of 3 records" in refusal(warehouse, path)
    else:
        assert land(warehouse, path)["quarantined"] == 1


@pytest.mark.parametrize("text", ["leaf1;spine0;leaf0", "leaf1,spine0", "leaf1>spine0", "leaf1->spine0->leaf0"])
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_path_with_another_separator_is_no_switch(
    warehouse: Warehouse, tmp_path: Path, ending: str, text: str
) -> None:
    path = write(tmp_path / f"flows{ending}", [flow(0, switch_path=text), flow(1, switch_path=None)])
    said = refusal(warehouse, path)
    alone = [flow(number, switch_path="leaf0") for number in range(1, 4)]  # before, these hid the one that is joined
    assert refusal(warehouse, write(path, [flow(0, switch_path=text), *alone])) == said
    sign = "->" if "->" in text else text[5]
    assert f"column switch_path: {text} has '{sign}' between its switches, as 1 of 1 paths have" in said
    write(path, [flow(0, switch_path=text), flow(1, switch_path="leaf0|spine0")])
    assert land(warehouse, path)["landed"] == 1
    assert store.read(warehouse, "flows_quarantine", WINDOW)["reason"].to_list() == ["not_a_path"]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("spelling", ["::ffff:10.0.0.1", "::FFFF:10.0.0.1", "0:0:0:0:0:ffff:10.0.0.1"])
def test_an_ipv4_address_has_one_spelling(warehouse: Warehouse, tmp_path: Path, ending: str, spelling: str) -> None:
    records = [flow(0, src_addr=spelling), flow(1, dst_addr=spelling, src_addr="64:ff9b::10.0.0.1")]
    land(warehouse, write(tmp_path / f"flows{ending}", records))
    assert [row["src_addr"] for row in flows(warehouse)] == ["10.0.0.1", "64:ff9b::10.0.0.1"]
    again = write(tmp_path / f"again{ending}", [flow(2, src_addr=spelling, dst_addr="10.0.0.1")])
    assert land(warehouse, again)["quarantined"] == 1  # both ends are the same
    (tmp_path / "topology.csv").write_text(f"addr,host\n{spelling},h\n", encoding="utf-8")
    assert read_topology(str(tmp_path / "topology.csv"))["addr"].to_list() == ["10.0.0.1"]
    (tmp_path / "topology.csv").write_text(f"addr,host\n{spelling},h\n10.0.0.1,h\n", encoding="utf-8")
    with pytest.raises(InputError, match="each addr once"):
        read_topology(str(tmp_path / "topology.csv"))


def test_sound_and_staged_rows_agree_on_spelling(tmp_path: Path) -> None:
    found = []
    for name, more in (("sound", []), ("staged", [flow(9, bytes=0)])):
        warehouse = empty_warehouse(tmp_path / f"{name}.duckdb")
        land(warehouse, write(tmp_path / f"{name}.parquet", [flow(0, src_addr="::ffff:10.0.0.1"), *more]))
        found.append(flows(warehouse))
    assert found[0] == found[1]
