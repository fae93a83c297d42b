"""Records that come late, or in another window's file, are known, land once, and their windows are due until then."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from empty_warehouse import empty_warehouse
from flowfiles import LATENESS_NS, MINUTE_NS, WINDOW, csv_text, flow, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping.minutes import Run
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import landing

PATTERN = "{window:%Y%m%dT%H%M}*"
BEFORE, AFTER = WINDOW.shifted(-1), WINDOW.shifted(1)
DUE = "SELECT window_start_ns FROM minutes WHERE due_reason = 'late_records' ORDER BY window_start_ns"
NOT_LANDED = "SELECT window_start_ns FROM flow_file_windows WHERE NOT landed ORDER BY ALL"
ACCOUNTS = """
SELECT count(*) FROM windows LEFT JOIN (
    SELECT window_start_ns, sum(records) AS records FROM flow_file_windows GROUP BY window_start_ns
) AS held USING (window_start_ns)
WHERE coalesce(held.records, 0) <> rows_read OR rows_read <> rows_landed + rows_quarantined
"""


def land(warehouse: Warehouse, flows: object, window: Window = WINDOW) -> dict[str, int]:
    run = Run(lookback_windows=0, now_ns=1)
    return landing.land(warehouse, window, str(flows), lateness_ns=LATENESS_NS, run=run)


def starts(warehouse: Warehouse, sql: str) -> list[int]:
    """The windows that a query returns, as numbers of minutes after WINDOW."""
    return [(start_ns - WINDOW.start_ns) // MINUTE_NS for start_ns in store.query(warehouse, sql).to_series()]


def catch_up(warehouse: Warehouse, flows: object) -> int:
    """Land due windows until none is; return how many were landed."""
    count = 0
    while due := starts(warehouse, DUE):
        for number in due:
            land(warehouse, flows, WINDOW.shifted(number))
        count += len(due)
        assert count < 100
    return count


def contents(warehouse: Warehouse) -> dict[str, list[tuple[object, ...]]]:
    span = Window(0, 2**63 - 1)
    tables = ("flows", "flows_quarantine", "windows", "flow_files", "flow_file_windows")
    return {name: rows.rows() for name, rows in store.read_each(warehouse, dict.fromkeys(tables, span)).items()}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_the_last_seconds_of_a_minute_come_in_the_next_file(warehouse: Warehouse, tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"20251009T0900{ending}", [flow(0), flow(30)])
    assert land(warehouse, tmp_path / f"{PATTERN}{ending}")["landed"] == 2
    write(tmp_path / f"20251009T0901{ending}", [flow(59.9), flow(61)])
    assert land(warehouse, tmp_path / f"{PATTERN}{ending}", AFTER)["landed"] == 1
    assert starts(warehouse, DUE) == starts(warehouse, NOT_LANDED) == [0]
    assert land(warehouse, tmp_path / f"{PATTERN}{ending}")["landed"] == 3
    assert starts(warehouse, DUE) == starts(warehouse, NOT_LANDED) == []
    assert store.query(warehouse, ACCOUNTS).item() == 0


def test_a_record_is_landed_from_a_file_of_an_hour_later(warehouse: Warehouse, tmp_path: Path) -> None:
    flows = tmp_path / f"{PATTERN}.csv"
    write(tmp_path / "20251009T0900.csv", [flow(0)])
    land(warehouse, flows)
    write(tmp_path / "20251009T1000.csv", [flow(3600), flow(7, bytes=0), flow(8)])
    land(warehouse, flows, WINDOW.shifted(60))
    assert starts(warehouse, DUE) == [0]
    assert land(warehouse, flows) == {"read": 3, "landed": 2, "quarantined": 1, "duplicate": 0}


def test_what_is_before_the_first_window_ever_is_history_and_not_due(warehouse: Warehouse, tmp_path: Path) -> None:
    write(tmp_path / "all.csv", [flow(-300), flow(0), flow(61)])
    land(warehouse, tmp_path)
    assert starts(warehouse, DUE) == []
    write(tmp_path / "late.csv", [flow(-301), flow(1)])
    land(warehouse, tmp_path, AFTER)
    assert starts(warehouse, DUE) == [0]


def test_a_file_that_is_sent_again_costs_a_line(warehouse: Warehouse, tmp_path: Path) -> None:
    flows = tmp_path / f"{PATTERN}.csv"
    path = write(tmp_path / "20251009T0900.csv", [flow(0), flow(1, bytes=0)])
    land(warehouse, flows)
    before = contents(warehouse)
    shutil.copy(path, tmp_path / "20251009T0900-again.csv")
    shutil.copy(path, tmp_path / "20251009T0901.csv")
    assert land(warehouse, flows, AFTER)["read"] == 0
    assert starts(warehouse, DUE) == []
    assert land(warehouse, flows) == {"read": 2, "landed": 1, "quarantined": 1, "duplicate": 0}
    after = contents(warehouse)
    assert after["flows_quarantine"] == before["flows_quarantine"]
    copies = store.query(
        warehouse, "SELECT source_file, copy_of FROM flow_files WHERE copy_of IS NOT NULL ORDER BY ALL"
    )
    assert copies.rows() == [
        (str(tmp_path / name), str(path)) for name in ("20251009T0900-again.csv", "20251009T0901.csv")
    ]
    path.unlink()  # the copy is read in its place
    assert land(warehouse, flows)["read"] == 2


def test_a_corrected_file_makes_its_windows_due(warehouse: Warehouse, tmp_path: Path) -> None:
    flows = tmp_path / f"{PATTERN}.csv"
    write(tmp_path / "20251009T0900.csv", [flow(0), flow(61)])
    for window in (WINDOW, AFTER):
        land(warehouse, flows, window)
    write(tmp_path / "20251009T0900.csv", [flow(0), flow(62)])
    land(warehouse, flows, AFTER)
    assert starts(warehouse, DUE) == [0]  # its records are as many, but of another content
    assert catch_up(warehouse, flows) == 1
    assert store.query(warehouse, ACCOUNTS).item() == 0


def test_a_file_that_grows_makes_only_windows_with_new_records_due(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path / "flows.csv", [flow(0), flow(61)])
    for window in (WINDOW, AFTER):
        land(warehouse, tmp_path, window)
    with path.open("a", encoding="utf-8") as file:
        file.write(csv_text([flow(62), flow(130)]).partition("\n")[2])
    land(warehouse, tmp_path, WINDOW.shifted(2))
    assert starts(warehouse, DUE) == [1]
    assert catch_up(warehouse, tmp_path) == 1


def test_half_a_line_that_is_completed_later_is_not_taken_for_the_same_record(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    text = csv_text([flow(0), flow(1)])
    path = tmp_path / "flows.csv"
    path.write_text(text[:-20], encoding="utf-8")
    assert land(warehouse, tmp_path)["quarantined"] == 1
    path.write_text(text, encoding="utf-8")
    land(warehouse, tmp_path, AFTER)
    assert starts(warehouse, DUE) == [0]
    assert land(warehouse, tmp_path)["landed"] == 2


def test_a_file_of_another_window_that_cannot_be_read_costs_this_one_nothing(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    flows = tmp_path / f"{PATTERN}.parquet"
    write(tmp_path / "20251009T0900.parquet", [flow(0)])
    broken = write(tmp_path / "20251009T0901.parquet", [flow(59), flow(61)])
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-100])
    assert land(warehouse, flows)["landed"] == 1
    broken.write_bytes(whole)
    land(warehouse, flows, AFTER)
    assert starts(warehouse, DUE) == [0]
    assert land(warehouse, flows)["landed"] == 2


def test_a_file_that_is_touched_is_the_same(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path / "20251009T0900.csv", [flow(0), flow(61)])
    for window in (WINDOW, AFTER):
        land(warehouse, tmp_path / f"{PATTERN}.csv", window)
    os.utime(path, (1, 1))
    land(warehouse, tmp_path / f"{PATTERN}.csv", AFTER)
    assert starts(warehouse, DUE) == []
    assert store.query(warehouse, "SELECT modified_ns FROM flow_files").item() == 1_000_000_000


RECORDS = st.lists(
    st.builds(
        lambda seconds, size, change: flow(seconds, bytes=size) | change,
        st.sampled_from([0.0, 1.0, 59.9, 60.0, 61.0, 119.0, 150.0]),
        st.integers(1, 3),
        st.sampled_from([{}, {}, {}, {"bytes": 0}, {"src_addr": "gpu-7"}]),
    ),
    min_size=1,
    max_size=12,
)


@given(records=RECORDS, chances=st.randoms(use_true_random=False), ending=st.sampled_from([".csv", ".parquet"]))
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
def test_whatever_file_records_come_in_and_whenever_the_end_is_that_of_all_at_once(
    records: Sequence[dict[str, Any]], chances: Any, ending: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, whole = Path(name) / "flows", Path(name) / "whole"
        numbers = [chances.randrange(3) for _ in records]
        for number in range(3):
            dealt = [record for record, other in zip(records, numbers, strict=True) if other == number]
            write(whole / f"{WINDOW.shifted(number).start:%Y%m%dT%H%M}{ending}", dealt)
        folder.mkdir()
        warehouse = empty_warehouse(Path(name) / "one.duckdb")
        flows = folder / f"{PATTERN}{ending}"
        arrivals = sorted(whole.iterdir())
        chances.shuffle(arrivals)
        for path in arrivals:
            shutil.copy2(path, folder)
            land(warehouse, flows, WINDOW.shifted(int(path.stem[-1])))
        for number in range(3):  # no window is run without its file being there, in the end
            land(warehouse, flows, WINDOW.shifted(number))
        catch_up(warehouse, flows)
        assert store.query(warehouse, ACCOUNTS).item() == 0
        other = empty_warehouse(Path(name) / "other.duckdb")
        landing.land_all(other, str(flows), length_ns=MINUTE_NS)
        assert contents(warehouse) == contents(other)
