"""Whatever comes, each record is in exactly one of the tables, once, and the counts add up."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from empty_warehouse import empty_warehouse
from flowfiles import MINUTE_NS, NAMES, WINDOW, csv_text, flow, json_text, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmprism_tasks.contract.frames import schema
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.landing import landing

SECONDS = st.sampled_from([-70.0, -1.0, 0.0, 1.0, 30.0, 59.0, 60.0, 100.0])
GOOD = st.builds(flow, SECONDS, bytes=st.integers(1, 3))
NUMBERS = st.one_of(st.none(), st.integers(-2, 2**63 - 1))
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r\x1e\x1f", exclude_categories=["Cs"]), max_size=8)
ODD = st.one_of(NUMBERS, st.integers(2**63, 2**80), st.floats(allow_nan=False, allow_infinity=False), TEXT)
CHANGED = st.builds(
    lambda base, changes: base | changes, GOOD, st.dictionaries(st.sampled_from(NAMES), ODD, max_size=3)
)
TYPED = st.builds(
    lambda base, changes: base | changes,
    GOOD,
    st.fixed_dictionaries(
        {},
        optional={
            "flow_start_ns": NUMBERS,
            "flow_end_ns": NUMBERS,
            "src_addr": st.one_of(st.none(), TEXT),
            "bytes": NUMBERS,
            "packets": NUMBERS,
        },
    ),
)


def landed(path: Path, folder: Path) -> tuple[list[dict[str, Any]], list[tuple[str, int, str]], list[tuple[int, ...]]]:
    """Land every window of a file; return its flows, quarantine and counts."""
    warehouse = empty_warehouse(folder / "warehouse.duckdb")
    windows = landing.land_all(warehouse, str(path), length_ns=MINUTE_NS)
    everything = Window(0, 2**63 - 1)
    found = store.read_each(warehouse, dict.fromkeys(("flows", "flows_quarantine", "windows"), everything))
    assert {window.start_ns for window in windows} == set(found["windows"]["window_start_ns"])
    return (
        found["flows"].drop("window_start_ns").to_dicts(),
        found["flows_quarantine"].select("reason", "source_position", "record").rows(),
        found["windows"].select("rows_read", "rows_landed", "rows_quarantined").rows(),
    )


def check(path: Path, folder: Path, records: int, texts: list[str] | None = None) -> int:
    """Hold what was landed to what was written; returns how many records were read."""
    flows, quarantined, counts = landed(path, folder)
    assert all(read == good + bad for read, good, bad in counts)
    assert (len(flows), len(quarantined)) == (sum(row[1] for row in counts), sum(row[2] for row in counts))
    positions = Counter(position for _, position, _ in quarantined)
    assert set(positions.values()) <= {1}
    assert set(positions) <= set(range(1, records + 1))
    for reason, position, record in quarantined:
        told = json.loads(record)
        if reason == "malformed_record" and texts:
            assert told == texts[position - 1]
    return sum(read for read, _, _ in counts)


@given(records=st.lists(st.one_of(GOOD, CHANGED), max_size=12), noise=st.lists(TEXT.filter(str.strip), max_size=4))
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_text_is_landed_or_quarantined_line_by_line(
    ending: str, records: list[dict[str, Any]], noise: list[str]
) -> None:
    text = csv_text(records) if ending == ".csv" else json_text(records)
    lines = [line for line in text.split("\n") if line] + [line.replace("\n", "") or "?" for line in noise]
    lines = [line for line in lines if line.strip()]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"flows{ending}"
        path.write_bytes("\n".join(lines).encode())
        texts = lines[1:] if ending == ".csv" else lines
        assert check(path, Path(name), len(texts), texts) == len(texts)


@given(records=st.lists(st.one_of(GOOD, TYPED), max_size=12))
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_parquet_is_landed_or_quarantined_row_by_row(records: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = write(Path(name) / "flows.parquet", records)
        assert check(path, Path(name), len(records)) == len(records)


@given(records=st.lists(GOOD, max_size=12))
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
def test_good_records_are_landed_but_for_their_copies(records: list[dict[str, Any]]) -> None:
    distinct = {json.dumps(record) for record in records}
    for ending in (".parquet", ".csv", ".jsonl"):
        with tempfile.TemporaryDirectory() as name:
            flows, quarantined, _ = landed(write(Path(name) / f"flows{ending}", records), Path(name))
            assert {json.dumps(row) for row in flows} == distinct
            assert [reason for reason, _, _ in quarantined] == ["duplicate"] * (len(records) - len(distinct))


def test_the_schema_of_these_tests_is_the_contracts() -> None:
    assert list(schema(FLOW_COLUMNS)) == list(flow())
    assert flow()["flow_start_ns"] == WINDOW.start_ns
