"""What a fresh process takes, with those that it starts: time on the clock, processor time, and the most memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from accuracy.runs.sources import PROJECT

LOOKS_S = 0.05
"""Time between two looks at how much memory there is in use: what is held for less is not what a machine needs."""


class ProcessFailed(Exception):
    """A measured process failed; the message is what it said."""


@dataclass(frozen=True)
class Cost:
    """What a process took from its start to its end.

    Attributes
    ----------
    wall_s, cpu_s : on the clock; of processors, its own children's included
    peak_bytes : the greatest resident memory, of it and its children together; what they share counts for each
    said : its standard output
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    said: str


def run(command: Sequence[str], variables: Mapping[str, str] | None = None, *, watched: bool = True) -> Cost:
    """Run a command from the top of the repository and measure it.

    Parameters
    ----------
    watched : whether to look at the memory of all its processes, which takes some of a processor's time; else
        `peak_bytes` is that of the first

    Raises
    ------
    ProcessFailed : it ended with another code than 0
    """
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=PROJECT, env=_environment() | dict(variables or {}), stdout=said, stderr=subprocess.STDOUT
        )
        with _watched(process.pid) if watched else nullcontext([0]) as seen:
            _, status, used = os.wait4(process.pid, 0)  # of this one child, unlike resource.RUSAGE_CHILDREN
        wall_s = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode()
    if process.returncode:
        raise ProcessFailed(f"{' '.join(command)} ended with {process.returncode}\n{text[-4000:]}")
    return Cost(wall_s, used.ru_utime + used.ru_stime, max(used.ru_maxrss * 1024, *seen), text)


@contextmanager
def _watched(pid: int) -> Iterator[list[int]]:
    """Lend a list to which what a process and its children hold is added now and then, in bytes."""
    seen, over = [0], threading.Event()

    def watch() -> None:
        with suppress(psutil.Error):
            first = psutil.Process(pid)
            while not over.wait(LOOKS_S):
                seen.append(sum(map(_held, (first, *first.children(recursive=True)))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _held(process: psutil.Process) -> int:
    with suppress(psutil.Error):  # it has ended
        return int(process.memory_info().rss)
    return 0


def python(*words: str, variables: Mapping[str, str] | None = None, watched: bool = True) -> Cost:
    """Run `python` with some words, as `run` does."""
    return run([sys.executable, *words], variables, watched=watched)


def _environment() -> dict[str, str]:
    """Return this process's variables without a developer's own settings, which would change what is measured.

    Such as not to keep Python's own translation of a module, which who installs it has: all would be translated anew.
    """
    settings = ("LLMPRISM_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "GX_ANALYTICS_ENABLED": "false"}


def command(name: str) -> str:
    """Return the path of a command that is installed beside this Python."""
    return str(Path(sys.executable).parent / name)
