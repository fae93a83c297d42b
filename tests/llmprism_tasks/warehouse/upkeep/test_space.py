"""Space is given back, and nothing is lost: not to those who wait, and not when the process is killed."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import pytest
from flowfiles import MINUTE_NS
from kept_windows import everything, put

from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.upkeep import expiry, space

FILLING = """
INSERT INTO jobs (window_start_ns, job_id, kind, endpoints, hosts, confidence)
SELECT 7, repeat(md5(range::VARCHAR || random()), 32), 'x', range % 10, 1, 1 FROM range({})
"""


def fill(warehouse: Warehouse, megabytes: int) -> None:
    """Write as many bytes as cannot be compressed, in a window that nothing else is in."""
    text = FILLING.format(1_000 * megabytes)
    warehouse.write(lambda connection: connection.execute(text))


def empty(warehouse: Warehouse) -> None:
    warehouse.write(lambda connection: connection.execute("DELETE FROM jobs WHERE window_start_ns = 7"))


def files(warehouse: Warehouse) -> list[str]:
    path = Path(warehouse.location.removeprefix("ducklake:"))
    return sorted(file.name for file in path.parent.iterdir())


def test_a_file_of_which_more_than_a_third_is_free_is_made_smaller(file: Warehouse) -> None:
    before = everything(file)
    space.give_back(file)
    size = space.warehouse_bytes(file)
    fill(file, 4)
    assert space.warehouse_bytes(file) > size + 1_500_000
    empty(file)
    space.give_back(file)
    assert space.warehouse_bytes(file) <= 1.1 * size
    assert everything(file) == before
    assert files(file) == ["warehouse.duckdb"]
    put(file, [12])  # flows are still read in the order in which they were stored
    assert store.query(file, "SELECT count(*) FROM flows").item() == 13 * 20


@pytest.mark.parametrize(("of_ten", "copied"), [(2, False), (5, True)])
def test_a_file_is_copied_only_when_more_than_a_third_of_it_is_waste(
    file: Warehouse, of_ten: int, *, copied: bool
) -> None:
    fill(file, 8)
    file.write(lambda connection: connection.execute(f"DELETE FROM jobs WHERE endpoints < {of_ten}"))
    inode = Path(file.location).stat().st_ino
    space.give_back(file)
    assert (Path(file.location).stat().st_ino != inode) is copied


def test_a_link_to_a_file_stays_a_link_and_rights_stay_as_they_were(file: Warehouse, tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(file.location)
    Path(file.location).chmod(0o640)
    fill(file, 4)
    empty(file)
    inode = Path(file.location).stat().st_ino
    space.give_back(Warehouse(str(link), 5))
    assert link.is_symlink()
    assert Path(file.location).stat().st_ino != inode
    assert Path(file.location).stat().st_mode & 0o777 == 0o640


def write_often(warehouse: Warehouse, told: Connection) -> None:
    for number in range(40):
        text = f"INSERT INTO job_members (window_start_ns, job_id, addr, host) VALUES (8, 'it', '{number}', 'h')"
        warehouse.write(lambda connection, text=text: connection.execute(text))
        told.send(number)


def keep_up(warehouse: Warehouse, told: Connection | None = None) -> None:
    """Keep two windows' flows, sweep, give back the space."""
    kept = expiry.Kept(2 * MINUTE_NS, None, None)
    due = expiry.find_due(warehouse, kept, lookback_windows=0)
    steps = {
        "deleted": lambda: expiry.delete(warehouse, due, kept, lookback_windows=0),
        "swept": lambda: expiry.sweep(warehouse),
        "given back": lambda: space.give_back(warehouse, old_s=0),
    }
    if told is not None:
        told.send("begun")
    for name, step in steps.items():
        step()
        if told is not None:
            told.send(name)


@pytest.fixture(scope="module")
def processes() -> Any:
    """Other processes, which import everything once."""
    context = multiprocessing.get_context("forkserver")
    # What other tests need as well: there is one such server, and whoever starts it says what it imports.
    context.set_forkserver_preload([__name__, "llmprism_tasks.cli", "reliability.preloaded"])
    return context


def test_who_writes_meanwhile_loses_nothing(file: Warehouse, processes: Any) -> None:
    """Four times a smaller copy takes the place of the file that another process writes to."""
    here, there = processes.Pipe()
    writer = processes.Process(target=write_often, args=(file, there))
    writer.start()
    for _ in range(4):
        here.recv()
        fill(file, 3)
        empty(file)
        inode = Path(file.location).stat().st_ino
        space.give_back(file)
        assert Path(file.location).stat().st_ino != inode
    writer.join(60)
    assert writer.exitcode == 0
    assert store.query(file, "SELECT count(*) FROM job_members WHERE job_id = 'it'").item() == 40


@pytest.mark.parametrize(
    ("kind", "moments"),
    [
        ("file", [("begun", 0.01), ("deleted", 0), ("swept", 0.003), ("swept", 0.03)]),
        ("lake", [("deleted", 0), ("swept", 0.1)]),
    ],
)
def test_killed_at_any_moment_and_run_again_it_ends_the_same(
    kind: str, moments: list[tuple[str, float]], request: pytest.FixtureRequest, tmp_path: Path, processes: Any
) -> None:
    """Killed when each of its steps begins, and in the midst of the last, which takes the longest."""
    warehouse = request.getfixturevalue(kind)
    fill(warehouse, 3)
    empty(warehouse)
    original = tmp_path / "original"
    shutil.copytree(tmp_path, original, ignore=shutil.ignore_patterns("original"))
    before = everything(warehouse)
    keep_up(warehouse)
    undisturbed, names = everything(warehouse), files(warehouse)
    assert len(undisturbed["flows"]) < len(before["flows"])
    for after, wait_s in moments:
        _put_back(original, tmp_path)
        here, there = processes.Pipe()
        process = processes.Process(target=keep_up, args=(warehouse, there))
        process.start()
        while here.recv() != after:
            pass
        process.join(wait_s)
        process.kill()
        process.join()
        halfway = everything(warehouse)
        assert all(halfway[table] == before[table] for table in ("jobs", "timeline", "diagnoses"))
        assert set(undisturbed["flows"]) <= set(halfway["flows"]) <= set(before["flows"])
        keep_up(warehouse)
        assert everything(warehouse) == undisturbed
        assert files(warehouse) == names


def _put_back(original: Path, folder: Path) -> None:
    """Make a warehouse again what it was; a DuckLake knows its folder's name, so it has to be there."""
    for path in folder.iterdir():
        if path != original:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(original, folder, dirs_exist_ok=True)


def test_a_lake_is_tidied_by_one_thread(lake: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads of a call free the same memory now and then, and the process is aborted."""
    threads: list[int] = []

    class Watched:
        def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
            self.connection = connection

        def execute(self, query: str) -> duckdb.DuckDBPyConnection:
            if query.startswith("CALL"):
                threads.extend(self.connection.execute("SELECT current_setting('threads')").fetchall()[0])
            return self.connection.execute(query)

    @contextmanager
    def watched(warehouse: Warehouse, alone: Any = Warehouse.alone) -> Iterator[Watched]:
        with alone(warehouse) as connection:
            connection.execute("SET threads = 2")  # also where the machine has one core
            yield Watched(connection)

    monkeypatch.setattr(Warehouse, "alone", watched)
    space.give_back(lake)
    assert set(threads) == {1}


@pytest.mark.parametrize("old_s", [0, 3600])
def test_a_lake_keeps_replaced_files_only_for_those_who_may_still_read_them(lake: Warehouse, old_s: int) -> None:
    before = everything(lake)
    put(lake, range(4))
    folder = Path(lake.location.removeprefix("ducklake:") + ".files")
    orphan = folder / "main" / "left-behind.parquet"
    orphan.write_bytes(b"by a process that was killed")
    space.give_back(lake, old_s=old_s)
    assert everything(lake) == before
    assert orphan.exists() == bool(old_s)
    assert len(list((folder / "stored" / "flows").iterdir())) == (8 if old_s else 4)


def test_a_table_of_a_few_rows_is_not_taken_to_fill_its_block(file: Warehouse) -> None:
    """Else each window of a young warehouse seems to add a quarter of a megabyte to every small table."""
    space.give_back(file)  # writes the log to the file
    assert 0 < space.table_bytes(file)["jobs"] < 16_384


def test_a_table_of_many_rows_takes_what_the_file_grows_by(file: Warehouse) -> None:
    space.give_back(file)
    size = space.warehouse_bytes(file)
    fill(file, 16)
    space.give_back(file)
    grown = space.warehouse_bytes(file) - size
    assert space.table_bytes(file)["jobs"] == pytest.approx(grown, rel=0.2)
