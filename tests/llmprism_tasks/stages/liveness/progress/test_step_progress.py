"""Where a job stood when it fell silent: what a pipeline ends with is no beginning of a step."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from handmade import MS, Row, every, flows, messages, settings

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.liveness.progress import whole_steps as of_whole_steps
from llmprism_tasks.stages.liveness.progress.step_progress import (
    StepProgress,
    _are_micro_batches,
    _is_whole,
    pairs_outside_steps,
    step_progress_at,
)
from llmprism_tasks.stages.step_division.division import Division

MB = 1_000_000
STEPS = 12
LAST = 1000 * STEPS


def steps_and(*last: tuple[str, str, int]) -> list[list[Row]]:
    """Return twelve steps of a second in which `a` sends 8 MB to `b` and gets 8 MB back, and then what is told."""
    there, back = (messages(*ends, every(1000, count=STEPS, start=at), 8 * MB) for ends, at in (("ab", 0), ("ba", 300)))
    return [there, back, *(messages(src, dst, [LAST + 20 * at], size) for at, (src, dst, size) in enumerate(last))]


def midway(*last: tuple[str, str, int]) -> bool:
    return cut_off_midway(*steps_and(*last))


def cut_off(*rows: list[Row]) -> StepProgress:
    bulk = flows(*rows).with_columns(job_id=pl.lit("j"))
    where = step_progress_at(bulk, int(bulk["flow_end_ns"].max()), settings())  # type: ignore[arg-type]
    assert where is not None
    return where


def cut_off_midway(*rows: list[Row]) -> bool:
    return cut_off(*rows).midway


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([], False),
        ([("a", "b", 8 * MB)], False),
        ([("a", "b", 7_300_000)], False),
        ([("a", "b", 7_100_000)], True),
        ([("a", "b", 4 * MB)], True),
        ([("a", "b", 8 * MB), ("b", "a", 4 * MB)], True),
    ],
)
def test_a_whole_message_that_nobody_answers_may_be_the_last(last: list[tuple[str, str, int]], expected: bool) -> None:
    assert midway(*last) == expected


@pytest.mark.parametrize(
    ("before", "answer", "expected"),
    [
        (7.9, 7.0, False),
        (7.9, 6.9, False),
        (7.9, 6.8, True),
        (7.9, 7.9, False),  # a whole one
        (7.1, 7.0, True),  # which of them it answers cannot be told
    ],
)
def test_of_messages_of_different_sizes_the_answer_to_the_last_is_the_end(
    before: float, answer: float, expected: bool
) -> None:
    """Gradients come back while the next activation is on its way."""
    sizes = (7.9, 8.1, 8.0, 8.2, 7.0, 7.0, 7.9, 8.0, 8.1, 8.0, before, 7.0)
    there = [messages("a", "b", [1000 * step], round(size * MB)) for step, size in enumerate(sizes)]
    back = [messages("b", "a", [1000 * step], round(size * MB)) for step, size in enumerate(sizes[:-1], 1)]
    assert cut_off_midway(*there, *back, messages("b", "a", [LAST], round(answer * MB))) == expected


@pytest.mark.parametrize(("again", "seconds"), [(6, 4.0), (5, 1.0)])
def test_steps_before_a_restart_say_nothing_of_those_after_it_if_these_are_enough(again: int, seconds: float) -> None:
    """A run of steps of a second, and after a silence of 18 s one of steps of four."""
    where = cut_off(*steps_and(), messages("a", "b", every(4000, count=again, start=30_000), 8 * MB))
    assert where.period_ns == pytest.approx(seconds * 1e9)


@pytest.mark.parametrize(("rails", "lost", "expected"), [(4, 0, False), (4, 1, False), (4, 2, True), (3, 1, True)])
def test_of_a_pipeline_s_last_messages_a_record_may_be_lost(rails: int, lost: int, expected: bool) -> None:
    """One of four, and not one of three."""
    there = [messages(f"a{rail}", f"b{rail}", every(1000, count=STEPS), 8 * MB) for rail in range(rails)]
    back = [messages(f"b{rail}", f"a{rail}", every(1000, count=STEPS, start=300), 8 * MB) for rail in range(rails)]
    last = [messages(f"a{rail}", f"b{rail}", [LAST], 8 * MB) for rail in range(lost, rails)]
    assert cut_off_midway(*there, *back, *last) == expected


@pytest.mark.parametrize(("other", "late", "expected"), [(600, 20, False), (400, 300, True)], ids=["within", "after"])
def test_what_ended_before_the_last_whole_step_begins_no_other(other: int, late: int, expected: bool) -> None:
    """One group ends a step long after the other, of which a record is left over: before that end, or after it."""
    step = [messages(*ends, every(1000, count=STEPS), 8 * MB) for ends in ("ab", "bc", "ca")]
    step += [messages(*ends, every(1000, count=STEPS, start=other), 8 * MB) for ends in ("de", "ef", "fd")]
    ended = max(end for rows in step for _, end, *_ in rows)
    assert cut_off_midway(*step, [(ended + late - 5, ended + late, "a", "b", 4 * MB)]) == expected


@pytest.mark.parametrize(("pair", "size", "counts"), [("ab", 65_536, True), ("ab", 65_535, False), ("ad", MB, False)])
def test_a_job_falls_silent_with_the_last_that_it_trains_with(pair: str, size: int, counts: bool) -> None:
    """What follows a last message of 4 MB is small, or goes elsewhere."""
    rows = [*steps_and(("a", "b", 4 * MB)), [(LAST + 10, LAST + 20, pair[0], pair[1], size)]]
    assert (cut_off(*rows).silent_ns == flows(*rows)["flow_end_ns"].max()) == counts


@pytest.mark.parametrize(("before", "expected"), [(1000, True), (1350, True), (1480, False), (700, False)])
def test_what_was_another_rhythm_a_minute_ago_says_nothing(before: int, expected: bool) -> None:
    """Periods up to 1.4 times as long, or as short, are one: a step of two micro-batches is twice as long."""
    since = [*every(before, count=40_000 // before), *every(1000, count=61, start=40_000)]
    steps = [messages(*ends, since, 8 * MB) for ends in ("ab", "bc", "ca")]
    assert cut_off_midway(*steps, messages("a", "b", [101_000], 4 * MB)) == expected


@pytest.mark.parametrize(("left_ms", "midway"), [(950, True), (1050, False)])
def test_an_unfinished_step_that_spoils_the_division_is_left_out(
    left_ms: float, midway: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The division finds nothing while the last message is among the flows, or what was sent shortly before it. A step
    is left out for that, and not more of them."""
    steps = [messages(*ends, every(1000, count=101), 8 * MB) for ends in ("ab", "bc", "ca")]
    unfinished = messages("a", "b", [101_000], 4 * MB)
    spoiling_ns = int(flows(*steps, unfinished)["flow_end_ns"].max()) - round(left_ms * MS)  # type: ignore[arg-type]
    divide = of_whole_steps.divide

    def spoiled(bulk: pl.DataFrame, window: Window, settings: Settings) -> Division | None:
        return None if (bulk["flow_end_ns"] > spoiling_ns).any() else divide(bulk, window, settings)

    monkeypatch.setattr(of_whole_steps, "divide", spoiled)
    bulk = flows(*steps, unfinished).with_columns(job_id=pl.lit("j"))
    where = step_progress_at(bulk, int(bulk["flow_end_ns"].max()), settings())  # type: ignore[arg-type]
    assert (where is not None and where.midway) == midway


@pytest.mark.parametrize(
    ("least", "sent", "expected"),
    [(1.0, (0.91, 0.91, 0.91), True), (1.0, (0.91, 0.89, 0.91), False), (0.8, (0.81, 0.81, 0.81), True)],
    ids=["nine tenths", "one of them less", "as in the least of the steps"],
)
def test_who_has_sent_about_a_step_s_bytes_has_ended_it(least: float, sent: Sequence[float], expected: bool) -> None:
    """Each NIC nine tenths of what is typical, or what it did in another step; it may be more."""
    sizes = (1.0, 1.0, 1.1, least)
    steps = pl.DataFrame(
        [(nic, step, round(8 * MB * size)) for nic in "abc" for step, size in enumerate(sizes)],
        schema=["src_addr", "step", "bytes"],
        orient="row",
    )
    begun = pl.DataFrame({"src_addr": [*"abc"], "bytes": [round(8 * MB * size) for size in sent]})
    assert _is_whole(begun, steps, settings()) == expected
    assert not _is_whole(begun.head(2), steps, settings())


@pytest.mark.parametrize(
    ("hops", "count", "expected"),
    [(("ab", "bc"), 1, True), (("ab", "bc"), 2, False), (("ab",), 1, False), (("ab", "bc", "ca"), 1, False)],
    ids=["a line", "two messages a step", "perhaps two replicas", "a ring"],
)
def test_micro_batches_of_a_line_are_no_steps_to_be_midway_in(hops: Sequence[str], count: int, expected: bool) -> None:
    ends = [pair for hop in hops for pair in (hop, hop[::-1])]
    sent = [messages(*pair, [40 * part for part in range(count)], 8 * MB) for pair in ends]
    steps = flows(*sent).with_columns(step=pl.lit(0)).sort("step", "flow_start_ns")
    pairs = pl.DataFrame([tuple(pair) for pair in ends], schema=["src_addr", "dst_addr"], orient="row")
    assert _are_micro_batches(steps, pairs) == expected


RING = ["ab", "bc", "cd", "de", "ef", "fg", "gh", "ha"]


@pytest.mark.parametrize(
    ("more", "irregular", "aside"),
    [
        (["ac"], ["ac"], ["ac"]),
        (["ac"], [], []),
        (["ac", "ca"], ["ac", "ca"], []),
        ([], ["ab", "cd"], ["ab", "cd"]),
        (["ac", "bd", "ce"], ["ac", "bd", "ce"], []),
    ],
    ids=["a copy", "with a period", "both ways", "a quarter of all", "more than that"],
)
def test_a_few_pairs_without_a_period_that_nothing_comes_back_to_are_due_at_no_time(
    more: list[str], irregular: list[str], aside: list[str]
) -> None:
    ends = [*RING, *more]
    steps = pl.DataFrame(
        {"pair": range(len(ends)), "src_addr": [one[0] for one in ends], "dst_addr": [one[1] for one in ends]}
    )
    periodic = pl.Series([number for number, one in enumerate(ends) if one not in irregular], dtype=pl.Int64)
    assert sorted(ends[number] for number in pairs_outside_steps(steps, steps, periodic)) == aside
