"""States of minutes: what is due and why, on both sides of each threshold, and whatever order runs come in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmprism_tasks.contract.frames import empty, schema
from llmprism_tasks.contract.tables import table_named
from llmprism_tasks.reports.minute_states import coverage, due, next_tries, sentence, states
from llmprism_tasks.settings import CatchUpSettings, Settings, WindowSettings

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
LATENESS, SKIPPED, UNFINISHED, PAUSE = 15 * SECOND, 180 * SECOND, 900 * SECOND, 300 * SECOND
START = 1000 * MINUTE
LONG_AFTER = START + 10_000 * MINUTE
SETTINGS = Settings(
    window=WindowSettings(lookback_windows=2, allowed_lateness_s=15),
    catch_up=CatchUpSettings(skipped_after_s=180, unfinished_after_s=900, first_pause_s=300, at_once=3, tries=4),
)


def minute(start_ns: int = START, **values: Any) -> dict[str, Any]:
    return {"window_start_ns": start_ns, "expected_ns": start_ns + MINUTE, "expected_by": "schedule"} | values


def begun(start_ns: int = START, *, seen: list[str | None] | None = None, **values: Any) -> dict[str, Any]:
    """A minute whose run began when it ended."""
    own = ["", "", "1 a"] if seen is None else seen
    return minute(start_ns, begun_ns=start_ns + MINUTE, seen=own) | values


def window(
    start_ns: int = START, status: str = "done", digest: str | None = "1 a", expired: list[str] | None = None
) -> dict[str, Any]:
    return {"window_start_ns": start_ns, "status": status, "flows_digest": digest, "expired": expired}


def found(minutes: Iterable[dict[str, Any]], windows: Iterable[dict[str, Any]] = (), *, now_ns: int) -> pl.DataFrame:
    rows = pl.DataFrame(
        [{"runs": 0, "tries": 0} | one for one in minutes], schema=schema(table_named("minutes").columns)
    )
    landed = pl.DataFrame(
        list(windows), schema=empty("windows").select("window_start_ns", "status", "flows_digest", "expired").schema
    )
    return states(rows, landed, SETTINGS, now_ns=now_ns)


def of_one(*args: Any, now_ns: int) -> tuple[str, str | None, int | None]:
    (row,) = found(*args, now_ns=now_ns).select("state", "reason", "since_ns").rows()
    return row


READY = START + MINUTE + LATENESS


@pytest.mark.parametrize(
    ("now_ns", "expected"),
    [
        (READY - 1, ("expected", None, None)),
        (READY, ("late", None, None)),
        (READY + SKIPPED - 1, ("late", None, None)),
        (READY + SKIPPED, ("skipped", "skipped", READY)),
    ],
)
def test_a_minute_that_no_run_has_landed_is_expected_then_late_then_skipped(now_ns: int, expected: Any) -> None:
    assert of_one([minute()], now_ns=now_ns) == expected


def test_a_minute_that_is_only_landed_as_the_look_back_of_others_is_skipped_all_the_same() -> None:
    assert of_one([minute()], [window(status="landed")], now_ns=READY + SKIPPED)[:2] == ("skipped", "skipped")


@pytest.mark.parametrize("status", ["landed", "running"])
def test_a_run_that_does_not_end_is_dead_after_a_while(status: str) -> None:
    dead_ns = START + MINUTE + UNFINISHED
    assert of_one([begun()], [window(status=status)], now_ns=dead_ns - 1) == ("running", None, None)
    assert of_one([begun()], [window(status=status)], now_ns=dead_ns) == ("running", "unfinished", START + MINUTE)


def test_a_stopped_window_is_due() -> None:
    assert of_one([begun()], [window(status="stopped")], now_ns=LONG_AFTER) == ("stopped", "stopped", START + MINUTE)


def test_what_has_expired_is_never_due_and_done_only_if_it_was() -> None:
    marked = begun(due_reason="late_records", due_since_ns=5)
    of_its_own = [window(status="stopped", expired=["timeline"])]
    assert of_one([marked], of_its_own, now_ns=LONG_AFTER) == ("expired", None, None)
    assert of_one([marked], [window(expired=["flows"])], now_ns=LONG_AFTER) == ("done", None, None)
    for back, state in ((1, "expired"), (2, "expired"), (3, "skipped")):
        looked_back_at = window(START - back * MINUTE, expired=["flows", "flows_quarantine"])
        assert of_one([minute()], [looked_back_at], now_ns=LONG_AFTER)[0] == state
    timeline_only = window(START - MINUTE, expired=["timeline"])
    assert of_one([minute()], [timeline_only], now_ns=LONG_AFTER)[1] == "skipped"


def test_a_mark_makes_due_but_not_before_the_lateness_is_over() -> None:
    marked = begun(due_reason="late_records", due_since_ns=7)
    assert of_one([marked], [window()], now_ns=READY - 1) == ("done", None, None)
    assert of_one([marked], [window()], now_ns=READY) == ("done", "late_records", 7)


@pytest.mark.parametrize(
    ("seen", "digest_now", "reason"),
    [
        ("2 b", "2 b", None),
        ("2 b", "3 c", "lookback_changed"),
        ("", "2 b", "lookback_changed"),  # it came after the run
        (None, "2 b", None),  # an earlier llmprism landed it
        ("2 b", None, None),
    ],
)
def test_a_window_is_due_when_what_it_looks_back_at_has_other_flows(
    seen: str | None, digest_now: str | None, reason: str | None
) -> None:
    before = START - MINUTE
    there = [window(), window(before, "landed", digest_now)]
    assert of_one([begun(seen=["", seen, "1 a"])], there, now_ns=LONG_AFTER)[1] == reason


def test_flows_before_the_look_back_and_flows_that_have_expired_change_nothing() -> None:
    far = window(START - 3 * MINUTE, "landed", "9 z")
    assert of_one([begun()], [window(), far], now_ns=LONG_AFTER)[1] is None
    assert of_one([begun(seen=["4 d", "", "1 a"])], [window()], now_ns=LONG_AFTER)[1] is None


def test_due_windows_are_taken_up_newest_first_and_only_some_at_once() -> None:
    there = found([minute(START + number * MINUTE) for number in range(5)], now_ns=LONG_AFTER)
    newest = [START + number * MINUTE for number in (4, 3, 2)]
    assert next_tries(there, SETTINGS, now_ns=LONG_AFTER) == newest
    assert due(there)["window_start_ns"].to_list() == [*newest, START + MINUTE, START]


@pytest.mark.parametrize(("tries", "pause"), [(1, PAUSE), (2, 2 * PAUSE), (3, 4 * PAUSE)])
def test_a_window_is_tried_again_after_a_pause_that_doubles_and_then_left(tries: int, pause: int) -> None:
    there = found([minute(tries=tries, tried_ns=LONG_AFTER)], now_ns=LONG_AFTER + 1)
    assert next_tries(there, SETTINGS, now_ns=LONG_AFTER + pause - 1) == []
    assert next_tries(there, SETTINGS, now_ns=LONG_AFTER + pause) == [START]
    left = found([minute(tries=4, tried_ns=LONG_AFTER)], now_ns=LONG_AFTER + 1)
    assert next_tries(left, SETTINGS, now_ns=LONG_AFTER + 100 * pause) == []
    assert coverage(left, SETTINGS, now_ns=LONG_AFTER).given_up == 1


def test_windows_on_their_way_count_for_one_pause_and_hold_up_no_others_after_it() -> None:
    rows = [minute(START + number * MINUTE, tries=2, tried_ns=LONG_AFTER) for number in (1, 2)]
    there = found([*rows, *(minute(START - number * MINUTE) for number in range(4))], now_ns=LONG_AFTER)
    assert len(next_tries(there, SETTINGS, now_ns=LONG_AFTER + PAUSE - 1)) == 1
    assert len(next_tries(there, SETTINGS, now_ns=LONG_AFTER + PAUSE)) == 3


def test_coverage_counts_what_was_expected_and_tells_the_lag_of_the_newest_finished_minute() -> None:
    done = begun(START, runs=1, last_run_ns=START + 2 * MINUTE)
    now_ns = START + 3 * MINUTE + LATENESS
    there = found(
        [done, minute(START + MINUTE), minute(START + 3 * MINUTE), minute(START - 9 * MINUTE)],
        [window()],
        now_ns=now_ns,
    )
    counted = coverage(there, SETTINGS, now_ns=now_ns)
    assert (counted.expected, counted.done, counted.due, counted.given_up) == (3, 1, {"skipped": 1}, 0)
    assert (counted.lag_s, counted.silent_s) == (135.0, 75.0)
    assert counted.ratio == 1 / 3
    assert sentence(counted) == (
        "3 minutes expected: 1 done, 1 due (1 skipped), 1 under way. The newest finished minute ended 135 s ago."
    )
    by_hand = coverage(there.with_columns(expected_by=pl.lit("run")), SETTINGS, now_ns=now_ns)
    assert (by_hand.lag_s, by_hand.silent_s) == (None, None)  # nobody promised that runs keep up with the clock


COUNT, LOOKBACK = 6, 2
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["arrive", "run", "land", "begin"]), st.integers(0, COUNT - 1)), max_size=25
)


@settings(max_examples=60)
@given(actions=ACTIONS, catch_up=st.booleans())
def test_nothing_is_due_exactly_when_every_window_is_as_one_analysis_of_all_files_leaves_it(
    actions: list[tuple[str, int]], *, catch_up: bool
) -> None:
    """A model of a warehouse: a window's results are the flows that its run saw."""
    model = Model()
    for action, number in actions:
        getattr(model, action)(number)
    if catch_up:
        for _ in range(COUNT**2):
            waiting = model.due()
            if not waiting:
                break
            model.run(waiting[0])
        assert model.due() == []
    assert (model.due() == []) == (model.results == {number: model.of_files(number) for number in range(COUNT)})


class Model:
    """Files grow; a run lands its window, and those that it looks back at and that are not there yet."""

    def __init__(self) -> None:
        self.files = dict.fromkeys(range(-LOOKBACK, COUNT), 0)
        self.files |= dict.fromkeys(range(-LOOKBACK, 0), -1)  # nothing came before the first
        self.landed: dict[int, int] = {}
        self.results: dict[int, list[str]] = {}
        self.seen: dict[int, list[str]] = {}
        self.marked: set[int] = set()

    @staticmethod
    def digest(records: int | None) -> str:
        return "" if records is None or records < 0 else f"{records + 1} x"

    def of_files(self, number: int) -> list[str]:
        return [self.digest(self.files[one]) for one in range(number - LOOKBACK, number + 1)]

    def of_warehouse(self, number: int) -> list[str]:
        return [self.digest(self.landed.get(one)) for one in range(number - LOOKBACK, number + 1)]

    def arrive(self, number: int) -> None:
        """More records of a window come; the landing that finds them marks it, unless its own run is still to come."""
        self.files[number] += 1
        if number in self.landed:
            self.marked.add(number)

    def land(self, number: int) -> None:
        """Another window's run lands a window that it looks back at."""
        if self.files[number] >= 0:
            self.landed.setdefault(number, self.files[number])

    def begin(self, number: int) -> None:
        for one in range(number - LOOKBACK, number):
            self.land(one)
        self.landed[number] = self.files[number]
        self.seen[number] = self.of_warehouse(number)
        self.results.pop(number, None)
        self.marked.discard(number)

    def run(self, number: int) -> None:
        self.begin(number)
        self.results[number] = self.of_warehouse(number)

    def due(self) -> list[int]:
        rows = [
            minute(START + number * MINUTE)
            | ({"begun_ns": START, "seen": self.seen[number]} if number in self.seen else {})
            | ({"due_reason": "late_records", "due_since_ns": 1} if number in self.marked else {})
            for number in range(COUNT)
        ]
        there = [
            window(
                START + number * MINUTE,
                "done" if number in self.results else "running",
                self.digest(records),
            )
            for number, records in self.landed.items()
        ]
        return [(start - START) // MINUTE for start in due(found(rows, there, now_ns=LONG_AFTER))["window_start_ns"]]


@pytest.mark.parametrize(("minutes_later", "unseen"), [(2, 0), (2.99, 0), (3, 1), (12, 10)])
def test_minutes_that_ended_while_nobody_took_stock_are_told(minutes_later: float, unseen: int) -> None:
    """The one minute that is expected ends a minute after START; the next one is taken stock of meanwhile."""
    now_ns = START + round(minutes_later * MINUTE)
    there = found([begun(last_run_ns=now_ns)], [window()], now_ns=now_ns)
    counted = coverage(there, SETTINGS, now_ns=now_ns)
    assert (counted.expected, counted.unseen) == (1, unseen)
    told = f" {unseen} more have ended that nothing has looked for."
    assert sentence(counted).endswith(told) is (unseen > 0)
    by_hand = coverage(there.with_columns(expected_by=pl.lit("run")), SETTINGS, now_ns=now_ns)
    assert by_hand.unseen == 0
