"""Every minute accounted for: expect each minute, find what is due, take it up, and say aloud when runs fall behind."""

from __future__ import annotations

import logging
from typing import NamedTuple

import polars as pl

from llmprism_tasks.contract.errors import InputError, TransientError
from llmprism_tasks.contract.windows import ALL_TIME, Window
from llmprism_tasks.execution.notify import pipeline
from llmprism_tasks.execution.window import land_window, open_configured
from llmprism_tasks.reports.minute_states import (
    LOOKBACK_CHANGED,
    Coverage,
    coverage,
    next_tries,
    read_states,
)
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import file_register, landing
from llmprism_tasks.warehouse.landing.intake import Intake

logger = logging.getLogger(__name__)


class Stock(NamedTuple):
    """What was found when stock was taken.

    Attributes
    ----------
    coverage : of all windows that were ever expected
    open_incidents : number of open incidents
    taken_up : due windows that are to be run now, newest first
    """

    coverage: Coverage
    open_incidents: int
    taken_up: list[Window]

    @property
    def gauges(self) -> dict[str, float | None]:
        """Return the metrics by name; None for one that is not known."""
        of = self.coverage
        return {
            "lag_s": of.lag_s,
            "silent_s": of.silent_s,
            "coverage": of.ratio,
            "windows_due": of.due_count,
            "windows_given_up": of.given_up,
            "open_incidents": self.open_incidents,
        }


def take_stock(settings: Settings, *, now_ns: int) -> Stock:
    """Expect every minute that has ended, take up windows that are due, and tell of overload and silence.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch
    """
    warehouse = open_configured(settings)

    there = store.read(warehouse, "minutes", ALL_TIME)
    expected = missing_minutes(there, settings, now_ns=now_ns)
    if expected:
        warehouse.write(lambda connection: minutes.expect(connection, expected, now_ns))
    try:
        mark_late(warehouse, there, settings, now_ns=now_ns)
    except InputError as error:  # the landings say so, too; silence and what is due must be told all the same
        logger.error("late files are not looked for: %s", error)
    found = read_states(warehouse, settings, now_ns=now_ns)
    starts = next_tries(found, settings, now_ns=now_ns)
    if starts:
        warehouse.write(lambda connection: minutes.take_up(connection, starts, now_ns=now_ns))
    open_incidents = store.query(warehouse, "SELECT count(*) FROM incidents WHERE state = 'open'").item()
    counted = coverage(found, settings, now_ns=now_ns)
    tell(warehouse, counted, settings, now_ns=now_ns)
    return Stock(counted, open_incidents, [Window(start_ns, settings.window.length_ns) for start_ns in starts])


def missing_minutes(there: pl.DataFrame, settings: Settings, *, now_ns: int) -> list[int]:
    """Return the starts of windows that the schedule expects and that have no row in `minutes`, oldest first.

    These are all that have ended since the last one that the schedule expected, at most `catch_up.outage_windows`; if
    it expected none so far, the one that ended last.
    """
    length_ns = settings.window.length_ns
    end_ns = Window.containing(now_ns, length_ns).start_ns
    last_ns = there.filter(pl.col("expected_by") == minutes.SCHEDULE)["window_start_ns"].max()
    first_ns = end_ns - (length_ns if not isinstance(last_ns, int) else end_ns - last_ns - length_ns)
    earliest_ns = end_ns - settings.catch_up.outage_windows * length_ns
    if first_ns < earliest_ns:
        logger.warning(
            "%d minutes from %s on stay out: catch_up.outage_windows is %d. To run them: airflow backfill create",
            (earliest_ns - first_ns) // length_ns,
            Window(first_ns, length_ns),
            settings.catch_up.outage_windows,
        )
    known = set(there["window_start_ns"])
    return [start_ns for start_ns in range(max(first_ns, earliest_ns), end_ns, length_ns) if start_ns not in known]


def mark_late(warehouse: Warehouse, there: pl.DataFrame, settings: Settings, *, now_ns: int) -> list[int]:
    """Mark windows as due for which a file came after the landings that looked at files of its name.

    Of the last `catch_up.outage_windows` windows up to the newest that was landed. A file of an hour or a day makes the
    last landed window in it due, whose landing then tells of the others.

    Parameters
    ----------
    there : the table `minutes`

    Returns
    -------
    starts of the windows that were marked

    Raises
    ------
    InputError : the pattern of flows has no time
    """
    landed = there.filter(pl.col("begun_ns").is_not_null())
    newest_ns, length_ns = landed["window_start_ns"].max(), settings.window.length_ns
    if not isinstance(newest_ns, int):
        return []
    span = Window(newest_ns, length_ns).lookback(settings.catch_up.outage_windows - 1)
    known = Intake(now_ns=now_ns, young_ns=settings.window.allowed_lateness_ns)
    unread = file_register.unread(warehouse, settings.places.flows, span, length_ns, known)
    starts = landed.filter(pl.col("due_reason").is_null())["window_start_ns"].sort().to_numpy()
    late: dict[int, str] = {}
    for path, named in ((file.path, file.span) for file in unread if file.span is not None):
        inside = starts[(starts >= named.start_ns) & (starts < named.end_ns)]
        late |= {int(inside[-1]): path} if inside.size else {}
    found = sorted(late)
    if found:
        logger.warning("%d windows are due: files named for them came late, such as %s", len(found), late[found[0]])
        warehouse.write(lambda connection: minutes.mark_due(connection, found, minutes.LATE_RECORDS, now_ns=now_ns))
    return found


def tell(warehouse: Warehouse, counted: Coverage, settings: Settings, *, now_ns: int) -> None:
    """Tell when the pipeline falls behind, falls silent or gives up, and when that is over; failures are logged."""
    try:
        pipeline.tell(warehouse, counted, settings, now_ns=now_ns)
    except TransientError as error:
        logger.warning("the state of the pipeline will be told in a minute: %s", error)


def tell_now(settings: Settings, *, now_ns: int) -> Coverage:
    """Do what `tell` does, without taking stock."""
    warehouse = open_configured(settings)
    counted = coverage(read_states(warehouse, settings, now_ns=now_ns), settings, now_ns=now_ns)
    tell(warehouse, counted, settings, now_ns=now_ns)
    return counted


def land_again(window: Window, settings: Settings, *, now_ns: int) -> dict[str, int]:
    """Begin another run of a window: land it, or keep its flows if only a window that it looks back at has changed.

    Collectors delete their files after some time, so flows that are there are not read again without need.

    Returns
    -------
    what `land_window` returns
    """
    warehouse = open_configured(settings)
    own = read_states(warehouse, settings, now_ns=now_ns).filter(pl.col("window_start_ns") == window.start_ns)
    if own["reason"].to_list() != [LOOKBACK_CHANGED]:
        return land_window(window, settings)
    return landing.start_over(warehouse, window, minutes.Run(settings.window.lookback_windows, now_ns))
