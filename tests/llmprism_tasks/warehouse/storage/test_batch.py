"""The batch: in one connection, names of tables stand for a window's rows, in a file and in a lake."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from empty_warehouse import empty_lake, empty_warehouse
from sound_window import WINDOW, sound

from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.storage import batch

COUNT = "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM steps), (SELECT count(*) FROM flows)"


@pytest.mark.parametrize(("made", "copied"), [(empty_warehouse, []), (empty_lake, ["jobs"])], ids=["file", "lake"])
def test_names_stand_for_the_window_s_rows_with_and_without_a_job_and_a_lake_s_checked_rows_are_copied(
    tmp_path: Path, made: object, copied: list[str]
) -> None:
    warehouse = made(tmp_path / "w")  # type: ignore[operator]
    rows = sound()
    both = {
        table: pl.concat([rows[table], rows[table].with_columns(job_id=pl.lit("k"))]) for table in ("jobs", "steps")
    }
    store.replace(warehouse, WINDOW, rows | both)
    store.replace(warehouse, WINDOW.shifted(-1), sound(WINDOW.shifted(-1)))
    one_job = (1, rows["steps"].height, 4)
    with warehouse.reading() as connection:
        for without, expected in (([], (2, 2 * one_job[1], 4)), (["k"], one_job), ([], (2, 2 * one_job[1], 4))):
            batch.narrow(connection, WINDOW, tables=["jobs", "flows"], without=without)
            assert connection.execute(COUNT).fetchall() == [expected]
        temporary = "SELECT table_name FROM duckdb_tables() WHERE temporary"
        assert connection.execute(temporary).fetchall() == [(table,) for table in copied]
        views = "SELECT view_name FROM duckdb_views() WHERE temporary AND NOT internal"
        named = {name for (name,) in connection.execute(views).fetchall()}
        assert named == {table.name for table in TABLES} - {*copied}
