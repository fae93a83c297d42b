"""Bursts are found by their equal bytes, however their records are split and whenever they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.step_division.kernels.gap_segmentation import burst_numbers, quiet_gaps

MS = 1_000_000
SHORTEST, RATIO, BYTES, PACE, PERSISTENCE, FEW_RATIO = 5.0 * MS, 1.5, 0.1, 0.25, 0.4, 5.0
T0 = 1_760_000_000_000_000_000  # a real epoch time: differences of such numbers must not pass through floats


class Series(NamedTuple):
    """Transfers of one series; times in ns."""

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[tuple[float, float, int]]) -> Series:
        """Build from (start, end, bytes), times in ms."""
        ordered = sorted(rows)
        times = [np.array([T0 + round(row[i] * MS) for row in ordered], dtype=np.int64) for i in (0, 1)]
        return cls(*times, np.array([row[2] for row in ordered], dtype=np.int64))


class Found(NamedTuple):
    """What `quiet_gaps` says of one series, in ms."""

    threshold: float
    period: float
    mean_period: float
    duration: float
    clarity: float
    bursts: int


def find(
    *several: Series,
    few_ratio: float = FEW_RATIO,
    persistence: float = PERSISTENCE,
    uneven: float = PACE,
    answered: bool = True,
) -> list[Found]:
    offsets = np.cumsum([0, *(len(series.starts) for series in several)]).astype(np.int64)
    columns = [np.concatenate([np.empty(0, np.int64), *(series[i] for series in several)]) for i in range(3)]
    found = quiet_gaps(
        *columns,
        offsets,
        np.full(len(several), answered),
        shortest_gap=SHORTEST,
        clearest_ratio=RATIO,
        byte_tolerance=BYTES,
        pace_tolerance=PACE,
        uneven_tolerance=uneven,
        persistence=persistence,
        few_ratio=few_ratio,
    )
    return [Found(*(time / MS for time in times), c, int(b)) for *times, c, b in zip(*found, strict=True)]


def numbers(series: Series, threshold_ms: float) -> list[int]:
    offsets = np.array([0, len(series.starts)])
    return burst_numbers(series.starts, series.ends, series.sizes, offsets, np.array([threshold_ms * MS])).tolist()


def steps(
    begins: Sequence[float], *, length: float = 100, parts: int = 8, total: int = 8_000_000
) -> list[tuple[float, float, int]]:
    """Return bursts of equal parts, back to back, at the given times."""
    part = length / parts
    return [(begin + i * part, begin + (i + 1) * part, total // parts) for begin in begins for i in range(parts)]


def is_none(found: Found) -> bool:
    return bool(np.isnan(found.threshold) and np.isnan(found.period)) and found.clarity == 0 and found.bursts == 0


def test_nothing_is_no_series() -> None:
    assert find() == []
    empty = np.empty(0, np.int64)
    assert burst_numbers(empty, empty, empty, np.array([0]), np.empty(0)).tolist() == []


@pytest.mark.parametrize("transfers", [0, 1])
def test_too_few_transfers_have_no_period(transfers: int) -> None:
    series = Series.of([(1000 * i, 1000 * i + 10, 100) for i in range(transfers)])
    assert is_none(find(series)[0])
    assert numbers(series, float("nan")) == [-1] * transfers


@pytest.mark.parametrize("transfers", [2, 3, 4])
def test_two_equal_transfers_far_apart_are_the_fewest_that_show_a_period(transfers: int) -> None:
    (found,) = find(Series.of([(1000 * i, 1000 * i + 10, 100) for i in range(transfers)]))
    assert (found.bursts, found.period, found.mean_period, found.duration) == (transfers, 1000, 1000, 10)


def in_threes(count: int, quiet: float, *, bytes_: float = 1.0, pace: float = 1.0) -> Series:
    """Return bursts of three transfers 100 ms apart, of which the last has `bytes_` times as many bytes as the others,
    and ends `pace` times a period after the one before it."""
    period = 200 + quiet
    begins = [period * burst for burst in range(count)]
    begins[-1] += period * (pace - 1)
    return Series.of(
        [
            (begin + 100 * i, begin + 100 * i, round(size * (bytes_ if begin == begins[-1] else 1)))
            for begin in begins
            for i, size in enumerate([100_000, 700_000, 2_000_000])
        ]
    )


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(("quiet", "found"), [(490, False), (510, True)])
def test_two_or_three_bursts_are_believed_only_far_apart(count: int, quiet: float, found: bool) -> None:
    assert find(in_threes(count, quiet))[0].bursts == (count if found else 0)


def test_four_bursts_need_not_be_that_far_apart() -> None:
    assert find(in_threes(4, 160))[0].bursts == 4


@pytest.mark.parametrize(("ratio", "count"), [(9.9, 2), (10.1, 0)])
def test_how_far_apart_a_few_must_be_can_be_set(ratio: float, count: int) -> None:
    assert find(in_threes(2, 1000), few_ratio=ratio)[0].bursts == count


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(("change", "found"), [(1.099, True), (1.101, False), (0.91, True), (0.908, False)])
def test_two_or_three_bursts_are_all_alike(count: int, change: float, found: bool) -> None:
    assert find(in_threes(count, 1000, bytes_=change))[0].bursts == (count if found else 0)


@pytest.mark.parametrize(("change", "found"), [(1.24, True), (1.26, False), (0.81, True), (0.79, False)])
def test_three_bursts_keep_one_distance(change: float, found: bool) -> None:
    assert find(in_threes(3, 2000, pace=change))[0].bursts == (3 if found else 0)


@pytest.mark.parametrize(("gap", "bursts"), [(24, 0), (26, 2)])
def test_two_transfers_are_far_apart_beside_the_shortest_gap(gap: float, bursts: int) -> None:
    assert find(Series.of([(0, 10, 100), (10 + gap, 20 + gap, 100)]))[0].bursts == bursts


def test_the_threshold_lies_between_the_gaps_and_clarity_is_their_ratio() -> None:
    """Gaps of 100 ms inside, 1,600 between: the geometric mean is 400."""
    (found,) = find(in_threes(10, 1600))
    assert (found.threshold, found.clarity) == (pytest.approx(400), pytest.approx(16))
    assert (found.period, found.duration) == (1800, 200)


def test_transfers_without_gaps_have_no_period() -> None:
    assert is_none(find(Series.of([(10 * i, 10 * i + 10, 100) for i in range(50)]))[0])


def test_equal_transfers_at_equal_gaps_are_each_a_burst() -> None:
    (found,) = find(Series.of([(1000 * i, 1000 * i + 10, 100) for i in range(50)]))
    assert (found.bursts, found.period) == (50, 1000)


@pytest.mark.parametrize(("gap", "bursts"), [(4.9, 0), (5.1, 50)])
def test_gaps_up_to_the_shortest_are_none(gap: float, bursts: int) -> None:
    (found,) = find(Series.of([((10 + gap) * i, (10 + gap) * i + 10, 100) for i in range(50)]))
    assert found.bursts == bursts


@pytest.mark.parametrize(("quiet", "bursts"), [(140, 0), (160, 10)])
def test_a_gap_must_stand_out_from_those_that_do_not_cut(quiet: float, bursts: int) -> None:
    """Three records of different sizes, 100 ms apart, and then a quiet time of 1.4 or 1.6 times as much."""
    rows = [
        ((200 + quiet) * step + 100 * i + at, (200 + quiet) * step + 100 * i + at, size)
        for step in range(10)
        for i, (at, size) in enumerate([(0, 100), (0, 700), (0, 2000)])
    ]
    assert find(Series.of(rows))[0].bursts == bursts


@pytest.mark.parametrize(("change", "found"), [(0.09, True), (0.12, False)])
def test_bursts_carry_equal_bytes_within_the_tolerance(change: float, found: bool) -> None:
    rows = [
        (begin, end, round(size * (1 + change * (step % 2))))
        for step in range(21)
        for begin, end, size in steps([1000 * step])
    ]
    assert is_none(find(Series.of(rows))[0]) is not found


@pytest.mark.parametrize(("change", "found"), [(0.24, True), (0.27, False)])
def test_bursts_come_at_a_steady_pace_within_the_tolerance(change: float, found: bool) -> None:
    """Neighbouring periods differ by the change, around 1,000 ms."""
    periods = [1000 * (1 + change / 2 * (-1) ** step) for step in range(21)]
    series = Series.of(steps(np.cumsum(periods).tolist()))
    assert is_none(find(series)[0]) is not found


def test_sizes_that_never_repeat_have_no_period() -> None:
    sizes = np.random.default_rng(1).integers(1000, 1_000_000, 40).tolist()
    assert is_none(find(Series.of([(1000 * i, 1000 * i + 10, size) for i, size in enumerate(sizes)]))[0])


splits = st.lists(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 4.9)), min_size=1, max_size=12), min_size=4, max_size=12
)


@given(splits, st.floats(30, 5000))
def test_bursts_are_found_whatever_the_records_they_are_split_into(
    several: list[list[tuple[int, float]]], quiet: float
) -> None:
    """Each burst lasts 60 ms and moves 10 MB, in records and pauses of its own; the shortest gap is longer than any."""
    rows: list[tuple[float, float, int]] = []
    for burst, parts in enumerate(several):
        begin = burst * (60 + quiet)
        total, busy = sum(share for share, _ in parts), 60 - sum(pause for _, pause in parts[1:])
        at = begin
        for i, (share, pause) in enumerate(parts):
            at += pause if i else 0
            end = at + busy * share / total
            rows.append((at, end, 10_000_000 * share // total))
            at = end
    series = Series.of(rows)
    (found,) = find(series)
    expected = [burst for burst, parts in enumerate(several) for _ in parts]
    assert found.bursts == len(several)
    assert found.period == pytest.approx(60 + quiet, abs=1e-5)
    assert 4.9 < found.threshold < quiet
    assert numbers(series, found.threshold) == expected


@given(st.integers(0, 10**9), st.integers(2, 40), st.integers(5, 30))
def test_a_burst_may_be_split_with_wide_pauses(seed: int, parts: int, count: int) -> None:
    """Records come in another number, size and order in every step; their pauses reach a quarter of the quiet time."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, float, int]] = []
    for burst in range(count):
        cuts = np.sort(rng.uniform(0, 200, rng.integers(1, parts + 1)))
        cuts[-1] = 200
        shares = np.diff(np.concatenate([[0], cuts]))
        ends = 1000 * burst + cuts * rng.uniform(0.99, 1)
        rows += [(end - 1, end, int(1e5 * share) + 1) for end, share in zip(ends, shares, strict=True)]
    (found,) = find(Series.of(rows))
    assert found.bursts == count
    assert found.period == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize("split", [0, 4])
def test_a_first_or_last_burst_split_with_a_wide_pause_is_one(split: int) -> None:
    """Five bursts of two transfers 20 ms apart, 100 ms in one of them; 800 ms lie between bursts."""
    rows = [
        (1000 * burst + begin, 1000 * burst + begin + 50, 5_000_000)
        for burst in range(5)
        for begin in (0, 150 if burst == split else 70)
    ]
    assert find(Series.of(rows))[0].bursts == 5


def test_reduce_scatter_and_all_gather_in_turn_are_one_step() -> None:
    """Both move the same bytes, but the pace between them limps: short, long, short, long."""
    begins = [1000 * step + offset for step in range(20) for offset in (0, 250)]
    (found,) = find(Series.of(steps(begins)))
    assert (found.bursts, found.period) == (20, 1000)


def test_a_record_may_start_before_the_last_one_ended() -> None:
    """Two queue pairs: the quiet time counts from the latest end, not from the last record's."""
    rows = [(1000 * i, 1000 * i + 400, 900) for i in range(10)] + [
        (1000 * i + 10, 1000 * i + 20, 100) for i in range(10)
    ]
    (found,) = find(Series.of(rows))
    assert (found.bursts, found.period) == (10, 1000)
    assert found.threshold < 600


@pytest.mark.parametrize("pauses", [1, 2, 3])
def test_checkpoints_do_not_swallow_the_steps_between_them(pauses: int) -> None:
    """Pauses of 9 s after every twelfth step stand out more than the step's own gaps."""
    begins = np.cumsum([9000 if step and step % 12 == 0 else 1000 for step in range(12 * pauses + 6)]).tolist()
    (found,) = find(Series.of(steps(begins)))
    assert found.bursts == len(begins)
    assert found.period == 1000


def checkpoints(pause: float, *, step: float = 990, parts: Sequence[float] = (0, 300)) -> Series:
    """Return steps of two transfers at a time, or one, of which each fourth comes after a pause."""
    begins = np.cumsum([pause if at and at % 4 == 0 else step for at in range(32)]).tolist()
    return Series.of([row for begin in begins for part in parts for row in steps([begin + part], length=50, parts=2)])


@pytest.mark.parametrize(("pause", "bursts", "period"), [(3020, 32, 990), (3120, 8, 6090)])
def test_steps_between_regular_checkpoints_are_steps_if_they_go_on_for_most_of_the_time(
    pause: float, bursts: int, period: float
) -> None:
    """31.7 seconds are 70 % of 45.3, of which seven pauses make 21.5; in longer ones, steps look like buckets of one.

    The pauses stand out four times as much as the steps' own quiet time does from the 250 ms within them.
    """
    (found,) = find(checkpoints(pause))
    assert (found.bursts, found.period) == (bursts, period)


@pytest.mark.parametrize("later", [300, 60], ids=["pauses are clearer", "steps are clearer"])
@pytest.mark.parametrize(("step", "parts", "bursts"), [(990, 2, 8), (1010, 2, 32), (1010, 1, 8)])
def test_bursts_of_several_transfers_a_second_apart_are_no_buckets(
    step: float, parts: int, later: float, bursts: int
) -> None:
    """They go on for half of the time; single transfers so far apart may be a pipeline's micro-batches."""
    assert find(checkpoints(5000, step=step, parts=[0, later][:parts]))[0].bursts == bursts


@pytest.mark.parametrize(("buckets", "bursts", "period"), [(8, 12, 3750), (10, 120, 300)])
def test_buckets_are_no_steps_however_clearly_they_are_apart(buckets: int, bursts: int, period: float) -> None:
    """Pauses of 260 ms between buckets, 13 times those within them; steps are apart by less than six times as much.

    Eight buckets go on for 64 % of the step, as in a backward pass, ten for 80 % of the time.
    """
    rows = [
        (begin + part, begin + part + 10, 50_000_000)
        for step in range(12)
        for begin in every_bucket(3750.0 * step, buckets)
        for part in (0, 30)
    ]
    (found,) = find(Series.of(rows))
    assert (found.bursts, found.period) == (bursts, period)


def every_bucket(begin: float, count: int) -> list[float]:
    return [begin + 300 * bucket for bucket in range(count)]


@pytest.mark.parametrize(("parts", "bursts"), [(1, 10), (2, 40)])
def test_layers_of_single_transfers_are_no_steps_between_checkpoints(parts: int, bursts: int) -> None:
    """Four layers 100 ms apart, 160 ms between steps: of two transfers each, a layer would be a step of its own."""
    rows = [
        (begin + 5 * part, begin + 5 * part + 1, 1_000_000)
        for step in range(10)
        for layer in range(4)
        for part in range(parts)
        for begin in [500 * step + 110 * layer]
    ]
    assert find(Series.of(rows))[0].bursts == bursts


@pytest.mark.xfail(strict=True, reason="the clearest way, which cuts at every transfer, is taken before the steps")
def test_layers_are_no_steps_where_the_collector_splits_their_transfers() -> None:
    """The same layers in two records each, without a pause between them."""
    rows = [
        (begin + 5 * part, begin + 5 * part + 5, 1_000_000)
        for step in range(10)
        for layer in range(4)
        for part in range(2)
        for begin in [500 * step + 110 * layer]
    ]
    assert find(Series.of(rows))[0].bursts == 10


@pytest.mark.parametrize(("last", "bursts"), [(1080, 11), (1120, 0)])
def test_a_period_fills_the_time(last: float, bursts: int) -> None:
    """Ten buckets 40 ms apart are no steps if the eleventh comes too late: eleven periods fill 0.4 of 1,100 ms."""
    rows = [(begin, begin + 20, 100) for begin in [*(40 * i for i in range(10)), last]]
    assert find(Series.of(rows))[0].bursts == bursts


@pytest.mark.parametrize(("persistence", "bursts"), [(0.2, 11), (0.25, 0)])
def test_how_much_of_the_time_can_be_set(persistence: float, bursts: int) -> None:
    rows = [(begin, begin + 20, 100) for begin in [*(40 * i for i in range(10)), 2000]]
    assert find(Series.of(rows), persistence=persistence)[0].bursts == bursts


@pytest.mark.parametrize(("slow", "median", "mean"), [(14, 1000, 1467), (16, 2000, 1533)])
def test_where_half_of_the_steps_are_slow_the_mean_period_hardly_depends_on_chance(
    slow: int, median: float, mean: float
) -> None:
    """Of thirty periods; two slow ones more or less double the median."""
    (found,) = find(Series.of(steps(np.cumsum([1000] * (31 - slow) + [2000] * slow).tolist())))
    assert (found.bursts, found.period, round(found.mean_period)) == (31, median, mean)


def test_steps_that_become_slower_stay_steps() -> None:
    begins = np.cumsum([1000] * 16 + [2000] * 14).tolist()
    (found,) = find(Series.of(steps(begins)))
    assert (found.bursts, found.period) == (30, 1000)


def of_two_paces(quick: int, slow: int) -> Found:
    """Return what is found in steps of 340 ms and then of 1 s, each of two transfers that are 20 and then 60 ms apart.

    A gap between slow steps is further from one between quick ones than these are from gaps inside.
    """
    begins = np.cumsum([0, *[340] * quick, *[1000] * slow])[:-1].tolist()
    second = [120] * quick + [160] * slow
    rows = [
        (at + later, at + later + 100, 100) for at, place in zip(begins, second, strict=True) for later in (0, place)
    ]
    return find(Series.of(rows))[0]


@pytest.mark.parametrize(("quick", "slow", "period"), [(20, 40, 1000), (40, 20, 340)])
def test_quick_steps_are_not_one_because_slow_ones_are_cut_more_clearly(quick: int, slow: int, period: float) -> None:
    found = of_two_paces(quick, slow)
    assert (found.bursts, found.period) == (quick + slow, period)


@pytest.mark.parametrize(("quick", "bursts"), [(11, 40), (12, 52)])
def test_of_two_ways_to_cut_the_one_that_goes_on_for_four_periods_longer_is_right(quick: int, bursts: int) -> None:
    """Twelve quick steps take four slow ones' time."""
    assert of_two_paces(quick, 40).bursts == bursts


def test_a_broken_burst_among_whole_ones_changes_nothing() -> None:
    rows = steps(range(0, 20_000, 1000))
    del rows[51:56]  # five of the seventh step's eight records are lost
    (found,) = find(Series.of(rows))
    assert (found.bursts, found.period) == (20, 1000)


def test_series_do_not_see_each_other() -> None:
    several = [
        Series.of(steps(range(0, 20_000, 1000))),
        Series.of([]),
        Series.of([(0, 1, 5)]),
        Series.of(steps(range(0, 30_000, 3000))),
    ]
    together = find(*several)
    alone = [find(series)[0] for series in several]
    assert [(f.bursts, f.clarity) for f in together] == [(f.bursts, f.clarity) for f in alone]
    assert [f.bursts for f in together] == [20, 0, 0, 10]


jittered = st.builds(
    lambda seed, count, limp: Series.of(
        steps(
            [
                begin + offset
                for begin in np.cumsum(np.random.default_rng(seed).uniform(900, 1100, count)).tolist()
                for offset in ((0, 200) if limp else (0,))
            ]
        )
    ),
    st.integers(0, 10**6),
    st.integers(2, 30),
    st.booleans(),
)


@given(jittered, st.integers(-(10**17), 10**18))
def test_when_it_happens_does_not_matter(series: Series, shift: int) -> None:
    moved = Series(series.starts + shift, series.ends + shift, series.sizes)
    assert str(find(moved)) == str(find(series))


@given(jittered, st.integers(2, 50))
def test_slower_training_with_longer_quiet_times_has_the_same_bursts(series: Series, factor: int) -> None:
    """All gaps that count are above the shortest, so a slower copy is judged alike."""
    slow = Series(T0 + (series.starts - T0) * factor, T0 + (series.ends - T0) * factor, series.sizes)
    (found,), (slowly,) = find(series), find(slow)
    assert slowly.bursts == found.bursts
    assert slowly.period == pytest.approx(found.period * factor, nan_ok=True)
    if found.bursts:
        assert numbers(slow, slowly.threshold) == numbers(series, found.threshold)


@given(jittered, st.integers(1, 1000))
def test_the_unit_of_bytes_does_not_matter(series: Series, factor: int) -> None:
    scaled = series._replace(sizes=series.sizes * factor)
    assert str(find(scaled)) == str(find(series))


@given(jittered)
def test_a_second_look_at_the_same_series_says_the_same(series: Series) -> None:
    assert str(find(series, series)) == str(find(series) * 2)


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e3)), max_size=30), st.floats(0, 1e4))
def test_bursts_are_numbered_from_0_without_holes_and_part_at_long_gaps(
    rows: list[tuple[float, float]], threshold: float
) -> None:
    series = Series.of([(start, start + length, 1_000_000) for start, length in rows])
    found = numbers(series, threshold)
    assert sorted(set(found)) == list(range(len(set(found))))
    for i in range(1, len(found)):
        gap = max(series.starts[i] - series.ends[:i].max(), 0)
        assert found[i] - found[i - 1] == int(gap > threshold * MS)


@pytest.mark.parametrize(("early", "bursts"), [(4_000_000, 20), (30_000_000, 0)])
def test_what_an_early_rank_pushes_belongs_to_the_burst_it_waits_for(early: int, bursts: int) -> None:
    """It stalls for as long as the quiet gap; with a third of the bytes it would be a part of the step like others."""
    rows = [(1000.0 * step + 400, 1000.0 * step + 401, early) for step in range(20)]
    rows += [(1000.0 * step + 900, 1000.0 * step + 1000, 100_000_000 - early) for step in range(20)]
    found = find(Series.of(rows))[0]
    assert found.bursts == bursts
    if bursts:
        assert found.period == pytest.approx(1000)
        assert numbers(Series.of(rows), found.threshold) == [step for step in range(20) for _ in range(2)]


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e3), st.integers(1, 10**9)), max_size=40))
def test_what_is_found_holds_together(rows: list[tuple[float, float, int]]) -> None:
    """Whatever the series: a threshold comes with a period, at least two bursts, and cuts into that many."""
    series = Series.of([(start, start + length, size) for start, length, size in rows])
    (found,) = find(series)
    if is_none(found):
        return
    assert found.threshold > 0
    assert found.period > 0
    assert found.clarity >= 1
    assert found.bursts >= (4 if found.clarity < FEW_RATIO else 2)
    assert found.mean_period > 0
    assert found.duration >= 0
    assert len(set(numbers(series, found.threshold))) == found.bursts


def _evaluated(each: int, other: int = 0) -> Series:
    """Return steps of one transfer, 0.7 s apart, with a pause of 5 s after every `each`; the last before it of `other`
    bytes more."""
    rows, at = [], 0.0
    for step in range(6 * each):
        last = step % each == each - 1
        rows.append((at, at + 200, 10_000 + other * last))
        at += 700 + 5000 * last
    return Series.of(rows)


def test_a_pause_every_so_many_steps_is_no_step() -> None:
    (found,) = find(_evaluated(25), answered=False)
    assert found.period == pytest.approx(700)


def test_what_comes_back_may_be_the_micro_batches_of_a_pipeline() -> None:
    (found,) = find(_evaluated(25), answered=True)
    assert found.period > 20_000


def test_what_comes_once_between_two_pauses_makes_them_steps() -> None:
    (found,) = find(_evaluated(25, other=5_000), answered=False)
    assert found.period > 20_000
