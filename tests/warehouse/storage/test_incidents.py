"""Stored incidents are what the diagnoses say, once a window has ended, rows have expired or the definition changed."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from small_windows import FIRST, diagnosis, frame, writer

from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.sql_files import statement
from llmprism_tasks.warehouse.storage import incidents
from llmprism_tasks.warehouse.upkeep import expiry, read_copy


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """Two windows with a fault each; then a third one has changed what the first one says, and has not ended."""
    one = empty_warehouse(tmp_path / "w.duckdb")
    write = writer(one)
    for number in (0, 1):
        write(number, [diagnosis(number, explanation="as it was")])
    told = frame("diagnoses", FIRST, [diagnosis(0, severity=0.9, explanation="as it is")])
    store.replace(one, FIRST, {"diagnoses": told})
    return one


def rows(warehouse: Warehouse, sql: str) -> pl.DataFrame:
    with warehouse.reading() as connection:
        return store.frame(connection.execute(f"FROM ({sql}) ORDER BY incident_id"))


def agree(warehouse: Warehouse) -> bool:
    return rows(warehouse, "FROM incidents").equals(rows(warehouse, statement("find_incidents")))


@pytest.mark.parametrize("status", ["done", "stopped"])
def test_they_are_found_anew_when_a_window_has_ended(warehouse: Warehouse, status: str) -> None:
    assert not agree(warehouse)
    store.record_window(warehouse, FIRST.shifted(1), status=status)
    assert agree(warehouse)
    assert rows(warehouse, "FROM incidents")["explanation"].to_list() == ["as it is"]


def test_they_stand_while_a_window_is_at_work(warehouse: Warehouse) -> None:
    store.record_window(warehouse, FIRST.shifted(1), status="running")
    assert rows(warehouse, "FROM incidents")["explanation"].to_list() == ["as it was"]


def test_the_last_task_of_a_run_ends_its_window(warehouse: Warehouse) -> None:
    minutes.record_done(warehouse, FIRST, now_ns=FIRST.end_ns)
    assert agree(warehouse)


def test_of_expired_windows_none_is_left(warehouse: Warehouse) -> None:
    kept = expiry.Kept(None, None, FIRST.length_ns)
    due = expiry.find_due(warehouse, kept, lookback_windows=0)
    expiry.delete(warehouse, due, kept, lookback_windows=0)
    assert agree(warehouse)
    assert rows(warehouse, "FROM incidents")["first_window_start_ns"].to_list() == [FIRST.shifted(1).start_ns]


def test_a_read_copy_has_those_of_its_own_windows(warehouse: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "copy.duckdb"
    read_copy.publish(warehouse, path)
    copy = Warehouse(str(path), 5)
    assert agree(copy)
    assert rows(copy, "FROM incidents")["explanation"].to_list() == ["as it is"]


def test_a_warehouse_of_an_earlier_version_gets_them_when_it_is_opened(warehouse: Warehouse) -> None:
    def age(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("DROP VIEW muted_incidents; DROP VIEW incidents; DROP TABLE stored.incidents")
        connection.execute("UPDATE schema_version SET views = 'of the version before'")

    warehouse.write(age)
    open_warehouse(warehouse)
    assert agree(warehouse)
    assert rows(warehouse, "FROM incidents").height == 1


def test_rows_that_stay_the_same_are_not_written_again(warehouse: Warehouse) -> None:
    def renewed(connection: duckdb.DuckDBPyConnection) -> tuple[list[int], list[int]]:
        incidents.renew(connection)
        before = connection.execute("SELECT rowid FROM stored.incidents").fetchall()
        incidents.renew(connection)
        return before, connection.execute("SELECT rowid FROM stored.incidents").fetchall()

    before, after = warehouse.write(renewed)
    assert before == after != []
