"""Storage: the warehouse's version, who can write it, its growth against the room on its disk, and the read copy."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmprism_tasks.contract.errors import ContractError, InputError, TransientError
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.reports.doctor.finding import Finding, judged
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse import schema, store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.upkeep import expiry, space

RECENT_WINDOWS = 60
"""Windows by which the growth is measured: an hour holds the usual comings and goings of jobs."""

SOON_H, LATER_H = 2, 48
"""Hours of growth for which there must be room: less than a night shift needs to react; where something is kept for
ever, less than a weekend. Where all expires, there must be room for all that will be kept."""

EXCHANGED_BYTES = 60
"""Bytes in TMPDIR for each flow of a window and its look-back."""

RUNS = 2
"""Windows that Airflow runs at a time."""

LATE_WINDOWS = 3
"""Windows by which the read copy may be behind: one is being finished, one is about to be."""


@dataclass(frozen=True)
class Growth:
    """How a warehouse grows.

    Attributes
    ----------
    size : bytes of its files
    by_table : bytes that a window adds to each table
    flows : flow records of a window
    window_h : length of a window, hours
    """

    size: int
    by_table: Mapping[str, float]
    flows: float
    window_h: float

    @property
    def per_window(self) -> float:
        """Bytes that a window of all tables takes."""
        return sum(self.by_table.values())

    def at_rest(self, settings: Settings) -> float | None:
        """Return the bytes at which the warehouse stops growing; None if something is kept for ever."""
        kept = settings.retention
        hours = dict.fromkeys(expiry.FLOWS, kept.flows_h) | dict.fromkeys(expiry.TIMELINE, kept.timeline_h)
        limits = {table: hours.get(table, 24 * kept.results_d) for table in self.by_table}
        if not all(limits.values()):
            return None
        return sum(self.by_table[table] * limit / self.window_h for table, limit in limits.items())


def room(growth: Growth, free: int, settings: Settings) -> Finding:
    """Judge the room on the warehouse's disk by what the next hours will write, and by what will be kept."""
    hourly = growth.per_window / growth.window_h
    at_rest = growth.at_rest(settings)
    coming = LATER_H * hourly if at_rest is None else max(at_rest - growth.size, 0)
    rest = "without end" if at_rest is None else f"up to {_size(at_rest)}"
    found = (
        f"{_size(growth.size)}; a window adds {_size(growth.per_window)}, a day {_size(24 * hourly)}, {rest}; "
        f"{_size(free)} are free"
    )
    more = "Make room there, or keep less: retention.flows_h, and llmprism_maintenance running."
    soon = min(SOON_H * hourly, coming)
    return judged("warehouse's disk", found, problem=more if free < soon else "", warning=more if free < coming else "")


def writable(places: Sequence[Path]) -> Finding:
    """Judge whether this user can write the warehouse, as runs do."""
    refused = [str(place) for place in places if not os.access(place, os.W_OK)]
    todo = "Runs of this user will fail: see who owns it, and whether its disk is mounted read-only."
    found = f"{', '.join(refused)} cannot be written by this user" if refused else "can be written by this user"
    return judged("warehouse's files", found, warning=todo if refused else "")


def exchange(flows: float, free: int, settings: Settings) -> Finding:
    """Judge the room in TMPDIR by what the tasks of the windows at work leave for each other."""
    needed = EXCHANGED_BYTES * flows * (settings.window.lookback_windows + 1) * RUNS
    found = f"{_size(free)} are free in {tempfile.gettempdir()}, of which runs take about {_size(needed)}"
    return judged("TMPDIR", found, problem="" if free > needed else "Make room there, or set TMPDIR to another folder.")


def copy_age(behind: int | None) -> Finding:
    """Judge by how many finished windows the read copy is behind; None: there is no copy yet."""
    if behind is None:
        return judged("read copy", "none yet", warning="It is published when a window is finished; see its log.")
    late = "The log of `finish` says why it is not published." if behind > LATE_WINDOWS else ""
    return judged("read copy", f"{behind} windows behind the warehouse", warning=late)


def look_at_schema(warehouse: Warehouse) -> Finding:
    """Check the version of a warehouse; it is not brought up to date."""
    try:
        with warehouse.reading() as connection:
            current = schema.is_current(connection, warehouse.location)
    except ContractError as error:
        return judged("warehouse", error.found, problem=error.todo)
    except InputError as error:
        return judged("warehouse", error.found, problem=error.todo)
    except TransientError as error:
        return judged("warehouse", error.found, warning=error.todo)
    version, _ = schema.current()
    if current:
        return judged("warehouse", f"schema version {version}")
    return judged("warehouse", "an earlier schema version", warning="The next analysis or run brings it up to date.")


def look(warehouse: Warehouse, settings: Settings) -> Iterator[Finding]:
    """Check who can write an up-to-date warehouse, the room on its disks, and its read copy."""
    yield writable(space.places_of(warehouse))
    growth = measured(warehouse, settings)
    yield room(growth, shutil.disk_usage(space.folder_of(warehouse)).free, settings)
    yield exchange(growth.flows, shutil.disk_usage(tempfile.gettempdir()).free, settings)
    if settings.places.read_copy:
        yield copy_age(_behind(warehouse, Path(settings.places.read_copy), settings.window.length_ns))


def measured(warehouse: Warehouse, settings: Settings) -> Growth:
    """Measure how a warehouse grows, by its last windows."""
    latest = store.query(
        warehouse,
        f"SELECT window_start_ns AS ns FROM windows WHERE expired IS NULL ORDER BY ns DESC LIMIT {RECENT_WINDOWS}",
    )["ns"].to_list()
    rows = expiry.count_rows(warehouse, expiry.Due(everything=tuple(latest)))
    sizes = space.table_bytes(warehouse)
    windows = max(len(latest), 1)
    by_table = {table: sizes[table] * one.due / max(one.all, 1) / windows for table, one in rows.items()}
    hours = settings.window.length_ns / (3600 * NANOSECONDS_PER_SECOND)
    return Growth(space.warehouse_bytes(warehouse), by_table, rows["flows"].due / windows, hours)


def _behind(warehouse: Warehouse, copy: Path, length_ns: int) -> int | None:
    if not copy.is_file():
        return None
    newest = "SELECT coalesce(max(window_start_ns), 0) FROM windows WHERE status = 'done'"
    ends = [store.query(one, newest).item() for one in (warehouse, Warehouse(str(copy), warehouse.lock_wait_s))]
    return int((ends[0] - ends[1]) // length_ns)


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
