"""Several processes, older and newer warehouses, and a process that dies while it writes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import polars as pl
import pytest
from flowfiles import WINDOW

from llmprism_tasks.contract.errors import ContractError, InputError, TransientError, WarehouseBusy, WarehouseGone
from llmprism_tasks.contract.tables import TABLES, table_named
from llmprism_tasks.warehouse import schema, store
from llmprism_tasks.warehouse.connect import CONFLICT_RETRIES, Warehouse, open_warehouse

INTO = "INSERT INTO job_members (window_start_ns, job_id, addr, host)"
HOLD = """
with warehouse.writing() as connection:
    connection.execute("DELETE FROM job_members")
    connection.execute("{into} SELECT {start}, 'new', range::VARCHAR, 'h' FROM range(200000)")
    print("writing", flush=True)
    time.sleep(60)
"""
WRITE = """
for _ in range(15):
    def work(connection):
        count = connection.execute("SELECT count(*) FROM job_members WHERE job_id = 'count'").fetchone()[0]
        connection.execute("DELETE FROM job_members WHERE job_id = 'other'")
        connection.execute("{into} VALUES ({start}, 'count', ?, 'h')", [str(count)])
        connection.execute("{into} VALUES ({start}, 'other', 'a', 'h')")
    warehouse.write(work)
"""
Start = Callable[[Warehouse, str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start another process that works on a warehouse; it is gone when the test ends."""
    running: list[subprocess.Popen[str]] = []

    def begin(warehouse: Warehouse, work: str) -> subprocess.Popen[str]:
        head = f"""
        import time
        from llmprism_tasks.warehouse.connect import Warehouse
        warehouse = Warehouse({warehouse.location!r}, 60)
        """
        text = textwrap.dedent(head) + work.format(start=WINDOW.start_ns, into=INTO)
        running.append(subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def wait_until_it_writes(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"


def put(warehouse: Warehouse, job: str) -> None:
    warehouse.write(lambda connection: connection.execute(f"{INTO} VALUES ({WINDOW.start_ns}, ?, 'a', 'h')", [job]))


def jobs(warehouse: Warehouse) -> list[str]:
    return store.query(warehouse, "SELECT DISTINCT job_id FROM job_members ORDER BY 1")["job_id"].to_list()


def test_a_process_killed_inside_a_write_leaves_the_old_rows(either: Warehouse, start: Start) -> None:
    put(either, "old")
    process = start(either, HOLD)
    wait_until_it_writes(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert jobs(either) == ["old"]
    put(either, "newer")
    assert jobs(either) == ["newer", "old"]


def test_who_waits_too_long_is_told_for_whom(either: Warehouse, start: Start) -> None:
    process = start(either, HOLD)
    wait_until_it_writes(process)
    hasty = Warehouse(either.location, lock_wait_s=0.3)
    began = time.monotonic()
    with pytest.raises(WarehouseBusy) as caught:
        put(hasty, "mine")
    assert 0.3 <= time.monotonic() - began < 5
    assert f"process {os.getpid()} waited " in caught.value.found
    assert f"the warehouse {either.location}, held by process {process.pid} (" in caught.value.found
    assert "0.3 s" in caught.value.expected


def test_a_reader_of_a_file_waits_its_turn(warehouse: Warehouse, start: Start) -> None:
    put(warehouse, "old")
    process = start(warehouse, HOLD.replace("60)", "0.5)"))
    wait_until_it_writes(process)
    assert jobs(warehouse) == ["new"]


def test_writers_at_the_same_time_lose_nothing(either: Warehouse, start: Start) -> None:
    processes = [start(either, WRITE) for _ in range(2)]
    assert [process.wait(timeout=100) for process in processes] == [0, 0]
    counted = store.query(either, "SELECT addr::INT AS n FROM job_members WHERE job_id = 'count' ORDER BY n")
    assert counted["n"].to_list() == list(range(30))
    assert store.query(either, "SELECT count(*) AS n FROM job_members WHERE job_id = 'other'").item() == 1


def test_opening_again_writes_nothing(either: Warehouse) -> None:
    put(either, "old")
    path = Path(either.location.removeprefix("ducklake:"))
    path.chmod(0o400)
    before = path.read_bytes()
    assert open_warehouse(Warehouse(either.location, lock_wait_s=20)) == either
    assert path.read_bytes() == before


def test_a_newer_warehouse_is_refused(either: Warehouse) -> None:
    either.write(lambda connection: connection.execute("UPDATE schema_version SET version = version + 1"))
    with pytest.raises(ContractError) as caught:
        open_warehouse(Warehouse(either.location, lock_wait_s=1))
    known, _ = schema.current()
    assert caught.value.found == f"warehouse {either.location} with schema version {known + 1}"


@pytest.mark.parametrize("kind", ["{}.duckdb", "ducklake:{}.ducklake"])
def test_an_older_warehouse_is_brought_forward_with_its_rows(tmp_path: Path, kind: str) -> None:
    warehouse = Warehouse(kind.format(tmp_path / "old"), lock_wait_s=1)
    old = (Path(__file__).parent / "schema_version_0.sql").read_text(encoding="utf-8")
    warehouse.write(lambda connection: connection.execute(old))
    fresh = open_warehouse(Warehouse(kind.format(tmp_path / "fresh"), lock_wait_s=1))
    assert open_warehouse(Warehouse(warehouse.location, lock_wait_s=1)) == warehouse
    for table in TABLES:
        sql = f'SELECT column_name, column_type, "null" FROM (DESCRIBE {table.name}) ORDER BY ALL'
        assert store.query(warehouse, sql).rows() == store.query(fresh, sql).rows()
    told = store.query(
        warehouse, "SELECT rows_read, rows_quarantined, rows_duplicate, reason FROM windows ORDER BY ALL DESC"
    )
    assert told.rows() == [(5, 3, 2, None), (1, 0, 0, None)]
    assert store.query(warehouse, "SELECT version FROM schema_version").item() == schema.current()[0]


@pytest.mark.parametrize("kind", ["{}.duckdb", "ducklake:{}.ducklake"])
def test_what_older_rows_do_not_tell_is_null(tmp_path: Path, kind: str) -> None:
    warehouse = Warehouse(kind.format(tmp_path / "old"), lock_wait_s=1)
    old = (Path(__file__).parent / "schema_version_1.sql").read_text(encoding="utf-8")
    warehouse.write(lambda connection: connection.execute(old))
    open_warehouse(Warehouse(warehouse.location, lock_wait_s=1))
    told = store.query(warehouse, "SELECT job_id, dp, confidence, cp, sharded, recognition_confidence FROM jobs")
    assert told.rows() == [("j", 2, 1.0, None, None, None)]
    members = store.query(warehouse, "SELECT addr, pp_stage, dp_group FROM job_members ORDER BY addr")
    assert members.rows() == [("a", None, None), ("b", None, None)]
    costs = "confidence, rank, lost_gpu_s, recoverable_gpu_s, peers, evidence_sql"
    diagnoses = store.query(warehouse, f"SELECT subject, severity, {costs} FROM diagnoses")
    assert diagnoses.rows() == [("a", 0.3, *[None] * 6)]
    assert "troubles" not in store.query(warehouse, "SHOW TABLES")["name"].to_list()
    for table in ("jobs", "job_members", "diagnoses"):
        names = store.query(warehouse, f"DESCRIBE {table}")["column_name"].to_list()
        assert names == list(table_named(table).column_names)


def test_views_are_renewed_when_their_text_has_changed(warehouse: Warehouse) -> None:
    def age(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("CREATE OR REPLACE VIEW window_bookkeeping AS SELECT 1 AS stale")
        connection.execute("UPDATE schema_version SET views = 'older'")

    warehouse.write(age)
    open_warehouse(Warehouse(warehouse.location, lock_wait_s=1))
    assert "rows_read" in store.query(warehouse, "FROM window_bookkeeping").columns


@pytest.mark.parametrize("name", ["notes.txt", "topology.csv"])
def test_what_is_no_warehouse_is_said_so(tmp_path: Path, name: str) -> None:
    """A CSV file is one that DuckDB would rather read than open."""
    path = tmp_path / name
    path.write_text("not a database " * 1000, encoding="utf-8")
    with pytest.raises(InputError, match=rf"{name} that cannot be opened \(it is no DuckDB file\)"):
        open_warehouse(Warehouse(str(path), lock_wait_s=1))
    with (
        pytest.raises(InputError, match="cannot be opened"),
        Warehouse(str(tmp_path / "no.duckdb"), 1).reading(),
    ):
        pass


def test_a_warehouse_that_was_removed_is_not_made_anew(either: Warehouse) -> None:
    path = Path(either.location.removeprefix("ducklake:"))
    seen = open_warehouse(Warehouse(either.location, lock_wait_s=1))
    path.unlink()
    for use in (lambda: put(seen, "lost"), lambda: jobs(seen)):
        with pytest.raises(WarehouseGone, match="removed or replaced while it was in use"):
            use()
        assert not path.exists()


def test_a_warehouse_that_was_replaced_is_not_taken_for_it(either: Warehouse) -> None:
    path = Path(either.location.removeprefix("ducklake:"))
    seen = open_warehouse(Warehouse(either.location, lock_wait_s=1))
    path.unlink()
    with duckdb.connect(str(path)) if path == Path(either.location) else Warehouse(either.location, 1).writing():
        pass  # another one, and an empty one
    with pytest.raises(WarehouseGone):
        put(seen, "lost")


def test_a_commit_to_a_file_that_was_removed_meanwhile_is_no_success(either: Warehouse) -> None:
    def work(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"{INTO} VALUES ({WINDOW.start_ns}, 'new', 'a', 'h')")
        Path(either.location.removeprefix("ducklake:")).unlink()

    with pytest.raises(WarehouseGone):
        either.write(work)


def test_a_lake_without_the_files_of_its_rows_says_so(tmp_path: Path) -> None:
    lake = open_warehouse(Warehouse(f"ducklake:{tmp_path / 'lake'}", lock_wait_s=1))
    lake.write(
        lambda connection: connection.execute(
            f"{INTO} SELECT {WINDOW.start_ns}, 'j', range::VARCHAR, 'h' FROM range(999)"
        )
    )
    shutil.rmtree(f"{tmp_path / 'lake'}.files")
    with pytest.raises(WarehouseGone, match="removed or replaced"):
        jobs(lake)


def test_a_damaged_file_says_so(warehouse: Warehouse) -> None:
    path = Path(warehouse.location)
    put(warehouse, "old")
    whole = path.read_bytes()
    path.write_bytes(whole[:20_000] + b"x" * 100_000 + whole[120_000:])
    with pytest.raises(InputError, match=r"damaged|cannot be opened"):
        open_warehouse(Warehouse(warehouse.location, lock_wait_s=1))


def test_a_full_disk_is_no_conflict_between_writers(warehouse: Warehouse) -> None:
    tries: list[int] = []

    def work(connection: duckdb.DuckDBPyConnection) -> None:
        tries.append(1)
        connection.execute(f"{INTO} VALUES ({WINDOW.start_ns}, 'new', 'a', 'h')")

    log = Path(f"{warehouse.location}.wal")
    log.unlink(missing_ok=True)
    log.symlink_to("/dev/full")
    with pytest.raises(TransientError, match="No space left on device; expected room to write"):
        warehouse.write(work)
    assert tries == [1]
    log.unlink()
    warehouse.write(work)
    assert jobs(warehouse) == ["new"]


def test_commits_that_others_keep_coming_before_are_given_up(warehouse: Warehouse) -> None:
    def work(_: duckdb.DuckDBPyConnection) -> None:
        raise duckdb.TransactionException("Transaction conflict")

    with pytest.raises(WarehouseBusy, match=f"in each of {CONFLICT_RETRIES + 1} tries"):
        warehouse.write(work)


def test_an_unknown_table_is_not_looked_for_in_the_program(either: Warehouse) -> None:
    windows_of_mine = pl.DataFrame({"a": [1]})
    with either.reading() as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("FROM windows_of_mine")
    assert windows_of_mine.height == 1


def test_a_lake_may_have_a_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(open_warehouse(Warehouse("ducklake:lake", lock_wait_s=1)), "new")
    assert (tmp_path / "lake.files").is_dir()
