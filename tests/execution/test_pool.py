"""A worker process: it answers as this process would, tells what went wrong there, and is missed when it is gone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from llmprism_tasks.sharing import shared
from llmprism_tasks.worker import Worker, working

from llmprism_tasks import deriving
from llmprism_tasks.contract import frames
from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.frames import Part
from llmprism_tasks.contract.plan import ALL, DERIVED
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources.topology import read_topology

CAPTURE = Path(__file__).parent / "data" / "real" / "dp2pp4_healthy"
SETTINGS = Settings()
TURNS = [ALL[:-1], ALL[-1:]]
NOBODY = pl.DataFrame({"flow_start_ns": []}, schema={"flow_start_ns": pl.Int64})


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with working(SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def captured() -> tuple[pl.DataFrame, pl.DataFrame, Window]:
    flows = pl.read_parquet(CAPTURE / "flows.parquet")
    window = Window.containing(int(flows["flow_start_ns"].median()), SETTINGS.window.length_ns)  # type: ignore[arg-type]
    start = pl.col("flow_start_ns")
    flows = flows.with_columns(window_start_ns=start - start % window.length_ns)
    known = frames.conform(flows, "flows").sort("flow_start_ns").filter(start < window.end_ns)
    return known, read_topology(str(CAPTURE / "topology.csv")), window


def test_it_derives_what_this_process_does(worker: Worker, captured: tuple[pl.DataFrame, pl.DataFrame, Window]) -> None:
    flows, topology, window = captured
    there = _turns(worker, flows, topology, window)
    here = list(deriving.derive_in_turn(Part(flows, NOBODY), topology, window, SETTINGS, TURNS))
    for made in (there, here):
        assert [list(one.stage_ns) for one in made] == [list(turn) for turn in TURNS]
    assert {name for one in there for name in one.tables} == set(DERIVED)
    assert not there[0].tables["timeline"].is_empty()
    for one, other in zip(there, here, strict=True):
        assert [name for name, rows in one.tables.items() if not rows.equals(other.tables[name])] == []


def test_it_takes_flows_as_they_are_landed(worker: Worker, captured: tuple[pl.DataFrame, pl.DataFrame, Window]) -> None:
    """As categories, of which the other process knows none: it has them for as long as somebody has the flows."""
    flows, topology, window = captured
    compact = flows.with_columns(
        pl.col("src_addr", "dst_addr").cast(pl.Categorical),
        pl.col("switch_path").list.join(frames.BETWEEN_SWITCHES).cast(pl.Categorical),
    )
    there = {name: rows for one in _turns(worker, compact, topology, window) for name, rows in one.tables.items()}
    here = deriving.derive(Part(compact, NOBODY), topology, window, SETTINGS).tables
    assert there["timeline"]["addr"].dtype == pl.Categorical
    assert [name for name, rows in there.items() if not rows.equals(here[name])] == []


def test_what_is_named_like_a_library_where_it_is_called_is_not_taken_for_it(
    captured: tuple[pl.DataFrame, pl.DataFrame, Window], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "polars.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    flows, topology, window = captured
    with working(SETTINGS) as process:
        made, _ = _turns(process, flows, topology, window)
    assert made.tables["jobs"].height == 1


def _turns(worker: Worker, flows: pl.DataFrame, topology: pl.DataFrame, window: Window) -> list[deriving.Derived]:
    return list(worker.derive_in_turn(Part(flows, NOBODY), topology, window, SETTINGS, TURNS))


def test_stages_in_turn_make_what_they_make_at_once(captured: tuple[pl.DataFrame, pl.DataFrame, Window]) -> None:
    flows, topology, window = captured
    at_once = deriving.derive(Part(flows, NOBODY), topology, window, SETTINGS)
    in_turn: dict[str, pl.DataFrame] = {}
    for one in deriving.derive_in_turn(Part(flows, NOBODY), topology, window, SETTINGS, [[name] for name in ALL]):
        in_turn |= one.tables
    assert [name for name, rows in at_once.tables.items() if not rows.equals(in_turn[name])] == []


def test_an_error_there_is_raised_here_and_it_goes_on(
    worker: Worker, captured: tuple[pl.DataFrame, pl.DataFrame, Window]
) -> None:
    flows, topology, window = captured
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="host"):
        _turns(worker, flows, topology.drop("host"), window)
    made, _ = _turns(worker, flows, topology, window)
    assert made.tables["jobs"].height == 1


def test_it_does_not_hear_who_interrupts_at_the_terminal(worker: Worker) -> None:
    """Else it would tell of that, too, at length."""
    assert os.getpgid(worker.pid) != os.getpgid(0)


def test_it_is_said_that_it_was_killed(captured: tuple[pl.DataFrame, pl.DataFrame, Window]) -> None:
    flows, topology, window = captured
    with working(SETTINGS) as gone:
        os.kill(gone.pid, signal.SIGKILL)
        with pytest.raises(TransientError, match="exit code -9"):
            _turns(gone, flows, topology, window)


def test_one_that_stays_stopped_is_not_waited_for(
    captured: tuple[pl.DataFrame, pl.DataFrame, Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmprism_tasks.worker.LOOK_S", 0.01)
    flows, topology, window = captured
    with working(SETTINGS) as halted:
        os.kill(halted.pid, signal.SIGSTOP)
        with pytest.raises(TransientError, match=f"is stopped .process {halted.pid}"):
            _turns(halted, flows, topology, window)
    assert not Path(f"/proc/{halted.pid}").exists()


def test_one_that_is_only_slow_is_waited_for(
    worker: Worker, captured: tuple[pl.DataFrame, pl.DataFrame, Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmprism_tasks.worker.LOOK_S", 0)
    flows, topology, window = captured
    assert len(_turns(worker, flows, topology, window)) == len(TURNS)


class Platform:
    """Parts of which some cannot be looked at."""

    number = 3

    def __init__(self, part: Part, *broken: int) -> None:
        self._part, self._broken, self.taken = part, broken, dict[int, int]()

    def part(self, number: int) -> Part:
        self.taken[number] = threading.get_ident()
        flows = self._part.flows
        return Part(flows.drop("bytes") if number in self._broken else flows, self._part.elsewhere)


def test_both_take_parts_until_none_is_left(
    worker: Worker, captured: tuple[pl.DataFrame, pl.DataFrame, Window]
) -> None:
    flows, topology, window = captured
    platform = Platform(Part(flows, NOBODY))
    with shared(platform, worker, topology, window, SETTINGS, TURNS) as each:
        assert sorted(number for number, _ in each) == [0, 0, 1, 1, 2, 2]
    assert platform.taken[0] != platform.taken[2]


def test_without_a_worker_all_parts_are_taken_here(captured: tuple[pl.DataFrame, pl.DataFrame, Window]) -> None:
    flows, topology, window = captured
    platform = Platform(Part(flows, NOBODY))
    with shared(platform, None, topology, window, SETTINGS, TURNS) as each:
        assert [number for number, _ in each] == [2, 2, 1, 1, 0, 0]
    assert list(platform.taken) == [2, 1, 0]


@pytest.mark.parametrize("broken", [0, 2])
def test_no_part_is_lost_whoever_took_it(
    worker: Worker, captured: tuple[pl.DataFrame, pl.DataFrame, Window], broken: int
) -> None:
    flows, topology, window = captured
    platform = Platform(Part(flows, NOBODY), broken)
    with (
        pytest.raises(pl.exceptions.ColumnNotFoundError, match="bytes"),
        shared(platform, worker, topology, window, SETTINGS, TURNS) as each,
    ):
        list(each)
