"""Stored incidents are what the diagnoses say, once a window has ended, rows have expired or the definition changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_windows import FIRST, Row, diagnosis, frame, writer

from llmprism_tasks.contract.frames import empty
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
    """Whether the stored incidents are those that all diagnoses make, row for row."""
    made = statement("find_incidents").replace("$since_ns", "0")
    with warehouse.reading() as connection:
        kept, found = (
            store.frame(connection.execute(f"FROM ({sql}) ORDER BY incident_id")) for sql in ("FROM incidents", made)
        )
    return kept.equals(found)


@pytest.mark.parametrize("status", ["done", "stopped"])
def test_they_are_found_anew_when_a_window_has_ended(warehouse: Warehouse, status: str) -> None:
    assert not agree(warehouse)
    store.record_window(warehouse, FIRST, status=status)
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


def test_a_minute_reads_incidents_of_its_own_time_alone(tmp_path: Path) -> None:
    one = empty_warehouse(tmp_path / "w.duckdb")
    write = writer(one)
    write(0, [diagnosis(0)])
    for number in range(1, 14):
        write(number)
    with one.writing() as connection:  # what was never so: a renewal that looked there would mend it
        connection.execute("UPDATE stored.incidents SET explanation = 'long ago'")
    store.record_window(one, FIRST.shifted(13), status="done")
    assert rows(one, "FROM incidents")["explanation"].to_list() == ["long ago"]
    store.record_window(one, FIRST.shifted(5), status="done")
    assert agree(one)


HANG = {"kind": "hang", "subject_type": "job", "subject": "gpt", "end_ns": FIRST.end_ns}


def end(warehouse: Warehouse, number: int, *, told: Sequence[Row] = (), status: str = "done", **kept: Any) -> None:
    """End a window as its last task does: only around it are incidents found anew. `job` False leaves `gpt` out."""
    window = writer(warehouse, then=lambda _: None)(number, told, status="running", aside=kept.get("aside"))
    if not kept.get("job", True):
        nothing = {name: empty(name) for name in ("jobs", "job_members", "steps")}
        store.replace(warehouse, window, nothing)
    store.record_window(warehouse, window, status=status)
    assert agree(warehouse)


def test_a_window_that_is_stopped_when_it_is_run_again_opens_what_it_had_closed(tmp_path: Path) -> None:
    one = empty_warehouse(tmp_path / "w.duckdb")
    end(one, 0, told=[diagnosis(0)])
    for number in (1, 2):
        end(one, number)
    assert rows(one, "FROM incidents")["state"].to_list() == ["closed"]
    end(one, 2, status="stopped")
    assert rows(one, "FROM incidents")["state"].to_list() == ["open"]


def test_windows_in_which_the_job_was_set_aside_do_not_part_an_incident(tmp_path: Path) -> None:
    one = empty_warehouse(tmp_path / "w.duckdb")
    end(one, 0, told=[diagnosis(0)])
    for number in range(1, 13):
        end(one, number, aside="gpt")
    end(one, 13, told=[diagnosis(13)])
    assert rows(one, "FROM incidents")["windows"].to_list() == [2]


def test_a_silent_job_that_comes_back_much_later_has_gone_on(tmp_path: Path) -> None:
    one = empty_warehouse(tmp_path / "w.duckdb")
    end(one, 0, told=[diagnosis(0, **HANG)])
    for number in range(1, 13):
        end(one, number, job=False)
    assert rows(one, "FROM incidents")["went_on"].to_list() == [False]
    end(one, 13)
    assert rows(one, "FROM incidents")["went_on"].to_list() == [True]


def test_a_silent_job_has_not_gone_on_if_the_window_that_said_so_says_so_no_longer(tmp_path: Path) -> None:
    one = empty_warehouse(tmp_path / "w.duckdb")
    end(one, 0, told=[diagnosis(0, **HANG)])
    for number in range(1, 5):
        end(one, number, job=False)
    end(one, 5)
    assert rows(one, "FROM incidents")["went_on"].to_list() == [True]
    end(one, 5, job=False)
    assert rows(one, "FROM incidents")["went_on"].to_list() == [False]


KINDS = {
    "slow_compute": "addr", "stalls": "addr", "straggler": "job", "cross_step": "job", "degraded_switch": "switch",
    "hang": "job", "stopped": "job",
}  # fmt: skip
"""Kinds of diagnoses, each of another rule of `find_incidents`, and what their subjects are."""

SUBJECTS = {"addr": ("10.3.1.5", "10.3.2.5"), "job": ("gpt",), "switch": ("leaf0",)}


@st.composite
def ended_windows(draw: st.DrawFn) -> list[tuple[int, list[Row], str, str | None]]:
    """Windows as they end, most in order, some again: what is told, state, and who was set aside."""
    order = list(range(14)) + draw(st.lists(st.integers(0, 16), max_size=6))
    windows = []
    for number in order:
        kinds = draw(st.sampled_from(((), (), (), *((kind,) for kind in KINDS), ("stalls", "slow_compute"))))
        told = [
            diagnosis(number, kind=kind, subject_type=KINDS[kind], subject=draw(st.sampled_from(SUBJECTS[KINDS[kind]])))
            for kind in kinds
        ]
        state = draw(st.sampled_from(("done", "done", "done", "stopped")))
        aside = draw(st.sampled_from((None, None, None, "gpt")))
        windows.append((number, told if state == "done" and not aside else [], state, aside))
    return windows


@given(ended_windows())
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_those_found_around_each_window_are_those_found_from_all(
    tmp_path_factory: pytest.TempPathFactory, windows: list[tuple[int, list[Row], str, str | None]]
) -> None:
    one = empty_warehouse(tmp_path_factory.mktemp("incidents") / "w.duckdb")
    for number, told, state, aside in windows:
        end(one, number, told=told, status=state, aside=aside)
    assert agree(one)  # as it did after each window
