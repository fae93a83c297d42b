"""States of minutes: what became of each window that was ever expected, which are due to be run, and how many are.

States and reasons are not stored. They follow from the tables `minutes` and `windows`, the settings and the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from llmprism_tasks.contract.windows import ALL_TIME, NANOSECONDS_PER_SECOND
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.bookkeeping.minutes import FORGOTTEN, LATE_RECORDS, SCHEDULE
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import read_each

EXPECTED, LATE, SKIPPED, RUNNING, DONE, STOPPED, EXPIRED = (
    *("expected", "late", "skipped", "running", "done", "stopped", "expired"),
)
UNFINISHED, LOOKBACK_CHANGED = "unfinished", "lookback_changed"

TAKEN_NOW = 1
"""Minutes that have ended and may not be expected yet: stock is taken each minute, of the one that ended last."""

WORDS = {
    SKIPPED: "no run landed it",
    LATE_RECORDS: "records of it came after its run",
    FORGOTTEN: "a file that it was landed from was forgotten",
    LOOKBACK_CHANGED: "a window that it looks back at was landed anew with other flows",
    UNFINISHED: "its run died",
    STOPPED: "a critical expectation stopped it",
}
"""Reasons for which a window is due."""


def read_states(warehouse: Warehouse, settings: Settings, *, now_ns: int) -> pl.DataFrame:
    """Return `states` of all windows that were ever expected, as of one moment."""
    found = read_each(warehouse, {"minutes": ALL_TIME, "windows": ALL_TIME})
    return states(found["minutes"], found["windows"], settings, now_ns=now_ns)


def states(minutes: pl.DataFrame, windows: pl.DataFrame, settings: Settings, *, now_ns: int) -> pl.DataFrame:
    """Return the state of each window that was ever expected, and whether it is due to be run.

    Parameters
    ----------
    minutes, windows : rows of these tables; of `windows` also those that the rows of `minutes` look back at
    now_ns : the time, nanoseconds since the Unix epoch

    Returns
    -------
    one row per row of `minutes`, newest first: `window_start_ns`, `state`, `reason` for which it is due (a key of
    `WORDS`) or NULL, `since_ns` (since when, by the clock), and `tries`, `tried_ns`, `last_run_ns` and `expected_by` of
    the table. A window is

    - `expected` until its allowed lateness is over, then `late`, and `skipped` (due) if no run has landed it for
      `catch_up.skipped_after_s`
    - `running` from the landing of its last run, and `unfinished` (due) if it does not end within
      `catch_up.unfinished_after_s`
    - `done`; due if a window that it looks back at has other flows now than its run saw
    - `stopped` (due) by a critical expectation
    - `expired` if it is not done, and cannot be any more, for flows that it reads were kept long enough and deleted

    and due whatever it is once it is marked, such as for late records. Nothing is due before its lateness is over, nor
    once flows that it reads have expired.
    """
    ready_ns = pl.col("window_start_ns") + settings.window.length_ns + settings.window.allowed_lateness_ns
    return (
        minutes.join(windows.select("window_start_ns", "status"), on="window_start_ns", how="left")
        .join(_changed(minutes, windows, settings.window.length_ns), on="window_start_ns", how="left")
        .join(_gone(windows, settings), on="window_start_ns", how="left")
        .with_columns(pl.col("gone").fill_null(value=False), ready_ns=ready_ns)
        .with_columns(state=_state(settings, now_ns))
        .with_columns(reason=_reason(settings, now_ns))
        .select(
            *("window_start_ns", "state", "reason"),
            *(pl.when(pl.col("reason").is_not_null()).then(_since()).alias("since_ns"), "tries", "tried_ns"),
            *("last_run_ns", "expected_by"),
        )
        .sort("window_start_ns", descending=True)
    )


def _state(settings: Settings, now_ns: int) -> pl.Expr:
    """Return what became of a window, from its row in `minutes`, its `status`, and whether its flows are `gone`."""
    begun, status = pl.col("begun_ns").is_not_null(), pl.col("status")
    skipped_ns = settings.catch_up.skipped_after_s * NANOSECONDS_PER_SECOND
    return (
        pl.when(begun & (status == DONE))
        .then(pl.lit(DONE))
        .when(pl.col("gone"))
        .then(pl.lit(EXPIRED))
        .when(begun & (status == STOPPED))
        .then(pl.lit(STOPPED))
        .when(begun)
        .then(pl.lit(RUNNING))
        .when(now_ns < pl.col("ready_ns"))
        .then(pl.lit(EXPECTED))
        .when(now_ns < pl.col("ready_ns") + skipped_ns)
        .then(pl.lit(LATE))
        .otherwise(pl.lit(SKIPPED))
    )


def _reason(settings: Settings, now_ns: int) -> pl.Expr:
    """Return why a window is due, from its `state`, its mark, and what has changed since its run; NULL if it is not."""
    unfinished_ns = settings.catch_up.unfinished_after_s * NANOSECONDS_PER_SECOND
    dead = (pl.col("state") == RUNNING) & (now_ns >= pl.col("begun_ns") + unfinished_ns)
    return (
        pl.when((now_ns < pl.col("ready_ns")) | pl.col("gone"))
        .then(None)
        .when(pl.col("due_reason").is_not_null())
        .then(pl.col("due_reason"))
        .when(pl.col("state").is_in([SKIPPED, STOPPED]))
        .then(pl.col("state"))
        .when(dead)
        .then(pl.lit(UNFINISHED))
        .when((pl.col("state") == DONE) & pl.col("changed_ns").is_not_null())
        .then(pl.lit(LOOKBACK_CHANGED))
    )


def _since() -> pl.Expr:
    """Return since when a window is due, by the clock, nanoseconds."""
    return pl.coalesce(
        "due_since_ns",
        pl.when(pl.col("reason") == SKIPPED).then("ready_ns"),
        pl.when(pl.col("reason") == LOOKBACK_CHANGED).then("changed_ns"),
        "begun_ns",
    )


def _changed(minutes: pl.DataFrame, windows: pl.DataFrame, length_ns: int) -> pl.DataFrame:
    """Return the windows whose last run saw other flows than are there now, and since when, `changed_ns`.

    Windows that are gone, and flows that an earlier llmprism landed, without a digest, tell nothing.
    """
    then = minutes.select("window_start_ns", "seen", back=pl.int_ranges(pl.col("seen").list.len() - 1, -1, -1))
    landed = windows.select("window_start_ns", "flows_digest").join(
        minutes.select("window_start_ns", "begun_ns"), on="window_start_ns", how="left"
    )
    return (
        then.drop_nulls("seen")
        .explode("seen", "back", empty_as_null=False, keep_nulls=False)
        .with_columns(of_ns=pl.col("window_start_ns") - pl.col("back") * length_ns)
        .join(landed, left_on="of_ns", right_on="window_start_ns")
        .filter(pl.col("seen") != pl.col("flows_digest"))
        .group_by("window_start_ns")
        .agg(changed_ns=pl.coalesce(pl.col("begun_ns").max(), pl.col("of_ns").max() + length_ns))
    )


def _gone(windows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return the windows that cannot be run again, for rows of theirs or flows that they look back at have expired."""
    own = windows.filter(pl.col("expired").list.len() > 0).select("window_start_ns")
    ahead = pl.int_ranges(1, settings.window.lookback_windows + 1).first()
    later = (
        windows.filter(pl.col("expired").list.contains("flows"))
        .select(pl.col("window_start_ns") + ahead * settings.window.length_ns)
        .explode("window_start_ns", empty_as_null=False)
    )
    return pl.concat([own, later]).unique().with_columns(gone=True)


def due(found: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `states` that are due, newest first."""
    return found.drop_nulls("reason")


def next_tries(found: pl.DataFrame, settings: Settings, *, now_ns: int) -> list[int]:
    """Return the starts of due windows that are to be run now, newest first.

    At most `catch_up.at_once` are on their way: a window counts for `catch_up.first_pause_s` after it was taken up, or
    until its run is finished. Each try of a window is twice as long after the one before as that one was, and there are
    `catch_up.tries` of them.
    """
    rules = settings.catch_up
    pause_ns = rules.first_pause_s * NANOSECONDS_PER_SECOND
    waiting_ns = pause_ns * pl.lit(2).pow((pl.col("tries") - 1).clip(0, 30))
    under_way = found.filter(now_ns < pl.col("tried_ns") + pause_ns).height
    waited = pl.col("tried_ns").is_null() | (now_ns >= pl.col("tried_ns") + waiting_ns)
    ready = due(found).filter(waited & (pl.col("tries") < rules.tries))
    return ready["window_start_ns"].head(max(rules.at_once - under_way, 0)).to_list()


NOT_LOOKED_FOR = "See that Airflow's scheduler runs and that llmprism_catch_up is not paused."
"""What to do if minutes end and nothing takes stock of them."""


@dataclass(frozen=True)
class Coverage:
    """How many windows were expected, by what became of them, and how far behind real time their runs are.

    Attributes
    ----------
    expected : windows that were expected and whose allowed lateness is over
    done : of these, finished and not due
    due : of these, due to be run (again), by reason
    given_up : of the due ones, those that were tried as often as they are by themselves
    expired : of those that are not done, those that cannot be run any more
    lag_s : seconds from the end of the newest finished window until now; None if no window is, or each minute is not
        expected by the schedule
    silent_s : seconds since a run was last finished; None as for `lag_s`
    unseen : minutes that have ended since the last one that the schedule expected, but for the one that stock is being
        taken of; they are not among the expected ones. 0 if each minute is not expected by the schedule
    """

    expected: int
    done: int
    due: dict[str, int]
    given_up: int
    expired: int
    lag_s: float | None
    silent_s: float | None
    unseen: int = 0

    @property
    def due_count(self) -> int:
        """How many windows are due, for whichever reason."""
        return sum(self.due.values())

    @property
    def ratio(self) -> float:
        """Share of the expected windows that are done; 1 if none was expected."""
        return self.done / self.expected if self.expected else 1.0


def coverage(found: pl.DataFrame, settings: Settings, *, now_ns: int) -> Coverage:
    """Count rows of `states`."""
    over = found.filter(pl.col("state") != EXPECTED)
    done, waiting = over.filter(pl.col("state") == DONE), due(over)
    live = (found["expected_by"] == SCHEDULE).any()
    newest_ns, last_run_ns = done["window_start_ns"].max(), found["last_run_ns"].max()
    last_ns = found.filter(pl.col("expected_by") == SCHEDULE)["window_start_ns"].max()
    unseen = (now_ns - last_ns) // settings.window.length_ns - 1 - TAKEN_NOW if isinstance(last_ns, int) else 0
    return Coverage(
        expected=over.height,
        done=done.filter(pl.col("reason").is_null()).height,
        due=dict(waiting.group_by("reason").len().sort("reason").iter_rows()),
        given_up=waiting.filter(pl.col("tries") >= settings.catch_up.tries).height,
        expired=over.filter(pl.col("state") == EXPIRED).height,
        lag_s=_seconds(now_ns - newest_ns - settings.window.length_ns) if live and isinstance(newest_ns, int) else None,
        silent_s=_seconds(now_ns - last_run_ns) if live and isinstance(last_run_ns, int) else None,
        unseen=max(unseen, 0),
    )


def _seconds(duration_ns: int) -> float:
    return duration_ns / NANOSECONDS_PER_SECOND


def sentence(counted: Coverage) -> str:
    """Say how many minutes were expected and what became of them."""
    reasons = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in counted.due.items())
    rest = counted.expected - counted.done - counted.due_count - counted.expired
    parts = [f"{counted.done:,} done"]
    parts += [f"{counted.due_count:,} due ({reasons})"] if reasons else []
    parts += [f"{counted.expired:,} expired"] if counted.expired else []
    parts += [f"{rest:,} under way"] if rest else []
    lag = "" if counted.lag_s is None else f" The newest finished minute ended {counted.lag_s:,.0f} s ago."
    away = f" {counted.unseen:,} more have ended that nothing has looked for." if counted.unseen else ""
    return f"{counted.expected:,} minutes expected: {', '.join(parts)}.{lag}{away}"


def part_of_the_price(seen: Coverage) -> str:
    """Say that costs are too low where windows are missing."""
    return f"Costs are of the {seen.done:,} of {seen.expected:,} expected minutes that are done."
