"""Files of flow records: find them, the time span that their names give, their format, and why a record is refused.

A source of flows is a file, a folder with everything below it, a glob, or a pattern that contains the window's start,
such as `flows/{window:%Y%m%dT%H%M}*.parquet`. The name of a pattern's file gives a time span: a window, an hour or a
day. DuckDB reads the files (`warehouse/landing/`); this module finds them and checks that compressed files are
complete.

A name that begins with a dot or ends in `.part` or `.tmp` is that of a file which is still being written: it is not
seen until it is renamed. A symbolic link that leaves the folder of the flows is refused, because who may write there
could otherwise have any file read.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources.pattern import MAGIC, Pattern, fixed_folder, matching

logger = logging.getLogger(__name__)

FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
ENDINGS = (*FORMATS, *(f"{form}{packed}" for form in FORMATS if form != ".parquet" for packed in COMPRESSIONS))
CHUNK_BYTES = 1 << 20
PLAIN_TEXT = tuple(ending for ending, form in FORMATS.items() if form != "parquet")
UNFINISHED = (".part", ".tmp")
"""Endings of files that are still being written."""

REASONS = {
    "malformed_record": "a line with more or fewer fields than the header, or a line that is no JSON object",
    "missing_field": "a required field is missing or empty",
    "not_a_number": "a number that is not whole, or too large for its column",
    "not_a_path": "a switch path that is no list, or joined by another sign than |",
    "not_a_time": "a time before 2000 (another unit than nanoseconds?) or after 2199",
    "not_an_address": "a text that is neither an IPv4 nor an IPv6 address",
    "end_before_start": "the flow ends before it starts",
    "no_bytes": "the number of bytes is 0 or negative",
    "source_is_destination": "source and destination are equal",
    "outside_window": "it starts more than a day away from the interval of its file's name: a wrong clock",
    "unlisted_flood": "of one of more than 100,000 addresses in its window that the topology does not list",
    "duplicate": "equal to another record in all columns; one of the two is kept",
}


class UnfinishedError(InputError):
    """A file that cannot be read and may not be finished: it is truncated, or has no header yet."""

    @classmethod
    def of(cls, error: InputError) -> UnfinishedError:
        """Return the same error as one that waiting may mend."""
        return cls(found=error.found, expected=error.expected, todo=error.todo)


@dataclass(frozen=True)
class FlowFile:
    """One file of flow records.

    Attributes
    ----------
    path : as found, and as stored in `source_file`
    format : `parquet`, `csv` or `jsonl`
    span : interval that the file's name gives; None if it gives none
    """

    path: str
    format: str
    span: Window | None = None


def find(flows: str, *, length_ns: int, within: Window | None = None, lateness_ns: int = 0) -> list[FlowFile]:
    """Return the files of a source, in the order in which they are read.

    Parameters
    ----------
    flows : a file, a folder, a glob or a pattern
    length_ns : length of a window
    within : for a pattern, only files that may hold records of this interval; None for all
    lateness_ns : how far outside the interval of its file's name a record may start

    Returns
    -------
    empty if no file matches a pattern or glob, or the folder is empty: that is time without flows, and no error

    Raises
    ------
    InputError : a plain file or folder does not exist or has no known format, or a pattern contains no time
    PermissionError : a folder may not be looked into
    """
    if Pattern.is_one(flows):
        pattern = Pattern.parse(flows)
        _look_into(pattern.folder)
        found = pattern.everywhere(length_ns) if within is None else pattern.near(within, length_ns, lateness_ns)
        spans = {path: found[path] for path in _known(_inside(found, pattern.folder), flows)}
        files = [FlowFile(path, _format(path), span) for path, span in spans.items()]
        return sorted(files, key=lambda file: (file.span.start_ns if file.span else 0, file.path))
    place = Path(flows)
    if place.is_dir():
        paths = _inside(_below(place), flows)
    elif place.is_file():
        paths = [flows]
    elif place.exists():  # a FIFO would keep its reader waiting, and a device has no end
        raise InputError(
            found=f"{flows}, which is neither a file nor a folder",
            expected="a file or folder of flow records",
            todo="Write the records to a file, and name it.",
        )
    elif any(sign in flows for sign in MAGIC):
        _look_into(fixed_folder(flows))
        paths = _inside(matching(flows), fixed_folder(flows))
    else:
        raise InputError(
            found=f"no file or folder {flows}",
            expected="flow records there",
            todo="Check places.flows (--flows), or wait for the collector to write it.",
        )
    known = _known(paths, flows)
    if place.is_file() and not known:
        raise InputError(
            found=f"{flows}, a file of unknown format",
            expected=f"a name that ends in {', '.join(ENDINGS)}",
            todo="Rename or convert the file.",
        )
    return [FlowFile(path, _format(path)) for path in sorted(known)]


def _below(folder: Path) -> Iterator[str]:
    """Yield the files below a folder.

    Raises
    ------
    PermissionError : a folder may not be looked into: what is in it would be left out in silence
    """

    def refuse(error: OSError) -> None:
        if isinstance(error, PermissionError):
            raise error

    for place, _, names in os.walk(folder, onerror=refuse):
        yield from (str(path) for name in names if (path := Path(place, name)).is_file())


def _look_into(folder: str) -> None:
    """Look into the folder of a glob or a pattern: it would otherwise seem to be empty; raises what `_below` does."""
    if Path(folder).is_dir():
        os.scandir(folder).close()


def named(paths: Collection[str], flows: str, *, length_ns: int) -> list[FlowFile]:
    """Return those of some paths that are files of a pattern, whatever window they are named for."""
    if not Pattern.is_one(flows):
        return []
    spans = Pattern.parse(flows).spans([path for path in paths if Path(path).is_file()], length_ns)
    return [FlowFile(path, _format(path), spans[path]) for path in sorted(spans) if _format(path)]


def of_source(paths: Collection[str], flows: str, *, length_ns: int) -> set[str]:
    """Return those of some paths that are files of a source, and are there."""
    if Pattern.is_one(flows):
        return {file.path for file in named(paths, flows, length_ns=length_ns)}
    try:
        return set(paths) & {file.path for file in find(flows, length_ns=length_ns)}
    except InputError:  # the source itself is gone
        return set()


def files_of(window: Window, flows: str) -> list[FlowFile] | None:
    """Return a pattern's files that are named for a window; None if only the records can show whether flows arrived."""
    if not Pattern.is_one(flows):
        return None
    files = find(flows, length_ns=window.length_ns, within=window)
    return [file for file in files if file.span is not None and file.span.contains(window.start_ns)]


def named_within(interval: Window, flows: str, *, length_ns: int) -> list[FlowFile]:
    """Return a pattern's files that are named for windows of an interval of many windows; none of another source."""
    if not Pattern.is_one(flows):
        return []
    pattern = Pattern.parse(flows)
    found = pattern.within(interval, length_ns)
    return [FlowFile(path, _format(path), found[path]) for path in _known(_inside(found, pattern.folder), flows)]


def check_whole(path: str) -> None:
    """Read a compressed file to its end, because DuckDB takes a truncated file for a short one.

    Raises
    ------
    InputError : the file is truncated or damaged; says after how many bytes of its text
    """
    compression = COMPRESSIONS.get(Path(path).suffix.lower())
    if compression is None:
        return
    import pyarrow as pa  # noqa: PLC0415 - keeps the start of commands short; only compressed files need it

    good_bytes = 0
    try:
        with pa.input_stream(path, compression=compression, buffer_size=CHUNK_BYTES) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                good_bytes += len(chunk)
    except (OSError, pa.ArrowException) as error:
        raise UnfinishedError.of(
            unreadable(path, f"after byte {good_bytes} of its text", str(error), f"a whole {compression} file")
        ) from error


def ends_in_a_line(path: str) -> bool:
    """Return whether a file's last line is complete, as far as it can be told without unpacking the file."""
    if Path(path).suffix.lower() in (".parquet", *COMPRESSIONS):
        return True
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        return file.read(1) in (b"\n", b"")


def unreadable(
    path: str,
    position: str,
    reason: str,
    expected: str,
    *,
    todo: str = "Export the file again, or remove it. Nothing was written.",
) -> InputError:
    """Return the error for a file that cannot be read, with the position in it and the reason."""
    return InputError(found=f"{path}, {position}: {reason}", expected=expected, todo=todo)


def _format(path: str) -> str:
    """Return the format that a file's name gives; empty if it gives none."""
    name = Path(path.lower())
    if name.suffix in COMPRESSIONS:
        name = name.with_suffix("")
        return "" if name.suffix == ".parquet" else FORMATS.get(name.suffix, "")
    return FORMATS.get(name.suffix, "")


def _known(paths: Iterable[str], flows: str) -> list[str]:
    """Return the paths that are finished files of a known format, sorted; warn of other formats and of odd names."""
    named = {path: path.encode(errors="replace").decode() for path in paths}
    odd = sorted(text for path, text in named.items() if path != text)
    if odd:  # the warehouse could not hold them
        _warn_once(f"{flows}: left out {_files(odd)} whose names are not UTF-8, such as {odd[0]}: rename them")
    paths = [path for path, text in named.items() if path == text]
    finished = [path for path in paths if not Path(path).name.startswith(".") and not path.endswith(UNFINISHED)]
    known = sorted(path for path in finished if _format(path))
    others = set(finished) - set(known)
    if others:
        _warn_once(f"{flows}: left out {_files(others)} of unknown format, such as {min(others)}")
    return known


def _inside(paths: Iterable[str], folder: str) -> list[str]:
    """Return the paths that are in a folder, wherever symbolic links lead; warn of the others."""
    top = os.path.realpath(folder)
    real = {path: os.path.realpath(path) for path in paths}
    inside = [path for path, place in real.items() if Path(place).is_relative_to(top)]
    outside = sorted(set(real) - set(inside))
    if outside:
        _warn_once(
            f"{folder}: left out {_files(outside)} behind symbolic links that lead out of this folder, such as "
            f"{outside[0]}: copy what you need into it, or name the folder in which that is"
        )
    return inside


def _files(paths: Collection[str]) -> str:
    return f"{len(paths)} {'file' if len(paths) == 1 else 'files'}"


@functools.cache
def _warn_once(message: str) -> None:
    """Log a warning, and not again in this process: a run looks for its files several times."""
    logger.warning("%s", message)
