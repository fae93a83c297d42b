"""A worker: a second process that takes parts of the platform through the stages while the first does the same.

It is a program of its own, so that whoever calls the pipeline need not mind how processes begin. Flows and results pass
through files, which costs a tenth of a second for a million flows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from llmprism_tasks import deriving, memory
from llmprism_tasks.deriving import Derived
from llmprism_tasks.errors import TransientError
from llmprism_tasks.frames import Part
from llmprism_tasks.settings import Settings
from llmprism_tasks.windows import Window

PROGRAM = "from llmprism_tasks.worker import serve; serve()"


class Worker:
    """The other process, as this one sees it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection, folder: Path) -> None:
        self._process, self._connection, self._folder = process, connection, folder
        self.pid = process.pid

    def derive(
        self,
        part: Part,
        topology: pl.DataFrame,
        window: Window,
        settings: Settings,
        only: Collection[str] = deriving.ALL,
    ) -> Derived:
        """Do what `deriving.derive` does, there.

        Raises
        ------
        TransientError : the process is gone
        whatever a stage raised
        """
        frames = {"flows": part.flows, "elsewhere": part.elsewhere, "topology": topology, **part.tables}
        given = {name: frame for name, frame in frames.items() if frame is not None}
        for name, frame in given.items():
            _put(frame, self._folder, name)
        try:
            self._connection.send((list(given), window, settings, only))
            told = self._connection.recv()
        except (OSError, EOFError) as error:
            raise TransientError(
                found=f"a worker process that ended (exit code {self._process.wait()})",
                expected="a process that takes part of the window's flows through the stages",
                todo="Run it again; if it was killed for want of memory, set batches.at_once to a smaller number.",
            ) from error
        if isinstance(told, Exception):
            raise told
        tables, stage_ns = told
        made: dict[str, dict[str, pl.DataFrame]] = {}
        for stage, table in tables:
            made.setdefault(stage, {})[table] = _taken(self._folder, f"{stage}.{table}")
        return Derived(made, stage_ns)


@contextmanager
def working(settings: Settings) -> Iterator[Worker]:
    """Start a worker, which imports what the stages need at once; it ends with the block."""
    ours, theirs = Pipe()
    with TemporaryDirectory(prefix="llmprism-") as folder, ours:
        words = [sys.executable, "-c", PROGRAM, str(theirs.fileno())]
        environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
        memory.keep(environment)
        process = subprocess.Popen(words, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        try:
            ours.send((folder, settings.method.name))
            yield Worker(process, ours, Path(folder))
        finally:
            process.kill()
            process.wait()


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
        given = {name: _taken(folder, name) for name in names}
        topology = given.pop("topology")
        part = Part(given.pop("flows"), given.pop("elsewhere", None), given)
        derived = deriving.derive(part, topology, window, settings, only)
        tables = [(stage, table) for stage, made in derived.made.items() for table in made]
        for stage, table in tables:
            _put(derived.made[stage][table], folder, f"{stage}.{table}")
    except Exception as error:  # it is raised where the question was asked
        return error
    return tables, derived.stage_ns


def _put(frame: pl.DataFrame, folder: Path, name: str) -> None:
    frame.write_ipc(folder / f"{name}.arrow", compression="uncompressed")


def _taken(folder: Path, name: str) -> pl.DataFrame:
    """Read a frame and remove its file, which may be hundreds of megabytes."""
    path = folder / f"{name}.arrow"
    frame = pl.read_ipc(path)
    path.unlink()
    return frame
