"""A window's partitions as files: what one Airflow task leaves for the next, and what workers of a pool are given.

A window's folder holds `topology`, `outside` and `nics`, and a folder for each partition with `flows`, `other_starts`
and the tables of each stage that was run, `<stage>.<table>`. All are Arrow files (`arrow_exchange`).

The folder of a hand-over is named after a digest of everything that the stages depend on. So it cannot be stale:
after a corrected landing, another setting or a new version of the software, its name is another. Nothing depends on
the files either: a task that does not find them reads flows and tables from the warehouse.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.plan import STAGES, Stage, stage_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.arrow_exchange import (
    delete_old_folders,
    private_folder,
    read_frame,
    write_frame,
    writing_to,
)
from llmprism_tasks.execution.partitions.partition import Partition
from llmprism_tasks.execution.partitions.stage_runner import StageResults, run_stages
from llmprism_tasks.settings import Settings

COUNT = "partitions.json"
"""Holds how many partitions there are; written when the flows of all of them are."""


class HandoverLostError(TransientError):
    """Files that another task or process left are gone, or damaged."""


class WrittenResults(NamedTuple):
    """What a worker says of the tables that it wrote to a partition's folder.

    Attributes
    ----------
    stages : names of the stages whose tables are there
    stage_ns : nanoseconds that each stage took
    """

    stages: tuple[str, ...]
    stage_ns: dict[str, int]


def write_partition(folder: Path, partition: Partition) -> None:
    """Write a partition's flows to its folder, and its tables as those of the stages that write them last.

    Raises
    ------
    TransientError : there is no room
    """
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_frame(partition.flows, folder, "flows")
    if partition.other_starts is not None:
        write_frame(partition.other_starts, folder, "other_starts")


def write_tables(folder: Path, stage: Stage, tables: Mapping[str, pl.DataFrame]) -> None:
    """Write tables that a stage is to read to a partition's folder, as the stages before it would have."""
    for table, rows in tables.items():
        write_frame(rows, folder, f"{writer_before(stage, table).name}.{table}")


def read_partition(folder: Path, stage: Stage) -> Partition:
    """Return a partition with the tables that a stage reads.

    Raises
    ------
    HandoverLostError : files are missing or damaged
    """
    with _lost(folder):
        others = read_frame(folder, "other_starts") if (folder / "other_starts.arrow").exists() else None
        tables = {
            table: read_frame(folder, f"{writer_before(stage, table).name}.{table}") for table in tables_read_by(stage)
        }
        return Partition(read_frame(folder, "flows"), others, tables)


def run_stages_on_files(folder: Path, stages: Sequence[Stage], window: Window, settings: Settings) -> WrittenResults:
    """Run neighbouring stages on the partition in a folder, and write their tables there: a worker's job.

    Raises
    ------
    HandoverLostError : files are missing or damaged
    TransientError : there is no room
    whatever a stage raises
    """
    partition = read_partition(folder, stages[0])
    with _lost(folder):
        topology = read_frame(folder.parent, "topology")
    results = run_stages(stages, partition, topology, window, settings)
    for stage, tables in results.by_stage.items():
        for table, rows in tables.items():
            write_frame(rows, folder, f"{stage}.{table}")
    return WrittenResults(tuple(results.by_stage), results.stage_ns)


def read_results(folder: Path, written: WrittenResults) -> StageResults:
    """Return what `run_stages_on_files` wrote, memory-mapped.

    Raises
    ------
    HandoverLostError : files are missing or damaged
    """
    with _lost(folder):
        by_stage = {
            stage: {table: read_frame(folder, f"{stage}.{table}") for table in stage_named(stage).writes}
            for stage in written.stages
        }
    return StageResults(by_stage, written.stage_ns)


def tables_read_by(stage: Stage) -> list[str]:
    """Return the tables of other stages that a stage reads."""
    return [table for table in stage.reads if table not in ("flows", "topology")]


def writer_before(stage: Stage, table: str) -> Stage:
    """Return the last stage before this one that writes a table."""
    return next(one for one in reversed(STAGES[: STAGES.index(stage)]) if table in one.writes)


class Handover:
    """The files of one window, on this machine.

    Parameters
    ----------
    warehouse : its location; two warehouses may have the same window
    made_of : everything that the stages depend on, as text
    """

    def __init__(self, warehouse: str, window: Window, made_of: str) -> None:
        digest = hashlib.sha256(made_of.encode()).hexdigest()[:24]
        self.folder = private_folder() / f"{_prefix(warehouse, window)}{digest}"

    def begin(self, topology: pl.DataFrame) -> None:
        """Make the folder, empty but for the topology."""
        delete_old_folders()
        self.delete()
        with writing_to(self.folder):
            self.folder.mkdir(exist_ok=True)
        write_frame(topology, self.folder, "topology")

    def complete(self, count: int, outside: pl.DataFrame, nics: pl.DataFrame) -> None:
        """Let later tasks find the flows, now that all partitions are written.

        Parameters
        ----------
        outside, nics : as `partition.Partitions` has them
        """
        write_frame(outside, self.folder, "outside")
        write_frame(nics, self.folder, "nics")
        self._note(COUNT, count)

    @property
    def count(self) -> int | None:
        """How many partitions there are; None if their flows are not all there."""
        found = self._noted(COUNT)
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

    def has_tables_for(self, stage: Stage) -> bool:
        """Tell whether all partitions have the tables that a stage reads."""
        writers = {writer_before(stage, table).name for table in tables_read_by(stage)}
        return all((self.folder / f"{name}.json").exists() for name in writers)

    def begin_stage(self, stage: Stage) -> None:
        """Forget that a stage and those after it were run: it is about to be run again."""
        for one in STAGES[STAGES.index(stage) :]:
            (self.folder / f"{one.name}.json").unlink(missing_ok=True)

    def end_stage(self, stage: Stage) -> None:
        """Note that the tables of a stage are there for all partitions."""
        self._note(f"{stage.name}.json", True)

    def delete(self) -> None:
        """Delete all files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _note(self, name: str, value: int) -> None:
        with writing_to(self.folder):
            (self.folder / name).write_text(json.dumps(value), encoding="utf-8")

    def _noted(self, name: str) -> object:
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


def delete_handovers(warehouse: str, window: Window) -> None:
    """Delete all that was handed over for a window, whatever it was made of: the window is done."""
    for folder in private_folder().glob(f"{_prefix(warehouse, window)}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _prefix(warehouse: str, window: Window) -> str:
    return f"{hashlib.sha256(warehouse.encode()).hexdigest()[:12]}-{window.start_ns}-"


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
