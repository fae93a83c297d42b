"""Serving: what a worker's process does: it takes the parts that it is given through the stages.

Flows and results pass through files, which costs a tenth of a second for a million flows.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import polars as pl

from llmprism_tasks import deriving
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
            connection.send(_answer(Path(folder), *connection.recv()))


def _answer(folder: Path, names: Sequence[str], window: Window, settings: Settings, only: Collection[str]) -> object:
    """Return which stages made which tables, and what stages took, or what went wrong."""
    try:
        given = {name: taken(folder, name) for name in names}
        topology = given.pop("topology")
        part = Part(given.pop("flows"), given.pop("elsewhere", None), given)
        derived = deriving.derive(part, topology, window, settings, only)
        tables = [(stage, table) for stage, made in derived.made.items() for table in made]
        for stage, table in tables:
            put(derived.made[stage][table], folder, f"{stage}.{table}")
    except Exception as error:  # it is raised where the question was asked
        return error
    return tables, derived.stage_ns


def put(frame: pl.DataFrame, folder: Path, name: str) -> None:
    """Write a frame to a file."""
    frame.write_ipc(folder / f"{name}.arrow", compression="uncompressed")


def taken(folder: Path, name: str) -> pl.DataFrame:
    """Read a frame and remove its file, which may be hundreds of megabytes."""
    path = folder / f"{name}.arrow"
    frame = pl.read_ipc(path)
    path.unlink()
    return frame
