"""What a pair does within a step, by itself and beside what comes back, says what it is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable
from typing import Any

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, every, flows, messages, ring, settings, stages
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.pair_kinds import classifier
from llmprism_tasks.stages.parallelism.pair_kinds.features import stream_steps, with_back
from llmprism_tasks.stages.step_division import periodicity
from llmprism_tasks.stages.traffic import nic_pairs

PERIOD, STEPS = 1000, 12
BEGINS = every(PERIOD, count=STEPS)
PERIODS = pl.DataFrame({"job_id": ["j"], "period_ns": [float(PERIOD * MS)]})
KINDS = ("pipeline", "expert", "filling")


def numbered(*parts: Iterable[Row], cut: float = 0) -> pl.DataFrame:
    """Return flows of a job whose steps end `cut` ms before each second."""
    since = pl.col("flow_start_ns") - WINDOW.start_ns + round(cut * MS)
    return flows(*parts).with_columns(
        job_id=pl.lit("j"), step=since // (PERIOD * MS), pair=pl.struct(periodicity.PAIR).rank("dense").cast(pl.Int32)
    )


def described(table: pl.DataFrame, **values: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what `stream_steps` says of flows, and their pairs."""
    table = nic_pairs.in_order(table)
    pairs = with_back(nic_pairs.pairs_of(table, ["job_id", *periodicity.PAIR]))
    return stream_steps(table, pairs, PERIODS, settings("parallelism", **values)), pairs.drop("back")


def in_steps(table: pl.DataFrame) -> pl.DataFrame:
    """Return what `stream_steps` says of flows, with the names of the pairs' ends."""
    steps, pairs = described(table)
    return steps.join(pairs, on="pair")


def votes(table: pl.DataFrame, **values: Any) -> pl.DataFrame:
    """Return the votes of pairs, with the names of their ends."""
    steps, pairs = described(table, **values)
    found = classifier.votes(steps, settings("parallelism", **values))
    return pairs.drop("job_id").join(found, on="pair").drop("pair")


def judged(*parts: Iterable[Row], cut: float = 0, **values: Any) -> pl.DataFrame:
    return votes(numbered(*parts, cut=cut), **values)


def vote(*parts: Iterable[Row], pair: str = "ac", cut: float = 0, **values: Any) -> dict[str, Any]:
    return judged(*parts, cut=cut, **values).filter(src_addr=pair[0], dst_addr=pair[1]).row(0, named=True)


def says(*parts: Iterable[Row], pair: str = "ac", cut: float = 0, **values: Any) -> list[str]:
    """Return which kinds most of a pair's steps show."""
    found = vote(*parts, pair=pair, cut=cut, **values)
    return [kind for kind in KINDS if found[kind] >= classifier.MAJORITY]


def both(there: Iterable[float], back: Iterable[float], size: int = 8 * MB) -> list[Row]:
    """Return messages of one size between `a` and `c` at these times of each step."""
    there, back = list(there), list(back)
    return [
        row
        for begin in BEGINS
        for row in [
            *messages("a", "c", [begin + at for at in there], size),
            *messages("c", "a", [begin + at for at in back], size),
        ]
    ]


def evenly(spread: float, count: int) -> list[float]:
    return [PERIOD * spread * i / (count - 1) for i in range(count)]


def test_a_pair_is_described_as_a_whole_and_by_its_recurring_sizes() -> None:
    rows = in_steps(numbered(ring("ac", BEGINS))).filter(src_addr="a", step=3)
    whole, small, large = rows.sort("size_class").iter_rows(named=True)
    assert [row["size_class"] for row in (whole, small, large)] == [periodicity.WHOLE_PAIR, 0, 1]
    assert [row["records"] for row in (whole, small, large)] == [8, 4, 4]
    assert (whole["distinct"], whole["share"], whole["job_steps"]) == (2, 1, STEPS)
    assert small["share"] == pytest.approx(1 / 3)
    assert whole["spread"] == pytest.approx(0.0833, abs=1e-3)
    assert (whole["fresh"], whole["first_missed"]) == (0, -1)
    assert (small["first_missed"], small["last_missed"], small["first_mutual"]) == (0, 0, True)


def test_gradients_in_one_burst_are_none_of_the_others() -> None:
    found = vote(ring("ac", BEGINS))
    assert [found[kind] for kind in KINDS] == [0, 0, 0]
    assert (found["distinct_sizes"], found["presence"]) == (2, 1)
    assert found["bytes_per_step"] == sum(80 * MB * share // 12 for share in (1, 2) * 4)
    assert found["common_size"] == found["burst_size"] == 80 * MB * 2 // 12


def test_presence_is_a_ratio_of_the_job_s_steps() -> None:
    assert vote(ring("ab", BEGINS), messages("a", "c", BEGINS[:3], MB))["presence"] == 0.25


@pytest.mark.parametrize("nics", ["ac", "abcd"])
@pytest.mark.parametrize("micro_batches", [12, 16])
def test_each_link_of_a_pipeline_says_so(nics: str, micro_batches: int) -> None:
    """Passes of 10 and 20 ms fill 0.37 to 0.6 of the period."""
    found = judged(stages(nics, BEGINS, micro_batches=micro_batches))
    assert found["pipeline"].to_list() == [1.0] * 2 * (len(nics) - 1)
    assert found["filling"].max() == 0


@pytest.mark.parametrize("cut", [25, 35])
def test_the_first_activation_may_be_counted_to_the_step_before(cut: float) -> None:
    """Steps of stages overlap: here the first or the first two activations go before the step before has ended."""
    rows = stages("ac", every(PERIOD, count=STEPS, start=-30), micro_batches=16)[:]
    rows = [row for row in rows if row[0] >= 0]
    assert says(rows, cut=cut - 25) == ["pipeline"]
    assert says(rows, pair="ca", cut=cut - 25) == ["pipeline"]


@pytest.mark.parametrize(("lag", "together"), [(0, 1.0), (100, 0.0)])
def test_what_begins_and_ends_with_what_comes_back_goes_together(lag: int, together: float) -> None:
    there = [100, 300, 500, 700]
    assert vote(both(there, [at + lag for at in there]))["together"] == together


@pytest.mark.parametrize(("lag", "found"), [(49, []), (51, ["pipeline"])])
def test_the_last_gradient_is_nearer_to_no_activation_of_its_own(lag: float, found: list[str]) -> None:
    """Messages 100 ms apart, answered by the next one after less or more than half of that."""
    there = every(100, count=6)
    assert [kind for kind in says(both(there, [at + lag for at in there])) if kind == "pipeline"] == found


def alone(apart: float, interval: float, count: int) -> list[Row]:
    """Return an activation alone, `count` exchanges, and a gradient alone, so far from the next or last exchange."""
    exchanges = [apart + interval * i for i in range(count)]
    return both([0, *exchanges], [*exchanges, exchanges[-1] + apart])


@pytest.mark.parametrize(("apart", "found"), [(20, 0), (22, 1)])
def test_what_goes_alone_is_a_part_of_an_interval_away_from_the_next_exchange(apart: float, found: float) -> None:
    """Five exchanges 100 ms apart: a quarter of (400 + apart) / 5."""
    assert vote(alone(apart, 100, 5))["pipeline"] == found
    assert vote(alone(20, 100, 5), answer_interval=0.2)["pipeline"] == 1


@pytest.mark.parametrize(("apart", "found"), [(4.9, 0), (5.1, 1)])
def test_what_goes_alone_is_further_away_than_clocks_differ(apart: float, found: float) -> None:
    assert vote(alone(apart, 15, 30))["pipeline"] == found
    assert vote(alone(4.9, 15, 30), answer_ms=4)["pipeline"] == 1


@pytest.mark.parametrize(("late", "found"), [(82, 0), (86, 1)])
def test_an_early_rank_of_a_collective_is_answered_sooner_than_a_stage(late: float, found: float) -> None:
    """The first records answer each other: 0.75 of (420 - late) / 3, the shorter of both ways' intervals."""
    rows = both([0, 400, 410, 420], [late, 400, 410, 420])
    assert vote(rows)["pipeline"] == found
    assert vote(both([0, 400, 410, 420], [82, 400, 410, 420]), lag_interval=0.7)["pipeline"] == 1


BETWEEN = "a rank that is late by more than half of an interval is nearer to the next collective than to its own"


@pytest.mark.parametrize(
    ("early", "late"), [(0, 30), (10, 0), pytest.param(0, 60, marks=pytest.mark.xfail(reason=BETWEEN)), (0, 80)]
)
def test_a_rank_that_comes_early_to_every_collective_of_a_step_is_no_stage(early: float, late: float) -> None:
    """Six collectives of two ranks 100 ms apart; one comes to the first before the other."""
    at = every(100, count=6, start=100)
    assert vote(both([100 + early, *at[1:]], [100 + late, *at[1:]]))["pipeline"] == 0


@pytest.mark.parametrize(("late", "found"), [(4, 0), (26, 1)])
@pytest.mark.parametrize("count", [1, 6])
def test_one_direction_of_a_collective_may_be_counted_to_the_step_before(late: float, found: float, count: int) -> None:
    """Steps begin at 3 ms, between the first record and the one that goes with it, or is the first of a pipeline's."""
    at = every(100, count=count)
    rows = both([0, *at[1:]], [late if count > 1 else 5 * late, *at[1:]])
    assert [round(vote(rows, pair=pair, cut=-3)["pipeline"]) for pair in ("ac", "ca")] == [found, found]


@pytest.mark.parametrize(("apart", "found"), [(120, 0), (130, 1)])
def test_a_single_micro_batch_comes_back_after_an_eighth_of_the_step(apart: float, found: float) -> None:
    rows = both([0], [apart])
    assert (vote(rows)["pipeline"], vote(rows, pair="ca")["pipeline"]) == (found, found)


@pytest.mark.parametrize(("spread", "found"), [(0.24, 0), (0.26, 1)])
def test_forward_passes_that_come_before_all_others_are_as_long_as_the_link_is_busy(
    spread: float, found: float
) -> None:
    """GPipe: forward passes take a fifth of the step, and begin a tenth of it after the last gradient."""
    forward, backward = evenly(0.2, 8), evenly(spread, 8)
    rows = both(forward, [900 - backward[-1] + at for at in backward])
    assert (vote(rows)["pipeline"], vote(rows, pair="ca")["pipeline"]) == (found, found)


@pytest.mark.parametrize("count", [3, STEPS - 1])
def test_data_may_begin_with_one_direction_and_end_with_it(count: int) -> None:
    """Steps are cut where GPipe turns, so that activations come in one more of them than gradients do."""
    at = every(PERIOD, count=count)
    rows = [row for row in both(evenly(0.2, 8), every(70, count=8, start=350)) if row[0] < at[-1] + 300]
    assert [vote(rows, pair=pair, cut=700)["pipeline"] for pair in ("ac", "ca")] == [1, 1]


@pytest.mark.parametrize(("back", "found"), [(8 * MB + 150_000, 1), (8 * MB + 170_000, 0)])
def test_gradients_are_as_large_as_activations(back: int, found: float) -> None:
    """Within 2 %."""
    rows = [(*row[:4], back) if row[2] == "c" else row for row in stages("ac", BEGINS, micro_batches=16)]
    assert vote(rows)["pipeline"] == found


@pytest.mark.parametrize(("count", "found"), [(14, 1), (12, 0)])
def test_about_as_many_gradients_come_back_as_activations_went(count: int, found: float) -> None:
    """Of 16: more or less than e to the power of -0.2."""
    rows = stages("ac", BEGINS, micro_batches=16)
    back = sorted(row for row in rows if row[2] == "c")
    kept = [row for i, row in enumerate(back) if i % 16 >= 16 - count]
    assert vote([row for row in rows if row[2] == "a"], kept)["pipeline"] == found


def test_packed_sequences_make_activations_of_any_size() -> None:
    """Each micro-batch has a size of its own, which its gradient has, too; none comes again."""
    draw = random.Random(3)
    rows: list[Row] = []
    for begin in BEGINS:
        sizes = [draw.randint(4 * MB, 12 * MB) for _ in range(16)]
        step = stages("ac", [begin], micro_batches=16)
        for src in "ac":
            own = sorted(row for row in step if row[2] == src)
            rows += [(*row[:4], size) for row, size in zip(own, sizes, strict=True)]
    assert says(rows) == ["pipeline"]
    assert says(rows, pair="ca") == ["pipeline"]


@pytest.mark.parametrize("seed", range(4))
def test_packed_sequences_of_steps_that_overlap_are_a_pipeline_s(seed: int) -> None:
    """Here the first activation of a step is counted to the one before, so that steps of both ways differ in sizes."""
    draw = random.Random(seed)
    rows: list[Row] = []
    for begin in BEGINS[1:6]:
        sizes = [draw.randint(4 * MB, 12 * MB) for _ in range(12)]
        step = stages("ac", [begin - 30], micro_batches=12)
        for src in "ac":
            rows += [(*row[:4], size) for row, size in zip(sorted(r for r in step if r[2] == src), sizes, strict=True)]
    assert says(rows, cut=15) == says(rows, pair="ca", cut=15) == ["pipeline"]


@pytest.mark.parametrize(("count", "found"), [(10, True), (9, False)])
def test_what_comes_alike_in_about_all_steps_is_steady(count: int, found: bool) -> None:
    """Of twelve."""
    others = ring("ab", BEGINS)
    assert vote(others, messages("a", "c", BEGINS[:count], MB))["steady"] == found
    assert vote(others, messages("a", "c", BEGINS[:9], MB), steady_presence=0.7)["steady"]
    assert not vote(ring("ab", BEGINS[:3]), messages("a", "c", BEGINS[:3], MB))["steady"]


def test_what_comes_by_chance_is_not_steady_however_often() -> None:
    draw = random.Random(5)
    at = sorted(draw.uniform(0, PERIOD * STEPS) for _ in range(4 * STEPS))
    assert not vote(ring("ab", BEGINS), messages("a", "c", at, MB))["steady"]


@pytest.mark.parametrize(("lost", "found"), [(1, True), (2, False)])
def test_of_what_is_lost_other_sizes_tell(lost: int, found: bool) -> None:
    """Two sizes of two records each, of one or both of which one record is lost in every other step."""
    sizes = (8 * MB, 20 * MB)
    rows = [
        row
        for step, begin in enumerate(BEGINS)
        for i, size in enumerate(sizes)
        for row in messages("a", "c", [begin + i, begin + i + 10][step % 2 * (i < lost) :], size)
    ]
    assert vote(ring("ab", BEGINS), rows)["steady"] == found


def routed(count: int, spread: float, *, fresh: int | None = None, change: float = 1.0, seed: int = 5) -> list[Row]:
    """Return calls of experts over this share of each step; `fresh` of them have sizes that never come again."""
    draw = random.Random(seed)
    fresh = count if fresh is None else fresh
    repeated = [draw.randint(1, 9) * MB for _ in range(count)]
    rows: list[Row] = []
    for begin in BEGINS:
        for i, at in enumerate(evenly(spread, count)):
            size = 5 * MB + round(change * draw.randint(-4 * MB, 4 * MB)) if i < fresh else repeated[i]
            rows += messages("a", "c", [begin + at], size)
    return rows


@pytest.mark.parametrize(
    ("count", "spread", "fresh", "found"),
    [
        (12, 0.6, 12, 1),
        (2, 0.6, 2, 1),
        (12, 0.26, 12, 1),
        (12, 0.24, 12, 0),
        (12, 0.6, 6, 1),
        (12, 0.6, 5, 0),
    ],
    ids=["plain", "one layer, joined", "long enough", "at once", "half are new", "most come again"],
)
def test_experts_are_called_more_than_once_with_sizes_that_never_repeat(
    count: int, spread: float, fresh: int, found: float
) -> None:
    assert vote(routed(count, spread, fresh=fresh))["expert"] == found


@pytest.mark.parametrize(
    ("share", "apart", "missing", "found"),
    [(0.21, 0, 0, True), (0.19, 0, 0, False), (0.5, 249, 0, True), (0.5, 251, 0, False), (0.5, 0, 3, False)],
    ids=["enough bytes", "too few", "in a quarter of a step", "in more", "not in all steps"],
)
def test_experts_pairs_reduce_what_comes_at_once_in_all_steps(
    share: float, apart: float, missing: int, found: bool
) -> None:
    """Calls of experts carry the rest of the pair's bytes, 60 MB in a step."""
    size = round(60 * MB * share / (1 - share) / 2)
    sums = [messages("a", "c", [begin + 700 + at for begin in BEGINS[missing:]], size) for at in (0, apart)]
    assert vote(routed(12, 0.6, change=0.1), *sums)["reduces"] == found


@pytest.mark.parametrize(("scale", "evidence"), [(0.99, 1.0), (1.01, 0.49), (4.0, 0.03)])
def test_what_varies_a_little_less_than_experts_do_may_be_theirs(scale: float, evidence: float) -> None:
    """So the rest of its role can say what it is; what hardly varies is gradients."""
    rows = routed(12, 0.6)
    sent = [sum(row[4] for row in rows if begin <= row[0] < begin + PERIOD) for begin in BEGINS]
    typical = statistics.median(sent)
    varies = 1.4826 * statistics.median([abs(one - typical) for one in sent]) / typical
    assert vote(rows, expert_variation=scale * varies)["expert"] == pytest.approx(evidence, abs=0.01)


@pytest.mark.parametrize(("name", "value"), [("expert_sizes", 1.1), ("pipeline_spread", 0.7)])
def test_what_an_expert_is_can_be_set(name: str, value: float) -> None:
    assert vote(routed(12, 0.6))["expert"] == 1
    assert vote(routed(12, 0.6), **{name: value})["expert"] == 0


def test_records_that_the_collector_splits_are_no_experts() -> None:
    """Four blocks of 24 MB in a step, each split in three at random: sizes never repeat, the step's bytes always do."""
    draw = random.Random(7)
    rows: list[Row] = []
    for begin in BEGINS:
        for at in evenly(0.6, 4):
            first, second = (draw.randint(MB, 11 * MB) for _ in range(2))
            for i, size in enumerate((first, second, 24 * MB - first - second)):
                rows += messages("a", "c", [begin + at + 2 * i], size)
    assert vote(rows)["expert"] == 0


@pytest.mark.parametrize(("spread", "found"), [(0.51, 1), (0.49, 0)])
def test_blocks_of_context_fill_the_step_in_sizes_that_repeat(spread: float, found: float) -> None:
    at = evenly(spread, 12)
    rows = both(at, at)
    assert vote(rows)["filling"] == found
    assert vote(rows)["pipeline"] == 0
    assert (vote(rows)["burst_size"] is None) == bool(found)


@pytest.mark.parametrize(("gradients", "found"), [(90 * MB, 1), (102 * MB, 0)])
def test_a_pair_fills_the_step_if_most_of_its_bytes_do(gradients: int, found: float) -> None:
    """Twelve blocks of 8 MB beside a burst of gradients."""
    at = evenly(0.6, 12)
    rows = [*both(at, at), *ring("ac", every(PERIOD, count=STEPS, start=800), size=gradients)]
    assert vote(rows)["filling"] == found


@pytest.mark.parametrize(("present", "streams"), [(6, 3), (5, 2)])
def test_a_size_that_comes_in_few_of_the_pair_s_steps_does_not_recur(present: int, streams: int) -> None:
    rows = [*messages("a", "c", BEGINS, 8 * MB), *messages("a", "c", [at + 5 for at in BEGINS[:present]], 20 * MB)]
    steps = in_steps(numbered(rows))
    assert steps["size_class"].n_unique() == streams


TRAFFIC = st.one_of(
    st.builds(lambda m: stages("ac", BEGINS, micro_batches=m), st.integers(1, 20)),
    st.builds(lambda seed, count: routed(count, 0.6, seed=seed), st.integers(0, 1000), st.integers(2, 14)),
    st.builds(
        lambda spread, count: both(evenly(spread, count), evenly(spread, count)), st.floats(0, 0.9), st.integers(2, 12)
    ),
)


def rows_of(table: pl.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(votes(table).iter_rows(), key=str)


@given(TRAFFIC, st.integers(0, 10))
def test_the_order_of_rows_does_not_matter(rows: list[Row], seed: int) -> None:
    table = numbered(rows)
    assert rows_of(table.sample(fraction=1, shuffle=True, seed=seed)) == rows_of(table)


@given(TRAFFIC, st.integers(2, 100))
def test_the_unit_of_bytes_does_not_matter(rows: list[Row], factor: int) -> None:
    table = numbered(rows)
    kinds = ["src_addr", *KINDS, "distinct_sizes", "presence"]
    assert (
        judged([(*row[:4], row[4] * factor) for row in rows])
        .select(kinds)
        .sort(kinds)
        .equals(votes(table).select(kinds).sort(kinds))
    )


@given(TRAFFIC, TRAFFIC)
def test_pairs_do_not_see_each_other(rows: list[Row], others: list[Row]) -> None:
    """NICs of the second pair have names of their own."""
    renamed = [(start, end, src.upper(), dst.upper(), size) for start, end, src, dst, size in others]
    table = numbered(rows, renamed)
    assert [row for row in rows_of(table) if row[0].islower()] == rows_of(numbered(rows))
