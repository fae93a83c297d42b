"""A window through the plan: in any order, again, in batches, killed midway, and the tables end the same.

Where it is only about how rows are derived, they are not checked again: checks of the same rows end the same, and what
is run to its end checks them.
The flows are two captured training runs, moved to begin together, the second to addresses of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import logging
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from killed_runs import killed_at
from places import REAL

from llmprism_tasks import cli
from llmprism_tasks.contract.errors import ContractError, InputError
from llmprism_tasks.contract.plan import DERIVED, LANDED, STAGES
from llmprism_tasks.contract.tables import HISTORY, TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution import spread, stage_task
from llmprism_tasks.execution.analyze import analyze, derive_tables, run_landed
from llmprism_tasks.execution.partitions import partitioned, pool, stage_runner
from llmprism_tasks.execution.partitions.handover import delete_handovers
from llmprism_tasks.execution.partitions.pool import process_pool
from llmprism_tasks.execution.stage_task import check_results, complete, end_run, run_partition, run_stage
from llmprism_tasks.execution.window import finish, land_window, validate_landed, validate_results
from llmprism_tasks.execution.writer import TableWriter, Work, Writer, background_writer
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import load
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.landing.landing import EMPTY, windows_in

WINDOW_S, LOOKBACK = 60, 1
SECONDS = 110  # of the captures: two windows
MIN_FLOWS = pool.MIN_FLOWS_FOR_POOL

Tables = dict[str, pl.DataFrame]


def moved(name: str, start_ns: int, network: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a capture's flows and topology, begun at another time and in another network."""
    flows = pl.read_parquet(REAL / name / "flows_coarse.parquet")
    shift = start_ns - flows["flow_start_ns"].min()
    address = pl.col("src_addr", "dst_addr").str.replace("10.0.", network, literal=True)
    times = pl.col("flow_start_ns", "flow_end_ns") + shift
    topology = pl.read_csv(REAL / name / "topology.csv").with_columns(
        pl.col("addr").str.replace("10.0.", network, literal=True),
        pl.format("{}-{}", pl.lit(name), "host").alias("host"),
    )
    return flows.with_columns(address, times), topology


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with flows.parquet and topology.csv."""
    folder = tmp_path_factory.mktemp("flows")
    start_ns = Window.containing(1_795_000_000_000_000_000, WINDOW_S * 1_000_000_000).end_ns + 5_000_000_000
    parts = [moved("dp2pp4_healthy", start_ns, "10.1."), moved("ddp4_healthy", start_ns, "10.2.")]
    flows = pl.concat([flows for flows, _ in parts]).sort("flow_start_ns")
    flows.filter(pl.col("flow_start_ns") < start_ns + SECONDS * 1_000_000_000).write_parquet(folder / "flows.parquet")
    pl.concat([topology for _, topology in parts]).write_csv(folder / "topology.csv")
    return folder


def settings_for(place: Path, warehouse: str | Path, **overrides: str) -> Settings:
    return load(
        overrides={
            "places.flows": str(place / "flows.parquet"),
            "places.topology": str(place / "topology.csv"),
            "places.warehouse": str(warehouse),
            "window.length_s": str(WINDOW_S),
            "window.lookback_windows": str(LOOKBACK),
        }
        | {name.replace("__", "."): value for name, value in overrides.items()}
    )


@pytest.fixture
def settings(place: Path, tmp_path: Path) -> Settings:
    return settings_for(place, tmp_path / "w.duckdb")


def opened(settings: Settings) -> Warehouse:
    return open_warehouse(Warehouse(settings.places.warehouse, lock_wait_s=30))


def tables(settings: Settings, window: Window | None = None) -> Tables:
    """Return everything in the warehouse, or a window's part of it, but for its history."""
    where = "" if window is None else f"WHERE window_start_ns = {window.start_ns}"
    with opened(settings).reading() as connection:
        found = {
            table.name: store.frame(connection.execute(f"SELECT * FROM {table.name} {where} ORDER BY ALL"))
            for table in TABLES
        }
    return {name: rows.drop(HISTORY.get(name, ())) for name, rows in found.items()}


def differing(one: Tables, other: Tables) -> list[str]:
    return [name for name in one if not one[name].equals(other[name])]


def run_window(window: Window, settings: Settings) -> None:
    """Land a window and take it to its end."""
    land_window(window, settings)
    run_landed(window, settings)


def run_unchecked(window: Window, settings: Settings) -> None:
    """Do so without checking rows, which is half of it."""
    land_window(window, settings)
    derive_tables(window, settings)
    finish(window, settings)


def bookkeeping(settings: Settings, window: Window) -> dict[str, object]:
    return store.read(opened(settings), "windows", window).row(0, named=True)


@pytest.fixture(scope="module")
def windows(place: Path) -> list[Window]:
    return windows_in(str(place / "flows.parquet"), WINDOW_S * 1_000_000_000)


@pytest.fixture(scope="module")
def analyzed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse that nothing has disturbed."""
    settings = settings_for(place, tmp_path_factory.mktemp("undisturbed") / "w.duckdb")
    analyze(settings)
    return settings


@pytest.fixture(scope="module")
def undisturbed(analyzed: Settings) -> Tables:
    """What `analyze` leaves."""
    return tables(analyzed)


@pytest.fixture
def copy(analyzed: Settings, settings: Settings) -> Settings:
    """A copy of the undisturbed warehouse, to be disturbed."""
    shutil.copy(analyzed.places.warehouse, settings.places.warehouse)
    return settings


def test_the_undisturbed_run_finds_two_jobs_and_every_table_has_rows(
    undisturbed: Tables, windows: list[Window]
) -> None:
    assert undisturbed["windows"]["status"].unique().to_list() == ["done"]
    assert undisturbed["windows"].height == len(windows)
    assert undisturbed["jobs"].group_by("window_start_ns").len()["len"].max() == 2
    assert [name for name in DERIVED if name != "diagnoses" and undisturbed[name].is_empty()] == []


def test_windows_run_one_by_one_in_reverse_and_again_end_like_analyze(
    settings: Settings, windows: list[Window], undisturbed: Tables
) -> None:
    run_unchecked(windows[1], settings)
    for window in (windows[0], windows[1]):
        run_window(window, settings)
    assert differing(tables(settings), undisturbed) == []


def test_analyze_again_changes_nothing(copy: Settings, windows: list[Window], undisturbed: Tables) -> None:
    seen: list[tuple[Window, int, int]] = []
    assert analyze(copy, on_window=lambda *told: seen.append(told)) == windows
    assert seen == [(window, number, len(windows)) for number, window in enumerate(windows)]
    assert differing(tables(copy), undisturbed) == []


def of_window(whole: Tables, window: Window) -> Tables:
    return {name: frame.filter(pl.col("window_start_ns") == window.start_ns) for name, frame in whole.items()}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize(
    ("fewer", "files", "workers"),
    [
        (0, "are kept", False),
        (1, "are kept", False),
        (1, "are deleted", False),
        (1, "get damaged", True),
    ],
)
def test_stages_one_by_one_end_like_all_in_one_process_whatever_becomes_of_the_files_between_them(
    copy: Settings,
    windows: list[Window],
    undisturbed: Tables,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    fewer: int,
    files: str,
    *,
    workers: bool,
) -> None:
    window = windows[1]
    settings = in_batches(copy, at_once=int(undisturbed["windows"]["rows_landed"].sum()) - fewer)
    for stage in STAGES:
        if workers:  # which start anew for each stage; one in the midst reads and writes such files
            monkeypatch.setattr(pool, "MIN_FLOWS_FOR_POOL", 0 if stage.name == "timeline" else MIN_FLOWS)
        run_stage(stage.name, window, settings)
        if files == "are deleted":
            delete_handovers(settings.places.handover, settings.places.warehouse, window)
        elif files == "get damaged":
            next(temporary.glob("*/*/0/flows.arrow")).write_bytes(b"")
    finish(window, settings)
    assert differing(tables(settings), undisturbed) == []
    assert list(temporary.glob("*/*")) == []


@pytest.mark.parametrize("lost", [False, True])
def test_partitions_taken_through_all_stages_on_machines_of_their_own_end_like_all_in_one_process(
    copy: Settings,
    windows: list[Window],
    undisturbed: Tables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    lost: bool,
) -> None:
    window, shared = windows[1], tmp_path / "shared"
    batches = dataclasses.replace(copy.batches, spread=8)
    places = dataclasses.replace(copy.places, handover=str(shared))
    settings = dataclasses.replace(copy, batches=batches, places=places)
    parts = spread.divide(window, settings)
    assert [part["partition"] for part in parts] == [0, 1]
    for part in reversed(parts):
        host = tmp_path / f"host {part['partition']}"
        host.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(host))
        assert run_partition(part, window, settings)["job_members"] == (8, 4)[int(part["partition"])]
    if lost:
        delete_handovers(settings.places.handover, settings.places.warehouse, window)
        assert run_partition(parts[0], window, settings) == {}
        assert "partition 0 is left to the tasks of the stages" in caplog.text
    for stage in STAGES:
        run_stage(stage.name, window, settings)
    # What partitions made is merged, not made again.
    assert len(list(shared.glob("*/*/*/*.recognition.jobs.arrow"))) == len(parts)
    finish(window, settings)
    assert differing(tables(settings), undisturbed) == []
    assert list(shared.glob("*/*")) == []


def test_one_machine_divides_nothing(settings: Settings, windows: list[Window]) -> None:
    assert spread.divide(windows[1], settings) == []
    assert not Path(settings.places.warehouse).exists()


def test_flows_are_handed_over_while_nothing_that_stages_depend_on_changes(
    place: Path, tmp_path: Path, windows: list[Window], caplog: pytest.LogCaptureFixture
) -> None:
    for file in ("flows.parquet", "topology.csv"):
        shutil.copy(place / file, tmp_path)
    flows, topology = pl.read_parquet(tmp_path / "flows.parquet"), pl.read_csv(tmp_path / "topology.csv")
    settings = settings_for(tmp_path, tmp_path / "w.duckdb")
    land_window(windows[1], settings)
    run_stage("recognition", windows[1], settings)

    def read_again(using: Settings = settings) -> bool:
        with caplog.at_level("INFO", logger="llmprism_tasks.execution"):
            caplog.clear()
            run_stage("step_division", windows[1], using)
        return any("reading them from the warehouse" in message for message in caplog.messages)

    assert not read_again()
    land_window(windows[0], settings)  # the same again
    assert not read_again()
    assert read_again(settings_for(tmp_path, tmp_path / "w.duckdb", diagnosis__persistence="0.5"))
    topology.with_columns(pl.format("{}-new", "host").alias("host")).write_csv(tmp_path / "topology.csv")
    assert read_again()
    assert not read_again()
    first = (pl.int_range(pl.len()) == 0).cast(pl.Int64)  # a byte of the look-back
    flows.with_columns(pl.col("bytes") + first).write_parquet(tmp_path / "flows.parquet")
    land_window(windows[0], settings)
    assert read_again()


def in_batches(settings: Settings, **changes: int) -> Settings:
    return dataclasses.replace(settings, batches=dataclasses.replace(settings.batches, **changes))


def ways(records: Sequence[logging.LogRecord]) -> list[str]:
    """Return how the flows were taken through stages: the stages, and how they were divided."""
    messages = (one.getMessage() for one in records if one.name == partitioned.logger.name)
    told = (message.partition(": ") for message in messages if " flows " in message)
    return [f"{head.partition(', ')[2]}: {way.partition(' flows ')[2]}" for head, _, way in told]


NAMES = [stage.name for stage in STAGES]
AT_ONCE = [f"{', '.join(NAMES)}: at once"]
OF_SOME = "step_division, parallelism, timeline: of some jobs"


@pytest.mark.parametrize(("fewer", "taken"), [(0, AT_ONCE), (1, [f"{', '.join(NAMES)}: in 2 partitions"])])
def test_of_more_flows_than_stages_see_at_once_each_part_is_looked_at_by_itself(
    copy: Settings,
    windows: list[Window],
    undisturbed: Tables,
    caplog: pytest.LogCaptureFixture,
    fewer: int,
    taken: list[str],
) -> None:
    flows = int(undisturbed["windows"]["rows_landed"].sum())
    with caplog.at_level("INFO", logger=partitioned.logger.name):
        derive_tables(windows[1], in_batches(copy, at_once=flows - fewer))
    assert ways(caplog.records) == taken
    finish(windows[1], copy)
    assert differing(tables(copy), undisturbed) == []


@pytest.fixture(scope="module", params=[("data", 2), ("hosts", 1)], ids=["data", "hosts"])
def unparted(
    request: pytest.FixtureRequest, place: Path, tmp_path_factory: pytest.TempPathFactory, windows: list[Window]
) -> tuple[Settings, int]:
    """An undisturbed warehouse of two jobs that share what is named, so that no hosts can be parted; and in how many
    batches their stages are run."""
    shared, batches = request.param
    folder = tmp_path_factory.mktemp(shared)
    topology, flows = pl.read_csv(place / "topology.csv"), pl.read_parquet(place / "flows.parquet")
    if shared == "hosts":
        topology = topology.with_columns(pl.col("host").str.replace(".*-", ""))
    else:  # a little, between members of both jobs
        ends = topology.group_by(pl.col("host").str.replace("-.*", "")).agg(pl.col("addr").min())["addr"].to_list()
        one = flows.filter(pl.col("bytes") > 20_000).head(1)
        flows = flows.vstack(one.with_columns(src_addr=pl.lit(ends[0]), dst_addr=pl.lit(ends[1])))
    topology.write_csv(folder / "topology.csv")
    flows.write_parquet(folder / "flows.parquet")
    settings = settings_for(folder, folder / "whole.duckdb")
    land_window(windows[0], settings)
    run_unchecked(windows[1], settings)
    return settings, batches


@pytest.mark.parametrize("task_by_task", [True, False])
def test_where_hosts_cannot_be_parted_those_of_some_jobs_are_looked_at_at_a_time(
    unparted: tuple[Settings, int],
    tmp_path: Path,
    windows: list[Window],
    caplog: pytest.LogCaptureFixture,
    *,
    task_by_task: bool,
) -> None:
    at_once, batches = unparted
    whole, window = tables(at_once), windows[1]
    divided = dataclasses.replace(
        in_batches(at_once, at_once=int(whole["windows"]["rows_landed"].sum()) - 1),
        places=dataclasses.replace(at_once.places, warehouse=str(tmp_path / "divided.duckdb")),
    )
    shutil.copy(at_once.places.warehouse, divided.places.warehouse)
    with caplog.at_level("INFO", logger=partitioned.logger.name):
        if task_by_task:
            for stage in STAGES:
                run_stage(stage.name, window, divided)
        else:
            derive_tables(window, divided)
    finish(window, divided)
    some = [[f"{name}: of some jobs"] * batches for name in NAMES[1:4]] if task_by_task else [[OF_SOME] * batches]
    assert ways(caplog.records) == ["recognition: at once", *itertools.chain(*some), "diagnosis: at once"]
    assert whole["jobs"].height == 2
    assert differing(tables(divided), whole) == []


def test_jobs_of_two_parts_with_one_name_are_told_apart_by_the_whole_platform(
    copy: Settings, windows: list[Window], undisturbed: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_stages = stage_runner.run_stages

    def alike(*given: Any) -> stage_runner.StageResults:
        """Name each part's job alike, as names of eight digits may be."""
        found = run_stages(*given)
        if given[1].other_starts is None:
            return found
        made = {
            stage: {table: frame.with_columns(job_id=pl.lit("job-0")) for table, frame in of_stage.items()}
            for stage, of_stage in found.by_stage.items()
        }
        return found._replace(by_stage=made)

    monkeypatch.setattr(stage_runner, "run_stages", alike)
    derive_tables(windows[1], in_batches(copy, at_once=1))
    finish(windows[1], copy)
    assert differing(tables(copy), undisturbed) == []


def test_a_worker_s_parts_are_like_our_own(copy: Settings, windows: list[Window], undisturbed: Tables) -> None:
    with process_pool(copy) as workers:
        for window in windows:
            derive_tables(window, copy, pool=workers)
            finish(window, copy)
    assert differing(tables(copy), undisturbed) == []


class Interrupted:
    """Takes work to do aside, and lets somebody else do something in between.

    Parameters
    ----------
    after : of how many pieces of work
    """

    def __init__(self, writer: Writer, after: int, other: Work) -> None:
        self._writer, self._left, self._other = writer, after, other
        self.wait = writer.wait

    def submit(self, work: Work) -> None:
        self._writer.submit(work)
        self._left -= 1
        if self._left == 0:
            self._writer.submit(self._other)


@pytest.mark.parametrize("after", [1, 2, 3])  # the check, the clearing, the parts and what completes them
def test_two_runs_of_a_window_at_once_leave_the_rows_of_one(
    copy: Settings, windows: list[Window], undisturbed: Tables, after: int
) -> None:
    in_parts = in_batches(copy, at_once=1)
    with background_writer() as writer:
        interrupted = Interrupted(writer, after, functools.partial(derive_tables, windows[1], in_parts))
        derive_tables(windows[1], in_parts, writer=interrupted)
    finish(windows[1], copy)
    assert differing(tables(copy), undisturbed) == []


def test_where_a_part_s_trouble_may_be_the_fabric_s_the_whole_platform_is_diagnosed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start_ns = Window.containing(1_795_000_000_000_000_000, WINDOW_S * 1_000_000_000).end_ns
    window = Window(start_ns, WINDOW_S * 1_000_000_000).shifted(1)  # before it, too few steps tell what a usual pace is
    both = [moved("limited_nic", start_ns, "10.1."), moved("ddp4_healthy", start_ns, "10.2.")]
    flows = pl.concat([flows for flows, _ in both], how="diagonal").sort("flow_start_ns")
    flows.filter(pl.col("flow_start_ns") < window.end_ns).write_parquet(tmp_path / "flows.parquet")
    pl.concat([topology for _, topology in both], how="diagonal").write_csv(tmp_path / "topology.csv")
    settings = settings_for(tmp_path, tmp_path / "w.duckdb")
    run_unchecked(window, settings)
    whole = tables(settings)
    with caplog.at_level("INFO", logger=partitioned.logger.name):
        caplog.clear()
        derive_tables(window, in_batches(settings, at_once=1))
    assert not whole["diagnoses"].is_empty()
    assert [name for name in DERIVED if not tables(settings)[name].equals(whole[name])] == []
    assert {way.partition(" in ")[0] for way in ways(caplog.records)} == {f"{', '.join(NAMES)}:", "diagnosis: at once"}


def test_what_the_task_of_another_run_cleared_is_made_again(
    copy: Settings, windows: list[Window], undisturbed: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by `make test-distributed`: a recognition that ended late took the pair steps of the run beside it."""
    window, late = windows[1], "recognition"
    for name in (late, "timeline", "diagnosis"):
        run_stage(name, window, copy)
    assert differing(tables(copy), undisturbed) != []
    assert check_results(window, copy)["broken"] == 0
    assert "another run of it cleared" in caplog.text
    run_stage("diagnosis", window, copy)
    run_stage(late, window, copy)  # after the check
    end_run(window, copy)
    assert differing(tables(copy), undisturbed) == []


@pytest.mark.parametrize(
    ("other", "before"),
    [("lands it anew", "validate_results"), ("has cleared it", "finish"), ("does all of it", "validate_results")],
)
def test_what_another_run_does_before_the_check_or_the_end_is_noticed(
    copy: Settings,
    windows: list[Window],
    undisturbed: Tables,
    monkeypatch: pytest.MonkeyPatch,
    other: str,
    before: str,
) -> None:
    """Found by a user: of two `analyze` at once one checked what the other had half written, and set jobs aside.

    Whatever the other does, the stages that the window's row tells of are others then: that is what is compared.
    """
    window, real, times = windows[1], getattr(stage_task, before), itertools.count()

    def interrupted(*given: Any, **named: Any) -> dict[str, int]:
        if next(times) == 0:
            if other == "has cleared it":
                with background_writer() as thread, TableWriter(opened(copy), window, thread) as tables_of_other:
                    tables_of_other.begin()
            else:
                land_window(window, copy)
                validate_landed(window, copy)
            if other == "does all of it":
                derive_tables(window, copy)
        return real(*given, **named)  # type: ignore[no-any-return]

    monkeypatch.setattr(stage_task, before, interrupted)
    derive_tables(window, copy)
    stage_task.conclude(window, copy, warehouse=opened(copy))
    assert next(times) == 2
    assert differing(tables(copy), undisturbed) == []


def test_a_whole_window_is_not_made_again(copy: Settings, windows: list[Window]) -> None:
    for name in NAMES:
        run_stage(name, windows[1], copy)
    made = bookkeeping(copy, windows[1])["stage_ns"]
    assert complete(windows[1], copy) == made


def test_a_stage_run_again_replaces_its_rows_and_clears_what_came_after(
    copy: Settings, windows: list[Window], undisturbed: Tables
) -> None:
    window = windows[1]
    run_stage("step_division", window, copy)
    after = tables(copy, window)
    assert [name for name in DERIVED if after[name].is_empty()] == [
        "pairs",
        "steps",
        "timeline",
        "step_breakdown",
        "diagnoses",
    ]
    assert bookkeeping(copy, window)["status"] == "running"
    for stage in STAGES[2:]:
        run_stage(stage.name, window, copy)
    finish(window, copy)
    assert differing(tables(copy), undisturbed) == []


def test_a_topology_that_cannot_be_read_costs_no_finished_window(
    copy: Settings, windows: list[Window], undisturbed: Tables
) -> None:
    nowhere = dataclasses.replace(copy, places=dataclasses.replace(copy.places, topology="nowhere.csv"))
    with pytest.raises(InputError, match="nowhere"):
        analyze(nowhere)
    with pytest.raises(InputError, match="nowhere"):
        run_stage("step_division", windows[1], nowhere)
    assert differing(tables(copy), undisturbed) == []


def test_an_empty_window_succeeds_without_rows(settings: Settings, windows: list[Window]) -> None:
    empty = windows[0].shifted(-1)
    run_window(empty, settings)
    row = bookkeeping(settings, empty)
    assert (row["status"], row["reason"], row["rows_read"]) == ("done", EMPTY, 0)
    found = tables(settings)
    assert [name for name in (*LANDED, *DERIVED) if found[name].height] == []
    assert found["validation_results"]["success"].all()


def test_run_times_are_kept_for_each_stage(analyzed: Settings, windows: list[Window]) -> None:
    times = json.loads(str(bookkeeping(analyzed, windows[0])["stage_ns"]))
    assert {stage.name for stage in STAGES} <= set(times)
    assert min(times.values()) > 0


def test_a_broken_critical_expectation_stops_its_window_before_recognition(place: Path, tmp_path: Path) -> None:
    refused = pl.read_parquet(place / "flows.parquet").with_columns(
        bytes=pl.when(pl.int_range(pl.len()) % 10 < 6).then(0).otherwise("bytes")
    )
    second = refused.filter(
        pl.col("flow_start_ns") >= Window.containing(refused["flow_start_ns"].max(), WINDOW_S * 1_000_000_000).start_ns
    )
    (tmp_path / "flows").mkdir()
    second.write_parquet(tmp_path / "flows" / "bad.parquet")
    first = pl.read_parquet(place / "flows.parquet").filter(pl.col("flow_start_ns") < second["flow_start_ns"].min())
    first.write_parquet(tmp_path / "flows" / "good.parquet")
    settings = settings_for(place, tmp_path / "w.duckdb", places__flows=str(tmp_path / "flows"))
    with pytest.raises(ContractError, match=r"1 of \d windows stopped.*windows\.refused_most.*Correct the export"):
        analyze(settings)
    bad = Window.containing(second["flow_start_ns"].min(), WINDOW_S * 1_000_000_000)
    row = bookkeeping(settings, bad)
    assert row["status"] == "stopped"
    assert "windows.refused_most" in str(row["reason"])
    found = tables(settings, bad)
    assert found["flows"].height == row["rows_landed"] > 0
    assert found["flows_quarantine"].height == row["rows_quarantined"] > 0
    assert [name for name in DERIVED if found[name].height] == []
    before = store.read(opened(settings), "windows", bad.shifted(-1))
    assert before["status"].to_list() == ["done"]


def test_a_window_put_right_and_run_again_forgets_why_it_was_stopped(
    copy: Settings, windows: list[Window], undisturbed: Tables
) -> None:
    window = windows[1]
    flows = store.read(opened(copy), "flows", window)
    store.replace(opened(copy), window, {"flows": flows.with_columns(dst_addr="src_addr")})
    with pytest.raises(ContractError, match=r"flows\.two_ends"):
        validate_landed(window, copy)
    assert bookkeeping(copy, window)["status"] == "stopped"
    run_window(window, copy)
    assert differing(tables(copy), undisturbed) == []


@pytest.mark.parametrize(
    ("module", "function", "calls"),
    [
        (
            "warehouse.storage.insertion",
            "insert",
            2,
        ),  # inside the landing of the look-back: flows, but no bookkeeping yet
        ("stages.timeline.phase", "timeline", 1),  # while a stage computes
        ("execution.stage_task", "validate_results", 1),  # all derived, nothing checked
    ],
)
def test_killed_anywhere_a_rerun_ends_like_an_undisturbed_run(
    settings: Settings, windows: list[Window], undisturbed: Tables, module: str, function: str, calls: int
) -> None:
    assert killed_at(module, function, calls, windows[1], settings) == -signal.SIGKILL
    run_unchecked(windows[1], settings)
    assert differing(tables(settings, windows[1]), of_window(undisturbed, windows[1])) == ["validation_results"]


@pytest.mark.parametrize("location", ["w.duckdb", "ducklake:w.ducklake"])
def test_killed_inside_a_stage_s_write_nothing_of_it_is_there(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    windows: list[Window],
    undisturbed: Tables,
    location: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    settings, window = settings_for(place, location), windows[1]
    land_window(window, settings)

    # The landing inserts into three tables and its validation into one; the sixth would be recognition's members.
    assert killed_at("warehouse.storage.insertion", "insert", 6, window, settings) == -signal.SIGKILL
    found = tables(settings, window)
    assert found["jobs"].is_empty()  # they were inserted, and that was undone
    assert found["flows"].equals(of_window(undisturbed, window)["flows"])
    run_unchecked(window, settings)
    assert differing(tables(settings, window), of_window(undisturbed, window)) == ["validation_results"]


def break_a_job(monkeypatch: pytest.MonkeyPatch, *networks: str) -> None:
    """Put a fault into the timeline: what steps went to does not add up, for the job that a NIC is in."""
    from llmprism_tasks.stages.timeline import phase

    sound = phase.timeline

    def faulty(**tables: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
        steps, phases, breakdown = sound(**tables)  # type: ignore[arg-type]
        of_it = pl.any_horizontal(pl.col("addr").str.starts_with(network) for network in networks)
        return steps, phases, breakdown.with_columns(compute_ns=pl.col("compute_ns") + of_it.cast(pl.Int64))

    monkeypatch.setattr(phase, "timeline", faulty)


def without(whole: Tables, jobs: Sequence[str]) -> Tables:
    """Return what was derived, but for some jobs."""
    return {name: whole[name].filter(~pl.col("job_id").is_in(jobs)) for name in DERIVED}


def part_of_job(whole: Tables, job: str) -> pl.DataFrame:
    """Return a job's windows with steps."""
    return whole["step_breakdown"].filter(job_id=job).select("window_start_ns").unique()


@pytest.fixture(scope="module")
def ddp(undisturbed: Tables) -> str:
    """The job of the second capture."""
    (job,) = undisturbed["job_members"].filter(pl.col("addr").str.starts_with("10.2."))["job_id"].unique()
    return str(job)


def test_one_tenant_s_broken_job_is_set_aside_and_every_window_is_done(
    settings: Settings, windows: list[Window], undisturbed: Tables, ddp: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    break_a_job(monkeypatch, "10.2.")
    places = [f"--{name}={getattr(settings.places, name)}" for name in ("flows", "topology", "warehouse")]
    assert cli.main(["analyze", *places, "--set=window.lookback_windows=1"]) == 0
    found = tables(settings)
    assert cli.main(["report", places[-1]]) == 0
    report = " ".join(capsys.readouterr().out.split())
    last = max(job["window_start_ns"] for job in part_of_job(undisturbed, ddp).to_dicts())
    when = f"{Window(last, 1).start:%Y-%m-%d %H:%M} UTC (step_breakdown.adds_up)"
    assert f"Set aside: {ddp} in {part_of_job(undisturbed, ddp).height} windows, the last {when}." in report
    assert "Nothing is wrong" not in report
    assert differing(without(undisturbed, [ddp]), without(found, [])) == []
    assert found["flows"].equals(undisturbed["flows"])
    assert found["windows"]["status"].unique().to_list() == ["done"]
    broken = found["validation_results"].filter(~pl.col("success") & (pl.col("severity") == "critical"))
    assert broken["expectation"].unique().to_list() == ["step_breakdown.adds_up"]
    for window_start_ns, count in broken.select("window_start_ns", "unexpected_count").iter_rows():
        whole = undisturbed["step_breakdown"].filter(window_start_ns=window_start_ns, job_id=ddp)
        assert count == whole.height
        row = found["windows"].row(by_predicate=pl.col("window_start_ns") == window_start_ns, named=True)
        assert f"set aside: job {ddp} (unexpected rows: {count} in step_breakdown.adds_up)" in row["reason"]
        assert any(row["reason"].rpartition("; ")[2] in message for message in caplog.messages)
    validate_results(windows[1], settings)  # as a task that is tried again
    assert differing(tables(settings), found) == []


def test_a_job_that_was_set_aside_comes_back_when_its_window_is_recognised_anew(
    copy: Settings, windows: list[Window], undisturbed: Tables, ddp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = windows[1]
    with monkeypatch.context() as faulty:
        break_a_job(faulty, "10.2.")
        derive_tables(window, copy)
        validate_results(window, copy)
        finish(window, copy)
    for stage in STAGES[1:]:  # which find no such job
        run_stage(stage.name, window, copy)
    validate_results(window, copy)
    assert ddp in str(bookkeeping(copy, window)["reason"])
    derive_tables(window, copy)
    validate_results(window, copy)
    finish(window, copy)
    assert differing(tables(copy), undisturbed) == []


def test_all_jobs_may_be_set_aside(copy: Settings, windows: list[Window], monkeypatch: pytest.MonkeyPatch) -> None:
    break_a_job(monkeypatch, "10.1.", "10.2.")
    derive_tables(windows[1], copy)
    validate_results(windows[1], copy)
    finish(windows[1], copy)
    found = tables(copy, windows[1])
    assert [name for name in DERIVED if found[name].height] == []
    assert found["flows"].height == bookkeeping(copy, windows[1])["rows_landed"]
    assert store.query(opened(copy), "SELECT count(*) FROM aside_jobs").item() == 2


def test_what_is_no_job_s_stops_the_window_as_ever_until_it_is_mended(
    copy: Settings, windows: list[Window], undisturbed: Tables, ddp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmprism_tasks import validation

    suites = {table: validation.suite(table) for table in DERIVED}
    counted = {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 3}, "severity": "critical"}
    suites["jobs"]["expectations"].append(counted | {"notes": "There are three.", "meta": {"name": "three"}})
    break_a_job(monkeypatch, "10.2.")
    sound_suite = validation.suite
    monkeypatch.setattr(validation, "suite", suites.get)
    derive_tables(windows[1], copy)
    with pytest.raises(ContractError, match=r"jobs\.three.*step_breakdown\.adds_up.*There are three"):
        validate_results(windows[1], copy)
    assert bookkeeping(copy, windows[1])["status"] == "stopped"
    left = tables(copy, windows[1])
    assert differing(of_window(without(undisturbed, []), windows[1]), without(left, [])) == ["step_breakdown"]
    assert left["step_breakdown"].height == of_window(undisturbed, windows[1])["step_breakdown"].height

    monkeypatch.setattr(validation, "suite", sound_suite)
    validate_results(windows[1], copy)
    finish(windows[1], copy)
    row = bookkeeping(copy, windows[1])
    assert row["status"] == "done"
    assert str(row["reason"]).startswith(f"set aside: job {ddp} ")
