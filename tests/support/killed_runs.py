"""Runs of a window that are killed at a call, in processes forked from one that has imported what all of them need."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution import analyze
from llmprism_tasks.execution.window import land_window
from llmprism_tasks.settings import Settings

PROCESSES = multiprocessing.get_context("forkserver")
"""Imports are half of a run, and a process that runs tests has threads, with which it cannot be forked itself."""

PROCESSES.set_forkserver_preload(["llmprism_tasks.cli", "reliability.preloaded"])


def killed_at(module: str, function: str, calls: int, window: Window, settings: Settings) -> int:
    """Land a window and run it in a process that is killed at some call; returns the process's exit code.

    Parameters
    ----------
    module : of `llmprism_tasks`, in which the function is looked up
    calls : after how many calls of the function, this one included
    """
    process = PROCESSES.Process(target=_run, args=(module, function, calls, window, settings, Path.cwd()))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(module: str, function: str, calls: int, window: Window, settings: Settings, folder: Path) -> None:
    os.chdir(folder)  # the processes' parent may have begun in another
    found = importlib.import_module(f"llmprism_tasks.{module}")
    real, left = getattr(found, function), calls

    @functools.wraps(real)
    def watched(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    setattr(found, function, watched)
    land_window(window, settings)
    analyze.run_landed(window, settings)
