"""Dividing: a window's flows taken through stages at once, a part of the platform at a time, or some jobs' at a time.

Stages are pure and see what they are given. Of many flows they are given those of hosts that exchange no data with
others, and a worker takes some of these parts. Where all hosts exchange data, the stages that work job by job are given
the flows of some jobs.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from llmprism_tasks import deriving
from llmprism_tasks.contract.frames import Part
from llmprism_tasks.contract.plan import BATCHES, PARTS, UNLISTED, Stage
from llmprism_tasks.contract.tables import table_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.deriving import Derived
from llmprism_tasks.settings import Settings
from llmprism_tasks.sharing import shared
from llmprism_tasks.stages.traffic.index import TrafficIndex
from llmprism_tasks.worker import Worker

logger = logging.getLogger(__name__)

LEAST_PARTS = 2
"""Parts for two processes at least; each costs a third of a second, however few its flows."""

WHOLE = ("jobs", "job_members", "pairs", "steps")
"""Tables of which a stage that must see the whole platform sees all rows."""

COMPLETED = ("jobs", "diagnoses")
"""Tables that are not told of parts, for only the whole platform completes them."""


class Sink(Protocol):
    """Takes what the stages make."""

    def begin(self) -> None:
        """Let go what was taken: all comes again."""

    def take(self, derived: Derived, jobs: Sequence[str] | None, *, more: int | None = None) -> None:
        """Take what stages made, in the place of what was taken for these jobs, or for all if None.

        Parameters
        ----------
        more : of a part of the platform: how many more of them are to come
        """


class Reader(Protocol):
    """Reads tables as stages are promised them."""

    def __call__(self, tables: Sequence[str], jobs: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
        """Return rows of tables, and flows, of some jobs or of all."""


def read_first(stages: Iterable[Stage]) -> list[str]:
    """Return the tables that stages read and none of those before them makes, the topology always among them."""
    wanted = dict.fromkeys(["flows", "topology"])
    made: set[str] = set()
    for stage in stages:
        wanted |= dict.fromkeys(table for table in stage.reads if table not in made)
        made |= set(stage.writes)
    return list(wanted)


def at_once(
    stages: Sequence[Stage],
    held: Mapping[str, pl.DataFrame],
    window: Window,
    settings: Settings,
    worker: Worker | None,
    sink: Sink,
) -> bool:
    """Take flows in memory through stages, those of a part of the platform at a time if they are many.

    Parameters
    ----------
    held : the tables that `read_first` tells

    Returns
    -------
    False, with nothing in the sink, if the flows are too many for stages that could take some jobs' at a time
    """
    sink.begin()
    pieces = math.ceil(held["flows"].height / settings.batches.at_once)
    if (pieces > 1 or worker is not None) and settings.method.name == "joint":
        most = max(pieces, LEAST_PARTS if worker is not None else 1)
        parts = deriving.named(PARTS)(held["flows"], held["topology"], settings.traffic, most=most)
        if parts.number > 1:
            if _by_parts(stages, parts, held, window, settings, worker, sink):
                return True
            sink.begin()
    if pieces > 1 and any(stage.per_job for stage in stages):
        return False
    tables = dict(held)
    for stage in stages:
        logger.info("window %s, %s: %d flows at once", window, stage.name, held["flows"].height)
        derived = _derived([stage], tables, window, settings)
        tables |= derived.tables
        sink.take(derived, None)
    return True


def by_jobs(
    stages: Sequence[Stage],
    read: Reader,
    window: Window,
    settings: Settings,
    sink: Sink,
    *,
    flows: int,
) -> None:
    """Take a window through stages, those that work job by job with some jobs at a time.

    Parameters
    ----------
    read : finds what the sink was given before
    flows : how many the window has, look-back included
    """
    sink.begin()
    for per_job, neighbours in itertools.groupby(stages, key=lambda stage: stage.per_job):
        group = list(neighbours)
        wanted, most = read_first(group), math.ceil(flows / settings.batches.at_once)
        known = read(["jobs", "job_members"])
        for jobs in deriving.named(BATCHES)(known["jobs"], known["job_members"], most) if per_job else [None]:
            held = read(wanted, jobs)
            way = "of some jobs" if per_job else "at once"
            logger.info("window %s, %s: %d flows %s", window, _named(group), held["flows"].height, way)
            sink.take(_derived(group, held, window, settings), jobs)


def _derived(stages: Sequence[Stage], held: Mapping[str, pl.DataFrame], window: Window, settings: Settings) -> Derived:
    """Return what stages make of flows that have no others beside them."""
    part = Part(held["flows"], tables=_known(held))
    return deriving.derive(part, held["topology"], window, settings, [stage.name for stage in stages])


def _named(stages: Sequence[Stage]) -> str:
    return ", ".join(stage.name for stage in stages)


def _known(held: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return {table: rows for table, rows in held.items() if table not in ("flows", "topology")}


def _by_parts(
    stages: Sequence[Stage],
    parts: Any,
    held: Mapping[str, pl.DataFrame],
    window: Window,
    settings: Settings,
    worker: Worker | None,
    sink: Sink,
) -> bool:
    """Take `stages.parts.Parts` through stages.

    Returns
    -------
    False where jobs of two parts have one name: then only the whole platform tells them apart
    """
    logger.info("window %s, %s: %d flows in %d parts", window, _named(stages), held["flows"].height, parts.number)
    made: dict[int, Derived] = {}
    parts = parts._replace(tables=_known(held))
    with shared(parts, worker, held["topology"], window, settings, _turns(stages)) as each:
        for number, derived in each:
            kept = _only(derived, {*WHOLE, *COMPLETED})
            if number in made:
                made[number] = Derived(made[number].made | kept.made, kept.stage_ns)
                continue
            made[number] = kept._replace(stage_ns={})  # what it took so far is told with what it made
            if _share_names(made.values()):
                return False
            tables = {table for stage in stages for table in stage.writes}.difference(COMPLETED)
            jobs = derived.tables["jobs"]["job_id"].to_list() if "jobs" in derived.tables else []
            sink.take(_only(derived, tables), jobs, more=parts.number - len(made))
    sink.take(_completed(stages, [*made.values()], parts.outside, held, window, settings), None)
    return True


def _turns(stages: Sequence[Stage]) -> list[list[str]]:
    """Return the names of the stages that make what is told of parts, and of those after them, which do not."""
    names = [stage.name for stage in stages]
    telling = [at for at, stage in enumerate(stages, start=1) if set(stage.writes).difference(COMPLETED)]
    end = max(telling, default=0)
    return [turn for turn in (names[:end], names[end:]) if turn]


def _only(derived: Derived, tables: Collection[str]) -> Derived:
    made = {
        stage: {table: rows for table, rows in of_stage.items() if table in tables}
        for stage, of_stage in derived.made.items()
    }
    return derived._replace(made=made)


def _share_names(made: Iterable[Derived]) -> bool:
    """Tell whether jobs of two parts have one name: names are short, and each part gives its own."""
    named = [one.tables["jobs"]["job_id"] for one in made if "jobs" in one.tables]
    return bool(named) and bool(pl.concat(named).is_duplicated().any())


def _completed(
    stages: Sequence[Stage],
    made: Sequence[Derived],
    outside: pl.DataFrame,
    held: Mapping[str, pl.DataFrame],
    window: Window,
    settings: Settings,
) -> Derived:
    """Return the tables that parts only begin, of the whole platform.

    Parameters
    ----------
    outside : as `stages.parts.Parts` has it
    """
    missing = [stage for stage in stages if any(stage.name not in one.made for one in made)]
    wanted = {*COMPLETED, "job_members"}.union(*(stage.reads for stage in missing))
    done: dict[str, dict[str, pl.DataFrame]] = {}
    stage_ns = Counter[str]()
    for one in made:
        stage_ns.update(one.stage_ns)
    tables = dict(held)
    for stage in stages:
        if stage in missing:
            logger.info("window %s, %s: %d flows at once", window, stage.name, held["flows"].height)
            whole = _derived([stage], tables, window, settings)
            done |= whole.made
            stage_ns.update(whole.stage_ns)
            continue
        of_parts = [one.made[stage.name] for one in made]
        tables |= {table: _together(table, of_parts) for table in wanted.intersection(of_parts[0])}
        if "jobs" in stage.writes:
            complete = deriving.named(UNLISTED)
            tables["jobs"] = complete(
                tables["jobs"],
                tables["job_members"],
                TrafficIndex.of(outside, settings.traffic),
                held["topology"],
                window,
                settings,
            )
        done[stage.name] = {table: tables[table] for table in stage.writes if table in COMPLETED}
    return Derived(done, stage_ns)


def _together(table: str, of_parts: Sequence[Mapping[str, pl.DataFrame]]) -> pl.DataFrame:
    return pl.concat([tables[table] for tables in of_parts]).sort(table_named(table).key)
