"""Records stay landed when their file is deleted; only an operator's word takes them away."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from empty_warehouse import empty_warehouse
from flowfiles import LATENESS_NS, MINUTE_NS, WINDOW, flow, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping.minutes import Run
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import gone_files, landing

PATTERN = "{window:%Y%m%dT%H%M}*"
AFTER = WINDOW.shifted(1)
DUE = "SELECT window_start_ns, due_reason FROM minutes WHERE due_reason IS NOT NULL ORDER BY window_start_ns"
GONE = "SELECT source_file FROM flow_files WHERE modified_ns = -1 ORDER BY source_file"
HELD = "SELECT window_start_ns, source_file, records, landed FROM flow_file_windows ORDER BY ALL"
ACCOUNTS = """
SELECT count(*) FROM windows LEFT JOIN (
    SELECT window_start_ns, sum(records) AS records FROM flow_file_windows WHERE landed GROUP BY window_start_ns
) AS held USING (window_start_ns)
WHERE coalesce(held.records, 0) <> rows_read OR rows_read <> rows_landed + rows_quarantined
"""


def land(warehouse: Warehouse, flows: object, window: Window = WINDOW) -> dict[str, int]:
    run = Run(lookback_windows=0, now_ns=1)
    return landing.land(warehouse, window, str(flows), lateness_ns=LATENESS_NS, run=run)


def due(warehouse: Warehouse) -> list[tuple[int, str]]:
    return [((start - WINDOW.start_ns) // MINUTE_NS, why) for start, why in store.query(warehouse, DUE).iter_rows()]


def held(warehouse: Warehouse) -> dict[str, list[tuple[Any, ...]]]:
    """All flows and refused records, and the windows' numbers of records, whatever their files."""
    span, columns = Window(0, 2**63 - 1), {"windows": ["window_start_ns", "rows_read", "rows_landed"]}
    tables = store.read_each(warehouse, dict.fromkeys(("flows", "flows_quarantine", *columns), span), columns=columns)
    return {name: rows.rows() for name, rows in tables.items()}


def sizes(warehouse: Warehouse) -> list[int]:
    return sorted(store.query(warehouse, "SELECT bytes FROM flows")["bytes"].to_list())


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("all_at_once", [False, True])
def test_a_window_that_is_run_again_keeps_what_came_in_a_file_that_is_gone(
    warehouse: Warehouse, tmp_path: Path, ending: str, *, all_at_once: bool
) -> None:
    flows = tmp_path / f"{PATTERN}{ending}"
    first = write(tmp_path / f"20251009T0900{ending}", [flow(0), flow(1), flow(2, bytes=0)])
    write(tmp_path / f"20251009T0901{ending}", [flow(59.9), flow(61), flow(1)])
    for window in (WINDOW, AFTER):
        land(warehouse, flows, window)
    before = held(warehouse)
    first.unlink()
    for _ in range(2):
        if all_at_once:
            landing.land_all(warehouse, str(flows), length_ns=MINUTE_NS)
        else:
            land(warehouse, flows)
        after = held(warehouse)
        assert after["flows"] == before["flows"]
        assert store.query(warehouse, ACCOUNTS).item() == 0
        assert store.query(warehouse, GONE)["source_file"].to_list() == [str(first)]
        assert store.query(warehouse, "SELECT reason FROM windows").to_series().drop_nulls().is_empty()
    if not all_at_once:  # it looks at what changed, and knows the duplicate of a record whose file is gone
        assert after == before


def test_records_that_come_late_join_those_whose_file_is_gone(warehouse: Warehouse, tmp_path: Path) -> None:
    flows = tmp_path / f"{PATTERN}.csv"
    path = write(tmp_path / "20251009T0900.csv", [flow(0), flow(1)])
    land(warehouse, flows)
    path.unlink()
    write(tmp_path / "20251009T0901.csv", [flow(1), flow(30), flow(61)])
    land(warehouse, flows, AFTER)
    assert due(warehouse) == [(0, "late_records")]
    assert land(warehouse, flows) == {"read": 3, "landed": 3, "quarantined": 0, "duplicate": 0}
    assert store.query(warehouse, ACCOUNTS).item() == 0


def test_a_gone_file_that_is_packed_or_renamed_is_not_counted_twice(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path / "flows.csv", [flow(0), flow(1, bytes=7)])
    land(warehouse, tmp_path)
    before = held(warehouse)
    path.rename(tmp_path / "renamed.csv")
    land(warehouse, tmp_path)
    assert held(warehouse) == before
    write(tmp_path / "packed.csv.gz", [flow(0), flow(1, bytes=7)])
    (tmp_path / "renamed.csv").unlink()
    land(warehouse, tmp_path)
    assert held(warehouse) == before
    assert store.query(warehouse, HELD).rows() == [(WINDOW.start_ns, str(tmp_path / "packed.csv.gz"), 2, True)]


def test_a_file_that_comes_back_is_read_again(warehouse: Warehouse, tmp_path: Path) -> None:
    other = write(tmp_path / "other.csv", [flow(5, bytes=5)])
    path = write(tmp_path / "flows.csv", [flow(0, bytes=1)])
    land(warehouse, tmp_path)
    path.unlink()
    land(warehouse, tmp_path)
    write(path, [flow(0, bytes=2)])  # corrected
    land(warehouse, tmp_path)
    assert sizes(warehouse) == [2, 5]
    assert other.exists()


def test_a_corrected_file_beside_one_that_is_gone_leaves_its_older_flows_and_the_window_says_so(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    gone = write(tmp_path / "gone.csv", [flow(0, bytes=1)])
    write(tmp_path / "there.csv", [flow(1, bytes=2), flow(2, bytes=3)])
    land(warehouse, tmp_path)
    gone.unlink()
    write(tmp_path / "there.csv", [flow(1, bytes=2), flow(2, bytes=4)])
    land(warehouse, tmp_path)
    assert sizes(warehouse) == [1, 2, 3, 4]
    assert store.query(warehouse, ACCOUNTS).item() == 0
    reason = store.query(warehouse, "SELECT reason FROM windows").item()
    assert reason.startswith("1 flows of an older version of a changed file stay")
    assert str(gone) in reason
    gone_files.forget(warehouse, [str(gone)], now_ns=1)
    land(warehouse, tmp_path)
    assert sizes(warehouse) == [2, 4]
    assert store.query(warehouse, ACCOUNTS).item() == 0


def test_only_who_says_so_takes_the_records_of_a_gone_file_away(warehouse: Warehouse, tmp_path: Path) -> None:
    one, two = (write(tmp_path / name, [flow(number)]) for number, name in enumerate(("1.csv", "2.csv")))
    write(tmp_path / "3.csv", [flow(3), flow(61)])
    for window in (WINDOW, AFTER):
        land(warehouse, tmp_path, window)
    with pytest.raises(InputError, match="which is there"):
        gone_files.forget(warehouse, [str(one)], now_ns=1)
    with pytest.raises(InputError, match="of which nothing was landed"):
        gone_files.forget(warehouse, [str(tmp_path / "never.csv")], now_ns=1)
    one.unlink()
    two.unlink()
    with pytest.raises(InputError, match=r"1\.csv and .*2\.csv, both gone, and both with records of window 2025"):
        gone_files.forget(warehouse, [str(one)], now_ns=1)
    assert len(sizes(warehouse)) == 4
    assert gone_files.forget(warehouse, [str(one), str(two)], now_ns=1) == [WINDOW.start_ns]
    assert due(warehouse) == [(0, "forgotten")]
    assert land(warehouse, tmp_path)["landed"] == 1
    assert due(warehouse) == []


def test_records_whose_file_went_before_they_were_landed_stay_on_the_books(
    warehouse: Warehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flows = tmp_path / f"{PATTERN}.csv"
    write(tmp_path / "20251009T0900.csv", [flow(0)])
    land(warehouse, flows)
    late = write(tmp_path / "20251009T0901.csv", [flow(59.9), flow(61)])
    land(warehouse, flows, AFTER)
    late.unlink()
    assert land(warehouse, flows)["landed"] == 1
    assert (WINDOW.start_ns, str(late), 1, False) in store.query(warehouse, HELD).rows()
    assert "1 files went away before it was landed from them" in caplog.text


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
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
def test_whatever_files_are_deleted_once_they_are_landed_nothing_is_lost(
    records: Sequence[dict[str, Any]], chances: Any, ending: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "flows"
        for number in range(3):
            dealt = [record for record in records if chances.random() < 0.5]
            write(folder / f"{WINDOW.shifted(number).start:%Y%m%dT%H%M}{ending}", dealt)
        warehouse = empty_warehouse(Path(name) / "one.duckdb")
        flows = folder / f"{PATTERN}{ending}"
        landing.land_all(warehouse, str(flows), length_ns=MINUTE_NS)
        before = held(warehouse)
        files = sorted(folder.iterdir())
        chances.shuffle(files)
        for path in files:
            path.unlink()
            for number in chances.sample(range(3), 2):
                land(warehouse, flows, WINDOW.shifted(number))
            assert held(warehouse)["flows"] == before["flows"]
            assert store.query(warehouse, ACCOUNTS).item() == 0
