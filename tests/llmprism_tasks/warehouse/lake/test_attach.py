"""Where a DuckLake's catalog and files are; nothing here needs a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmprism_tasks.contract.errors import InputError, TransientError
from llmprism_tasks.warehouse.connect import Warehouse, existing_warehouse, open_warehouse
from llmprism_tasks.warehouse.lake.attach import check_data_path, in_postgres

NOWHERE = "ducklake:postgres:dbname=lake host=127.0.0.1 port=1 user=llmprism"
"""Nobody listens on port 1."""


@pytest.mark.parametrize(
    ("location", "is_there"),
    [(NOWHERE, True), ("ducklake:postgres:postgresql://u@h/lake", True), ("ducklake:lake", False), ("w.duckdb", False)],
)
def test_a_catalog_in_postgresql_is_told_by_its_location(location: str, *, is_there: bool) -> None:
    assert in_postgres(location) == is_there


@pytest.mark.parametrize("data_path", ["", "lake/", "s3://bucket/lake/", "GS://bucket/lake"])
def test_files_of_several_machines_need_a_folder_that_all_can_name(data_path: str) -> None:
    with pytest.raises(InputError) as caught:
        check_data_path(data_path)
    assert "warehouse.data_path" in caught.value.found
    store = "://" in data_path
    assert ("object store" in caught.value.found) == store
    assert ("httpfs" in caught.value.expected) == store
    assert ("Use a folder that all machines share" if store else "LLMPRISM_WAREHOUSE__DATA_PATH") in caught.value.todo


def test_an_absolute_folder_will_do_and_the_same_one_without_its_root_will_not() -> None:
    check_data_path("/mnt/shared/lake/")
    with pytest.raises(InputError):
        check_data_path("mnt/shared/lake/")


def test_a_lake_in_a_file_may_have_its_files_elsewhere(tmp_path: Path) -> None:
    location, elsewhere = f"ducklake:{tmp_path / 'w.ducklake'}", tmp_path / "elsewhere"
    warehouse = open_warehouse(Warehouse(location, lock_wait_s=5, data_path=f"{elsewhere}/"))
    into = "INSERT INTO job_members (window_start_ns, job_id, addr, host)"
    warehouse.write(lambda connection: connection.execute(f"{into} SELECT 0, 'j', range::VARCHAR, 'h' FROM range(99)"))
    assert list(elsewhere.rglob("*.parquet"))
    with open_warehouse(Warehouse(location, lock_wait_s=5, data_path=f"{elsewhere}/")).reading() as connection:
        assert connection.execute("SELECT count(*) FROM job_members").fetchone() == (99,)


@pytest.mark.parametrize("opening", [open_warehouse, existing_warehouse])
def test_a_server_that_is_away_is_worth_another_try_and_the_password_is_in_no_message(
    opening: Callable[[Warehouse], Warehouse], tmp_path: Path
) -> None:
    secret = "a secret of ours"
    with pytest.raises(TransientError) as caught:
        opening(Warehouse(NOWHERE, lock_wait_s=1, data_path=f"{tmp_path}/", catalog_password=secret))
    assert caught.value.found.startswith(f"the catalog of the warehouse {NOWHERE}, where PostgreSQL does not answer (")
    assert "Connection refused" in caught.value.found
    told = "".join(map(str, (caught.value, caught.value.__cause__, repr(Warehouse(NOWHERE, 1, "", secret)))))
    assert secret not in told


def test_a_location_that_is_no_connection_string_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        open_warehouse(Warehouse("ducklake:postgres:nonsense", lock_wait_s=1, data_path=f"{tmp_path}/"))
    assert "ducklake:postgres:nonsense" in caught.value.found
    assert "dbname=lake host=db" in caught.value.expected
