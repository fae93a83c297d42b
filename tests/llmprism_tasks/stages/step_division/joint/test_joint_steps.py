"""The bursts of a job's pairs make its steps."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from itertools import accumulate

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, chatter, every, flows, messages, pipeline, ring, settings, stages
from hypothesis import example, given
from hypothesis import settings as generated
from hypothesis import strategies as st

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_period import group_periods
from llmprism_tasks.stages.step_division.joint import gradient_ends, job_steps
from llmprism_tasks.stages.step_division.periodicity import AT_PORTIONS, AT_TURNS, WHOLE_PAIR, stream_rhythms

DEFAULT = settings().rhythm
NICS = [f"n{i:02}" for i in range(20)]


def tuned(**values: float) -> RhythmSettings:
    return settings("rhythm", **values).rhythm


def on_busy_hosts(count: int, *, blocks: bool) -> list[Row]:
    """Return steps of a second: five buckets of three sizes, 20 to 240 ms apart, that end after 900 ms.

    Until the next step's it is quiet for 200 to 600 ms, or blocks of context fill the step but for 60 to 120 ms.
    """
    draw, rows = random.Random(7), list[Row]()
    for begin in every(1000, count=count):
        for src, dst in ("ab", "ba"):
            at = begin + 900 - 10 * draw.random()
            for size in (40, 30, 60, 30, 40):
                rows.append((at - 20, at, src, dst, size * MB))
                at -= draw.uniform(120, 180) if blocks else draw.uniform(40, 260)
            if blocks:
                rows += messages(src, dst, [begin + draw.uniform(-20, 20) + 35 * i for i in range(24)], 5 * MB)
    return rows


@pytest.mark.parametrize("blocks", [False, True])
def test_steps_end_with_the_last_bucket_where_no_gap_tells_them(blocks: bool) -> None:
    table = flows(on_busy_hosts(20, blocks=blocks))
    found = stream_rhythms(table, DEFAULT)
    assert found.filter(size_class=WHOLE_PAIR)["period_ns"].null_count() == 2
    assert found.filter(pl.col("size_class") <= AT_PORTIONS)["pair"].to_list() == [0, 1]
    assert ends_ms(steps(table)) == pytest.approx([1000 * i + 900 for i in range(20)], abs=11)


def test_a_pair_is_looked_at_as_a_whole_and_by_each_size_that_recurs() -> None:
    """Gradients of two sizes make up a ring's burst; what comes once (the first weights) is no stream."""
    table = flows(ring("ab", every(1000, count=10)), messages("a", "b", [500], 60 * MB))
    found = stream_rhythms(table, DEFAULT).filter(src_addr="a").sort("size_class")
    assert found["size_class"].to_list() == [WHOLE_PAIR, 0, 1]
    assert found["flows"].to_list() == [81, 40, 40]
    assert found["common_size"].unique().to_list() == [80 * MB * 2 // 12]
    assert found["common_share"].unique().to_list() == pytest.approx([533 / 860], rel=0.01)


def test_a_pair_of_one_size_is_looked_at_once() -> None:
    found = stream_rhythms(flows(messages("a", "b", every(1000, count=10), MB)), DEFAULT)
    assert found["size_class"].to_list() == [WHOLE_PAIR]


@pytest.mark.parametrize(("share", "streams"), [(0.049, 1), (0.051, 2)])
def test_sizes_that_carry_little_are_not_looked_at(share: float, streams: int) -> None:
    """Beside a size that carries the rest; both come ten times."""
    small = round(100 * MB * share)
    table = flows(
        messages("a", "b", every(1000, count=10), 100 * MB - small), messages("a", "b", every(1000, count=10), small)
    )
    assert stream_rhythms(table, DEFAULT).filter(pl.col("size_class") >= 0).height == streams


def test_gradients_beside_blocks_of_context_are_told_by_their_sizes() -> None:
    """Blocks of 4 MB go round throughout, each 50 ms, also between gradients: the pair as a whole is never quiet."""
    blocks = [row for src, dst in ("ab", "ba") for row in messages(src, dst, every(50, count=240), 4 * MB)]
    table = flows(blocks, ring("ab", every(1000, count=12, start=700)))
    whole = stream_rhythms(table, DEFAULT).filter(size_class=WHOLE_PAIR)
    assert 1000 * MS not in whole["period_ns"].to_list()
    assert ends_ms(steps(table)) == [1000 * i + 800 for i in range(12)]


def test_sharded_gradients_are_told_from_the_parameters_that_fill_the_step() -> None:
    """Six layers: parameters of 4 MB are gathered each 80 ms, forth and back, gradients of 8 MB in the second half."""
    gathers = [
        row
        for begin in every(1000, count=12)
        for row in ring("ab", every(80, count=12, start=begin), length=1, size=4 * MB, parts=1)
    ]
    scatters = [
        row
        for begin in every(1000, count=12)
        for row in ring("ab", every(80, count=6, start=begin + 520), length=1, size=8 * MB, parts=1)
    ]
    assert ends_ms(steps(flows(gathers, scatters))) == [1000 * i + 921 for i in range(12)]


def gathers(begins: Iterable[float], size: int) -> list[Row]:
    return ring("ab", begins, length=1, size=size, parts=1)


@pytest.mark.parametrize(("late", "end"), [(100, 101), (260, 261), (265, 12), (330, 12)])
def test_what_comes_once_a_step_marks_where_steps_meet(late: float, end: int) -> None:
    """Of sharded jobs, the gather of the embeddings. Gathers of one size that go on in a part of the step, such as its
    forward pass, belong to the mark if they end within a quarter of a step of it."""
    starts = every(1000, count=12)
    filling = gathers([begin + 20 + 30 * i for begin in starts for i in range(33) if 20 + 30 * i > late], 3 * MB)
    some = gathers([begin + late * i / 5 for begin in starts for i in range(1, 6)], 5 * MB)
    mark = gathers([begin + 11 for begin in starts], 20 * MB)
    found = ends_ms(steps(flows(filling, some, mark)))
    assert found[:12] == [1000 * i + end for i in range(12)]
    assert found[12:] in ([], [11_981])  # whose mark is still to come


def test_gathers_that_some_ranks_began_early_have_one_size() -> None:
    """The first 4 MB go ahead in half of the steps, on another pair in the others; no size is sent in all of them."""
    starts, rows = every(1000, count=12), list[Row]()
    for number, (src, dst) in enumerate(("ab", "ba")):
        rows += messages(src, dst, every(50, count=240, start=30), 20 * MB)
        for step, begin in enumerate(starts):
            if step % 2 == number:
                rows += [*messages(src, dst, [begin + 500], 4 * MB), *messages(src, dst, [begin + 520], 40 * MB)]
            else:
                rows += messages(src, dst, [begin + 520], 44 * MB)
    assert ends_ms(steps(flows(rows))) == [1000 * i + 521 for i in range(12)]


STEPS = [*every(700, count=10)]
"""A pipeline's steps of eight micro-batches: two stages take 281 ms, four 341."""


@pytest.mark.parametrize("nics", ["ab", "abcd"])
@pytest.mark.parametrize("micro_batches", [4, 8, 16])
def test_a_pipeline_whose_gradients_leave_no_host_has_steps_where_it_turns(nics: str, micro_batches: int) -> None:
    table = flows(stages(nics, STEPS, micro_batches=micro_batches))
    found = steps(table)
    assert found["step"].equals(((found["flow_start_ns"] - WINDOW.start_ns) // (700 * MS)).rename("step"))
    assert found.height == table.height


def test_turns_are_a_row_of_each_pair_that_is_answered() -> None:
    found = stream_rhythms(flows(stages("abc", STEPS)), DEFAULT).filter(size_class=AT_TURNS)
    assert set(found.select("src_addr", "dst_addr").iter_rows()) == {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}
    assert found["period_ns"].unique().to_list() == [700 * MS]
    assert found["bursts"].unique().to_list() == [10]


@pytest.mark.parametrize(("odd", "turning"), [(0.09, 2), (0.11, 0)])
def test_only_what_is_sent_in_one_size_turns(odd: float, turning: int) -> None:
    """The embedding of first and last stage is a second size on the pair, once a step, with this share of the bytes."""
    embedding = round(128 * MB * odd / (1 - odd))
    rows = [row for src, dst in ("ab", "ba") for row in messages(src, dst, [begin + 600 for begin in STEPS], embedding)]
    found = stream_rhythms(flows(stages("ab", STEPS, micro_batches=16), rows), DEFAULT).filter(size_class=AT_TURNS)
    assert found.height == turning


def test_a_pipeline_of_uneven_micro_batches_turns_and_its_sizes_recur_by_chance() -> None:
    draw = random.Random(5)
    sizes = [draw.choice([5, 6, 7, 8, 9]) * MB + draw.randrange(MB // 50) for _ in range(80)]
    rows = [
        row
        for nic in "ab"
        for row in zip_sizes(
            sorted(r for r in stages("ab", every(700, count=40), micro_batches=2) if r[2] == nic), sizes
        )
    ]
    found = stream_rhythms(flows(rows), DEFAULT)
    assert found.filter(size_class=AT_TURNS)["period_ns"].to_list() == [700 * MS] * 2
    assert found["size_class"].max() == WHOLE_PAIR


def zip_sizes(rows: Iterable[Row], sizes: Iterable[int]) -> list[Row]:
    return [(*row[:4], size) for row, size in zip(rows, sizes, strict=True)]


def test_what_nothing_answers_does_not_turn() -> None:
    there = [row for row in stages("ab", STEPS) if row[2] == "a"]
    larger = [(*row[:4], 9 * MB) for row in stages("ab", STEPS) if row[2] == "b"]
    fewer = [row for row in stages("ab", STEPS) if row[2] == "b" and row[0] % 700 < 220]
    for back in ([], larger, fewer):
        assert stream_rhythms(flows(there, back), DEFAULT).filter(size_class=AT_TURNS).is_empty()


def exchanges(*links: str) -> list[Row]:
    """Return one size each 100 ms over links, forth and at once back: micro-batches whose beginning is not seen."""
    return [
        row
        for link in links
        for src, dst in (link, link[::-1])
        for row in messages(src, dst, every(100, count=200, start=5 * (src < dst)), 8 * MB)
    ]


@pytest.mark.parametrize(
    ("links", "count"),
    [(["ab", "bc"], 0), (["ab", "bc", "cd"], 0), (["ab"], 200), (["ab", "bc", "ca"], 200), (["ab", "bc", "bd"], 200)],
    ids=["line of three", "line of four", "two", "ring", "star"],
)
def test_a_line_that_never_turns_repeats_with_its_micro_batches_and_has_no_steps(links: list[str], count: int) -> None:
    assert len(ends_ms(steps(flows(exchanges(*links))))) == count


def test_micro_batches_on_a_line_are_no_steps_though_the_silences_between_them_are_longer() -> None:
    """What a minute holds of a step that is longer: neither gradients nor a turn."""
    draw, begin, rows = random.Random(1), 0.0, list[Row]()
    for _ in range(60):
        for place, link in enumerate(("ab", "bc", "cd")):
            rows += [(begin, begin + 20, *link, 20 * MB), (begin + 5, begin + 25, *link[::-1], 20 * MB)]
            begin += 25 + 60 * draw.lognormvariate(0.7 if place == 2 else 0.0, 0.4)
    assert ends_ms(steps(flows(rows))) == []


def test_a_line_whose_pairs_send_several_sizes_may_be_a_tree_of_gradients() -> None:
    rows = [row for link in ("ab", "bc") for row in ring(link, every(1000, count=12))]
    assert len(ends_ms(steps(flows(rows)))) == 12


def steps(table: pl.DataFrame, *, values: RhythmSettings = DEFAULT) -> pl.DataFrame:
    """Number the steps of all flows as one job."""
    return job_steps.steps_of_jobs(table.with_columns(job_id=pl.lit("j")), values).numbered.sort("flow_start_ns")


def ended_by(table: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Number the steps of all flows as one job, as the bursts of some pairs show them."""
    joint = job_steps.steps_of_jobs(table.with_columns(job_id=pl.lit("j")), DEFAULT)
    return gradient_ends.steps_ended_by(joint, pairs.with_columns(kind=pl.lit("dp")), DEFAULT).numbered


def ends_ms(numbered: pl.DataFrame) -> list[float]:
    """Return the end of each step, in the order of their numbers."""
    ends = numbered.group_by("step").agg(pl.col("flow_end_ns").max()).sort("step")
    assert ends["step"].to_list() == list(range(ends.height))
    return [(end - WINDOW.start_ns) / MS for end in ends["flow_end_ns"]]


@pytest.mark.parametrize("count", [2, 3])
def test_long_steps_are_seen_from_the_second_on(count: int) -> None:
    table = flows(ring("abc", every(25_000, count=count)))
    assert ends_ms(steps(table)) == [25_000 * i + 100 for i in range(count)]


@pytest.mark.parametrize(("apart", "count"), [(23, 0), (27, 2)])
def test_two_steps_are_believed_only_if_they_are_far_apart(apart: float, count: int) -> None:
    """Five times the shortest quiet time; each step is one record."""
    assert len(ends_ms(steps(flows(ring("abc", [0, 100 + apart], parts=1))))) == count


def test_how_far_apart_can_be_set() -> None:
    table = flows(ring("abc", [0, 123], parts=1))
    assert len(ends_ms(steps(table, values=tuned(few_quiet_ratio=4)))) == 2


def test_steps_are_numbered_from_0_in_the_order_of_time() -> None:
    assert ends_ms(steps(flows(ring("abc", every(1000, count=10))))) == [1000 * i + 100 for i in range(10)]


def test_pairs_without_the_job_s_period_belong_to_no_step() -> None:
    numbered = steps(flows(ring("ab", every(1000, count=10)), chatter("a", "c", total=MB), chatter("c", "a", total=MB)))
    assert set(numbered["src_addr"]) == {"a", "b"}


def test_later_stages_that_synchronise_earlier_are_in_the_same_step() -> None:
    table = flows(ring("ab", every(1000, count=10, start=300)), ring("cd", every(1000, count=10)))
    assert ends_ms(steps(table)) == [1000 * i + 400 for i in range(10)]


@pytest.mark.parametrize(("late", "later"), [(330, 550), (-330, -550)])
def test_steps_meet_where_no_pair_ends_for_longest(late: float, later: float) -> None:
    """Stages may end their part more than half a step after, or before, the pair by which all are lined up."""
    delays = {"ab": 0, "cd": late, "ef": later}
    parts = [ring(nics, every(1000, count=10, start=1000 + delay)) for nics, delay in delays.items()]
    spans = steps(flows(*parts)).group_by("step").agg(pl.col("flow_start_ns").min(), pl.col("flow_end_ns").max())
    assert set((spans["flow_end_ns"] - spans["flow_start_ns"]) // MS) == {650}


@example(delay=498, count=4, seed=2)
@given(st.integers(460, 510) | st.integers(0, 999), st.integers(4, 25), st.integers(0, 10**6))
def test_a_pair_may_synchronise_at_any_time_of_the_period(delay: int, count: int, seed: int) -> None:
    """Bursts that keep their distance within some jitter fall together, also around half a period."""
    draw = random.Random(seed)
    jitter = [draw.uniform(0, 30) for _ in range(count)]
    late = [1000 * i + delay + jitter[i] for i in range(count)]
    numbered = steps(flows(ring("abef", every(1000, count=count)), ring("cd", late)))
    burst = (numbered["flow_start_ns"] - WINDOW.start_ns) // MS
    numbered = numbered.with_columns(late=pl.col("src_addr").is_in(["c", "d"]), burst=burst).with_columns(
        burst=(pl.col("burst") - pl.when("late").then(delay).otherwise(0)) // 1000
    )
    of_bursts = numbered.group_by("late", "burst").agg(step=pl.col("step").unique())
    assert of_bursts["step"].list.len().max() == 1
    own = of_bursts.explode("step").sort("late", "burst")
    offset = own.group_by("late").agg((pl.col("step") - pl.col("burst")).unique())
    assert offset["step"].list.len().max() == 1
    assert own.filter(~pl.col("late")).height == count
    assert own.filter("late").height >= count - 1  # a last burst may still wait for the others of its step


def test_a_pair_that_misses_some_bursts_keeps_its_place() -> None:
    table = flows(ring("abef", every(1000, count=24)), ring("cd", [1000 * i for i in range(24) if i not in (4, 9)]))
    numbered = steps(table)
    assert len(ends_ms(numbered)) == 24
    assert set(numbered.filter(pl.col("src_addr") == "c")["step"]) == set(range(24)) - {4, 9}


def stalled(share: float) -> list[Row]:
    """Ten steps, of which the sixth stalls for 700 ms after this share of its bytes."""
    whole = ring("ab", [1000 * i + (700 if i > 5 else 0) for i in range(10) if i != 5])
    cut = round(80 * MB * share)
    first = ring("ab", [5000], length=50, size=cut)
    return [*whole, *first, *ring("ab", [5750], length=50, size=80 * MB - cut)]


@pytest.mark.parametrize(("share", "end"), [(0.4, 5800), (0.88, 5800), (0.92, 5050)])
def test_parts_of_a_step_are_joined_until_it_is_whole(share: float, end: float) -> None:
    assert ends_ms(steps(flows(stalled(share)))) == [
        end if i == 5 else 1000 * i + (800 if i > 5 else 100) for i in range(10)
    ]


@pytest.mark.parametrize(("share", "count"), [(0.58, 10), (0.62, 11)])
def test_a_burst_of_too_few_bytes_is_no_step(share: float, count: int) -> None:
    """An eleventh burst, after the others and far from them."""
    table = flows(ring("ab", every(1000, count=10)), ring("ab", [10_500], size=round(80 * MB * share)))
    assert len(ends_ms(steps(table))) == count


@pytest.mark.parametrize(("begin", "count"), [(0, 11), (60, 11), (80, 10), (7000, 10), (60_000, 11)])
def test_a_first_step_that_the_beginning_of_the_data_cuts_off_is_kept(begin: float, count: int) -> None:
    """A burst with a third of the bytes: the rest may lie before the window, unless the window is quiet at first."""
    table = flows(ring("ab", [begin], size=27 * MB), ring("ab", every(1000, count=10, start=begin + 1000)))
    assert len(ends_ms(steps(table))) == count


def test_jobs_are_numbered_each_by_itself() -> None:
    table = pl.concat(
        [
            flows(ring("ab", every(1000, count=10))).with_columns(job_id=pl.lit("one")),
            flows(ring("cd", every(700, count=20, start=350))).with_columns(job_id=pl.lit("two")),
        ]
    )
    numbered = job_steps.steps_of_jobs(table, DEFAULT).numbered
    assert numbered.group_by("job_id").agg(pl.col("step").max()).sort("job_id").rows() == [("one", 9), ("two", 19)]


def broken_pair() -> list[Row]:
    """Bursts whose bytes change by half from step to step, for most of their records are lost."""
    draw = random.Random(4)
    return [row for row in ring("cd", every(1000, count=12)) if draw.random() < 0.3]


def test_named_pairs_too_broken_to_show_the_period_are_cut_like_the_others() -> None:
    table = flows(ring("abef", every(1000, count=12)), broken_pair())
    assert set(steps(table)["src_addr"]) == set("abef")
    named = table.select("src_addr", "dst_addr").unique()
    numbered = ended_by(table, named)
    assert set(numbered["src_addr"]) == set("abcdef")
    begin = (numbered["flow_start_ns"] - WINDOW.start_ns) // (1000 * MS)
    assert (numbered["step"] == begin).all()


@pytest.mark.parametrize(("apart", "names"), [(450, "abef"), (550, "abcef")])
def test_a_named_pair_that_repeats_within_the_period_is_not_broken(apart: int, names: str) -> None:
    """Its gradients are lost among blocks that it sends twice a step, or once."""
    blocks = messages("c", "d", every(apart, count=12_000 // apart), 4 * MB)
    table = flows(ring("abef", every(1000, count=12)), blocks)
    named = table.select("src_addr", "dst_addr").unique()
    numbered = ended_by(table, named)
    assert set(numbered["src_addr"]) == set(names)


def test_a_named_pair_too_broken_to_turn_is_not_cut_where_the_others_turn() -> None:
    """Many records of one link are lost, and the pause between steps is short: no gap of it ends a step."""
    draw, begins = random.Random(4), every(420, count=10)
    table = flows([row for row in stages("abcd", begins) if {row[2], row[3]} != set("cd") or draw.random() < 0.6])
    named = table.select("src_addr", "dst_addr").unique()
    numbered = ended_by(table, named)
    assert set(numbered["src_addr"]) == set("abc")
    assert (numbered["step"] == (numbered["flow_start_ns"] - WINDOW.start_ns) // (420 * MS)).all()


@pytest.mark.parametrize(("shown_by", "chosen"), [(WHOLE_PAIR, [0, 1]), (7, [0])])
def test_a_broken_pair_is_cut_like_others_only_if_these_are_silent_as_a_whole(shown_by: int, chosen: list[int]) -> None:
    """Between messages of one size, such as gradients, pairs also send others, such as tokens."""
    joint = job_steps.steps_of_jobs(flows(ring("ab", every(1000, count=12))).with_columns(job_id=pl.lit("j")), DEFAULT)
    found = pl.concat([joint.streams.found.head(1)] * 2).with_columns(
        pair=pl.Series([0, 1], dtype=pl.Int32), dst_addr=pl.Series(["b", "c"]), period_ns=pl.Series([1e9, None])
    )
    shown = found.head(1).with_columns(size_class=pl.lit(shown_by, pl.Int64), group_period_ns=pl.lit(1e9))
    few = shown.select("group").clear()
    streams = dataclasses.replace(joint.streams, found=found, in_step=shown, of_few=few)
    assert gradient_ends._streams_of_pairs(streams, found.select("src_addr", "dst_addr"))["pair"].to_list() == chosen


@pytest.mark.parametrize("left_out", [0, 1, 5])
def test_steps_keep_their_numbers_where_named_pairs_lack_some(left_out: int) -> None:
    begins = every(1000, count=12)
    table = flows(ring("ab", begins), ring("cd", [begin for begin in begins if begin != left_out * 1000]))
    numbered = ended_by(table, pl.DataFrame({"src_addr": ["c"], "dst_addr": ["d"]}))
    assert (numbered["step"] == (numbered["flow_start_ns"] - WINDOW.start_ns) // (1000 * MS)).all()
    assert set(numbered["step"]) == set(range(12)) - {left_out}


def test_a_burst_where_the_job_has_no_step_makes_none() -> None:
    """Records of a named pair that is too broken to show the period are cut in the middle of a step as well."""
    halves = [row for row in ring("cd", every(1000, count=12, start=500)) if row[0] < 3000]
    table = flows(ring("abef", every(1000, count=12)), broken_pair(), halves)
    numbered = ended_by(table, table.select("src_addr", "dst_addr").unique())
    ends = numbered.filter(pl.col("src_addr").is_in(["a", "b", "e", "f"])).group_by("step").len()
    assert sorted(ends["step"]) == list(range(12))
    assert numbered["step"].max() == 11


def test_pairs_that_are_not_named_are_left_out() -> None:
    table = flows(ring("ab", every(1000, count=12)), ring("cd", every(1000, count=12)))
    named = pl.DataFrame({"src_addr": ["a"], "dst_addr": ["b"]})
    numbered = ended_by(table, named)
    assert numbered.select("src_addr", "dst_addr").unique().rows() == [("a", "b")]


def test_a_job_without_a_rhythm_has_no_steps() -> None:
    numbered = steps(flows(chatter("a", "b", total=MB), chatter("b", "a", total=MB)))
    assert numbered.is_empty()
    assert {"job_id", "step", "group_period_ns"} <= set(numbered.columns)


def job(seed: int, count: int) -> list[Row]:
    """Return some job's traffic: gradients of two stages, and micro-batches or blocks between them."""
    draw = random.Random(seed)
    begins = [1000 * i + draw.uniform(0, 40) for i in range(count)]
    between = pipeline("a", "c", begins) if seed % 2 else messages("a", "b", every(50, count=20 * count), 4 * MB)
    return [*ring("ab", [begin + 700 for begin in begins]), *ring("cd", [begin + 600 for begin in begins]), *between]


jobs = st.builds(job, st.integers(0, 10**6), st.integers(4, 12))


def numbers(table: pl.DataFrame) -> list[tuple[object, ...]]:
    """Return the step of each flow, in order."""
    return sorted(steps(table).select("src_addr", "dst_addr", "flow_start_ns", "step").iter_rows())


@generated(max_examples=12)
@given(jobs, st.integers(1, 1000))
def test_when_it_happens_does_not_matter(rows: list[Row], minutes: int) -> None:
    shift = minutes * WINDOW.length_ns
    later = [
        (src, dst, start - shift, step) for src, dst, start, step in numbers(flows(rows, base=WINDOW.shifted(minutes)))
    ]
    assert later == numbers(flows(rows))


@generated(max_examples=12)
@given(jobs, st.integers(2, 100))
def test_the_unit_of_bytes_does_not_matter(rows: list[Row], factor: int) -> None:
    table = flows(rows)
    assert numbers(table.with_columns(pl.col("bytes") * factor)) == numbers(table)


@generated(max_examples=12)
@given(jobs, st.integers(0, 100))
def test_the_order_of_rows_does_not_matter(rows: list[Row], seed: int) -> None:
    table = flows(rows)
    assert numbers(table.sample(fraction=1, shuffle=True, seed=seed)) == numbers(table)


@generated(max_examples=12)
@given(jobs, jobs)
def test_jobs_do_not_see_each_other(rows: list[Row], others: list[Row]) -> None:
    """NICs of the second job have names of their own."""
    renamed = [(start, end, src.upper(), dst.upper(), size) for start, end, src, dst, size in others]
    both = pl.concat([flows(some).with_columns(job_id=pl.lit(name)) for name, some in (("j", rows), ("k", renamed))])
    together = job_steps.steps_of_jobs(both, DEFAULT).numbered.filter(job_id="j")
    found = sorted(together.select("src_addr", "dst_addr", "flow_start_ns", "step").iter_rows())
    assert found == numbers(flows(rows))


@pytest.mark.parametrize(("times", "count"), [(4, 200), (10, 0)])
def test_bursts_of_which_few_carry_most_bytes_are_no_steps(times: int, count: int) -> None:
    """All come in one rhythm, as layers do; after four to nine of them, one carries several times as much."""
    draw, rows = random.Random(2), list[Row]()
    large = set(accumulate(draw.randint(4, 9) for _ in range(40)))
    for number, start in enumerate(every(300, count=200)):
        for src, dst in ("ab", "bc", "ca"):
            rows += messages(src, dst, [start], (times if number in large else 1) * 10 * MB)
    assert steps(flows(rows))["step"].n_unique() == count


@pytest.mark.parametrize(
    ("period", "passes", "several"),
    [
        (1490, False, []), (1500, False, ["g"]), (13_000, False, ["g"]),
        (660, False, []), (660, True, ["g"]), (670, True, []),
    ],
)  # fmt: skip
def test_what_a_clear_template_has_several_of_are_layers(period: float, passes: bool, several: list[str]) -> None:
    """And what single pairs take for a step is several where the template has a forward and a backward pass."""
    clear = pl.DataFrame({"pair": [0, 1], "group": "g", "group_period_ns": [period, period], "ended": passes})
    periods = pl.DataFrame({"group": ["g", "h"], "period_ns": [1000.0, 1.0]})
    found = job_steps.several_steps(clear, periods, periods.filter(group="h"))
    assert found["group"].to_list() == several


@pytest.mark.parametrize(("turn", "several"), [(1000, []), (1010, []), (500, ["g"]), (2000, ["g"]), (None, ["g"])])
def test_of_what_links_turn_once_in_a_template_has_no_parts_but_steps(turn: float | None, several: list[str]) -> None:
    """The template is two of what single pairs take for a step."""
    clear = pl.DataFrame({"pair": [0, 1], "group": "g", "group_period_ns": [2000.0, 2000.0], "ended": False})
    periods = pl.DataFrame({"group": ["g", "h"], "period_ns": [1000.0, 1000.0]})
    turns = pl.DataFrame({"group": ["g"], "period_ns": [turn]}, schema_overrides={"period_ns": pl.Float64}).drop_nulls()
    turning = job_steps._of_same_period_as_turns(periods, turns, DEFAULT)
    assert job_steps.several_steps(clear, periods, turning)["group"].to_list() == several


@pytest.mark.parametrize(
    ("period", "left"), [(1000, ["b"]), (1600, ["a", "b"]), (2500, ["a", "b"]), (500, ["b"]), (640, ["a", "b"])]
)
def test_where_a_few_nics_have_the_period_that_bytes_tell_they_say_where_it_ends(
    period: float, left: list[str]
) -> None:
    clocked = pl.DataFrame({"pair": [0, 1, 2], "group": ["a", "a", "b"], "group_period_ns": [1010.0, 1010.0, 1000.0]})
    of_few = pl.DataFrame({"group": ["a", "c"], "period_ns": [float(period), 1000.0]})
    assert sorted(job_steps._without_same_period(clocked, of_few, DEFAULT)["group"]) == left


def tokens(*, more: float, count: int = 20) -> list[Row]:
    """Return what six NICs exchange eight times in each step of a second, each with all others, in random sizes that
    are alike in all; in each step they are larger by up to a ratio."""
    draw, rows = random.Random(11), list[Row]()
    for step in range(count):
        larger = 1 + more * draw.random()
        for turn in range(8):
            for src in "abcdef":
                at = 1000 * step + 90 * turn + 10 * draw.random()
                each = [draw.uniform(0.2, 2) for _ in range(5)]
                scale = 40 * MB * larger / sum(each)
                others = "abcdef".replace(src, "")
                rows += [(at, at + 1, src, dst, round(scale * one)) for dst, one in zip(others, each, strict=True)]
    return rows


@pytest.mark.parametrize(("more", "found"), [(0.0, 20), (0.1, 20), (1.0, 0)])
def test_a_few_nics_tell_the_steps_in_which_all_send_the_same(more: float, found: int) -> None:
    """Gradients of 80 MB cross hosts at two of six NICs, and all of them exchange tokens throughout."""
    gradients = [burst("a", "b", 1000 * step + 800, length=20) for step in range(20)]
    assert steps(flows(tokens(more=more), *gradients))["step"].n_unique() == found


@pytest.mark.parametrize(
    ("apart", "parts", "period"), [(0.06, 1, 1000), (0.0, 1, 100), (0.06, 3, 100)], ids=["tokens", "one size", "bursts"]
)
def test_messages_that_come_one_by_one_in_other_sizes_tell_no_period(apart: float, parts: int, period: float) -> None:
    """Gradients cross hosts at two of six NICs. Others only send tokens, of about the same bytes in each layer."""
    draw, begins = random.Random(3), every(1000, count=20)
    rows = [*messages("a", "b", [at + 850 for at in begins], 80 * MB), *chatter("b", "a", total=MB)]
    for src, dst in ("cd", "dc", "ef", "fe"):
        for at in every(100, count=200):
            rows += burst(src, dst, at, length=5, size=round(8 * MB * draw.uniform(1 - apart, 1 + apart)), parts=parts)
    table = flows(rows)
    rhythms = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g"))
    found = group_periods(table, rhythms, DEFAULT, of_few=True)
    assert found["period_ns"].item() / MS == pytest.approx(period, rel=0.01)


@pytest.mark.parametrize(("messages_each", "shown"), [(2.0, True), (1.85, True), (1.6, False), (0.95, True)])
def test_of_a_few_nics_messages_of_one_size_tell_the_period_if_as_many_come_each_time(
    messages_each: float, shown: bool
) -> None:
    """Now and then some are lost; of gradients that mostly merge with others the rest seems to have any period."""
    begins = every(1000, count=20)
    gradients = messages("a", "b", [at + later for at in begins for later in (850, 870)], 80 * MB)
    table = flows(gradients, *(chatter(src, dst, total=800 * MB, count=200) for src, dst in ("ab", "ba", "cd", "dc")))
    rhythms = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g"))
    some = pl.when(pl.col("size_class") >= 0).then((messages_each * pl.col("bursts")).cast(pl.Int64))
    found = group_periods(table, rhythms.with_columns(flows=some.otherwise("flows")), DEFAULT, of_few=True)
    assert found.is_empty() != shown


def test_two_replicas_beside_a_ring_are_no_line_of_stages() -> None:
    """Gradients go both ways between two, and around one way between four."""
    begins = every(1000, count=20)
    pairs = [ring(pair, begins, parts=1) for pair in ("ab", "cd", "ef", "gh")]
    streams = stream_rhythms(flows(*pairs, ring("ijkl", begins, parts=1)), DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._pipeline_only_groups(streams, DEFAULT).is_empty()
    line = [pipeline("a", "b", begins, spread=900, count=8), pipeline("b", "c", begins, spread=900, count=8)]
    streams = stream_rhythms(flows(*line), DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._pipeline_only_groups(streams, DEFAULT)["group"].to_list() == ["g"]


@pytest.mark.parametrize("pause", [100, 300, 600])
def test_a_pipeline_that_turns_once_between_pauses_of_any_length_shows_steps(pause: float) -> None:
    """Steps of two stages and two replicas take 415 ms; after every sixth of them a checkpoint is saved."""
    begins = [415 * step + pause * (step // 6) for step in range(60)]
    links = [stages(nics, begins) for nics in ("ac", "bd")]
    gradients = [ring(nics, [begin + 305 for begin in begins], length=40, size=16 * MB) for nics in ("ab", "cd")]
    assert steps(flows(*links, *gradients))["step"].n_unique() == 60


@pytest.mark.parametrize(("replicas", "found"), [(["ef"], [415 * MS]), (["ef", "gh"], [])], ids=["most", "half"])
def test_links_tell_how_long_a_step_is_if_most_nics_turn(replicas: list[str], found: list[float]) -> None:
    begins = every(415, count=20)
    table = flows(*(stages(nics, begins) for nics in ("ac", "bd")), *(ring(nics, begins) for nics in replicas))
    streams = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._turn_periods(streams, DEFAULT)["period_ns"].to_list() == pytest.approx(found)


@pytest.mark.parametrize(("share", "alone"), [(None, True), (0.05, True), (0.5, False)])
def test_links_are_alone_if_gradients_are_next_to_nothing_or_not_seen(share: float | None, *, alone: bool) -> None:
    """The larger ones are half of what goes over a link."""
    begins = every(415, count=20)
    links = [stages(nics, begins) for nics in ("ac", "bd")]
    sent = sum(size for *_, sender, to, size in links[0] if sender + to == "ac") / 20
    gradients = [] if share is None else [ring(nics, begins, size=int(share * sent)) for nics in ("ab", "cd")]
    streams = stream_rhythms(flows(*links, *gradients), DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._turn_periods(streams, DEFAULT)["alone"].to_list() == [alone]


@pytest.mark.parametrize("until", [600, 800, 1000, 1500])
def test_a_pipeline_that_is_still_full_has_shown_no_step(until: float) -> None:
    """Over its first links more has gone than has come back, by up to a half."""
    rows = [row for row in stages("abcdefgh", [0], micro_batches=64) if row[0] < until]
    assert ends_ms(steps(flows(rows))) == []


@pytest.mark.parametrize(("until", "emptied"), [(800, 0), (10_000, 1)])
def test_a_pipeline_that_is_still_full_was_not_seen_empty(until: float, emptied: int) -> None:
    rows = [row for row in stages("abcdefgh", [0], micro_batches=64) if row[0] < until]
    streams = stream_rhythms(flows(rows), DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._pipeline_only_groups(streams, DEFAULT).height == 1
    assert job_steps._pipeline_only_groups(streams, DEFAULT, emptied=True).height == emptied


@pytest.mark.parametrize("last_run", [True, False])
def test_the_last_step_has_a_number_though_joint_steps_end_in_its_middle(*, last_run: bool) -> None:
    """Two sharded layers: the longest silence is that between the last gather and the first reduction. Where another
    run follows, the next number is that of its first step."""
    begins = every(1000, count=20)
    gathers = [
        ring("abcd", [at + after for at in begins], length=50, parts=1, size=20 * MB) for after in (20, 200, 350, 430)
    ]
    reductions = [
        ring("dcba", [at + after for at in begins], length=130, parts=1, size=40 * MB) for after in (640, 870)
    ]
    table = flows(*gathers, *reductions)
    joint = job_steps.steps_of_jobs(table.with_columns(job_id=pl.lit("j")), DEFAULT)
    assert ends_ms(joint.numbered) == [1000 * step + 480 for step in range(20)]
    pairs = table.select("src_addr", "dst_addr", kind=pl.lit("dp")).unique()
    numbered = gradient_ends.steps_ended_by(joint, pairs, DEFAULT, last_run=last_run).numbered
    ended = numbered.group_by("step").agg(pl.col("flow_end_ns").max()).sort("step")["flow_end_ns"] - WINDOW.start_ns
    assert (ended // MS).to_list()[-2:] == ([19_000, 20_000] if last_run else [18_000, 20_000])


def test_a_pair_that_no_gap_cuts_between_steps_ends_none() -> None:
    """Twelve steps, a checkpoint of 5 s, twelve steps. Pair ca sends throughout them, at uneven distances."""
    begins = [*every(1000, count=12), *every(1000, count=12, start=17_000)]
    draw = random.Random(3)
    at = accumulate((min(draw.expovariate(1 / 20), 60) for _ in range(3_000)), initial=0)
    sent = messages("c", "a", [after for after in at if not 11_890 < after < 17_000 and after < 28_890], MB)
    table = flows(ring("ab", [begin + 800 for begin in begins]), sent)
    ended = ended_by(table, table.select("src_addr", "dst_addr").unique())
    spans = ended.group_by("step").agg(pl.col("flow_end_ns").max() - pl.col("flow_start_ns").min()).sort("step")
    assert spans.height == 24
    assert spans["flow_end_ns"].max() < 2_000 * MS
