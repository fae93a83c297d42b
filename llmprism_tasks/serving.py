"""Serving: what a worker's process does: it takes the parts that it is given through the stages.

Flows and results pass through files, whose rows are looked at where they lie, and not read: Polars' own reader would
copy them, in pieces that each step after it would have to join.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import polars as pl
import pyarrow as pa

from llmprism_tasks import deriving, temporary
from llmprism_tasks.deriving import Derived
from llmprism_tasks.frames import Part
from llmprism_tasks.settings import Settings
from llmprism_tasks.windows import Window

__all__ = ["Derived", "put", "serve", "taken"]


def serve() -> None:
    """Answer what a `Worker` asks, until nobody does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted at the terminal ends the other as well
    with Connection(int(sys.argv[1])) as connection, suppress(EOFError):
        folder, method = connection.recv()
        deriving.prepare(method)
        while True:
            for answer in _answers(Path(folder), *connection.recv()):
                connection.send(answer)


def _answers(
    folder: Path, names: Sequence[str], window: Window, settings: Settings, turns: Sequence[Collection[str]]
) -> Iterator[object]:
    """Yield of each turn which stages made which tables, and what stages took, or what went wrong."""
    try:
        given = {name: taken(folder, name) for name in names}
        topology = given.pop("topology")
        part = Part(given.pop("flows"), given.pop("elsewhere", None), given)
        for derived in deriving.derive_in_turn(part, topology, window, settings, turns):
            tables = [(stage, table) for stage, made in derived.made.items() for table in made]
            for stage, table in tables:
                put(derived.made[stage][table], folder, f"{stage}.{table}")
            yield tables, derived.stage_ns
    except Exception as error:  # it is raised where the question was asked
        yield error


def put(frame: pl.DataFrame, folder: Path, name: str) -> None:
    """Write a frame to a file.

    Raises
    ------
    TransientError : there is no room for it
    """
    rows = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    with (
        temporary.written_in(folder),
        pa.OSFile(str(_path(folder, name)), "wb") as file,
        pa.ipc.new_file(file, rows.schema) as writer,
    ):
        writer.write_table(rows)


def taken(folder: Path, name: str) -> pl.DataFrame:
    """Return the frame of a file, and remove its name: the memory, which may be hundreds of megabytes, goes with it."""
    path = _path(folder, name)
    with pa.memory_map(str(path)) as file:
        frame = pl.DataFrame(pl.from_arrow(pa.ipc.open_file(file).read_all()))
    path.unlink()
    return frame


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.arrow"
