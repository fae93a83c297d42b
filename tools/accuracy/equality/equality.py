"""The tables stay equal: every scenario and capture analysed in several ways, its answers held against a reference.

The reference is one JSON file of digests. The rows behind it and the scenarios' flows lie in a folder of their own, so
that a difference can be shown row by row, and so that a change of the simulator does not look like one of the analysis.
The product is called through its command line only.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path
from typing import TypeAlias

from accuracy.equality import reference
from accuracy.equality.answers import Digests, differing_rows, digest_of_files, digests_of, keep_rows
from accuracy.equality.reference import INPUTS, WHOLE, Entry

PROJECT = Path(__file__).resolve().parents[3]
SCENARIOS = PROJECT / "llmprism_tasks" / "simulate" / "scenario" / "presets"
CAPTURES = PROJECT / "tests" / "data" / "real"
REFERENCE = PROJECT / "tests" / "data" / "tables.json"
ROWS = PROJECT / ".accuracy" / "tables"
"""Where the rows of the reference and the scenarios' flows are kept, unless told."""

MINUTES = 3
OTHER_MINUTES = {"demo": 5, "hang": 4, "one_after_another": 4, "ends_in_order": 4, "platform": 1}
"""Of scenarios that show their point later, and of one that has 1.5 million flows a minute."""

SEED = 0
FORMS = {"flows.parquet": "", "flows_coarse.parquet": "/coarse"}
"""Files of records that a capture may have, and what each adds to its name."""

PARTS, WORKER, PUBLISHED = "parts", "worker", "published"
WAYS = (INPUTS, WHOLE, PARTS, WORKER, PUBLISHED)
"""`inputs` simulates anew and compares the flows; the others analyse: by the joint method in one process, all flows at
once or a third of those of two windows at a time; as a command with all processors; by the published method."""

PIECES = 4
"""`parts` sees so large a share of an input's flows at a time: of three windows, a window and its look-back are two."""

WITH_WORKER = frozenset({"scenarios/demo", "scenarios/platform"})
"""Inputs whose files of flows are so large that the command takes a second process."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Input:
    """A scenario or a form of a capture.

    Attributes
    ----------
    name : such as `scenarios/demo` and `captures/fsdp4/coarse`
    folder : with the flows and `topology.csv`; of a scenario, where they are simulated to
    flows : name of the file or folder of flows in it
    minutes : to simulate; 0 for a capture
    """

    name: str
    folder: Path
    flows: str
    minutes: int = 0

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways that it can be analysed in."""
        left_out = {*(() if self.name in WITH_WORKER else (WORKER,)), *(() if self.minutes else (INPUTS,))}
        return tuple(way for way in WAYS if way not in left_out)

    def digest(self, folder: Path | None = None) -> str:
        """Return the digest of the rows of its files, or of those in another folder."""
        at = self.folder if folder is None else folder
        flows = at / self.flows
        return digest_of_files([at / "topology.csv", *(flows.glob("*") if flows.is_dir() else [flows])])

    def truth(self, folder: Path) -> str:
        """Return the digest of what was simulated to a folder beside what is analysed."""
        return digest_of_files((folder / "truth").glob("*"))


@dataclass
class Outcome:
    """What became of an input: its entry for a reference, or how it differs from the one it was held against."""

    name: str
    entry: Entry
    differences: dict[str, list[str]] = field(default_factory=dict)
    """Lines on each `way, answer` that differs; rows are indented."""
    remarks: list[str] = field(default_factory=list)
    seconds: float = 0.0


def inputs(rows: Path = ROWS, only: Collection[str] = ()) -> Iterator[Input]:
    """Yield scenarios and captures, all or those whose name, or a part of it, matches one of some patterns."""
    for one in _all_inputs(rows):
        words = (one.name, *one.name.split("/"))
        if not only or any(fnmatch.fnmatchcase(word, pattern) for word in words for pattern in only):
            yield one


def _all_inputs(rows: Path) -> Iterator[Input]:
    for file in sorted(SCENARIOS.rglob("*.toml"), key=lambda file: file.stem):
        minutes = OTHER_MINUTES.get(file.stem, MINUTES)
        yield Input(f"scenarios/{file.stem}", rows / "inputs" / file.stem, "flows", minutes)
    for folder in sorted(CAPTURES.iterdir()):
        for flows, form in FORMS.items():
            if (folder / flows).is_file():
                yield Input(f"captures/{folder.name}{form}", folder, flows)


def run(
    chosen: Sequence[Input],
    ways: Collection[str],
    *,
    file: Path = REFERENCE,
    rows: Path = ROWS,
    write: bool = False,
    left_out: Collection[str] = (),
    jobs: int = 1,
    say: Say = print,
) -> bool:
    """Analyse inputs and hold their answers against the reference, or make them the reference.

    Parameters
    ----------
    ways : of `WAYS`
    file : the reference
    rows : folder of the rows behind it
    write : replaces what the reference has of these inputs, in all ways that each can be analysed in
    left_out : answers that are not compared
    jobs : processes at a time

    Returns
    -------
    whether all is equal, or all was written
    """
    entries = reference.read(file)
    differences = 0
    began = time.monotonic()
    wanted = [(one, entries.get(one.name), write, ways, rows, frozenset(left_out)) for one in chosen]
    for number, outcome in enumerate(_in_processes(wanted, jobs), start=1):
        if write and not outcome.differences:
            entries[outcome.name] = outcome.entry
            reference.write(file, entries)
        differences += len(outcome.differences)
        found = _count(len(outcome.differences), "difference") or ("written" if write else "equal")
        say(f"{number} of {len(chosen)}  {outcome.name}: {found}, {outcome.seconds:.1f} s")
        for line in [*outcome.remarks, *(line for lines in outcome.differences.values() for line in lines)]:
            say(f"    {line}")
    took = f"{len(chosen)} inputs, {time.monotonic() - began:.0f} s"
    if write:
        say(f"Written: {file}, rows in {rows}; {took}")
        return not differences
    except_for = f", {', '.join(sorted(left_out))} not compared" if left_out else ""
    say(f"{_count(differences, 'difference') or 'Equal'}: {took}{except_for}")
    if differences:
        say(f"Rows of the reference are looked for in {rows}. To write them anew, in a worktree of the commit that")
        say(f"wrote {file.name}: python -m accuracy tables --write --rows {rows}")
    return not differences


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}" if number else ""


Wanted: TypeAlias = tuple[Input, Entry | None, bool, Collection[str], Path, frozenset[str]]


def _in_processes(wanted: Sequence[Wanted], jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes in order; each process keeps to one processor, so that the command takes no second process."""
    for name in [name for name in os.environ if name.startswith("LLMPRISM_")]:
        del os.environ[name]  # a developer's own settings would change the answers
    os.environ["POLARS_MAX_THREADS"] = "2"  # what its threads do in another order is to show
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["llmprism_tasks.cli", "reliability.preloaded"])  # imports take seconds
    processors = sorted(os.sched_getaffinity(0))
    queue: Queue[int] = context.Queue()
    for number in range(jobs):
        queue.put(processors[number % len(processors)])
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_keep_to, initargs=(queue,)) as pool:
        yield from pool.map(_outcome, wanted)


def _keep_to(processors: Queue[int]) -> None:
    os.sched_setaffinity(0, {processors.get()})


def _outcome(wanted: Wanted) -> Outcome:
    one, expected, write, ways, rows, left_out = wanted
    began = time.monotonic()
    outcome = Outcome(one.name, {})
    with tempfile.TemporaryDirectory(prefix="tables-") as place:
        try:
            if write:
                _write(one, rows, Path(place), outcome)
            elif expected is None:
                outcome.differences[INPUTS] = ["it is not in the reference"]
            else:
                _check(one, expected, [way for way in one.ways if way in ways], rows, Path(place), outcome, left_out)
        except Exception as error:  # one input that breaks is news of its own; the others go on
            outcome.differences["error"] = [f"{type(error).__name__}: {error}"]
    outcome.seconds = time.monotonic() - began
    return outcome


def _write(one: Input, rows: Path, place: Path, outcome: Outcome) -> None:
    """Make an input's entry anew, and keep its rows."""
    if one.minutes:
        shutil.rmtree(one.folder, ignore_errors=True)
        _simulate(one, one.folder)
    shutil.rmtree(rows / one.name, ignore_errors=True)
    found = {way: _analyse(one, way, place, outcome) for way in one.ways if way != INPUTS}
    outcome.entry = reference.entry_of(one.digest(), found)
    if one.minutes:
        outcome.entry[INPUTS]["truth"] = one.truth(one.folder)
    for way in found:
        keep_rows(_warehouse(place, way), outcome.entry[way], rows / one.name / way)
        if outcome.entry[way] and way in (PARTS, WORKER):
            outcome.remarks.append(f"{way} differs from {WHOLE}: {', '.join(outcome.entry[way])}")


def _check(
    one: Input,
    expected: Entry,
    ways: Sequence[str],
    rows: Path,
    place: Path,
    outcome: Outcome,
    left_out: Collection[str],
) -> None:
    """Hold an input's answers against its entry."""
    digest = expected[INPUTS]["digest"]
    if one.minutes and (INPUTS in ways or not one.folder.is_dir() or one.digest() != digest):
        made = place / "simulated"
        _simulate(one, made)
        met = {"flows or topology": one.digest(made) == digest, "truth": one.truth(made) == expected[INPUTS]["truth"]}
        other = [what for what, equal in met.items() if not equal]
        if other:
            span = f"{one.minutes} minutes, seed {SEED}"
            outcome.differences[INPUTS] = [f"{INPUTS}: the simulator makes other {', '.join(other)} ({span})"]
        else:
            if one.folder.is_dir() and one.digest() != digest:
                shutil.rmtree(one.folder)
            _put(made, one.folder)
    if not one.folder.is_dir() or one.digest() != digest:
        lines = outcome.differences.setdefault(INPUTS, [])
        lines.append(f"{INPUTS}: {one.folder} has not the records of the reference; nothing was analysed")
        return
    found: dict[str, Digests] = {}
    for way in ways:
        if way != INPUTS:
            found[way] = _analyse(one, way, place, outcome)
            _compare(one.name, expected, way, found[way], rows, place, outcome, left_out)
    for way in (PARTS, WORKER):
        if way in found and WHOLE in found:
            apart = reference.changed(found[WHOLE], found[way]).keys() - left_out
            known = "as in the reference" if apart == expected[way].keys() - left_out else "unlike the reference"
            if apart:
                outcome.remarks.append(f"{way} differs from {WHOLE}, {known}: {', '.join(sorted(apart))}")


def _put(made: Path, folder: Path) -> None:
    """Move what was simulated to its place, unless it is there; another process may do the same."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        passing = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.move(made, passing)
        with contextlib.suppress(OSError):
            passing.rename(folder)
        shutil.rmtree(passing, ignore_errors=True)


def _compare(
    name: str,
    expected: Entry,
    way: str,
    met: Digests,
    rows: Path,
    place: Path,
    outcome: Outcome,
    left_out: Collection[str],
) -> None:
    before = reference.digests(expected, way)
    for answer, windows in reference.changed(before, met).items():
        if answer in left_out:
            continue
        kept = rows / name / (way if answer in expected[way] else WHOLE) / f"{answer}.parquet"
        lines = []
        for window in windows:
            old = before[answer].get(window)
            lines.append(f"{way}, {answer}, window {window}: {_told(old, met[answer].get(window))}")
            if window == windows[0]:
                shown = differing_rows(_warehouse(place, way), answer, window, kept, old)
                lines += [f"    {line}" for line in shown]
        outcome.differences[f"{way}, {answer}"] = lines


def _told(old: str | None, new: str | None) -> str:
    if old is None:
        return "rows where there were none"
    return "its rows are missing" if new is None else "other rows"


def _warehouse(place: Path, way: str) -> Path:
    return place / f"{way}.duckdb"


def _analyse(one: Input, way: str, place: Path, outcome: Outcome) -> Digests:
    """Analyse an input in one of the ways, and return the digests of its answers."""
    options = []
    if way == PARTS:
        options = ["--set", f"batches.at_once={_records(one) // PIECES + 1}"]
    elif way == PUBLISHED:
        options = ["--set", "method.name=published"]
    arguments = ["--flows", one.flows, "--topology", "topology.csv", "--warehouse", str(_warehouse(place, way))]
    with contextlib.chdir(one.folder):  # names of files are part of some answers
        command = _command_apart if way == WORKER else _command
        code, said = command(["analyze", *arguments, *options])
    if code:
        outcome.remarks.append(f"{way} ended with exit code {code}: {said.strip()}")
    return digests_of(_warehouse(place, way)) if _warehouse(place, way).is_file() else {}


def _records(one: Input) -> int:
    """Return how many records an input has."""
    import polars as pl  # noqa: PLC0415 - once the number of its threads is set

    flows = one.folder / one.flows
    files = flows / "*.parquet" if flows.is_dir() else flows
    return int(pl.scan_parquet(files).select(pl.len()).collect().item())


def _simulate(one: Input, folder: Path) -> None:
    scenario = one.name.partition("/")[2]
    arguments = ["--out", str(folder), "--scenario", scenario, "--minutes", str(one.minutes), "--seed", str(SEED)]
    code, said = _command(["simulate", *arguments])
    if code:
        raise RuntimeError(f"{one.name} could not be simulated (exit code {code}): {said}")


def _command(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a command line of the product in this process; returns its exit code and what it said of errors."""
    from llmprism_tasks import cli  # noqa: PLC0415 - once the number of Polars' threads is set

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = cli.main(arguments)
    return code, said.getvalue()


def _command_apart(arguments: Sequence[str]) -> tuple[int, str]:
    """Run it likewise, as a process of its own with all processors."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        program = str(Path(sys.executable).with_name("llmprism"))
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    finally:
        os.sched_setaffinity(0, own)
    return done.returncode, done.stderr
