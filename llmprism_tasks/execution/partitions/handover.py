"""A window's partitions as files: what one Airflow task leaves for the next, and what workers of a pool are given.

A window's folder holds `topology`, `outside` and `nics`, and a folder for each partition with `flows`, `other_starts`
and the tables of each stage that was run. All are Arrow files (`arrow_exchange`).

The folder is named after a digest of everything that the stages depend on: landed flows, topology, settings, version.
So it cannot be stale, and tasks on several machines may share it: it is made under another name and gets its own when
it is complete; tables are written under a name that only their run has, and a note says which run's are complete.
Nothing depends on the files either: a task that does not find them reads flows and tables from the warehouse.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from llmprism_tasks import __version__
from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.plan import STAGES, Stage, stage_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.arrow_exchange import read_frame, write_frame
from llmprism_tasks.execution.partitions.partition import Partition
from llmprism_tasks.execution.partitions.stage_runner import StageResults, run_stages
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.storage.temporary_folder import (
    delete_old_folders,
    handover_folder,
    unfinished,
    writing_to,
)

COUNT_FILE = "partitions.json"
"""Holds how many partitions there are."""

UNREAD_SECTIONS = ("places", "warehouse", "validation", "notify")
"""Sections of the settings on which no stage depends; they may differ between machines."""

FileNames = Mapping[str, str]
"""By table, the name of the file that holds it in a partition's folder."""


class HandoverLostError(TransientError):
    """Files that another task or process left are gone, or damaged."""


class WrittenResults(NamedTuple):
    """What is said of the tables that were written to a partition's folder.

    Attributes
    ----------
    run : begins the names of the files; no other run has it
    stages : names of the stages whose tables are there
    stage_ns : nanoseconds that each stage took
    """

    run: str
    stages: tuple[str, ...]
    stage_ns: dict[str, int]


def write_partition(folder: Path, partition: Partition) -> None:
    """Write a partition's flows to its folder.

    Raises
    ------
    TransientError : there is no room
    """
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_frame(partition.flows, folder, "flows")
    if partition.other_starts is not None:
        write_frame(partition.other_starts, folder, "other_starts")


def write_tables(folder: Path, tables: Mapping[str, pl.DataFrame]) -> FileNames:
    """Write tables that a stage is to read to a partition's folder; no later task takes them for those of a stage."""
    run = uuid.uuid4().hex
    for table, rows in tables.items():
        write_frame(rows, folder, f"{run}.{table}")
    return {table: f"{run}.{table}" for table in tables}


def read_partition(folder: Path, tables: FileNames = MappingProxyType({})) -> Partition:
    """Return a partition with some tables.

    Raises
    ------
    HandoverLostError : files are missing or damaged
    """
    with _lost(folder):
        others = read_frame(folder, "other_starts") if (folder / "other_starts.arrow").exists() else None
        return Partition(
            read_frame(folder, "flows"), others, {table: read_frame(folder, name) for table, name in tables.items()}
        )


def run_stages_on_files(
    folder: Path,
    stages: Sequence[Stage],
    window: Window,
    settings: Settings,
    tables: FileNames = MappingProxyType({}),
    *,
    noted: bool = False,
) -> WrittenResults:
    """Run neighbouring stages on the partition in a folder, and write their tables there: a worker's job.

    Parameters
    ----------
    tables : those that the first stage reads
    noted : whether tasks that come later are to find the results

    Raises
    ------
    HandoverLostError : files are missing or damaged
    TransientError : there is no room
    whatever a stage raises
    """
    partition = read_partition(folder, tables)
    with _lost(folder):
        topology = read_frame(folder.parent, "topology")
    results = run_stages(stages, partition, topology, window, settings)
    written = WrittenResults(uuid.uuid4().hex, tuple(results.by_stage), results.stage_ns)
    for stage, made in results.by_stage.items():
        for table, rows in made.items():
            write_frame(rows, folder, f"{written.run}.{stage}.{table}")
    for stage in written.stages if noted else ():
        _note(folder, f"{stage}.json", {"run": written.run, "ns": written.stage_ns[stage]})
    return written


def read_results(folder: Path, written: WrittenResults) -> StageResults:
    """Return what `run_stages_on_files` wrote, memory-mapped.

    Raises
    ------
    HandoverLostError : files are missing or damaged
    """
    with _lost(folder):
        by_stage = {
            stage: {table: read_frame(folder, f"{written.run}.{stage}.{table}") for table in stage_named(stage).writes}
            for stage in written.stages
        }
    return StageResults(by_stage, written.stage_ns)


def results_left(folder: Path, stage: Stage) -> WrittenResults | None:
    """Return what an earlier task noted of a stage's tables in a partition's folder; None if there are none."""
    note = _noted(folder, f"{stage.name}.json")
    return WrittenResults(note["run"], (stage.name,), {stage.name: note["ns"]}) if isinstance(note, dict) else None


def tables_left(folder: Path, stage: Stage) -> FileNames | None:
    """Return the files of the tables that a stage reads in a partition's folder; None if some are not there."""
    found: dict[str, str] = {}
    for table in tables_read_by(stage):
        writer = writer_before(stage, table)
        left = results_left(folder, writer)
        if left is None:
            return None
        found[table] = f"{left.run}.{writer.name}.{table}"
    return found


def tables_read_by(stage: Stage) -> list[str]:
    """Return the tables of other stages that a stage reads."""
    return [table for table in stage.reads if table not in ("flows", "topology")]


def writer_before(stage: Stage, table: str) -> Stage:
    """Return the last stage before this one that writes a table."""
    return next(one for one in reversed(STAGES[: STAGES.index(stage)]) if table in one.writes)


class Handover:
    """The files of one window, where tasks leave them for each other.

    Parameters
    ----------
    place : the setting `places.handover`
    name : of the window's folder, see `handover_name`
    """

    def __init__(self, place: str, name: str) -> None:
        self._place = handover_folder(place)
        self.folder = self._place / name

    def leave(
        self, topology: pl.DataFrame, partitions: Iterable[Partition], outside: pl.DataFrame, nics: pl.DataFrame
    ) -> int:
        """Leave the flows of all partitions, unless another task was faster; return how many partitions there are.

        Parameters
        ----------
        outside, nics : as `partition.Partitions` has them

        Raises
        ------
        TransientError : there is no room, or another task has deleted them already
        """
        delete_old_folders(self._place)
        if self.count is None:
            self.delete()  # what is damaged
        made = unfinished(self.folder)
        try:
            with writing_to(made):
                made.mkdir()
            count = 0
            for count, partition in enumerate(partitions, 1):
                write_partition(made / str(count - 1), partition)
            for name, rows in (("topology", topology), ("outside", outside), ("nics", nics)):
                write_frame(rows, made, name)
            _note(made, COUNT_FILE, count)
            with suppress(OSError):  # the same is there already
                made.rename(self.folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        with _lost(self.folder):
            return int(json.loads((self.folder / COUNT_FILE).read_text(encoding="utf-8")))

    @property
    def count(self) -> int | None:
        """How many partitions there are; None if their flows are not there."""
        found = _noted(self.folder, COUNT_FILE)
        return found if isinstance(found, int) else None

    def partition_folder(self, number: int) -> Path:
        """Return the folder of a partition."""
        return self.folder / str(number)

    def read(self, name: str) -> pl.DataFrame:
        """Return `outside` or `nics`.

        Raises
        ------
        HandoverLostError : the file is missing or damaged
        """
        with _lost(self.folder):
            return read_frame(self.folder, name)

    def delete(self) -> None:
        """Delete all files."""
        _delete(self.folder)


def handover_name(
    warehouse: str, window: Window, settings: Settings, topology: pl.DataFrame, landed: tuple[object, ...]
) -> str:
    """Return the name of a window's folder: all that the stages depend on is in its digest.

    Parameters
    ----------
    warehouse : its location; two warehouses may have the same window
    landed : of `landed_flows.digest_of`, look-back included
    """
    deriving = {
        section.name: getattr(settings, section.name)
        for section in dataclasses.fields(settings)
        if section.name not in UNREAD_SECTIONS
    }
    made_of = repr((__version__, deriving, topology.write_csv(), landed))
    return f"{_prefix(warehouse, window)}{hashlib.sha256(made_of.encode()).hexdigest()[:24]}"


def delete_handovers(place: str, warehouse: str, window: Window) -> None:
    """Delete all that was handed over for a window, whatever it was made of: the window is done."""
    for name in (f"{_prefix(warehouse, window)}*", f".{_prefix(warehouse, window)}*"):
        for folder in handover_folder(place).glob(name):
            _delete(folder)


def _prefix(warehouse: str, window: Window) -> str:
    return f"{hashlib.sha256(warehouse.encode()).hexdigest()[:12]}-{window.start_ns}-"


def _delete(folder: Path) -> None:
    """Take a folder's name away before its files, so that nobody finds half of them."""
    gone = unfinished(folder)
    with suppress(OSError):  # it is gone
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _note(folder: Path, name: str, value: object) -> None:
    made = unfinished(folder / name)
    with writing_to(folder):
        made.write_text(json.dumps(value), encoding="utf-8")
        made.replace(folder / name)


def _noted(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextmanager
def _lost(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError) as error:
        raise HandoverLostError(
            found=f"files in {folder} that are gone or damaged ({error})",
            expected="the files that an earlier task or another process left there",
            todo="Run it again; see that nothing else clears the folder for temporary files.",
        ) from error
