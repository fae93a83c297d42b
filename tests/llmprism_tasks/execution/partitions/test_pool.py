"""The process pool: workers make what this process makes, errors come back, and a worker that ended is missed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from places import REAL

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.errors import ContractError, TransientError
from llmprism_tasks.contract.plan import DERIVED, STAGES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.arrow_exchange import write_frame
from llmprism_tasks.execution.partitions.handover import write_partition
from llmprism_tasks.execution.partitions.partition import Partition
from llmprism_tasks.execution.partitions.partitioned import each_result, run_in_pool
from llmprism_tasks.execution.partitions.pool import Pool, process_pool
from llmprism_tasks.execution.partitions.stage_runner import StageResults, run_stages
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources.topology import read_topology

CAPTURE = REAL / "dp2pp4_healthy"
SETTINGS = Settings()
NO_OTHERS = pl.DataFrame(schema={"flow_start_ns": pl.Int64})

Captured = tuple[pl.DataFrame, pl.DataFrame, Window]

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="workers are for further processors")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with process_pool(SETTINGS) as found:
        assert found is not None
        yield found


@pytest.fixture(scope="module")
def captured() -> Captured:
    flows = pl.read_parquet(CAPTURE / "flows.parquet")
    window = Window.containing(int(flows["flow_start_ns"].median()), SETTINGS.window.length_ns)  # type: ignore[arg-type]
    start = pl.col("flow_start_ns")
    flows = flows.with_columns(window_start_ns=start - start % window.length_ns)
    known = frames.conform(flows, "flows").sort("flow_start_ns").filter(start < window.end_ns)
    return known, read_topology(str(CAPTURE / "topology.csv")), window


def in_worker(pool: Pool, partition: Partition, topology: pl.DataFrame, window: Window, folder: Path) -> StageResults:
    write_frame(topology, folder, "topology")
    write_partition(folder / "0", partition)
    return run_in_pool(pool, folder / "0", STAGES, window, SETTINGS)


@pytest.mark.parametrize("compact", [False, True])
def test_a_worker_makes_what_this_process_makes(
    pool: Pool, captured: Captured, tmp_path: Path, *, compact: bool
) -> None:
    flows, topology, window = captured
    if compact:  # as they are landed: the worker's process knows none of the categories
        flows = flows.with_columns(
            pl.col("src_addr", "dst_addr").cast(pl.Categorical),
            pl.col("switch_path").list.join(frames.BETWEEN_SWITCHES).cast(pl.Categorical),
        )
    partition = Partition(flows, NO_OTHERS)
    there = in_worker(pool, partition, topology, window, tmp_path)
    here = run_stages(STAGES, partition, topology, window, SETTINGS)
    assert list(there.stage_ns) == [stage.name for stage in STAGES]
    assert set(there.tables) == set(DERIVED)
    assert not there.tables["timeline"].is_empty()
    assert [name for name, rows in here.tables.items() if not rows.equals(there.tables[name])] == []


def test_a_file_named_like_a_library_where_the_command_runs_is_not_taken_for_it(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "polars.py").write_text("raise SystemExit(3)")
    (tmp_path / "loky.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    with process_pool(SETTINGS) as elsewhere:
        assert elsewhere is not None
        assert elsewhere.call(os.getpid) != os.getpid()


def raise_contract_error() -> None:
    raise ContractError(found="rows", expected="no rows", todo="Nothing.")


def test_an_error_in_a_worker_is_raised_here_with_its_parts_and_the_worker_goes_on(pool: Pool) -> None:
    worker = pool.call(os.getpid)
    with pytest.raises(ContractError) as caught:
        pool.call(raise_contract_error)
    assert (caught.value.found, caught.value.todo) == ("rows", "Nothing.")
    assert pool.call(os.getpid) == worker


def test_a_worker_leaves_interruptions_to_this_process(pool: Pool) -> None:
    worker = pool.call(os.getpid)
    for interruption in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker, interruption)
    assert pool.call(os.getpid) == worker


def kill_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_an_error_that_says_what_to_do_and_the_next_pool_is_whole() -> None:
    with process_pool(SETTINGS) as broken:
        assert broken is not None
        with pytest.raises(TransientError, match=r"worker process that ended.*batches\.at_once"):
            broken.call(kill_oneself)
    with process_pool(SETTINGS) as whole:
        assert whole is not None
        assert whole.call(os.getpid) != os.getpid()


def test_workers_end_with_the_block() -> None:
    with process_pool(SETTINGS) as ended:
        assert ended is not None
        worker = ended.call(os.getpid)
    assert not Path(f"/proc/{worker}").exists()


def test_the_thread_that_hands_calls_over_ends_with_the_block() -> None:
    """A process that ends before the thread does may warn of a leaked semaphore."""
    before = threading.enumerate()
    for _ in range(30):  # without the wait, the thread is there after about one block of five
        with process_pool(SETTINGS):
            pass
        assert threading.enumerate() == before


NOTHING = StageResults({}, {})


def test_each_runner_takes_partitions_until_none_is_left() -> None:
    threads: dict[int, str] = {}
    meet = threading.Barrier(2)  # of the first and the last partition, which must be at work at one time

    def run(name: str, number: int) -> StageResults:
        threads[number] = name
        if number in (0, 2):
            meet.wait(10)
        return NOTHING

    found = each_result(3, [lambda number: run("here", number), lambda number: run("worker", number)])
    assert sorted(number for number, _ in found) == [0, 1, 2]
    assert (threads[0], threads[2]) == ("worker", "here")


def test_one_runner_alone_takes_the_smallest_first() -> None:
    assert [number for number, _ in each_result(3, [lambda _: NOTHING])] == [2, 1, 0]


@pytest.mark.parametrize("broken", [0, 2])
def test_an_error_of_any_partition_is_raised(broken: int) -> None:
    def run(number: int) -> StageResults:
        if number == broken:
            raise ContractError(found="rows", expected="no rows", todo="Nothing.")
        return NOTHING

    with pytest.raises(ContractError):
        list(each_result(3, [run, run]))
