"""A worker: a second process that takes parts of the platform through the stages while the first does the same.

It is a program of its own, so that whoever calls the pipeline need not mind how processes begin. Flows and results pass
through files, which costs a tenth of a second for a million flows; the two talk over pipes.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import polars as pl

from llmprism_tasks import deriving
from llmprism_tasks.deriving import Derived
from llmprism_tasks.errors import TransientError
from llmprism_tasks.settings import Settings
from llmprism_tasks.windows import Window

INPUTS = ("flows", "elsewhere", "topology")
PROGRAM = "from llmprism_tasks.worker import serve; serve()"


class Worker:
    """The other process, as this one sees it."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process, self._folder = process, folder

    def derive(
        self, flows: pl.DataFrame, elsewhere: pl.DataFrame, topology: pl.DataFrame, window: Window, settings: Settings
    ) -> Derived:
        """Do what `deriving.derive` does, there.

        Raises
        ------
        TransientError : the process is gone
        whatever a stage raised
        """
        for name, frame in zip(INPUTS, (flows, elsewhere, topology), strict=True):
            _put(frame, self._folder, name)
        told = self._asked((window, settings))
        if isinstance(told, Exception):
            raise told
        tables, stage_ns = told
        return Derived({table: _taken(self._folder, table) for table in tables}, stage_ns)

    def _asked(self, question: object) -> Any:
        """Ask the other process for something; it answers when it has done it."""
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None
        assert answers is not None
        try:
            pickle.dump(question, asks)
            asks.flush()
            return pickle.load(answers)
        except (OSError, EOFError) as error:
            raise TransientError(
                found=f"a worker process that ended (exit code {self._process.wait()})",
                expected="a process that takes part of the window's flows through the stages",
                todo="Run the window again; if it was killed for want of memory, set batches.processes = 1.",
            ) from error


@contextmanager
def working(settings: Settings) -> Iterator[Worker]:
    """Start a worker, which imports what the stages need at once; it ends with the block."""
    with TemporaryDirectory(prefix="llmprism-") as folder:
        words = [sys.executable, "-c", PROGRAM]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            pickle.dump((folder, settings), process.stdin)
            process.stdin.flush()
            try:
                yield Worker(process, Path(folder))
            finally:
                process.kill()


def serve() -> None:
    """Answer what `Worker` asks, until nobody does."""
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever is printed must not come between the answers
    place, settings = pickle.load(asked)
    deriving.prepare(settings)
    while (question := _next(asked)) is not None:
        pickle.dump(_answer(Path(place), *question), answers)
        answers.flush()


def _next(asked: BinaryIO) -> Any:
    try:
        return pickle.load(asked)
    except EOFError:
        return None


def _answer(folder: Path, window: Window, settings: Settings) -> object:
    try:
        tables, stage_ns = deriving.derive(*(_taken(folder, name) for name in INPUTS), window, settings)
        for table, frame in tables.items():
            _put(frame, folder, table)
    except Exception as error:  # noqa: BLE001 - it is raised where the question was asked
        return error
    return list(tables), stage_ns


def _put(frame: pl.DataFrame, folder: Path, name: str) -> None:
    frame.write_ipc(folder / f"{name}.arrow", compression="uncompressed")


def _taken(folder: Path, name: str) -> pl.DataFrame:
    """Read a frame and remove its file, which may be hundreds of megabytes."""
    path = folder / f"{name}.arrow"
    frame = pl.read_ipc(path)
    path.unlink()
    return frame
