"""Running what has not been measured yet, each method in a process of its own."""

from __future__ import annotations

import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from accuracy.runs.measurement import Figures, measure, write_run
from accuracy.runs.results import keep, kept
from accuracy.runs.sources import Source

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")
Say = Callable[[str], None]


def run_missing(
    sources: Iterable[Source], methods: Sequence[str], *, jobs: int, say: Say, until_s: float = math.inf
) -> list[str]:
    """Measure every source by every method for which nothing is kept; returns those that failed.

    What is done is kept, so that an interrupted run goes on where it was.

    Parameters
    ----------
    until_s : none is begun later, seconds of `time.monotonic`
    """
    missing: dict[str, tuple[Source, list[str]]] = {}
    for source in sources:
        wanted = [one for one in methods if one in source.methods and kept(source, one) is None]
        if wanted:
            missing[source.file("")] = (source, wanted)
    failed: list[str] = []

    def one(number: int, source: Source, wanted: list[str]) -> None:
        if time.monotonic() > until_s:
            return
        for method, said in _measured(source, wanted):
            if not said.startswith("jobs"):
                failed.append(f"{source.group} {source.label}, {method}: {said}")
            say(f"{number} of {len(missing)}  {source.group} {source.label}, {method}: {said}")

    with ThreadPoolExecutor(jobs) as threads:
        begun = [threads.submit(one, at, *each) for at, each in enumerate(missing.values(), start=1)]
        try:
            for task in begun:
                task.result()
        finally:  # an interruption ends what runs now and begins nothing else
            threads.shutdown(cancel_futures=True)
    return failed


def _measured(source: Source, methods: Sequence[str]) -> list[tuple[str, str]]:
    """Measure a source by some methods and keep the results; returns a line on each."""
    said = []
    with tempfile.TemporaryDirectory(prefix="accuracy-") as place:
        folder, written = Path(source.folder), Figures()
        if source.content is not None:
            folder = Path(place)
            written = apart(write_run, folder, source.group, source.content, source.minutes, source.seed)
        for method in methods:
            try:
                result = apart(measure, folder, source.flows, method, Path(place) / f"{method}.duckdb")
            except Exception as error:  # one run that breaks is news of its own; the others go on
                said.append((method, f"{type(error).__name__}: {error}"))
                continue
            keep(source, method, {**result, **written})
            every = result["figures"]["all"]
            jobs, steps = (
                f"{every[part]} of {every[of]}" for part, of in (("exact", "windows"), ("steps_found", "steps"))
            )
            said.append((method, f"jobs {jobs}, steps {steps}, {result['cpu_s']:.0f} s"))
    return said


def apart(function: Callable[Arguments, Value], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
    """Call a function in a new process, so that nothing that came before decides what it does or takes."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()
