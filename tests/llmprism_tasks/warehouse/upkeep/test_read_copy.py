"""The read copy: what is in it, who may hold it open, and what a killed process leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kept_windows import put, window

from llmprism_tasks.contract.errors import InputError, TransientError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.upkeep import read_copy

RESULTS = ("windows", "jobs", "diagnoses", "flows_quarantine")
HOLDER = """
import sys
import duckdb
connection = duckdb.connect(sys.argv[1], read_only=True)
count = lambda: connection.execute("SELECT count(*) FROM jobs").fetchall()[0][0]
connection.begin()
print(count(), flush=True)
sys.stdin.readline()
print(count(), flush=True)
"""
LAKE_HOLDER = """
import sys
from llmprism_tasks.warehouse.connect import Warehouse
with Warehouse(sys.argv[1], 5).reading() as connection:
    count = lambda: connection.execute("SELECT count(*) FROM flows").fetchall()[0][0]
    connection.begin()
    print(count(), flush=True)
    sys.stdin.readline()
    print(count(), flush=True)
"""
NAMED = """
import os, sys, tempfile
from llmprism_tasks.warehouse.connect import Warehouse
tempfile.gettempdir()  # finds out by a file of its own which folder can be written
made = []
sys.addaudithook(lambda event, of: made.append(of[0]) if event == "open" and of[2] and of[2] & os.O_CREAT else None)
tempfile.TemporaryFile().close()
if any(not os.path.isdir(name) for name in made):
    sys.exit("this file system has no files without a name")
with Warehouse(sys.argv[1], 5).reading() as connection:
    print(connection.execute("SELECT count(*) FROM flows").fetchall()[0][0])
print([name for name in made if not os.path.isdir(name)])
"""
"""Reads a lake, and prints the names of all files that Python made meanwhile."""
Hold = Callable[[str, str], subprocess.Popen[str]]


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Start another process that reads a file, and keeps it open until it is told to read again."""
    running: list[subprocess.Popen[str]] = []

    def begin(text: str, place: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", text, place]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def results(place: Path | Warehouse) -> dict[str, list[str]]:
    warehouse = place if isinstance(place, Warehouse) else Warehouse(str(place), 5)
    with warehouse.reading() as connection:
        return {table: sorted(map(repr, connection.execute(f"FROM {table}").fetchall())) for table in RESULTS}


def test_it_has_the_results_of_finished_windows_and_no_flows(lake: Warehouse, tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "results.duckdb"
    assert read_copy.publish(lake, copy) == 4
    assert results(copy) == results(lake)
    put(lake, [4], status="running")
    assert read_copy.publish(lake, copy) == 0
    assert store.query(Warehouse(str(copy), 5), "SELECT count(*) FROM windows").item() == 4
    with pytest.raises(InputError, match="flows does not exist"):
        store.query(Warehouse(str(copy), 5), "FROM flows")
    assert "incidents" in store.query(Warehouse(str(copy), 5), "SHOW TABLES")["name"].to_list()


def test_nothing_is_written_to_the_terminal(file: Warehouse, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Before, Arrow warned of poor alignment and crashes, in the log of each `finish` and by `llmprism due --run`."""
    read_copy.publish(file, tmp_path / "results.duckdb")
    assert capfd.readouterr() == ("", "")


def test_only_what_changed_is_written_and_what_is_gone_goes(file: Warehouse, tmp_path: Path) -> None:
    copy = tmp_path / "results.duckdb"
    read_copy.publish(file, copy)
    assert read_copy.publish(file, copy) == 0
    put(file, [3], flows=21)
    assert [read_copy.publish(file, copy) for _ in range(3)] == [1, 1, 0]  # two files take turns
    gone = Window(window(0).start_ns, 5 * window(0).length_ns)
    for table in ("windows", "jobs", "diagnoses", "flows_quarantine"):
        file.write(
            lambda connection, table=table: connection.execute(
                f"DELETE FROM {table} WHERE window_start_ns < {gone.end_ns}"
            )
        )
    assert read_copy.publish(file, copy) == 5
    assert results(copy) == results(file)


def test_who_holds_the_copy_hinders_nobody_and_keeps_what_is_open(file: Warehouse, tmp_path: Path, hold: Hold) -> None:
    """Windows are written, replaced and published while a reader is within a transaction."""
    copy = tmp_path / "results.duckdb"
    read_copy.publish(file, copy)
    holder = hold(HOLDER, str(copy))
    assert read(holder) == "12"
    hasty = Warehouse(file.location, 0)
    for number in (12, 13, 3):
        put(hasty, [number], flows=5)
        read_copy.publish(hasty, copy)
        assert results(copy) == results(file)
    assert store.query(Warehouse(str(copy), 0), "SELECT count(*) FROM jobs").item() == 14
    assert holder.stdin is not None
    holder.stdin.write("again\n")
    holder.stdin.flush()
    assert read(holder) == "12"


def test_a_killed_reader_of_a_lake_leaves_no_file(lake: Warehouse) -> None:
    """What it copies has no name: a process that was killed at the right moment left `llmprism-….ducklake` before."""
    said = subprocess.run([sys.executable, "-c", NAMED, lake.location], capture_output=True, text=True, check=False)
    if "no files without a name" in said.stderr:
        pytest.skip(said.stderr)
    rows, made = said.stdout.splitlines()
    assert int(rows) > 0
    assert made == "[]"


def test_who_reads_a_lake_in_a_transaction_hinders_no_writer(lake: Warehouse, hold: Hold) -> None:
    holder = hold(LAKE_HOLDER, lake.location)
    assert read(holder) == "80"
    put(Warehouse(lake.location, 0), [4, 5])
    assert store.query(lake, "SELECT count(*) FROM flows").item() == 120
    assert holder.stdin is not None
    holder.stdin.write("again\n")
    holder.stdin.flush()
    assert read(holder) == "80"


@pytest.mark.parametrize("left", ["two names", "no next", "torn next"])
def test_what_a_killed_process_left_is_put_right(file: Warehouse, tmp_path: Path, left: str) -> None:
    copy, coming, last = (tmp_path / f"results.duckdb{ending}" for ending in ("", ".next", ".last"))
    read_copy.publish(file, copy)
    read_copy.publish(file, copy)
    if left == "two names":  # killed before the new file took the name
        os.link(copy, last)
    elif left == "no next":  # killed after that
        coming.rename(last)
    else:
        coming.write_bytes(coming.read_bytes()[:100_000])
    put(file, [12])
    read_copy.publish(file, copy)
    read_copy.publish(file, copy)
    assert results(copy) == results(file)
    assert sorted(path.name for path in tmp_path.glob("results*")) == [
        "results.duckdb",
        "results.duckdb.lock",
        "results.duckdb.next",
    ]


def test_a_copy_of_another_version_is_said_and_made_anew(file: Warehouse, tmp_path: Path) -> None:
    copy = tmp_path / "results.duckdb"
    with pytest.raises(InputError, match="no read copy"):
        read_copy.open_copy(copy, lock_wait_s=1)
    read_copy.publish(file, copy)
    older = Warehouse(str(copy), 1)
    older.write(lambda connection: connection.execute("UPDATE schema_version SET views = 'older'"))
    with pytest.raises(InputError, match="another version"):
        read_copy.open_copy(copy, lock_wait_s=1)
    read_copy.publish(file, copy)
    assert results(read_copy.open_copy(copy, lock_wait_s=1)) == results(file)


def test_where_it_cannot_be_written_it_says_so_and_the_one_before_stays(file: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    with pytest.raises(TransientError, match=r"read copy .*notes/results.duckdb that cannot be written"):
        read_copy.publish(file, tmp_path / "notes" / "results.duckdb")
