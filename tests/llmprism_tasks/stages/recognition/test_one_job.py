"""Rails are of one job or of two by when they begin, how their steps keep their distance, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
from handmade import settings

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.stages.recognition import one_job
from llmprism_tasks.stages.recognition.one_job import (
    BEGINS_ANYWHERE,
    CERTAIN,
    LEAST_MOMENTS,
    Rail,
    Sent,
    odds,
    probability,
)

RECOGNITION = settings().recognition
MINUTE = (0, 60 * NANOSECONDS_PER_SECOND)


def ns(seconds: float | Sequence[float] | np.ndarray) -> np.ndarray:
    return np.round(np.asarray(seconds, np.float64) * NANOSECONDS_PER_SECOND).astype(np.int64)


def rail(
    ends: Sequence[float] | np.ndarray = (),
    *,
    period: float = 0,
    begin: float | None = None,
    transfers: Sequence[float] | np.ndarray = (),
    reach: float = 0,
) -> Rail:
    """Return a rail whose steps end at some seconds, with a period by default that they show."""
    period = period or (float(np.median(np.diff(ends))) if len(ends) > 1 else 0)
    sent = Sent(ns(transfers), np.ones(len(transfers), np.int64), reach, -1 if begin is None else int(ns(begin)))
    return Rail(ns(ends), period * NANOSECONDS_PER_SECOND, sent)


def compared(one: Rail, other: Rail, seen: tuple[int, int] = MINUTE) -> float:
    return odds(one, other, seen, RECOGNITION)


def test_of_rails_that_show_nothing_nothing_is_known() -> None:
    assert compared(rail(), rail()) == 0
    assert probability(0) == 0.5


def test_odds_are_probabilities() -> None:
    assert probability(np.log(3)) == pytest.approx(0.75)
    assert probability(np.log(1 / 3)) == pytest.approx(0.25)
    assert probability(np.inf) == 1


@pytest.mark.parametrize(("count", "reach", "late", "certain"), [
    (LEAST_MOMENTS, 0.5, 0.002, True),
    (LEAST_MOMENTS - 1, 0.5, 0.002, False),
    (LEAST_MOMENTS, 0.51, 0.002, False),
    (LEAST_MOMENTS, 0.5, 0.004, False),
])  # fmt: skip
def test_what_begins_together_is_of_one_job(count: int, reach: float, late: float, certain: bool) -> None:
    """Within 3 ms of each other, unless they begin so often that chance would do."""
    times = np.arange(count) * 3.7
    one, other = (rail(transfers=times + by, reach=reach) for by in (0, late))
    assert (compared(one, other) == CERTAIN) is certain


@pytest.mark.parametrize(("share", "reach", "certain"), [
    (0.8, 0.02, True),
    (0.7, 0.02, False),
    (0.8, 0.4, False),
    (0.9, 0.4, True),
])  # fmt: skip
def test_all_that_one_rail_sends_may_begin_with_some_of_another(share: float, reach: float, certain: bool) -> None:
    """Tokens go by all rails, gradients by one: it sends twice as often. What it reaches by chance does not count."""
    times = np.arange(40) * 3.7
    few = np.where(np.arange(40) < share * 40, times, times + 1)
    one, other = rail(transfers=few, reach=0.9), rail(transfers=np.sort([*times, *(times + 2)]), reach=reach)
    assert (compared(one, other) == CERTAIN) is certain
    assert (compared(other, one) == CERTAIN) is certain


@pytest.mark.parametrize(("apart", "certain"), [(0.001, False), (0.1, True)])
def test_what_channels_send_at_once_tells_as_much_as_one_transfer(apart: float, certain: bool) -> None:
    times = np.sort([at + channel * apart for at in (0, 3, 6) for channel in range(LEAST_MOMENTS)])
    assert (compared(rail(transfers=times), rail(transfers=times)) == CERTAIN) is certain


@pytest.mark.parametrize(("large", "certain"), [(100, False), (1, True)])
def test_a_copy_that_is_nearly_all_that_is_sent_tells_as_much_as_one_transfer(large: int, certain: bool) -> None:
    one = rail(transfers=np.arange(2 * LEAST_MOMENTS) * 3.7)
    sizes = np.where(np.arange(2 * LEAST_MOMENTS) == 4, large, 1)
    sent = one.sent._replace(sizes=sizes)
    assert (compared(one._replace(sent=sent), one._replace(sent=sent)) == CERTAIN) is certain


@pytest.mark.parametrize(("apart", "likely"), [(0, True), (2, True), (6, False), (30, False)])
def test_rails_of_one_job_begin_within_a_part_of_a_step(apart: float, likely: bool) -> None:
    """Steps of 12 s: 1.5 s apart on average, and the job is seen to begin after twenty seconds."""
    one, other = (rail(period=12, begin=begin) for begin in (20, 20 + apart))
    assert (compared(one, other) > 0) is likely


def test_a_rail_may_begin_at_any_other_time() -> None:
    late = compared(rail(period=2, begin=20), rail(period=2, begin=50))
    assert late == pytest.approx(np.log(BEGINS_ANYWHERE), abs=1e-6)


def test_what_goes_on_when_flows_are_seen_first_has_not_begun_then() -> None:
    """What is seen within its first step may have been at work for long, and be near another by chance."""
    begun = compared(rail(period=12, begin=13), rail(period=12, begin=13.1))
    going_on = compared(rail(period=12, begin=1), rail(period=12, begin=1.1))
    assert going_on < 0.1
    assert begun > 3


def test_without_a_period_begins_say_nothing() -> None:
    assert compared(rail(begin=20), rail(begin=20)) == 0
    assert compared(rail(begin=20, period=1), rail(period=1)) == 0


def walk(count: int, *, seed: int, jitter: float = 0.03, period: float = 1) -> np.ndarray:
    """Return when the steps of a job end, which vary."""
    return np.cumsum(np.random.default_rng(seed).normal(period, jitter * period, count))


@pytest.mark.parametrize("count", [8, 12, 40, 200])
def test_ends_of_one_job_keep_their_distance_and_those_of_two_walk(count: int) -> None:
    """Ends of one are 2 % of the step off, each by itself."""
    ends = walk(count, seed=1)
    own = 0.3 + np.random.default_rng(2).normal(0, 0.02, count)
    assert compared(rail(ends), rail(ends + own)) > 0.3 * (count - 2)
    if count >= 40:
        assert compared(rail(ends), rail(walk(count, seed=3))) < -0.3 * count


@pytest.mark.parametrize(("longer", "one"), [(1.0, True), (1.005, False)])
def test_half_a_percent_adds_up(longer: float, one: bool) -> None:
    """Even if the two share all of their jitter."""
    ends = walk(40, seed=1)
    assert (compared(rail(ends), rail(ends * longer)) > 0) is one


def test_two_steps_have_no_distances_to_speak_of() -> None:
    assert compared(rail([0, 10], begin=20), rail([5, 17])) == 0
    assert compared(rail([0, 10, 20]), rail([5, 17, 29])) != 0


def test_a_few_steps_that_are_more_alike_than_steps_are_say_little() -> None:
    even = np.arange(4) * 10.0
    assert abs(compared(rail(even), rail(even + 3))) < 2
    assert -9 < compared(rail(even), rail(even * 1.1)) < 0


@pytest.mark.parametrize(("since", "own", "one"), [(20, 0.005, True), (20, 0.08, False)])
def test_a_ring_that_a_fault_makes_slow_stays_in_its_job(since: int, own: float, one: bool) -> None:
    """Its distance changes by a third of a step and is kept again; another's walks."""
    ends, draw = walk(40, seed=1, jitter=0.05), np.random.default_rng(5)
    late = np.where(np.arange(40) >= since, 0.3, 0.0)
    late += draw.normal(0, own, 40) if one else np.cumsum(draw.normal(0, own, 40))
    assert (compared(rail(ends), rail(ends + late)) > 0) is one


def micro_batches(waits: float, *, steps: int = 6, each: int = 4, ends: float = 1.0) -> tuple[Rail, Rail]:
    """Return a rail with steps, and one that does something four times in each, a second apart, and then waits."""
    lasts = ([1.0] * (each - 1) + [1.0 + waits]) * steps
    short = np.array([*accumulate(lasts)])
    return rail(short[each - 1 :: each] - ends / 2, period=each + waits), rail(short, period=1)


def test_what_is_done_several_times_in_a_step_waits_for_its_end() -> None:
    assert compared(*micro_batches(1.0)) > 0


@pytest.mark.parametrize(("period", "likely"), [(1.45, False), (4.07, False)])
def test_another_job_does_not_wait(period: float, likely: bool) -> None:
    steps = np.arange(60) * 1.0
    others = np.arange(2, 60, period) + 0.3
    assert (compared(rail(others), rail(steps)) > 0) is likely


@pytest.mark.parametrize(("longer", "waits"), [(0.0, False), (0.1, False), (0.4, True), (1.0, True)])
def test_on_busy_hosts_others_are_slower_for_a_while(longer: float, waits: bool) -> None:
    """By a tenth of their step: whoever waits for a step does so for longer."""
    short = np.array([*accumulate([1.0, 1.0, 1.0 + longer] * 5)])
    assert (one_job._log_odds_of_waits(ns(short), ns(short[2::3] - 0.5), 1e9) > 0) is waits


@pytest.mark.parametrize(("slow", "waits"), [({38: 7.0}, False), (dict.fromkeys(range(8, 60, 10), 2.0), True)])
def test_a_single_long_step_does_not_wait_and_all_do(slow: dict[int, float], waits: bool) -> None:
    """The longer a step is, the likelier is it that something else ends in it."""
    lasts = np.ones(60)
    lasts[list(slow)] = list(slow.values())
    short = np.cumsum(lasts)
    assert (one_job._log_odds_of_waits(ns(short), ns(short[8::10] - 0.5), 1e9) > 0) is waits


@pytest.mark.parametrize(("off", "one"), [(0.3, True), (0.25, True), (None, False)])
def test_a_rail_of_which_every_second_step_is_seen_stays_in_its_job(off: float | None, one: bool) -> None:
    """Steps vary by 3 %, and so does the other rail's, if it is another job's."""
    ends = walk(40, seed=1)
    others = walk(20, seed=3, period=2) if off is None else ends[1::2] + off
    assert (compared(rail(ends), rail(others)) > 0) is one


def test_what_does_not_wait_may_be_steps_of_which_several_are_seen_as_one() -> None:
    short = np.arange(60) * 1.0
    said = one_job._log_odds_of_waits(ns(short), ns(short[1::2] - 0.3), 1e9)
    assert said == pytest.approx(np.log(one_job.SEVERAL_AS_ONE), abs=0.01)


def test_without_an_end_inside_or_outside_nothing_is_known_of_waiting() -> None:
    short = np.arange(6) * 1.0
    assert one_job._log_odds_of_waits(ns(short), ns([70, 80]), 1e9) == 0
    assert one_job._log_odds_of_waits(ns(short), ns(short + 0.5), 1e9) == 0


@pytest.mark.parametrize(("period", "asked"), [(1.4, False), (1.6, True)])
def test_whether_one_waits_is_asked_where_periods_are_unlike(
    period: float, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, others = rail(np.arange(30) * 1.0), rail(np.arange(20) * period)
    before = compared(steps, others)
    monkeypatch.setattr(one_job, "_log_odds_of_waits", lambda *_: 1.0)
    monkeypatch.setattr(one_job, "_log_odds_of_distances", lambda *_: 0.0)
    assert before != 1.0
    assert (compared(steps, others) == 1.0) is asked


@pytest.mark.parametrize(("shifts", "one"), [(0, True), (2, True), (4, False)])
def test_a_job_explains_that_its_distance_shifts_and_shifts_back(shifts: int, one: bool) -> None:
    ends, draw = walk(40, seed=1, jitter=0.05), np.random.default_rng(5)
    apart = np.array([0.0, 0.25, 0.02, -0.25, 0.05])[np.arange(40) * (shifts + 1) // 40]
    late = apart + draw.normal(0, 0.005, 40)
    assert (compared(rail(ends), rail(ends + late)) > 0) is one


def test_each_shift_is_as_dear_as_the_choice_of_its_step() -> None:
    ends, late = walk(40, seed=1, jitter=0.05), np.random.default_rng(5).normal(0, 0.005, 40)
    shifted = late + np.where((np.arange(40) >= 15) & (np.arange(40) < 25), 0.25, 0.0)
    assert compared(rail(ends), rail(ends + late)) - compared(rail(ends), rail(ends + shifted)) > 2 * np.log(40)
