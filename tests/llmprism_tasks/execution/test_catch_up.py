"""Every minute accounted for: what is expected, what late flows make due, what is told, and how it ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from captured_minutes import MINUTE_NS, WINDOWS, differing, drop, flows_file, settings_in, warehouse_in
from empty_warehouse import empty_warehouse
from receiver import receiving

from llmprism_tasks.contract.errors import LlmprismError
from llmprism_tasks.contract.frames import empty
from llmprism_tasks.contract.windows import ALL_TIME
from llmprism_tasks.execution.analyze import analyze, run_due, run_landed
from llmprism_tasks.execution.catch_up import land_again, mark_late, missing_minutes, take_stock
from llmprism_tasks.execution.notify import pipeline
from llmprism_tasks.execution.window import land_window
from llmprism_tasks.reports.minute_states import Coverage, due, read_states
from llmprism_tasks.settings import CatchUpSettings, Settings
from llmprism_tasks.settings.load import load
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.connect import Warehouse

FIRST, SECOND = WINDOWS
NOW = 2**62


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    drop(tmp_path)
    return tmp_path


def reasons(warehouse: Warehouse, settings: Settings) -> list[tuple[int, str]]:
    return due(read_states(warehouse, settings, now_ns=NOW)).select("window_start_ns", "reason").rows()


def test_a_late_half_makes_its_window_due_and_then_the_one_that_looks_back_at_it(capture: Path) -> None:
    """Before, both stayed as they were, `done`, and nothing said so."""
    settings, warehouse = settings_in(capture), warehouse_in(capture)
    whole = flows_file(capture, FIRST).read_bytes()
    flows = pl.read_parquet(flows_file(capture, FIRST))
    flows.head(flows.height // 2).write_parquet(flows_file(capture, FIRST))
    analyze(settings)
    assert reasons(warehouse, settings) == []

    flows_file(capture, FIRST).write_bytes(whole)
    os.utime(flows_file(capture, FIRST), ns=(FIRST.end_ns, FIRST.end_ns))  # it has been quiet since
    found = [FIRST.start_ns]
    warehouse.write(lambda connection: minutes.mark_due(connection, found, minutes.LATE_RECORDS, now_ns=1))
    assert reasons(warehouse, settings) == [(FIRST.start_ns, "late_records")]
    land_window(FIRST, settings)
    run_landed(FIRST, settings)
    assert reasons(warehouse, settings) == [(SECOND.start_ns, "lookback_changed")]

    elsewhere = flows_file(capture, SECOND).rename(capture / "kept.parquet")  # the collector has deleted it
    assert run_due(settings) == ([SECOND], [])
    assert reasons(warehouse, settings) == []
    elsewhere.rename(flows_file(capture, SECOND))
    assert differing(warehouse) == []


def test_a_window_whose_file_cannot_be_read_stays_due_and_holds_up_no_other(capture: Path) -> None:
    settings, warehouse = settings_in(capture), warehouse_in(capture)
    later = SECOND.shifted(9)
    starts = [FIRST.start_ns, later.start_ns]
    warehouse.write(lambda connection: minutes.expect(connection, starts, 1))
    flows_file(capture, later).write_bytes(b"PAR1 this is no Parquet PAR1")
    done, failed = run_due(settings)
    assert done == [FIRST]
    assert [isinstance(error, LlmprismError) for error in failed] == [True]
    assert reasons(warehouse, settings) == [(later.start_ns, "skipped")]


def test_analyze_of_a_late_file_leaves_no_later_window_stale(capture: Path) -> None:
    settings, warehouse = settings_in(capture), warehouse_in(capture)
    late = flows_file(capture, FIRST).rename(capture / "late.parquet")
    analyze(settings)
    assert analyze(settings_in(capture, LLMPRISM_PLACES__FLOWS=str(late))) == [FIRST]
    assert reasons(warehouse, settings) == []
    assert store.read(warehouse, "minutes", SECOND)["runs"].to_list() == [2]


def test_a_file_that_comes_after_the_landings_that_look_at_its_name_makes_its_window_due_once(
    capture: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A landing looks at the names beside its own; nobody looked at that of a window two before."""
    settings, warehouse = settings_in(capture), warehouse_in(capture)
    late = flows_file(capture, FIRST).rename(capture / "late.parquet")
    for window in (FIRST, SECOND, SECOND.shifted(1), SECOND.shifted(2)):
        land_window(window, settings)
    now_ns = SECOND.shifted(4).end_ns

    def marked() -> list[int]:
        return mark_late(warehouse, store.read(warehouse, "minutes", ALL_TIME), settings, now_ns=now_ns)

    assert marked() == []
    late.rename(flows_file(capture, FIRST))
    os.utime(flows_file(capture, FIRST), ns=(now_ns, now_ns - settings.window.allowed_lateness_ns + 1))
    assert marked() == []  # it may still be written
    os.utime(flows_file(capture, FIRST), ns=(now_ns, now_ns - settings.window.allowed_lateness_ns))
    assert marked() == [FIRST.start_ns]
    assert f"files named for them came late, such as {flows_file(capture, FIRST)}" in caplog.text
    assert marked() == []  # its mark is there: how often it was tried must not be forgotten
    assert (FIRST.start_ns, "late_records") in reasons(warehouse, settings)
    assert land_again(FIRST, settings, now_ns=NOW)["landed"] > 0
    assert marked() == []


def test_late_files_are_looked_for_as_far_back_as_an_outage_is_caught_up(capture: Path) -> None:
    settings = settings_in(capture, LLMPRISM_CATCH_UP__OUTAGE_WINDOWS="2")
    warehouse = warehouse_in(capture)
    late = {window: flows_file(capture, window).rename(capture / f"{window.start_ns}.parquet") for window in WINDOWS}
    for number in range(3):
        land_window(FIRST.shifted(number), settings)
    for window, file in late.items():
        file.rename(flows_file(capture, window))
    there = store.read(warehouse, "minutes", ALL_TIME)
    assert mark_late(warehouse, there, settings, now_ns=NOW) == [SECOND.start_ns]


def test_a_late_file_of_an_hour_makes_the_last_landed_window_in_it_due(capture: Path) -> None:
    of_hours = str(capture / "flows" / "{window:%Y%m%dT%H}.parquet")
    settings, warehouse = settings_in(capture, LLMPRISM_PLACES__FLOWS=of_hours), warehouse_in(capture)
    for window in WINDOWS:
        land_window(window, settings)
    flows_file(capture, FIRST).rename(capture / "flows" / f"{FIRST.start:%Y%m%dT%H}.parquet")
    there = store.read(warehouse, "minutes", ALL_TIME)
    assert mark_late(warehouse, there, settings, now_ns=NOW) == [SECOND.start_ns]


def test_a_wrong_pattern_of_flows_does_not_keep_stock_from_being_taken(
    capture: Path, caplog: pytest.LogCaptureFixture
) -> None:
    land_window(FIRST, settings_in(capture))
    wrong = settings_in(capture, LLMPRISM_PLACES__FLOWS=str(capture / "flows" / "{window}.parquet"))
    stock = take_stock(wrong, now_ns=SECOND.shifted(30).end_ns)
    assert stock.coverage.expected == 1
    assert "late files are not looked for: pattern of flows" in caplog.text


def expected_by(who: str, *starts_ns: int) -> pl.DataFrame:
    rows = pl.DataFrame({"window_start_ns": list(starts_ns)}, schema={"window_start_ns": pl.Int64})
    return pl.concat([empty("minutes"), rows.with_columns(expected_by=pl.lit(who))], how="diagonal")


@pytest.mark.parametrize(
    ("there", "now", "missing"),
    [
        (expected_by("schedule"), 10.5, [9]),
        (expected_by("run", *(number * MINUTE_NS for number in (2, 9))), 10.5, []),
        (expected_by("schedule", 6 * MINUTE_NS), 10.5, [7, 8, 9]),  # the scheduler was away
        (expected_by("schedule", 9 * MINUTE_NS), 10.99, []),
        (expected_by("schedule", 9 * MINUTE_NS), 11, [10]),
        (expected_by("schedule", 2 * MINUTE_NS), 10, [6, 7, 8, 9]),  # catch_up.outage_windows
        (expected_by("schedule", 12 * MINUTE_NS), 10, []),  # the clock was set back
    ],
)
def test_each_minute_is_expected_from_the_last_one_on(
    there: pl.DataFrame, now: float, missing: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(catch_up=CatchUpSettings(outage_windows=4))
    found = missing_minutes(there, settings, now_ns=int(now * MINUTE_NS))
    assert found == [number * MINUTE_NS for number in missing]
    assert ("3 minutes from 1970-01-01 00:03:00Z on stay out" in caplog.text) == (len(missing) == 4)


def test_stock_is_taken_each_minute_and_overload_is_told_when_it_begins_and_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = str(empty_warehouse(tmp_path / "w.duckdb").location)
    asked = {"places.warehouse": place, "catch_up.backlog": "3", "catch_up.at_once": "2", "catch_up.lag_s": "86400"}
    asked |= {"window.allowed_lateness_s": "15"}
    with receiving() as receiver:
        settings = load(overrides=asked | {"notify.webhook": receiver.address})
        take_stock(settings, now_ns=100 * MINUTE_NS)
        taken_up = []
        for number in (108, 109, 113):
            stock = take_stock(settings, now_ns=number * MINUTE_NS)
            taken_up.append([window.start_ns // MINUTE_NS for window in stock.taken_up])
        assert taken_up == [[103, 102], [], [108, 107]]
        assert stock.gauges["windows_due"] == 10
        assert stock.gauges["coverage"] == 0
        assert stock.gauges["open_incidents"] == 0
        assert "windows due: 5 (catch_up.backlog = 3)" in caplog.text
        warehouse = Warehouse(place, 5)
        warehouse.write(lambda connection: connection.execute("DELETE FROM minutes"))
        take_stock(settings, now_ns=120 * MINUTE_NS)
        take_stock(settings, now_ns=121 * MINUTE_NS)
    told = [(body["change"], body["pipeline"]["condition"]) for body in receiver.bodies]
    assert told == [("opened", "overload"), ("closed", "overload")]
    assert receiver.bodies[0]["text"].startswith("llmprism is behind: lag unknown (catch_up.lag_s = 86400)")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"lag_s": 300.0}, {"overload": None}),
        ({"lag_s": 300.1}, {"overload": True}),
        ({"lag_s": 150.0}, {"overload": False}),
        ({"lag_s": 150.1}, {"overload": None}),
        ({"due": {"skipped": 20}}, {"overload": None}),
        ({"due": {"skipped": 20, "unfinished": 1}}, {"overload": True}),
        ({"due": {"skipped": 10}}, {"overload": False}),
        ({"silent_s": 600.0}, {"silence": False}),
        ({"silent_s": 600.1}, {"silence": True}),
        ({"given_up": 0}, {"given_up": False}),
        ({"given_up": 1}, {"given_up": True}),
    ],
)
def test_conditions_begin_above_their_settings(values: dict[str, Any], expected: dict[str, bool | None]) -> None:
    whole = {"expected": 30, "done": 9, "due": {}, "given_up": 0, "expired": 0, "lag_s": None, "silent_s": None}
    settings = Settings(catch_up=CatchUpSettings(lag_s=300, backlog=20, silent_after_s=600))
    found = pipeline.conditions(Coverage(**whole | values), settings)
    assert found == {"overload": False, "silence": False, "given_up": False} | expected
