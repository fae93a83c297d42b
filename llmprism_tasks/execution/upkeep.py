"""Upkeep: rows that were kept as long as `retention` in the settings says are deleted, and their space is given back.

Nothing here runs by itself: `llmprism expire` and the maintenance DAG call it. It may be killed and run again.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.execution.window import open_configured, publish_copy
from llmprism_tasks.settings import Settings
from llmprism_tasks.validation import data_docs
from llmprism_tasks.warehouse.storage.temporary_folder import delete_old_folders, handover_folder
from llmprism_tasks.warehouse.upkeep import expiry, space

logger = logging.getLogger(__name__)

HOUR_NS = 3600 * NANOSECONDS_PER_SECOND

AT_WORK_H = 1.0
"""For so long after a window's run began its flows stay, however old they are: a backfill's next windows look back on
them, and are run within minutes."""


@dataclass(frozen=True)
class Expired:
    """What was deleted, or would be.

    Attributes
    ----------
    rows : by table, how many rows it had, and how many of them were due
    table_bytes : by table, about how many bytes the rows that were due took
    windows : how many windows lost their flows, their timeline or everything, and of how many the flows are old and
        were `held` for windows that wait to be run
    before, after : bytes of the warehouse's files; the same for a dry run
    """

    rows: dict[str, expiry.Rows]
    table_bytes: dict[str, int]
    windows: dict[str, int]
    before: int
    after: int


def expire(settings: Settings, *, dry_run: bool = False, old_s: float = space.OLD_S) -> Expired:
    """Delete what was kept long enough, and give its space back.

    Parameters
    ----------
    dry_run : delete nothing
    old_s : seconds for which a DuckLake keeps files that were replaced, for queries that began before

    Raises
    ------
    SettingsError : flows would expire while the next window still looks back on them
    WarehouseBusy : another process held the warehouse for too long; run it again
    """
    kept, lookback = _kept(settings), settings.window.lookback_windows
    warehouse = open_configured(settings)
    found = expiry.find_due(warehouse, kept, lookback_windows=lookback)
    before, rows = space.warehouse_bytes(warehouse), expiry.count_rows(warehouse, found)
    sizes = space.table_bytes(warehouse)
    if not dry_run:
        expiry.delete(warehouse, found, kept, lookback_windows=lookback)
        expiry.sweep(warehouse)
        space.give_back(warehouse, old_s=old_s)
        for start_ns in found.everything:
            data_docs.delete(settings, Window(start_ns, settings.window.length_ns))
        delete_old_folders(handover_folder(settings.places.handover))
        publish_copy(warehouse, settings)
    return Expired(
        rows,
        {table: sizes[table] * due // all_rows if all_rows else 0 for table, (all_rows, due) in rows.items()},
        {name: len(starts) for name, starts in found._asdict().items()},
        before,
        space.warehouse_bytes(warehouse),
    )


def expire_and_log(settings: Settings) -> dict[str, int]:
    """Do what `expire` does, and log it; returns how many rows of each table were deleted."""
    found = expire(settings)
    logger.info("%s", sentence(found))
    return {table: rows.due for table, rows in found.rows.items() if rows.due}


def sentence(found: Expired, *, dry_run: bool = False) -> str:
    """Return what was deleted, or would be, in a sentence or two."""
    windows = found.windows
    what = (
        f"{windows['flows']:,} windows lose their flows, {windows['timeline']:,} their timeline, "
        f"{windows['everything']:,} all rows"
    )
    size = f"The warehouse had {found.before:,} bytes and has {found.after:,}."
    held = (
        f" The flows of {windows['held']:,} more windows are old, and kept for windows that wait to be run."
        if windows["held"]
        else ""
    )
    if dry_run:
        return f"Nothing was deleted. Without --dry-run {what}. The warehouse has {found.before:,} bytes.{held}"
    return f"Done: {what}. {size}{held}"


def _kept(settings: Settings) -> expiry.Kept:
    retention = settings.retention
    needed_ns = (settings.window.lookback_windows + 1) * settings.window.length_ns
    if 0 < retention.flows_h * HOUR_NS < needed_ns:
        raise SettingsError(
            found=f"retention.flows_h = {retention.flows_h:g}, which is {retention.flows_h * 60:g} minutes",
            expected=f"at least {needed_ns / HOUR_NS:.3g} hours: a window and its look-back, which the next one reads",
            todo="Raise retention.flows_h, or set it to 0 to keep flows for ever.",
        )
    return expiry.Kept(
        _limit_ns(retention.flows_h),
        _limit_ns(retention.timeline_h),
        _limit_ns(24 * retention.results_d),
        begun_since_ns=time.time_ns() - round(min(AT_WORK_H, retention.flows_h) * HOUR_NS),
        now_ns=time.time_ns(),
    )


def _limit_ns(hours: float) -> int | None:
    return round(hours * HOUR_NS) or None
