"""Gone files: what was landed from a file stays landed when the file is deleted.

Collectors delete old files, and windows are landed again: for late records, after an outage, in a backfill. Such a
landing reads the files that are there, and keeps what the warehouse holds of files that are gone. The warehouse does
not tell which flow came from which file. So it keeps all of the window's flows, but for those that a file which is
there holds, too. Only `forget` takes records of a gone file away.

A file that was changed since, beside one that is gone, can therefore leave flows of its older version behind; the
window's reason says how many.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import polars as pl

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import statement

logger = logging.getLogger(__name__)

Records = Mapping[str, int]
"""By file, how many records of a window were landed from it."""


@dataclass(frozen=True)
class Kept:
    """What the warehouse holds of a window of which files are gone.

    Attributes
    ----------
    files : the gone files, with the records that were landed from each
    flows : all flows of the window
    refused : quarantine of the gone files
    copies : quarantined duplicates of files that are as they were: their twin may have been a gone file's
    """

    files: Records
    flows: pl.DataFrame
    refused: pl.DataFrame
    copies: pl.DataFrame


@dataclass(frozen=True)
class Outcome:
    """What of a window's gone files was kept.

    Attributes
    ----------
    records : by gone file, how many records are landed that no file which is there holds
    surplus : how many flows more than the gone files held: an older version of a changed file had them
    """

    records: Records = field(default_factory=dict)
    surplus: int = 0


def landed_from(
    connection: duckdb.DuckDBPyConnection, span: Window, *, there: Sequence[str], digests: Sequence[str]
) -> dict[int, Records]:
    """Return the gone files of which windows of a span were landed, by window.

    Parameters
    ----------
    there : files that the landing has found
    digests : of the contents that it reads for the first time. A gone file with such a content was renamed, or a copy
        of it is there: that is read in its place
    """
    values = {"start_ns": span.start_ns, "end_ns": span.end_ns, "there": list(there), "digests": list(digests)}
    rows = store.frame(connection.execute(statement("landed_parts"), values))
    gone = [path for path in rows["source_file"].unique() if not Path(path).exists()]
    found: dict[int, dict[str, int]] = {}
    for start_ns, path, records in rows.filter(pl.col("source_file").is_in(gone)).iter_rows():
        found.setdefault(start_ns, {})[path] = records
    return dict(found)


def kept_of(warehouse: Warehouse, window: Window, files: Records, *, unchanged: Collection[str]) -> Kept:
    """Read what the warehouse holds of a window of which files are gone.

    Parameters
    ----------
    unchanged : files that hold what they held when they were last read, or more
    """
    held = store.read_each(warehouse, {"flows": window, "flows_quarantine": window})
    refused, file = held["flows_quarantine"], pl.col("source_file")
    return Kept(
        files,
        held["flows"].drop("window_start_ns"),
        refused.filter(file.is_in(list(files))),
        refused.filter(file.is_in(list(unchanged)), pl.col("reason") == "duplicate"),
    )


def add(staging: duckdb.DuckDBPyConnection, window: Window, kept: Kept, files: Sequence[str]) -> Outcome:
    """Add to the staged records of a window what is kept of gone files.

    Parameters
    ----------
    files : all files by their number in `staged`, the gone ones among them
    """
    numbers = pl.DataFrame(list(enumerate(files)), schema={"file": pl.Int32, "source_file": pl.String}, orient="row")
    frames = {
        "kept_flows": kept.flows,
        "kept_refused": kept.refused.join(numbers, on="source_file"),
        "kept_copies": kept.copies.join(numbers, on="source_file"),
    }
    for name, frame in frames.items():
        staging.register(name, frame.to_arrow())
    try:
        values = {"window_start_ns": window.start_ns}
        staging.execute(statement("keep_copies"), values)
        first = files.index(next(iter(kept.files)))
        ((flows,),) = staging.execute(statement("keep_flows"), values | {"file": first}).fetchall()
        staging.execute(statement("keep_refused"), values)
    finally:
        for name in frames:
            staging.unregister(name)
    return shared_out(kept.files, Counter(kept.refused["source_file"].to_list()), int(flows))


def shared_out(files: Records, refused: Records, flows: int) -> Outcome:
    """Return how many records of each gone file are kept, if it is only known how many flows are, of all together."""
    left, records = flows, {}
    for path, landed in files.items():
        own = min(max(landed - refused.get(path, 0), 0), left)
        records[path] = refused.get(path, 0) + own
        left -= own
    last = list(files)[-1]
    return Outcome(records | {last: records[last] + left}, left)


def record(connection: duckdb.DuckDBPyConnection, window: Window, landed: Records, kept: Records) -> None:
    """Write how many records of a window are kept of gone files; say which files are newly gone.

    Parameters
    ----------
    landed : the gone files, with the records that are known to be landed from each
    """
    for path in sorted(kept):
        if kept[path] and kept[path] != landed.get(path):
            values = {"start_ns": window.start_ns, "file": path, "records": kept[path]}
            connection.execute(statement("keep_parts"), values)
    empty = sorted(path for path in kept if not kept[path])
    if empty:
        connection.execute(statement("drop_gone_parts"), {"start_ns": window.start_ns, "files": empty})
    news = connection.execute(statement("forget_files"), {"files": sorted(kept)}).fetchall()
    if news != [(0,)]:
        logger.info(
            "window %s: its records of %d files that are gone stay: %s", window, len(kept), ", ".join(sorted(kept))
        )


def leave(connection: duckdb.DuckDBPyConnection, window: Window, files: Sequence[str]) -> None:
    """Write that a window holds no records of some files any more."""
    connection.execute(statement("forget_files"), {"files": list(files)})
    connection.execute(statement("drop_gone_parts"), {"start_ns": window.start_ns, "files": list(files)})


def forget(warehouse: Warehouse, files: Collection[str], *, now_ns: int) -> list[int]:
    """Forget gone files, so that their records are not kept: windows that were landed from them are due.

    Returns
    -------
    starts of these windows; their flows stay until they are run again

    Raises
    ------
    InputError : a file is there, or nothing is known of it; or another file is gone, too, whose records cannot be told
        from those of the forgotten ones; nothing was forgotten
    """

    def work(connection: duckdb.DuckDBPyConnection) -> list[int]:
        """Forget the files in a transaction; return the starts of the windows that are due then."""
        values = {"files": sorted(files)}
        known = {str(path) for (path,) in connection.execute(statement("files_to_forget"), values).fetchall()}
        _refuse_strangers(set(files) - known)
        rows = store.frame(connection.execute(statement("windows_of_forgotten"), values))
        beside = rows.filter(~pl.col("source_file").is_in(known))
        _refuse_beside([(path, start) for start, path in beside.iter_rows() if not Path(path).exists()], files)
        starts = rows.filter(pl.col("source_file").is_in(known))["window_start_ns"].unique().sort().to_list()
        for table in ("flow_file_windows", "flow_files"):
            connection.execute(f"DELETE FROM {table} WHERE source_file IN (SELECT unnest($files::VARCHAR[]))", values)
        minutes.mark_due(connection, starts, minutes.FORGOTTEN, now_ns=now_ns)
        return starts

    _refuse_present(files)
    return warehouse.write(work)


def _refuse_present(files: Collection[str]) -> None:
    present = sorted(path for path in files if Path(path).exists())
    if present:
        raise InputError(
            found=f"{present[0]}, which is there",
            expected="files that are gone: what is there is read again with its window",
            todo="Correct it, or remove it first.",
        )


def _refuse_strangers(files: Collection[str]) -> None:
    if files:
        raise InputError(
            found=f"{min(files)}, of which nothing was landed",
            expected="the name of a file as flow_files has it",
            todo='See llmprism sql "SELECT source_file FROM flow_files".',
        )


def _refuse_beside(beside: Sequence[tuple[str, int]], files: Collection[str]) -> None:
    if beside:
        path, start_ns = min(beside)
        raise InputError(
            found=f"{min(files)} and {path}, both gone, and both with records of window {Window(start_ns, 1)}",
            expected="files whose records can be told from those of others that are gone",
            todo=f"Forget both (--file {path}), or put one of them back.",
        )
