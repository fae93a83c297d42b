"""Running: the stages of the plan for a landed window, from the warehouse's tables to its tables."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Self

import polars as pl

from llmprism_tasks import __version__, dividing
from llmprism_tasks.aside import Aside, Work, aside
from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.plan import DERIVED, STAGES, Stage, stage_named, tables_after
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.deriving import Derived
from llmprism_tasks.drafts import Drafts
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.landing import landing
from llmprism_tasks.warehouse.store import Change
from llmprism_tasks.worker import Worker, helped

logger = logging.getLogger(__name__)

WORTH_A_WORKER = 250_000
"""Flows from which a worker saves more than its start costs."""

WRITTEN_TOGETHER = 2
"""Parts that are written at a time: DuckDB logs what fills none of its row groups, and packs the last of each again. So
for the last ones, the warehouse is held for as long as they take, a second or two."""


@dataclass(frozen=True)
class Landed:
    """Flows that were landed just now.

    Attributes
    ----------
    frames : rows of `flows` of windows by their start
    others : starts of the other windows that the warehouse has
    """

    frames: Mapping[int, pl.DataFrame]
    others: Set[int]

    def of(self, span: Window) -> pl.DataFrame | None:
        """Return the flows of a span's windows, with what stages look at; None if not all of them are at hand."""
        if not self.frames or any(span.start_ns <= start_ns < span.end_ns for start_ns in self.others):
            return None
        starts = [start_ns for start_ns in sorted(self.frames) if span.start_ns <= start_ns < span.end_ns]
        return pl.concat([self.frames[start_ns].select(landing.SEEN) for start_ns in starts], rechunk=len(starts) > 1)


def run_stage(name: str, window: Window, settings: Settings) -> dict[str, int]:
    """Run one stage of the plan for a window: read its tables, derive, replace the window's rows.

    The first stage is the first to read the flows, and takes them through the later stages as well. These have but to
    write what was made of them, unless it is gone, or was made of anything else than there is now.

    Returns
    -------
    rows written per table
    """
    stage = stage_named(name)
    warehouse = opened(settings)
    drafts, made_of = Drafts(settings.places.warehouse, window), _made_of(warehouse, window, settings)
    derived = None if stage is STAGES[0] else drafts.of(stage, made_of)
    if derived is None:
        _draft_ahead(stage, warehouse, window, settings, drafts)
        drafts.end(made_of)
        derived = drafts.of(stage, made_of)
    if derived is None:
        raise TransientError(
            found=f"window {window}: what {name} made is gone",
            expected="its files to stay until they are written to the warehouse",
            todo="Run it again; see that nothing else clears the folder for temporary files.",
        )
    clears = tables_after(name)
    store.replace(warehouse, window, derived.tables, clears=clears, ordered=True, stage_ns=derived.stage_ns)
    rows = {table: frame.height for table, frame in derived.tables.items()}
    logger.info("window %s, %s: %s", window, name, ", ".join(f"{count} {table}" for table, count in rows.items()))
    return rows


def forget_drafts(window: Window, settings: Settings) -> None:
    """Remove what was kept for the tasks of stages: all of them are done."""
    Drafts(settings.places.warehouse, window).forget()


def _draft_ahead(stage: Stage, warehouse: Warehouse, window: Window, settings: Settings, drafts: Drafts) -> None:
    """Make the draft of a stage; if it is the first, of all, as long as none of them fails."""
    ahead = STAGES if stage is STAGES[0] else (stage,)
    try:
        _draft(ahead, warehouse, window, settings, drafts)
    except Exception:
        if ahead == (stage,):
            raise
        logger.warning("window %s: a stage failed; its own task will say why", window, exc_info=True)
        _draft((stage,), warehouse, window, settings, drafts)


def _draft(stages: Sequence[Stage], warehouse: Warehouse, window: Window, settings: Settings, drafts: Drafts) -> None:
    """Make drafts of stages; of the first of them alone where it and the others cannot be given the same flows."""
    flows = _flows(warehouse, window, settings)
    read = functools.partial(_read, warehouse, window, settings)
    with helped(settings) if flows >= WORTH_A_WORKER else nullcontext() as worker:
        held = read(dividing.read_first(stages))
        if not dividing.at_once(stages, held, window, settings, worker, drafts):
            del held
            dividing.by_jobs(stages[:1], read, window, settings, drafts, flows=flows)


def _made_of(warehouse: Warehouse, window: Window, settings: Settings) -> str:
    """Return a digest of what the stages of a window depend on."""
    topology = read_topology(settings.places.topology).write_csv()
    windows = _windows(warehouse, window, settings).rows()
    return hashlib.sha256(repr((__version__, settings, topology, windows)).encode()).hexdigest()


def nothing() -> None:
    """Do nothing."""


def derive_tables(
    window: Window,
    settings: Settings,
    *,
    warehouse: Warehouse | None = None,
    landed: Landed | None = None,
    worker: Worker | None = None,
    writing: Aside | None = None,
    checked: Work = nothing,
) -> None:
    """Run all stages of the plan for a landed window in this process; tables are written while stages are at work.

    Parameters
    ----------
    warehouse : when it was opened already
    landed : rows of `flows` that need not be read
    worker : who shares the work
    writing : who writes; without one, all is written at the end
    checked : called before anything is written, and before flows are read that are not at hand
    """
    warehouse = warehouse or opened(settings)
    with aside() if writing is None else nullcontext(writing) as writer:
        writer(checked)
        with _Tables(warehouse, window, settings, writer) as tables:
            held = tables.held(landed)
            if not dividing.at_once(STAGES, held, window, settings, worker, tables):
                flows = held["flows"].height
                del held
                dividing.by_jobs(STAGES, tables.read, window, settings, tables, flows=flows)
            tables.end()


class _Tables:
    """The tables of the warehouse: a sink, which writes what the stages made while they are at work again."""

    def __init__(self, warehouse: Warehouse, window: Window, settings: Settings, writing: Aside) -> None:
        self._warehouse, self._window, self._settings, self._writing = warehouse, window, settings, writing
        self._stage_ns = Counter[str]()
        self._parts: list[Change] = []
        self._last: SimpleQueue[Change | None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_last()

    def held(self, landed: Landed | None) -> dict[str, pl.DataFrame]:
        """Return what the stages read first."""
        span = self._window.lookback(self._settings.window.lookback_windows)
        flows = None if landed is None else landed.of(span)
        if flows is not None:
            return {"flows": flows, "topology": read_topology(self._settings.places.topology)}
        return self.read(dividing.read_first(STAGES))

    def begin(self) -> None:
        """Clear all that stages write."""
        self._end_last()
        self._stage_ns.clear()
        self._parts.clear()
        self._write([Change({}, clears=DERIVED)])

    def take(self, derived: Derived, jobs: Sequence[str] | None, *, more: int | None = None) -> None:
        """Write what stages made, in the place of these jobs' rows: another run may do the same window.

        Parts are written some at a time, and the last ones as they come, with all that follows.
        """
        self._stage_ns.update(derived.stage_ns)
        change = Change(derived.tables, jobs=jobs, ordered=True)
        if more is None:
            self._write_last(change)
            return
        self._parts.append(change)
        if more < WRITTEN_TOGETHER:
            self._begin_last()
        elif len(self._parts) == WRITTEN_TOGETHER:
            self._write(self._parts)
            self._parts = []

    def end(self) -> None:
        """Write what the stages took, all in all."""
        self._write_last(Change({}, stage_ns=self._stage_ns))
        self._end_last()

    def read(self, tables: Sequence[str], jobs: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
        """Read tables, all that was taken included."""
        self._end_last()
        self._writing.wait()
        return _read(self._warehouse, self._window, self._settings, tables, jobs)

    def _begin_last(self) -> None:
        if self._last is None:
            self._last = SimpleQueue()
            self._write(iter(self._last.get, None))
        for part in self._parts:
            self._last.put(part)
        self._parts.clear()

    def _write_last(self, change: Change) -> None:
        if self._last is None:
            self._write([change])
        else:
            self._last.put(change)

    def _end_last(self) -> None:
        if self._last is not None:
            self._last.put(None)
            self._last = None

    def _write(self, changes: Iterable[Change]) -> None:
        self._writing(functools.partial(store.replace_each, self._warehouse, self._window, changes))


def opened(settings: Settings) -> Warehouse:
    """Open the warehouse that settings name."""
    return open_warehouse(settings.places.warehouse, lock_wait_s=settings.warehouse.lock_wait_s)


def _flows(warehouse: Warehouse, window: Window, settings: Settings) -> int:
    """Return how many flows the stages read, look-back included."""
    return int(_windows(warehouse, window, settings)["rows_landed"].sum())


def _windows(warehouse: Warehouse, window: Window, settings: Settings) -> pl.DataFrame:
    """Return the windows whose flows the stages read: `window_start_ns`, `rows_read`, `rows_landed`."""
    span = window.lookback(settings.window.lookback_windows)
    return store.read(warehouse, "windows", span, columns=["window_start_ns", "rows_read", "rows_landed"])


def _read(
    warehouse: Warehouse,
    window: Window,
    settings: Settings,
    tables: Sequence[str],
    jobs: Sequence[str] | None = None,
) -> dict[str, pl.DataFrame]:
    """Read tables as the plan promises them to stages: flows with look-back, the topology whole."""
    lookback = window.lookback(settings.window.lookback_windows)
    spans = {table: lookback if table == "flows" else window for table in tables if table != "topology"}
    found = store.read_each(warehouse, spans, jobs=jobs, columns={"flows": landing.SEEN})
    return found | ({"topology": read_topology(settings.places.topology)} if "topology" in tables else {})
