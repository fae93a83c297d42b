"""Which window a record goes to: by its start, by what its file's name promises, never by the order of runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from flowfiles import LATENESS_NS, MINUTE_NS, WINDOW, csv_text, flow, pack, write

from llmprism_tasks.contract.errors import InputError, SettingsError
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.landing import arrival, landing

PATTERN = "{window:%Y%m%dT%H%M}*.csv"
BEFORE, AFTER = WINDOW.shifted(-1), WINDOW.shifted(1)
DAY_S = 86_400


def land(warehouse: Warehouse, flows: object, window: Window = WINDOW) -> dict[str, int]:
    return landing.land(warehouse, window, str(flows), lateness_ns=LATENESS_NS)


def starts(warehouse: Warehouse, window: Window) -> list[float]:
    """Return the starts of a window's flows in seconds after WINDOW's start."""
    return [(ns - WINDOW.start_ns) / 1e9 for ns in store.read(warehouse, "flows", window)["flow_start_ns"]]


def reasons(warehouse: Warehouse, window: Window) -> list[tuple[str, int]]:
    return store.read(warehouse, "flows_quarantine", window).select("reason", "source_position").rows()


@pytest.fixture
def three_files(tmp_path: Path) -> str:
    """Files of three windows, with records of neighbours, and with times that are no record's of their day."""
    write(tmp_path / "20251009T0859-a.csv", [flow(-50), flow(3), flow(20)])
    write(
        tmp_path / "20251009T0900-a.csv", [flow(-10), flow(10), flow(74.9), flow(75), flow(-15.1), flow(1, bytes="?")]
    )
    write(tmp_path / "20251009T0900-b.csv", [flow(30), flow(40, flow_start_ns="?"), flow(10)])
    write(tmp_path / "20251009T0901.csv", [flow(50), flow(61), flow(44, bytes=0), flow(DAY_S + 120)])
    return str(tmp_path / PATTERN)


def test_a_record_lands_where_it_starts_though_its_file_is_a_neighbours(warehouse: Warehouse, three_files: str) -> None:
    for window in (AFTER, WINDOW, BEFORE):
        land(warehouse, three_files, window)
    assert starts(warehouse, BEFORE) == [-50, -15.1, -10]
    assert starts(warehouse, WINDOW) == [3, 10, 20, 30, 50]
    assert starts(warehouse, AFTER) == [61, 74.9, 75]


def test_a_wrong_clock_and_records_without_a_start_stay_with_their_file(warehouse: Warehouse, three_files: str) -> None:
    for window in (BEFORE, WINDOW, AFTER):
        land(warehouse, three_files, window)
    assert reasons(warehouse, BEFORE) == []
    assert reasons(warehouse, WINDOW) == [
        ("not_a_number", 6),
        ("not_a_number", 2),
        ("duplicate", 3),
        ("no_bytes", 3),
    ]
    assert reasons(warehouse, AFTER) == [("outside_window", 4)]  # a day is late, what is beyond is a wrong clock
    totals = store.query(warehouse, "SELECT sum(rows_read)::INT, sum(rows_landed + rows_quarantined)::INT FROM windows")
    assert totals.rows() == [(16, 16)]


@pytest.mark.parametrize(("late_s", "is_late"), [(DAY_S, True), (DAY_S + 1, False)])
def test_a_record_is_late_for_a_day_and_after_that_its_clock_is_wrong(
    warehouse: Warehouse, tmp_path: Path, late_s: int, *, is_late: bool
) -> None:
    write(tmp_path / "20251009T0900.csv", [flow(0), flow(-late_s)])
    land(warehouse, tmp_path / PATTERN)
    far = Window.containing(WINDOW.start_ns - late_s * 1_000_000_000, MINUTE_NS)
    land(warehouse, tmp_path / PATTERN, far)
    assert starts(warehouse, far) == ([-late_s] if is_late else [])
    assert reasons(warehouse, WINDOW) == ([] if is_late else [("outside_window", 2)])


def test_all_at_once_is_the_same_as_window_by_window(tmp_path: Path, three_files: str) -> None:
    write(tmp_path / "20251009T0904.csv", [])
    one, other = (
        open_warehouse(Warehouse(str(tmp_path / name), lock_wait_s=20)) for name in ("one.duckdb", "other.duckdb")
    )
    windows = landing.land_all(one, three_files, length_ns=MINUTE_NS)
    assert windows == [WINDOW.shifted(number) for number in range(-1, 5)]
    assert windows == landing.windows_in(three_files, MINUTE_NS)
    for window in reversed(windows):
        land(other, three_files, window)
    span = Window(windows[0].start_ns, windows[-1].end_ns - windows[0].start_ns)
    found, expected = (store.read_each(each, {table.name: span for table in TABLES}) for each in (other, one))
    for table in TABLES:
        assert found[table.name].equals(expected[table.name]), table.name


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_window_without_a_record_says_why_nothing_is_found_in_it(
    warehouse: Warehouse, tmp_path: Path, ending: str
) -> None:
    path = write(tmp_path / f"a{ending}", [flow(0), flow(130)])
    whys = {WINDOW: None, AFTER: landing.EMPTY, WINDOW.shifted(2): arrival.NOT_ARRIVED}
    assert landing.land_all(warehouse, str(path), length_ns=MINUTE_NS) == list(whys)
    assert {one: store.read(warehouse, "windows", one)["reason"].item() for one in whys} == whys
    write(path, [flow(0), flow(70), flow(130)])
    land(warehouse, path, AFTER)
    assert store.read(warehouse, "windows", AFTER)["reason"].item() is None


def test_a_name_that_tells_the_hour_promises_the_hour(warehouse: Warehouse, tmp_path: Path) -> None:
    write(
        tmp_path / "2025-10-09" / "09.csv", [flow(0), flow(59 * 60), flow(60 * 60 + 14), flow(-16), flow(0, bytes="?")]
    )
    pattern = str(tmp_path / "{window:%Y-%m-%d}" / "{window:%H}.csv")
    windows = landing.land_all(warehouse, pattern, length_ns=MINUTE_NS)
    assert (len(windows), windows[0]) == (62, BEFORE)
    assert starts(warehouse, WINDOW.shifted(60)) == [3614]
    assert reasons(warehouse, WINDOW) == [("not_a_number", 5)]
    assert land(warehouse, pattern, WINDOW.shifted(59))["landed"] == 1
    assert arrival.flows_arrived(WINDOW.shifted(30), pattern)


@pytest.mark.parametrize("time", ["%Y%m", "%H%M", "%B %d %Y", ""])
def test_a_pattern_without_a_day_is_refused(warehouse: Warehouse, time: str) -> None:
    with pytest.raises(InputError, match="day or finer"):
        land(warehouse, f"{{window:{time}}}.csv" if time else "{window}.csv")


def test_without_a_promise_a_record_without_start_goes_where_its_file_begins(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    lost = flow(0, flow_start_ns="?")
    write(tmp_path / "a.csv", [lost])
    write(tmp_path / "b.csv", [lost, flow(70), flow(10)])
    write(tmp_path / "c.parquet", [flow(0, flow_start_ns=None), flow(130)])
    for window in (WINDOW.shifted(2), AFTER, WINDOW):  # each alone comes to the same end
        land(warehouse, tmp_path, window)
    assert [reasons(warehouse, WINDOW.shifted(number)) for number in range(3)] == [
        [],
        [("not_a_number", 1), ("not_a_number", 1)],
        [("missing_field", 1)],
    ]


def test_records_without_any_start_are_not_lost(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [flow(0, flow_start_ns="?")])
    windows = landing.land_all(warehouse, str(path), length_ns=MINUTE_NS)
    assert windows == [Window(0, MINUTE_NS)]
    assert reasons(warehouse, windows[0]) == [("not_a_number", 1)]


WRONG_YEAR_NS = 16_666_667 * MINUTE_NS  # 2001


def test_times_in_another_unit_are_no_times(warehouse: Warehouse, tmp_path: Path) -> None:
    """Microseconds, taken for nanoseconds, lie in January 1970; nothing would be found there, and nobody told."""
    path = write(tmp_path / "a.csv", [flow(0), flow(1, flow_start_ns=WINDOW.start_ns // 1000)])
    landing.land_all(warehouse, str(path), length_ns=MINUTE_NS)
    assert store.query(warehouse, "SELECT reason FROM flows_quarantine")["reason"].to_list() == ["not_a_time"]


def test_windows_of_two_lengths_are_not_mixed(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [flow(0)])
    assert landing.landed_before(warehouse, MINUTE_NS // 2).is_empty()
    landing.land_all(warehouse, str(path), length_ns=MINUTE_NS)
    assert landing.landed_before(warehouse, MINUTE_NS).to_list() == [WINDOW.start_ns]
    with pytest.raises(SettingsError, match="length_s = 30, and windows of 60 s"):
        landing.landed_before(warehouse, MINUTE_NS // 2)


def test_a_wrong_year_makes_no_millions_of_windows(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [flow(0), flow(180), flow(0, flow_start_ns=WRONG_YEAR_NS + 5)])
    windows = landing.land_all(warehouse, str(path), length_ns=MINUTE_NS)
    assert windows == [Window(WRONG_YEAR_NS, MINUTE_NS), *(WINDOW.shifted(number) for number in range(4))]


def test_the_lookback_is_landed_once_and_never_touched_again(warehouse: Warehouse, tmp_path: Path) -> None:
    write(tmp_path / "20251009T0858.csv", [flow(-120)])
    write(tmp_path / "20251009T0859.csv", [flow(-60), flow(-50)])
    write(tmp_path / "20251009T0900.csv", [flow(0)])
    pattern = str(tmp_path / PATTERN)
    land(warehouse, pattern, BEFORE)
    store.record_window(warehouse, BEFORE, status="done")
    (tmp_path / "20251009T0859.csv").unlink()
    for _ in range(2):
        landing.land_lookback(warehouse, WINDOW, pattern, lookback_windows=5, lateness_ns=LATENESS_NS)
    rows = (
        store.read(warehouse, "windows", WINDOW.lookback(5)).select("window_start_ns", "status", "rows_landed").rows()
    )
    assert rows == [(WINDOW.shifted(-2).start_ns, "landed", 1), (BEFORE.start_ns, "done", 2)]
    landing.land_lookback(warehouse, WINDOW, pattern, lookback_windows=0, lateness_ns=LATENESS_NS)


def test_flows_have_arrived_when_a_patterns_file_is_there(tmp_path: Path) -> None:
    pattern = str(tmp_path / PATTERN)
    assert not arrival.flows_arrived(WINDOW, pattern)
    write(tmp_path / "20251009T0901.csv", [flow(60)])
    assert not arrival.flows_arrived(WINDOW, pattern)
    write(tmp_path / "20251009T0900.csv", [])
    assert arrival.flows_arrived(WINDOW, pattern)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl.gz"])
def test_flows_have_arrived_when_a_record_of_a_later_window_is_there(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "flows"
    assert not arrival.flows_arrived(WINDOW, str(folder))
    write(folder / f"a{ending}", [flow(0), flow(59.9)])
    assert not arrival.flows_arrived(WINDOW, str(folder))
    write(folder / f"b{ending}", [flow(0), flow(60)])
    assert arrival.flows_arrived(WINDOW, str(folder))


def test_folders_are_searched_to_the_bottom_and_other_files_left_out(
    warehouse: Warehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a" / "b" / "flows.csv", [flow(0)])
    (tmp_path / "a" / "README.md").write_text("flows", encoding="utf-8")
    pack(tmp_path / ".flows.csv.part", csv_text([flow(1)]).encode())
    assert land(warehouse, tmp_path / "a")["read"] == 1
    assert "README.md" in caplog.text
