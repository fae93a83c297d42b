"""A DuckLake's catalog in a real PostgreSQL: locks between processes, a server that goes away, a role that reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from distributed.services import LOOPBACK, PostgreSQL
from llmprism_tasks.contract.errors import InputError, TransientError, WarehouseBusy
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, existing_warehouse, open_warehouse

pytestmark = pytest.mark.distributed

INTO = "INSERT INTO job_members (window_start_ns, job_id, addr, host)"
HOLD = """
with warehouse.writing() as connection:
    connection.execute("DELETE FROM job_members")
    connection.execute("{into} SELECT 0, 'new', range::VARCHAR, 'h' FROM range(200000)")
    print("writing", flush=True)
    time.sleep(60)
"""
WRITE = """
for _ in range(10):
    def work(connection):
        count = connection.execute("SELECT count(*) FROM job_members WHERE job_id = 'count'").fetchone()[0]
        connection.execute("DELETE FROM job_members WHERE job_id = 'other'")
        connection.execute("{into} VALUES (0, 'count', ?, 'h')", [str(count)])
        connection.execute("{into} VALUES (0, 'other', 'a', 'h')")
    warehouse.write(work)
"""
READER = (
    "CREATE ROLE reader LOGIN PASSWORD 'reads only'",
    "GRANT USAGE ON SCHEMA public TO reader",
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
)
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def warehouse(server: PostgreSQL, tmp_path: Path) -> Warehouse:
    name = f"lake_{os.getpid()}_{abs(hash(tmp_path))}"
    server.run(f"CREATE DATABASE {name}")
    location = f"ducklake:postgres:dbname={name} host={LOOPBACK} port={server.port} user=postgres"
    data_path = f"{tmp_path}/lake/"
    return open_warehouse(Warehouse(location, lock_wait_s=20, data_path=data_path, catalog_password=server.password))


@pytest.fixture
def start(warehouse: Warehouse, server: PostgreSQL) -> Iterator[Start]:
    """Start another process that works on the warehouse, with the password from where PostgreSQL's clients look."""
    running: list[subprocess.Popen[str]] = []

    def begin(work: str) -> subprocess.Popen[str]:
        head = f"""
        import time
        from llmprism_tasks.warehouse.connect import Warehouse
        warehouse = Warehouse({warehouse.location!r}, 60)
        """
        text = textwrap.dedent(head) + work.format(into=INTO)
        environment = os.environ | {"PGPASSWORD": server.password}
        command = [sys.executable, "-c", text]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def wait_until_it_writes(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"


def put(warehouse: Warehouse, job: str) -> None:
    warehouse.write(lambda connection: connection.execute(f"{INTO} VALUES (0, ?, 'a', 'h')", [job]))


def jobs(warehouse: Warehouse) -> list[str]:
    return store.query(warehouse, "SELECT DISTINCT job_id FROM job_members ORDER BY 1")["job_id"].to_list()


def test_a_process_killed_inside_a_write_leaves_the_old_rows_and_no_lock(warehouse: Warehouse, start: Start) -> None:
    put(warehouse, "old")
    process = start(HOLD)
    wait_until_it_writes(process)
    assert jobs(warehouse) == ["old"]  # who reads does not wait
    process.send_signal(signal.SIGKILL)
    process.wait()
    put(warehouse, "newer")
    assert jobs(warehouse) == ["newer", "old"]


def test_who_waits_too_long_is_told_for_whom(warehouse: Warehouse, server: PostgreSQL, start: Start) -> None:
    process = start(HOLD)
    wait_until_it_writes(process)
    hasty = Warehouse(warehouse.location, 0.3, warehouse.data_path, server.password)
    with pytest.raises(WarehouseBusy) as caught:
        put(hasty, "mine")
    assert f"process {os.getpid()} waited 0.3 s for the warehouse {warehouse.location}" in caught.value.found
    assert f"held by process {process.pid} on {os.uname().nodename} (address {LOOPBACK}" in caught.value.found


def test_writers_at_the_same_time_lose_nothing(warehouse: Warehouse, start: Start) -> None:
    processes = [start(WRITE) for _ in range(3)]
    assert [process.wait(timeout=100) for process in processes] == [0, 0, 0]
    counted = store.query(warehouse, "SELECT addr::INT AS n FROM job_members WHERE job_id = 'count' ORDER BY n")
    assert counted["n"].to_list() == list(range(30))


def test_a_server_that_was_away_between_two_transactions_is_not_noticed(
    warehouse: Warehouse, server: PostgreSQL
) -> None:
    put(warehouse, "old")
    assert jobs(warehouse) == ["old"]
    server.restart()
    put(warehouse, "new")
    assert jobs(warehouse) == ["new", "old"]


def test_a_server_that_goes_away_inside_a_write_has_it_done_again(warehouse: Warehouse, server: PostgreSQL) -> None:
    put(warehouse, "old")
    tries = 0

    def work(connection: duckdb.DuckDBPyConnection) -> None:
        nonlocal tries
        connection.execute("DELETE FROM job_members")
        connection.execute(f"{INTO} VALUES (0, 'new', 'a', 'h')")
        tries += 1
        if tries == 1:
            server.restart()

    warehouse.write(work)
    assert (tries, jobs(warehouse)) == (2, ["new"])


@pytest.mark.parametrize("told", [True, False])
def test_a_user_s_query_reads_the_lake_and_no_other_file(warehouse: Warehouse, *, told: bool) -> None:
    into = f"{INTO} SELECT 0, 'j', range::VARCHAR, 'h' FROM range(1000)"  # too many for the catalog itself
    warehouse.write(lambda connection: connection.execute(into))
    reader = warehouse if told else replace(warehouse, data_path="")  # where the files are, the catalog says
    assert store.query(reader, "SELECT count(*) AS n FROM job_members").item() == 1000
    with pytest.raises(InputError):
        store.query(reader, "SELECT * FROM '/etc/passwd'")
    assert len(store.query(reader, "SELECT DISTINCT addr FROM job_members")) == 1000
    with reader.reading() as connection:  # not confined, for it is not a user's
        connection.execute("SET threads = 1")


def test_a_wrong_password_is_said_to_be_and_not_repeated(warehouse: Warehouse) -> None:
    with pytest.raises(TransientError) as caught:
        existing_warehouse(Warehouse(warehouse.location, lock_wait_s=1, catalog_password="wrong but secret"))
    assert "password authentication failed" in caught.value.found
    assert "wrong but secret" not in f"{caught.value}{caught.value.__cause__}"


def test_a_role_that_may_only_read_reads_and_changes_nothing(warehouse: Warehouse, server: PostgreSQL) -> None:
    put(warehouse, "old")
    server.run(*READER, database=warehouse.location.partition("dbname=")[2].partition(" ")[0])
    location = warehouse.location.replace("user=postgres", "user=reader")
    reader = existing_warehouse(Warehouse(location, lock_wait_s=5, catalog_password="reads only"))
    assert jobs(reader) == ["old"]
    with pytest.raises(InputError, match=r"whose user may not write \(permission denied for table ducklake_snapshot"):
        put(reader, "mine")
    assert jobs(warehouse) == ["old"]


def test_a_new_catalog_needs_a_place_for_its_files(server: PostgreSQL) -> None:
    server.run("CREATE DATABASE nothing_there")
    location = f"ducklake:postgres:dbname=nothing_there host={LOOPBACK} port={server.port} user=postgres"
    with pytest.raises(InputError, match=r"warehouse\.data_path = ''"):
        open_warehouse(Warehouse(location, lock_wait_s=5, catalog_password=server.password))
    with pytest.raises(InputError, match="no warehouse ducklake:postgres:dbname=nothing_there"):
        existing_warehouse(Warehouse(location, lock_wait_s=5, catalog_password=server.password))
