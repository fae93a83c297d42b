"""File register: which files were read, how many records of each window each holds, and which of these are landed.

A landing looks at the files of its source. It reads files that are new or have changed whole, and counts their records
in all windows; of others, it reads those that are known to hold records of its window, whatever they are called. What
it counts is written in its transaction. So a record that comes in another window's file is known from then on, and its
window, if it was landed without it, is marked as due.

A file with the content of another one, and with records, is a copy: it is not read. A file to which lines were added
holds the same records as before in those windows whose number of records is the same; so a file that grows does not
make all its windows due. A file that is gone is still one that its windows were landed from (`gone_files.py`).
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.frames import empty
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources import flows as sources
from llmprism_tasks.sources.flows import FlowFile
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import gone_files
from llmprism_tasks.warehouse.landing.gone_files import Records
from llmprism_tasks.warehouse.landing.intake import Intake
from llmprism_tasks.warehouse.sql_files import statement

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20

Parts = Mapping[str, Mapping[int, int]]
"""By file, how many of its records are in each window, by the window's start."""


@dataclass(frozen=True)
class Content:
    """A file as it was when it was looked at.

    Attributes
    ----------
    before : its records when it was last read, by window, with the digest of that part; empty unless only lines were
        added since
    """

    size_bytes: int
    modified_ns: int
    digest: str
    before: Mapping[int, tuple[int, str]]


@dataclass(frozen=True)
class Stock:
    """The files of a source, as a landing finds them.

    Attributes
    ----------
    flows : the source
    found : files of the source that were looked at
    files : those to read, in order
    fresh : content of those files, and copies, that are new or have changed
    copies : copies among the fresh files, with the file that is read in their place
    """

    flows: str
    found: Sequence[FlowFile]
    files: Sequence[FlowFile]
    fresh: Mapping[str, Content]
    copies: Mapping[str, str]

    @property
    def whole(self) -> set[str]:
        """Paths of the files whose records are counted in all windows."""
        return set(self.fresh) - set(self.copies)

    @property
    def unchanged(self) -> set[str]:
        """Paths of the files that are as they were when they were last read, or have only grown."""
        return {file.path for file in self.files if file.path not in self.fresh or self.fresh[file.path].before}

    @property
    def content(self) -> dict[str, list[str]]:
        """Paths of the files that were found, and digests of the fresh ones, as `gone_files` takes them."""
        paths = {*(file.path for file in self.found), *(file.path for file in self.files)}
        return {"there": sorted(paths), "digests": sorted({content.digest for content in self.fresh.values()})}


def take_stock(
    warehouse: Warehouse, found: Sequence[FlowFile], flows: str, span: Window
) -> tuple[Stock, dict[int, Records]]:
    """Return which files a landing of a span of windows has to read, and what `gone` returns for them.

    The warehouse is held twice, and not while contents of files are looked at between.

    Parameters
    ----------
    found : files that may hold records of the span, as their names tell
    flows : the source; of a pattern, other files are read too, if they are known to hold records of the span
    """
    with warehouse.reading() as connection:
        known = _rows(connection, "known_files", {"files": [file.path for file in found]})
        holding = set(
            _rows(connection, "known_parts", {"start_ns": span.start_ns, "end_ns": span.end_ns})["source_file"]
        )
        elsewhere = sorted(holding - {file.path for file in found})
        far = sources.named(elsewhere, flows, length_ns=span.length_ns)
        known = pl.concat([known, _rows(connection, "known_files", {"files": [file.path for file in far]})])
        files, rows = [*found, *far], {row["source_file"]: row for row in known.to_dicts()}
        changed = [file for file in files if not _is_known(file, rows)]
        before = _parts_before(connection, [file.path for file in changed if file.path in rows])
    looked_at = _looked_at(changed, rows, before)
    digests = {path: content.digest for path, content in looked_at.items()}
    with warehouse.reading() as connection:
        same = _rows(connection, "files_with_digests", {"digests": sorted(set(digests.values()))})
        originals = _originals(same, files, flows, digests, span.length_ns)
        copies = {path: originals[digest] for path, digest in digests.items() if originals[digest] != path}
        read = [file for file in files if file.path not in copies and file.path in holding | looked_at.keys()]
        in_order = sorted(read, key=lambda file: (file.span.start_ns if file.span else 0, file.path))
        stock = Stock(flows, files, in_order, looked_at, copies)
        return stock, gone_files.landed_from(connection, span, **stock.content)


def unread(warehouse: Warehouse, flows: str, span: Window, length_ns: int, intake: Intake) -> list[FlowFile]:
    """Return files that are named for windows of a span, but that no landing has read as they are now.

    A landing looks at the files of its own and the neighbouring windows' names. What comes later than the landings of
    these is found here. Files that may still be written are left out.
    """
    named = sources.named_within(span, flows, length_ns=length_ns)
    with warehouse.reading() as connection:
        rows = _rows(connection, "known_files", {"files": [file.path for file in named]})
    known = {row["source_file"]: row for row in rows.to_dicts()}
    return [file for file in named if not _is_known(file, known) and not intake.is_young(file.path)]


def stock_of_all(found: Sequence[FlowFile], flows: str) -> Stock:
    """Return the stock of a source whose files are all read, whatever is known of them."""
    fresh = {file.path: content for file in found if (content := _content(file.path, None, {})) is not None}
    first: dict[str, str] = {}
    for path, content in fresh.items():
        first.setdefault(content.digest, path)
    copies = {path: first[content.digest] for path, content in fresh.items() if first[content.digest] != path}
    return Stock(flows, found, [file for file in found if file.path not in copies], fresh, copies)


def gone(warehouse: Warehouse, stock: Stock, span: Window) -> dict[int, Records]:
    """Return the gone files of which windows of a span were landed, by window."""
    with warehouse.reading() as connection:
        return gone_files.landed_from(connection, span, **stock.content)


def record(
    connection: duckdb.DuckDBPyConnection,
    window: Window,
    stock: Stock,
    parts: Parts,
    *,
    kept: Records,
    skipped: Collection[str],
    landed_too: Collection[int],
    now_ns: int,
) -> list[int]:
    """Write what a landing of a window has found in files, in the landing's transaction; mark other windows as due.

    Parameters
    ----------
    parts : records of the files that were read
    kept : gone files of which the window was landed, and how many of their records stay
    skipped : files that could not be read: they are looked at again
    landed_too : starts of other windows that the same run lands; these are not due

    Returns
    -------
    starts of the windows that were marked: those of which records were found that they have not been landed with
    """
    files, rows = _frames(stock, parts, skipped)
    connection.register("incoming_files", files.to_arrow())
    connection.register("incoming_parts", rows.to_arrow())
    own = [*(path for path in parts if window.start_ns in parts[path]), *(path for path in kept if kept[path])]
    landed = {"start_ns": window.start_ns, "files": own}
    try:
        changed = connection.execute(statement("changed_parts"), {"start_ns": window.start_ns}).fetchall()
        for step in ("drop_parts", "add_parts", "drop_files", "add_files") if files.height else ():
            connection.execute(statement(step))
        missed = _account_for_unread(connection, window, stock, kept, landed)
        connection.execute(statement("mark_landed"), landed)
    finally:
        connection.unregister("incoming_files")
        connection.unregister("incoming_parts")
    due = [int(start_ns) for (start_ns,) in changed if start_ns not in landed_too]
    due += [window.start_ns] if missed else []  # another landing found records meanwhile, or a file cannot be read now
    minutes.mark_due(connection, due, minutes.LATE_RECORDS, now_ns=now_ns)
    return due


def _account_for_unread(
    connection: duckdb.DuckDBPyConnection, window: Window, stock: Stock, kept: Records, landed: Mapping[str, object]
) -> set[str]:
    """Bring what is known of files that a landing has not read up to date; return those that it should have read.

    Parameters
    ----------
    landed : the window, and the files it is landed from

    Raises
    ------
    TransientError : another process has landed the window meanwhile, from a file that is gone now
    """
    there = gone_files.landed_from(connection, window, **stock.content).get(window.start_ns, {})
    if there.keys() - kept.keys():
        raise TransientError(
            found=f"window {window} landed by another process meanwhile, from {min(there.keys() - kept.keys())}",
            expected="flows of the window as they were when this landing began",
            todo="It is tried again.",
        )
    if kept:
        gone_files.record(connection, window, there, kept)
    unread = {str(path) for (path,) in connection.execute(statement("unread_parts"), landed).fetchall()}
    missed = sources.of_source(unread, stock.flows, length_ns=window.length_ns) if unread else set()
    given_up = sorted(unread - missed - _lost(connection, window, unread - missed))
    if given_up:
        logger.warning(
            "window %s: no longer landed from %d files that are now out of the source %s, or were sent again under "
            "another name, such as %s",
            window,
            len(given_up),
            stock.flows,
            given_up[0],
        )
        gone_files.leave(connection, window, given_up)
    return missed


def _lost(connection: duckdb.DuckDBPyConnection, window: Window, unread: Collection[str]) -> set[str]:
    """Return those of some files that went away before a window was landed from them; warn of them."""
    known = _rows(connection, "known_parts_of", {"start_ns": window.start_ns, "files": sorted(unread)})
    lost = {path for path in known.filter(~pl.col("landed"))["source_file"] if not Path(path).exists()}
    if lost:
        logger.warning("window %s: %d files went away before it was landed from them: %s", window, len(lost), min(lost))
    return lost


def _rows(connection: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, object]) -> pl.DataFrame:
    return store.frame(connection.execute(statement(name), values))


def _is_known(file: FlowFile, known: Mapping[str, Mapping[str, object]]) -> bool:
    """Return whether a file is as it was when it was read, or a copy of one that is."""
    row = known.get(file.path)
    if row is None or not _is_as(file.path, row["size_bytes"], row["modified_ns"]):
        return False
    original = row["copy_of"]
    return original is None or _is_as(str(original), row["size_bytes"], row["original_modified_ns"])


def _is_as(path: str, size_bytes: object, modified_ns: object) -> bool:
    try:
        stat = Path(path).stat()
    except OSError:
        return False
    return (stat.st_size, stat.st_mtime_ns) == (size_bytes, modified_ns)


def _parts_before(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> dict[str, dict[int, tuple[int, str]]]:
    before: dict[str, dict[int, tuple[int, str]]] = {path: {} for path in paths}
    for path, start_ns, records, digest in _rows(connection, "parts_of_files", {"files": paths}).iter_rows():
        before[path][start_ns] = (records, digest)
    return before


def _looked_at(
    files: Sequence[FlowFile],
    known: Mapping[str, Mapping[str, object]],
    before: Mapping[str, Mapping[int, tuple[int, str]]],
) -> dict[str, Content]:
    """Return the content of some files; those that have gone meanwhile are left out."""
    found = {file.path: _content(file.path, known.get(file.path), before.get(file.path, {})) for file in files}
    return {path: content for path, content in found.items() if content is not None}


def _content(path: str, row: Mapping[str, object] | None, before: Mapping[int, tuple[int, str]]) -> Content | None:
    """Return a file's content; None if it has gone."""
    size_before = int(str(row["size_bytes"])) if row else -1
    digest, digest_before, last, read = hashlib.blake2b(digest_size=16), "", b"", 0
    try:
        with Path(path).open("rb") as file:
            stat = os.fstat(file.fileno())
            while chunk := file.read(CHUNK_BYTES):
                if read < size_before <= read + len(chunk):
                    first = digest.copy()
                    first.update(chunk[: size_before - read])
                    digest_before, last = first.hexdigest(), chunk[size_before - read - 1 : size_before - read]
                digest.update(chunk)
                read += len(chunk)
    except FileNotFoundError:
        return None
    whole = digest.hexdigest()
    lines_added = last == b"\n" and Path(path).suffix.lower() in sources.PLAIN_TEXT and digest_before
    same_so_far = row is not None and row["digest"] in (whole, lines_added)
    return Content(stat.st_size, stat.st_mtime_ns, whole, before if same_so_far else {})


def _originals(
    same: pl.DataFrame, files: Sequence[FlowFile], flows: str, digests: Mapping[str, str], length_ns: int
) -> dict[str, str]:
    """Return, for each digest of a fresh file, the file of the source that is read for it.

    Parameters
    ----------
    same : files that are known to have these digests, and are no copies
    digests : of the fresh files
    """
    named = sources.named(same["source_file"].to_list(), flows, length_ns=length_ns)
    here = {file.path for file in (*files, *named)}
    originals: dict[str, str] = {}
    for path, digest, size_bytes, modified_ns in same.iter_rows():
        if path in here and path not in digests and _is_as(path, size_bytes, modified_ns):
            originals.setdefault(digest, path)
    for path in (file.path for file in files if file.path in digests):
        originals.setdefault(digests[path], path)
    return originals


def _frames(stock: Stock, parts: Parts, skipped: Collection[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of `flow_files` and of `flow_file_windows` that fresh files have."""
    spans = {file.path: file.span for file in stock.found}
    files, rows = [], []
    for path, content in stock.fresh.items():
        if path in skipped or stock.copies.get(path) in skipped:
            continue
        original = stock.copies.get(path)
        if original is not None and original in stock.fresh and not parts.get(original):
            original = None  # files without a record are alike, and yet nothing was sent again
        windows = {} if original else parts.get(path, {})
        span = spans.get(path)
        start_ns = min(windows, default=span.start_ns if span else 0)
        numbers = (content.size_bytes, content.modified_ns, content.digest, sum(windows.values()))
        files.append((start_ns, path, *numbers, original))
        for window_ns, records in windows.items():
            before, digest = content.before.get(window_ns, (0, ""))
            rows.append((window_ns, path, records, digest if before == records else content.digest, False))
    return (
        pl.DataFrame(files, schema=empty("flow_files").schema, orient="row"),
        pl.DataFrame(rows, schema=empty("flow_file_windows").schema, orient="row"),
    )
