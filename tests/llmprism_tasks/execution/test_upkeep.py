"""Retention by settings: what `expire` does to a warehouse, its pages and its copy, and what may not run afterwards."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import polars as pl
import pytest
from captured_minutes import WINDOWS, analyzed, flows_file, settings_in
from empty_warehouse import copied, empty_warehouse
from kept_windows import counts, everything, put, window

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.execution import upkeep
from llmprism_tasks.execution.analyze import analyze
from llmprism_tasks.execution.stage_task import run_stage
from llmprism_tasks.execution.window import finish, land_window, validate_landed, validate_results
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import load
from llmprism_tasks.validation import data_docs
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.upkeep.expiry import ExpiredError

HOURS = {"retention.flows_h": "0.1", "retention.timeline_h": "0.05", "retention.results_d": "0"}
"""Six minutes of flows, which is a window and its look-back, and three of timeline."""


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = empty_warehouse(tmp_path_factory.mktemp("twelve") / "made.duckdb")
    put(made, range(12))
    return made


@pytest.fixture
def warehouse(twelve: Warehouse, tmp_path: Path) -> Warehouse:
    return copied(twelve, tmp_path / "warehouse.duckdb")


def settings_for(warehouse: Warehouse, **overrides: str) -> Settings:
    return load(overrides={"places.warehouse": warehouse.location} | HOURS | overrides)


def test_rows_that_are_old_enough_are_deleted_and_counted(warehouse: Warehouse) -> None:
    found = upkeep.expire(settings_for(warehouse))
    assert counts(warehouse)["flows"] == list(range(6, 12))
    assert counts(warehouse)["timeline"] == list(range(9, 12))
    assert counts(warehouse)["windows"] == list(range(12))
    assert found.rows["flows"] == (240, 120)
    assert found.rows["timeline"] == (240, 180)
    assert found.rows["jobs"] == (12, 0)
    assert found.table_bytes["flows"] > 0
    assert found.table_bytes["jobs"] == 0
    assert upkeep.sentence(found).startswith("Done: 6 windows lose their flows, 9 their timeline, 0 all rows.")
    assert upkeep.expire(settings_for(warehouse)).windows == {"flows": 0, "timeline": 0, "everything": 0, "held": 0}


def test_a_dry_run_deletes_nothing(warehouse: Warehouse) -> None:
    before = everything(warehouse)
    found = upkeep.expire(settings_for(warehouse), dry_run=True)
    assert everything(warehouse) == before
    assert upkeep.sentence(found, dry_run=True).startswith(
        "Nothing was deleted. Without --dry-run 6 windows lose their flows, 9 their timeline, 0 all rows."
    )


def test_what_is_held_for_windows_that_wait_is_said(warehouse: Warehouse) -> None:
    put(warehouse, [3], status="running")
    said = upkeep.sentence(upkeep.expire(settings_for(warehouse)))
    assert said.endswith("The flows of 4 more windows are old, and kept for windows that wait to be run.")
    assert counts(warehouse)["flows"] == [0, 1, 2, 3, *range(6, 12)]


@pytest.mark.parametrize(("hours", "right"), [("0.09", False), ("0.1", True), ("0", True)])
def test_flows_that_the_next_window_looks_back_on_cannot_expire(
    warehouse: Warehouse, hours: str, *, right: bool
) -> None:
    settings = settings_for(warehouse, **{"retention.flows_h": hours})
    if right:
        upkeep.expire(settings)
        return
    with pytest.raises(SettingsError, match=r"flows_h = 0.09, which is 5.4 minutes; expected at least 0.1 hours"):
        upkeep.expire(settings)


def test_pages_about_windows_go_with_their_results(warehouse: Warehouse) -> None:
    settings = settings_for(warehouse, **{"retention.results_d": str(10 / 1440)})
    old, young = (data_docs.pages(settings, window(number), "landed") for number in (1, 2))
    for folder in (old, young):
        folder.mkdir(parents=True)
    upkeep.expire(settings)
    assert counts(warehouse)["windows"] == list(range(2, 12))
    assert (old.exists(), young.exists()) == (False, True)


def test_the_read_copy_follows(warehouse: Warehouse, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    upkeep.expire(settings_for(warehouse, **{"places.read_copy": str(copy)}))
    told = store.query(Warehouse(str(copy), 5), "SELECT count(*) FROM windows WHERE list_contains(expired, 'flows')")
    assert told.item() == 6


@pytest.fixture
def expired(tmp_path: Path) -> Settings:
    """The captured run, of which the first window has lost its flows."""
    shutil.copytree(analyzed(), tmp_path, dirs_exist_ok=True)
    settings = settings_in(tmp_path)
    text = f"UPDATE windows SET expired = ['flows', 'flows_quarantine'] WHERE window_start_ns = {WINDOWS[0].start_ns}"
    warehouse = Warehouse(settings.places.warehouse, 5)
    warehouse.write(lambda connection: connection.execute(text))
    warehouse.write(
        lambda connection: connection.execute(f"DELETE FROM stored.flows WHERE window_start_ns = {WINDOWS[0].start_ns}")
    )
    return settings


def test_no_task_of_an_expired_window_runs_and_its_results_stand(expired: Settings) -> None:
    warehouse = Warehouse(expired.places.warehouse, 5)
    before = everything(warehouse)
    for window_ in WINDOWS:  # the second looks back on the first
        for task in (land_window, validate_landed, validate_results):
            with pytest.raises(ExpiredError, match="expired; expected windows whose flows and look-back are"):
                task(window_, expired)
        with pytest.raises(ExpiredError):
            run_stage("diagnosis", window_, expired)
    assert everything(warehouse) == before


def test_files_of_both_windows_may_be_analyzed_again_and_of_the_second_alone_not(
    expired: Settings, tmp_path: Path
) -> None:
    warehouse = Warehouse(expired.places.warehouse, 5)
    before = everything(warehouse)
    second = tmp_path / "flows" / f"{WINDOWS[1].start:%Y%m%dT%H%M}.parquet"
    alone = dataclasses.replace(expired, places=dataclasses.replace(expired.places, flows=str(second)))
    with pytest.raises(ExpiredError, match="the flows that it looks back on"):
        analyze(alone)
    assert everything(warehouse) == before
    analyze(expired)
    assert store.query(warehouse, "SELECT count(*) FROM windows WHERE expired IS NOT NULL").item() == 0
    assert store.query(warehouse, "SELECT count(DISTINCT window_start_ns) FROM flows").item() == 2


def test_a_late_part_of_a_window_that_expired_does_not_replace_it(expired: Settings, tmp_path: Path) -> None:
    """The records that it had are gone from the warehouse: what came late would be all that it has."""
    warehouse = Warehouse(expired.places.warehouse, 5)
    before = everything(warehouse)
    first = flows_file(tmp_path, WINDOWS[0])
    rows = pl.read_parquet(first)
    rows.head(3).write_parquet(first)
    with pytest.raises(ExpiredError, match=rf"have 3 records; {rows.height:,} were landed, and have expired"):
        analyze(expired)
    assert everything(warehouse) == before


def test_a_finished_window_is_published_and_a_copy_that_fails_is_logged(
    warehouse: Warehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "copy.duckdb"
    finish(window(11), settings_for(warehouse, **{"places.read_copy": str(copy)}))
    assert store.query(Warehouse(str(copy), 5), "SELECT count(*) FROM windows").item() == 12
    (tmp_path / "file").touch()
    finish(window(11), settings_for(warehouse, **{"places.read_copy": str(tmp_path / "file" / "copy.duckdb")}))
    assert "file/copy.duckdb that cannot be written" in caplog.text
