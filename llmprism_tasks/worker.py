"""A worker: a second process that takes parts of the platform through the stages while the first does the same.

It is a program of its own, `serving.py`, so that whoever calls the pipeline need not mind how processes begin. This
module imports nothing that takes long: a worker is to begin before this process imports what it needs itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from llmprism_tasks import temporary
from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources import flows as sources

if TYPE_CHECKING:
    import polars as pl

    from llmprism_tasks.contract.frames import Part
    from llmprism_tasks.deriving import Derived

PROGRAM = "from llmprism_tasks import serving; serving.serve()"

WORTH_A_WORKER = 4_000_000
"""Bytes of files of flows from which a worker saves more than its start costs: as Parquet, they hold 250,000 flows."""

LOOK_S, LOOKS = 5, 6
"""How often to look whether a worker that is waited for is stopped, and how often in a row it may be: half a minute is
enough for who continues it after a debugger or Ctrl-Z, and little beside the hours that nobody would notice."""


class Worker:
    """The other process, as this one sees it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection, folder: Path) -> None:
        self._process, self._connection, self._folder = process, connection, folder
        self.pid = process.pid

    def derive_in_turn(
        self,
        part: Part,
        topology: pl.DataFrame,
        window: Window,
        settings: Settings,
        turns: Sequence[Collection[str]],
    ) -> Iterator[Derived]:
        """Do what `deriving.derive_in_turn` does, there.

        Raises
        ------
        TransientError : the process is gone or stopped, or there is no room for its files
        whatever a stage raised
        """
        from llmprism_tasks import passing  # noqa: PLC0415 - brings Polars
        from llmprism_tasks.deriving import Derived  # noqa: PLC0415 - likewise

        frames = {"flows": part.flows, "elsewhere": part.elsewhere, "topology": topology, **part.tables}
        given = {name: frame for name, frame in frames.items() if frame is not None}
        self._folder.mkdir(exist_ok=True)  # it may have been swept up, if there was nothing to do for an hour
        for name, frame in given.items():
            passing.put(frame, self._folder, name)
        with self._missed():
            self._connection.send((list(given), window, settings, turns))
        for _ in turns:
            with self._missed():
                told = self._told()
            if isinstance(told, Exception):
                raise told
            tables, stage_ns = told
            made: dict[str, dict[str, pl.DataFrame]] = {}
            for stage, table in tables:
                made.setdefault(stage, {})[table] = passing.taken(self._folder, f"{stage}.{table}")
            yield Derived(made, stage_ns)

    def _told(self) -> Any:
        looks = 0
        while not self._connection.poll(LOOK_S):
            looks = looks + 1 if self._is_stopped() else 0
            if looks == LOOKS:
                raise TransientError(
                    found=f"a worker process that is stopped (process {self.pid})",
                    expected="a process that takes part of the window's flows through the stages",
                    todo="Run it again, and see who sends SIGSTOP to it.",
                )
        return self._connection.recv()

    def _is_stopped(self) -> bool:
        status = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        return status.rpartition(")")[2].split()[0] == "T"

    @contextmanager
    def _missed(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError) as error:
            raise TransientError(
                found=f"a worker process that ended (exit code {self._process.wait()})",
                expected="a process that takes part of the window's flows through the stages",
                todo="Run it again; if it was killed for want of memory, set batches.at_once to a smaller number.",
            ) from error


@contextmanager
def working(settings: Settings) -> Iterator[Worker]:
    """Start a worker, which imports what the stages need at once; it ends with the block."""
    ours, theirs = Pipe()
    temporary.sweep()
    with TemporaryDirectory(dir=temporary.home(), prefix="worker-") as folder, ours:
        words = [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())]  # what is named alike here is not ours
        environment = {**os.environ, "POLARS_MAX_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # In a group of its own, it does not hear who interrupts this process at the terminal, who ends it as well.
        process = subprocess.Popen(words, pass_fds=[theirs.fileno()], env=environment, process_group=0)
        theirs.close()
        try:
            ours.send((folder, settings.method.name))
            yield Worker(process, ours, Path(folder))
        finally:
            process.kill()
            process.wait()


def helped(settings: Settings) -> AbstractContextManager[Worker | None]:
    """Start a worker where there is a processor for it."""
    return working(settings) if len(os.sched_getaffinity(0)) > 1 else nullcontext()


def helped_with_files(settings: Settings) -> AbstractContextManager[Worker | None]:
    """Start a worker likewise, if the files of flows are so large that it pays; it gets ready while they are landed."""
    files = sources.find(settings.places.flows, length_ns=settings.window.length_ns)
    worth = sum(Path(file.path).stat().st_size for file in files) >= WORTH_A_WORKER
    return helped(settings) if worth else nullcontext()
