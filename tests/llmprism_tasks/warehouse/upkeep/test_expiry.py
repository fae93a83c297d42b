"""What expires, when, and what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from flowfiles import MINUTE_NS, WINDOW
from kept_windows import counts, put, window

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.upkeep import expiry
from llmprism_tasks.warehouse.upkeep.expiry import Due, ExpiredError, Kept, due

LOOKBACK = 2


def minutes(flows: int | None = None, timeline: int | None = None, results: int | None = None) -> Kept:
    return Kept(*(None if one is None else one * MINUTE_NS for one in (flows, timeline, results)))


def windows(count: int, expired: dict[int, list[str]] | None = None) -> pl.DataFrame:
    starts = [window(number).start_ns for number in range(count)]
    return pl.DataFrame(
        {
            "window_start_ns": starts,
            "window_end_ns": [start + MINUTE_NS for start in starts],
            "expired": [(expired or {}).get(number) for number in range(count)],
        },
        schema_overrides={"expired": pl.List(pl.String), "window_start_ns": pl.Int64, "window_end_ns": pl.Int64},
    )


def numbers(starts: tuple[int, ...]) -> list[int]:
    return [(start - WINDOW.start_ns) // MINUTE_NS for start in starts]


def found(rows: pl.DataFrame, kept: Kept, *, waiting: Sequence[int] = ()) -> dict[str, list[int]]:
    starts = [window(number).start_ns for number in waiting]
    what = due(rows, starts, kept, lookback_windows=LOOKBACK)
    return {name: numbers(some) for name, some in what._asdict().items()}


def expire(warehouse: Warehouse, kept: Kept) -> None:
    what = expiry.find_due(warehouse, kept, lookback_windows=LOOKBACK)
    expiry.delete(warehouse, what, kept, lookback_windows=LOOKBACK)


def test_ages_are_counted_from_the_newest_window_on_both_sides_of_a_limit() -> None:
    """Of eight windows, the newest is 0 minutes old and the first 7."""
    rows = windows(8)
    assert found(rows, minutes(flows=4)) == {"flows": [0, 1, 2, 3], "timeline": [], "everything": [], "held": []}
    assert found(rows, minutes(timeline=7))["timeline"] == [0]
    assert found(rows, minutes(timeline=8))["timeline"] == []
    assert found(rows, minutes(results=7))["everything"] == [0]


@pytest.mark.parametrize(("over", "flows"), [(7, [0, 1, 2, 3]), (6, [0, 1, 2]), (0, [0, 1, 2, 3])])
def test_a_window_that_the_clock_has_not_reached_makes_nothing_older(over: int, flows: list[int]) -> None:
    """One record with a wrong clock made all flows older than their limit. Where all windows lie ahead, it is the clock
    of this machine that is wrong."""
    now_ns = window(over).end_ns if over else 0
    assert found(windows(8), minutes(flows=4)._replace(now_ns=now_ns))["flows"] == flows


def test_without_limits_or_windows_nothing_expires() -> None:
    assert due(windows(8), (), minutes(), lookback_windows=LOOKBACK) == Due()
    assert due(windows(0), (), minutes(1, 1, 1), lookback_windows=LOOKBACK) == Due()


def test_what_expired_does_not_expire_again_until_all_of_it_does() -> None:
    rows = windows(8, expired={0: ["flows", "flows_quarantine"], 1: ["flows", "timeline"]})
    assert found(rows, minutes(flows=5, timeline=5, results=7)) == {
        "flows": [2],
        "timeline": [2],
        "everything": [0],
        "held": [],
    }


def test_what_a_waiting_window_reads_is_held_four_times_as_long_and_no_longer() -> None:
    """Window 4 waits, and looks back at 2 and 3; of eight windows, 4 is three minutes old."""
    assert found(windows(8), minutes(flows=1), waiting=[4]) == {
        "flows": [0, 1, 2, 3, 5, 6],
        "timeline": [],
        "everything": [],
        "held": [4],
    }
    assert found(windows(8), minutes(flows=2), waiting=[4])["held"] == [2, 3, 4]
    assert found(windows(8), minutes(flows=2), waiting=[9])["held"] == []


def test_a_backfill_of_old_windows_keeps_what_its_next_windows_look_back_on(file: Warehouse) -> None:
    """Window 1 is older than flows are kept, and than four times that; its run began at 100 by the clock."""
    begun = {"start": window(1).start_ns}
    row = "7 AS expected_ns, 'run' AS expected_by, 1 AS runs, 0 AS tries, 100 AS begun_ns"
    file.write(
        lambda connection: connection.execute(
            f"INSERT INTO minutes BY NAME SELECT $start::BIGINT AS window_start_ns, {row}", begun
        )
    )

    def held(since_ns: int) -> list[int]:
        kept = minutes(flows=1)._replace(begun_since_ns=since_ns)
        return numbers(expiry.find_due(file, kept, lookback_windows=LOOKBACK).held)

    assert held(100) == [0, 1]
    assert held(101) == []


@pytest.mark.parametrize(
    ("change", "held"),
    [
        ("", []),
        ("UPDATE windows SET status = 'running' WHERE window_start_ns = {start}", [3, 4, 5]),
        ("UPDATE windows SET status = 'landed' WHERE window_start_ns = {start}", []),
        ("UPDATE windows SET status = 'stopped' WHERE window_start_ns = {start}", []),
        ("INSERT INTO minutes BY NAME (SELECT {start} AS window_start_ns, {minute})", [3, 4, 5]),
        ("INSERT INTO minutes BY NAME (SELECT {start} AS window_start_ns, 7 AS begun_ns, {minute})", []),
        (
            "INSERT INTO minutes BY NAME "
            "(SELECT {start} AS window_start_ns, 7 AS begun_ns, 'late_records' AS due_reason, {minute})",
            [3, 4, 5],
        ),
    ],
)
def test_windows_wait_if_they_run_were_never_begun_or_are_marked(file: Warehouse, change: str, held: list[int]) -> None:
    minute = "7 AS expected_ns, 'schedule' AS expected_by, 0 AS runs, 0 AS tries"
    if change:
        text = change.format(start=window(5).start_ns, minute=minute)
        file.write(lambda connection: connection.execute(text))
    assert numbers(expiry.find_due(file, minutes(flows=3), lookback_windows=LOOKBACK).held) == held


@pytest.mark.parametrize("kind", ["file", "lake"])
def test_rows_go_by_table_and_windows_say_so(kind: str, request: pytest.FixtureRequest) -> None:
    warehouse = request.getfixturevalue(kind)
    newest = counts(warehouse)["windows"][-1]
    expire(warehouse, minutes(flows=newest - 2, timeline=newest - 1, results=newest))
    left = list(range(newest + 1))
    assert counts(warehouse) == {
        "flows": left[3:],
        "flows_quarantine": left[3:],
        "windows": left[1:],
        "jobs": left[1:],
        "steps": left[1:],
        "timeline": left[2:],
        "diagnoses": left[1:],
    }
    told = store.query(warehouse, "SELECT expired FROM windows ORDER BY window_start_ns LIMIT 3")["expired"].to_list()
    of_nics = ["pair_steps", "step_breakdown", "steps", "timeline"]
    assert told == [["flows", "flows_quarantine", *of_nics], ["flows", "flows_quarantine"], None]
    nics = store.query(warehouse, "SELECT addr FROM steps ORDER BY window_start_ns, addr NULLS FIRST LIMIT 3")
    assert nics["addr"].to_list() == [None, None, "10.0.1.2"]  # the job's own steps stay


def test_minutes_that_no_run_ever_landed_go_with_the_results_of_their_age(file: Warehouse) -> None:
    """Of twelve windows, 2, 3 and 11 were never landed; the newest that was is 10, which is 0 minutes old."""
    never = [window(number).start_ns for number in (2, 3, 11, 12)]
    marks = (
        f"SELECT unnest({never}) AS window_start_ns, 'schedule' AS expected_by, 0 AS expected_ns, 0 AS runs, 0 AS tries"
    )
    file.write(lambda connection: connection.execute(f"DELETE FROM windows WHERE window_start_ns IN {tuple(never)}"))
    file.write(lambda connection: connection.execute(f"INSERT INTO minutes BY NAME ({marks})"))
    expire(file, minutes(results=8))
    left = store.query(file, "SELECT window_start_ns FROM minutes ORDER BY window_start_ns")
    assert numbers(tuple(left["window_start_ns"])) == [3, 11, 12]
    expire(file, minutes(flows=1))
    assert store.query(file, "SELECT count(*) FROM minutes").item() == 3


def test_a_window_that_began_since_it_was_asked_keeps_its_flows(file: Warehouse) -> None:
    kept = minutes(flows=4)
    what = expiry.find_due(file, kept, lookback_windows=LOOKBACK)
    put(file, [5], status="running")
    expiry.delete(file, what, kept, lookback_windows=LOOKBACK)
    assert counts(file)["flows"] == [3, 4, 5, *range(8, 12)]


def test_rows_are_counted_before_they_go(file: Warehouse) -> None:
    what = expiry.find_due(file, minutes(flows=2, results=11), lookback_windows=LOOKBACK)
    rows = expiry.count_rows(file, what)
    assert (rows["flows"], rows["windows"], rows["timeline"]) == ((240, 200), (12, 1), (240, 20))
    rows = expiry.count_rows(file, expiry.find_due(file, minutes(timeline=2), lookback_windows=LOOKBACK))
    assert (rows["timeline"], rows["steps"]) == ((240, 200), (24, 10))


@pytest.mark.parametrize("kind", ["file", "lake"])
def test_numbers_that_nobody_has_any_more_are_swept_and_the_others_still_tell(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Each window has an address, a path and a NIC of its own; a new address gets a new number."""
    warehouse = request.getfixturevalue(kind)
    newest = counts(warehouse)["windows"][-1]
    whole = Window(window(newest - 1).start_ns, 2 * MINUTE_NS)
    before = store.read(warehouse, "flows", whole)
    expire(warehouse, minutes(flows=2, timeline=2))
    expiry.sweep(warehouse)
    left = {
        place: store.query(warehouse, f"SELECT count(*) FROM stored.{place} WHERE number <> 0").item()
        for place in ("names", "paths", "nics", "acts")
    }
    assert left == {"names": 3, "paths": 2, "nics": 2, "acts": 1}  # "10.0.0.2" receives in all windows
    assert store.read(warehouse, "flows", whole).equals(before)
    put(warehouse, [newest + 1], addr="10.9.9.{number}")
    flows = store.read(warehouse, "flows", window(newest + 1))
    assert flows["src_addr"].unique().to_list() == [f"10.9.9.{newest + 1}"]
    assert flows["switch_path"].explode().unique().to_list() == [f"leaf{newest + 1}"]
    assert store.read(warehouse, "timeline", window(newest + 1))["addr"].unique().to_list() == [f"10.9.9.{newest + 1}"]


def test_sweeping_where_all_numbers_are_used_writes_nothing(file: Warehouse) -> None:
    before = Path(file.location).read_bytes()
    expiry.sweep(file)
    assert Path(file.location).read_bytes() == before


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (1, "window 2025-10-09 09:01:00Z, to be run although its flows, flows_quarantine expired"),
        (
            5,
            "window 2025-10-09 09:05:00Z, to be run although the flows that it looks back on, of 2025-10-09 09:03:00Z "
            "to 2025-10-09 09:03:00Z, expired",
        ),
    ],
)
def test_a_window_whose_flows_or_past_expired_is_refused(file: Warehouse, number: int, said: str) -> None:
    expire(file, minutes(flows=8))
    with pytest.raises(ExpiredError) as caught:
        expiry.refuse_expired(file, window(number), lookback_windows=LOOKBACK)
    assert caught.value.found == said
    expiry.refuse_expired(file, window(6), lookback_windows=LOOKBACK)


def test_a_window_that_lost_its_timeline_alone_may_begin_again_and_not_go_on(file: Warehouse) -> None:
    expire(file, minutes(timeline=8))
    with pytest.raises(ExpiredError, match="although its pair_steps, step_breakdown, steps, timeline expired"):
        expiry.refuse_expired(file, window(1), lookback_windows=LOOKBACK)
    expiry.refuse_expired(file, window(1), lookback_windows=LOOKBACK, landing=True)


def test_windows_that_are_landed_anew_are_not_refused(file: Warehouse) -> None:
    expire(file, minutes(flows=8))
    anew = {window(number).start_ns for number in range(2, 6)}
    expiry.refuse_expired(file, window(5), lookback_windows=LOOKBACK, anew=anew)
    expiry.refuse_expired(file, window(4), lookback_windows=LOOKBACK, anew=anew)
    with pytest.raises(ExpiredError):
        expiry.refuse_expired(file, window(3), lookback_windows=LOOKBACK, anew=anew)
