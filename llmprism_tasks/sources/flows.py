"""Files of flow records: find them, the time span that their names give, their format, and why a record is refused.

A source of flows is a file, a folder with everything below it, a glob, or a pattern that contains the window's start,
such as `flows/{window:%Y%m%dT%H%M}*.parquet`. The name of a pattern's file gives a time span: a window, an hour or a
day. DuckDB reads the files (`warehouse/landing/`); this module finds them and checks that compressed files are
complete.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources.pattern import MAGIC, Pattern, matching

logger = logging.getLogger(__name__)

FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
ENDINGS = (*FORMATS, *(f"{form}{packed}" for form in FORMATS if form != ".parquet" for packed in COMPRESSIONS))
CHUNK_BYTES = 1 << 20

REASONS = {
    "malformed_record": "a line with more or fewer fields than the header, or a line that is no JSON object",
    "missing_field": "a required field is missing or empty",
    "not_a_number": "a number that is not whole, or too large for its column",
    "not_a_path": "a switch path that is no list",
    "not_a_time": "a time before 2000 (another unit than nanoseconds?) or after 2199",
    "not_an_address": "an address that looks neither like IPv4 nor like IPv6",
    "end_before_start": "the flow ends before it starts",
    "no_bytes": "the number of bytes is 0 or negative",
    "source_is_destination": "source and destination are equal",
    "outside_window": "it starts outside the interval of its file's name by more than the allowed lateness",
    "duplicate": "equal to another record in all columns; one of the two is kept",
}


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
    """
    if Pattern.is_one(flows):
        pattern = Pattern.parse(flows)
        found = pattern.everywhere(length_ns) if within is None else pattern.near(within, length_ns, lateness_ns)
        spans = {path: span for path, span in found.items() if _format(path)}
        _warn_of(set(found) - set(spans), flows)
        files = [FlowFile(path, _format(path), span) for path, span in spans.items()]
        return sorted(files, key=lambda file: (file.span.start_ns if file.span else 0, file.path))
    place = Path(flows)
    if place.is_dir():
        paths = [str(path) for path in place.rglob("*") if path.is_file() and not path.name.startswith(".")]
    elif place.exists():
        paths = [flows]
    elif any(sign in flows for sign in MAGIC):
        paths = [path for path in matching(flows) if Path(path).is_file()]
    else:
        raise InputError(
            found=f"no file or folder {flows}",
            expected="flow records there",
            todo="Check places.flows (--flows), or wait for the collector to write it.",
        )
    known = [path for path in paths if _format(path)]
    _warn_of(set(paths) - set(known), flows)
    if place.is_file() and not known:
        raise InputError(
            found=f"{flows}, a file of unknown format",
            expected=f"a name that ends in {', '.join(ENDINGS)}",
            todo="Rename or convert the file.",
        )
    return [FlowFile(path, _format(path)) for path in sorted(known)]


def arrived(window: Window, flows: str) -> bool | None:
    """Return whether a pattern has files for a window; None if only the records can show whether flows arrived."""
    if not Pattern.is_one(flows):
        return None
    files = find(flows, length_ns=window.length_ns, within=window)
    return any(file.span is not None and file.span.contains(window.start_ns) for file in files)


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
        raise unreadable(
            path, f"after byte {good_bytes} of its text", str(error), f"a whole {compression} file"
        ) from error


def unreadable(path: str, position: str, reason: str, expected: str) -> InputError:
    """Return the error for a file that cannot be read, with the position in it and the reason."""
    return InputError(
        found=f"{path}, {position}: {reason}",
        expected=expected,
        todo="Export the file again, or remove it. Nothing was written.",
    )


def _format(path: str) -> str:
    """Return the format that a file's name gives; empty if it gives none."""
    name = Path(path.lower())
    if name.suffix in COMPRESSIONS:
        name = name.with_suffix("")
        return "" if name.suffix == ".parquet" else FORMATS.get(name.suffix, "")
    return FORMATS.get(name.suffix, "")


def _warn_of(paths: set[str], flows: str) -> None:
    if paths:
        logger.warning("%s: left out %d files of unknown format, such as %s", flows, len(paths), min(paths))
