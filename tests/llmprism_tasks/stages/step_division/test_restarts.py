"""What a pair sent before a long silence is another run's."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from handmade import Row, flows, messages

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import TrafficSettings
from llmprism_tasks.stages.step_division.restarts import (
    OneWay,
    one_way,
    part_at_restarts,
    runs,
    since_restart,
)
from llmprism_tasks.stages.step_division.stage_lines import ends_of_pairs
from llmprism_tasks.stages.traffic import nic_pairs

SECOND = 1_000_000_000
WINDOW = Window(120 * SECOND, 60 * SECOND)
DEFAULT = TrafficSettings()


def sent(starts_s: list[float], src: str = "a", dst: str = "b") -> pl.DataFrame:
    starts = pl.Series([round(start * SECOND) for start in starts_s], dtype=pl.Int64)
    return pl.DataFrame(
        {
            "flow_start_ns": starts,
            "flow_end_ns": starts + SECOND // 2,
            "src_addr": src,
            "dst_addr": dst,
            "bytes": 10**6,
        },
        schema_overrides={"flow_start_ns": pl.Int64, "flow_end_ns": pl.Int64, "bytes": pl.Int64},
    )


def seconds(flows: pl.DataFrame) -> list[float]:
    return [start / SECOND for start in flows["flow_start_ns"].sort()]


def every(period: float, begin: float, end: float) -> list[float]:
    return [begin + i * period for i in range(int((end - begin) / period))]


def test_nothing_stays_nothing() -> None:
    assert since_restart(sent([]), WINDOW, DEFAULT).is_empty()


@pytest.mark.parametrize(("pause", "kept_from"), [(8, 20), (14, 74)])
def test_a_pause_ends_a_run_from_ten_seconds_on(pause: float, kept_from: float) -> None:
    old, new = every(2, 20, 60), every(2, 60 + pause, 180)
    kept = seconds(since_restart(sent(old + new), WINDOW, DEFAULT))
    assert kept == [start for start in old + new if start >= kept_from]


@pytest.mark.parametrize("shift", [0, 0.4, 1.1, 1.9])
def test_a_pause_of_twelve_seconds_ends_a_run_whenever_it_begins(shift: float) -> None:
    """What was sent last takes half a second."""
    old, new = every(2, 20 + shift, 60 + shift), every(2, 70.6 + shift, 180)
    assert seconds(since_restart(sent(old + new), WINDOW, DEFAULT)) == pytest.approx(new)


@pytest.mark.parametrize(("period", "kept"), [(12, 14), (3, 0)])
def test_silence_is_long_only_beside_what_is_usual(period: float, kept: int) -> None:
    """Forty seconds between a step and the next, and a pair that is silent for most of twelve seconds in each."""
    flows = sent(every(period, 0, 84) + every(period, 84 + 33, 180 + 4))
    assert (since_restart(flows, WINDOW, DEFAULT)["flow_start_ns"] < 84 * SECOND).sum() == (7 if kept else 0)


def test_a_silence_that_begins_in_the_window_leaves_both_runs() -> None:
    starts = every(2, 20, 130) + every(2, 150, 180)
    assert seconds(since_restart(sent(starts), WINDOW, DEFAULT)) == starts


def test_a_pair_that_has_not_come_back_is_in_no_run_now() -> None:
    gone, other = sent(every(2, 20, 100)), sent(every(2, 20, 180), src="c")
    assert since_restart(pl.concat([gone, other]), WINDOW, DEFAULT)["src_addr"].unique().to_list() == ["c"]


STAGES = ["ab", "ba", "bc", "cb"]
"""Three stages that each send both ways."""

OTHERS = ["de", "ed", "ef", "fe"]


def line(stages: list[str], before: float, since: float) -> pl.DataFrame:
    """Return what the pairs of a line send: nothing between two times."""
    return pl.concat([sent(every(0.5, 20, before) + every(0.5, since, 180), *pair) for pair in stages])


def test_a_link_of_a_line_is_silent_while_the_pipeline_is_drained_and_filled() -> None:
    kept = since_restart(pl.concat([line(STAGES[:2], 100, 100), line(STAGES[2:], 100, 130)]), WINDOW, DEFAULT)
    assert min(seconds(kept.filter(pl.col("src_addr") == "c"))) == 20


def test_a_line_restarts_when_all_its_links_do() -> None:
    assert min(seconds(since_restart(line(STAGES, 100, 130), WINDOW, DEFAULT))) == 130


@pytest.mark.parametrize(("since", "begins"), [(110, {20}), (111, {111})])
def test_lines_of_one_job_restart_together(since: float, begins: set[float]) -> None:
    """Of one the silence is longer, as parts of time are cut: it is a restart if that of the other one is."""
    kept = since_restart(pl.concat([line(STAGES, 100, since), line(OTHERS, 100, 111)]), WINDOW, DEFAULT)
    assert set(kept.group_by("src_addr").agg(pl.col("flow_start_ns").min() // SECOND)["flow_start_ns"]) == begins


def test_a_line_beside_one_that_goes_on_restarts_by_itself() -> None:
    """They are two jobs: what they move differs by what one of them did not send."""
    kept = since_restart(pl.concat([line(STAGES, 100, 130), line(OTHERS, 100, 100)]), WINDOW, DEFAULT)
    firsts = dict(kept.group_by("src_addr").agg(pl.col("flow_start_ns").min() // SECOND).iter_rows())
    assert firsts == dict.fromkeys("abc", 130) | dict.fromkeys("def", 20)


def test_stages_with_replicas_are_no_line() -> None:
    """The first and the last exchange gradients: these are a circle, and a silence is that of the pair."""
    busy = line([*STAGES[:2], "ac", "ca"], 100, 100)
    since = since_restart(pl.concat([busy, line(STAGES[2:], 100, 130)]), WINDOW, DEFAULT)
    assert min(seconds(since.filter(pl.col("src_addr") == "c", pl.col("dst_addr") == "b"))) == 130


@pytest.mark.parametrize(("until", "kept"), [(118, 0), (122, 51)])
def test_a_link_of_a_line_is_of_no_run_if_it_sent_nothing_in_the_window(until: int, kept: int) -> None:
    """The window begins at 120 s; what began at 120 s is in it."""
    busy = [sent(every(2, 20, 180), *pair) for pair in STAGES[:2]]
    gone = [sent(every(2, 20, until), *pair) for pair in STAGES[2:]]
    since = since_restart(pl.concat([*busy, *gone]), WINDOW, DEFAULT)
    assert since.filter(pl.col("src_addr") == "c").height == kept


@pytest.mark.parametrize(("until", "kept"), [(120, 0), (124, 4 * 62 + 4 * 58), (130, 4 * 65), (174, 4 * 87)])
def test_a_pair_whose_nics_fell_silent_in_the_window_is_in_the_run_that_ended(until: float, kept: int) -> None:
    """Stages send to each other until 116 s, and replicas until a time in the window: with them the job ended. Stages
    that were silent for ten seconds by then had gone before, and so had they if nothing has ended yet."""
    replicas = [sent(every(2, 0, until), *pair) for pair in ("ab", "ba")]
    stages = [sent(every(2, 0, 116), *pair) for pair in ("ac", "ca", "bd", "db")]
    others = [sent(every(2, 0, until), *pair) for pair in ("cd", "dc")]
    found = since_restart(pl.concat([*replicas, *stages, *others]), WINDOW, DEFAULT)
    assert found.height == kept


def test_a_single_burst_is_no_run_that_ended() -> None:
    assert since_restart(sent([30.0]), WINDOW, DEFAULT).height == 1


@pytest.mark.parametrize("burst", [1.8, 7.4])
def test_the_silence_between_long_steps_is_usual(burst: float) -> None:
    """Bursts touch several parts of the time that is looked at, and these are no silences that count."""
    flows = sent([start for begin in (0, 86, 172) for start in every(0.1, begin, begin + burst)])
    assert since_restart(flows, WINDOW, DEFAULT).height == flows.height


@pytest.mark.parametrize(("run", "restarted"), [(4.0, False), (14.0, True)])
def test_what_is_usual_must_have_been_seen_for_ten_seconds(run: float, *, restarted: bool) -> None:
    """A burst and a silence after it may be a step; a run is longer than a burst."""
    flows = pl.concat([sent(every(0.1, 4, 4 + run)), sent(every(0.1, 177, 180))])
    assert (since_restart(flows, WINDOW, DEFAULT)["flow_start_ns"].min() == 177 * SECOND) == restarted


@pytest.mark.parametrize(("until", "jobs"), [(110, [2]), (130, [1, 2])])
def test_a_run_that_ended_in_the_window_is_told_beside_the_present_one(until: int, jobs: list[int]) -> None:
    """One job is silent for twenty seconds, the other goes on."""
    old, new = every(2, 20, until), every(2, until + 20, 180)
    flows = pl.concat(
        [
            sent(old + new).with_columns(job_id=pl.lit("came back")),
            sent(every(2, 20, 180), src="c").with_columns(job_id=pl.lit("goes on")),
        ]
    )
    parts = runs(flows, WINDOW, DEFAULT)
    assert [part["job_id"].n_unique() for part in parts] == jobs
    assert seconds(parts[-1].filter(pl.col("job_id") == "came back")) == new


def test_every_flow_is_of_a_run_before_or_since() -> None:
    flows = pl.concat([sent(every(2, 20, 60) + every(2, 90, 180)), sent(every(2, 20, 180), src="c")])
    before, since = part_at_restarts(flows, WINDOW, DEFAULT)
    assert seconds(before) == every(2, 20, 60)
    assert before.height + since.height == flows.height


CYCLES = [every(1, 60 * cycle, 60 * cycle + 40) for cycle in range(4)]
"""Forty steps of a second, and a silence of twenty."""


def ring(weights: int) -> pl.DataFrame:
    """Return what three NICs send each other, and how one sends the two others so many bytes as it comes back."""
    sends = [sent([start for steps in CYCLES for start in steps], *pair) for pair in ("ab", "bc", "ca")]
    back = [
        sent([steps[0] - 2 for steps in CYCLES[1:]], "a", to).with_columns(bytes=pl.lit(weights, dtype=pl.Int64))
        for to in "bc"
    ]
    return pl.concat([*sends, *(back if weights else [])])


WHOLE = Window(180 * SECOND, 60 * SECOND)


LITTLE, MUCH = 2 * 10**4, 10**5
"""Bytes; of six million that the three send and get in a second, two hundredths are 120 thousand."""


@pytest.mark.parametrize(("weights", "begins"), [(0, 0), (LITTLE, 0), (MUCH, 180)])
def test_silences_that_come_again_and_again_are_pauses_unless_weights_follow(weights: int, begins: float) -> None:
    since = since_restart(ring(weights), WHOLE, DEFAULT)
    assert min(seconds(since.filter(pl.col("bytes") == 10**6))) == begins


@pytest.mark.parametrize(("also_at", "since"), [([], 178), ([167], 178), ([172], 172), ([165, 172], 178)], ids=str)
def test_pairs_that_only_start_ups_use_begin_with_the_others(also_at: list[float], since: float) -> None:
    """A few seconds sooner, maybe, after ten without anything; who goes on alone all the time, with them."""
    tree = sent([58, 118, 178, *also_at], "a", "c").with_columns(bytes=pl.lit(MUCH, dtype=pl.Int64))
    flows = pl.concat([ring(0), tree, sent([58, 118, 178], "a", "b").with_columns(bytes=pl.lit(MUCH, dtype=pl.Int64))])
    kept = since_restart(flows, WHOLE, DEFAULT)
    assert min(seconds(kept.filter(pl.col("dst_addr") == "b"))) == 178
    assert min(seconds(kept.filter(pl.col("dst_addr") == "c", pl.col("src_addr") == "a"))) == since


@pytest.mark.parametrize(("size", "since"), [(50_000, 178), (100_000, 0)])
def test_a_copy_beside_a_run_begins_with_it_unless_others_go_on(size: int, since: float) -> None:
    """Others: a second pair that is never silent, and moves less or more than a hundredth of what the rings move."""
    copy = sent(every(2, 0, 210), "a", "b").with_columns(src_addr=pl.lit("c"), dst_addr=pl.lit("a"))
    other = sent(every(2, 0, 210), "a", "d").with_columns(bytes=pl.lit(size, dtype=pl.Int64))
    run = [sent([*every(1, 0, 150), *every(1, 178, 210)], *pair) for pair in ("ab", "bc", "ca", "ba", "cb")]
    kept = since_restart(pl.concat([*run[:2], *run[3:], copy, other]), WHOLE, DEFAULT)
    assert min(seconds(kept.filter(pl.col("src_addr") == "c", pl.col("dst_addr") == "a"))) == since


def test_with_who_does_not_begin_nothing_does() -> None:
    tree = sent([58, 118, 178], "a", "x").with_columns(bytes=pl.lit(MUCH, dtype=pl.Int64))
    kept = since_restart(pl.concat([ring(MUCH), tree]), WHOLE, DEFAULT)
    assert min(seconds(kept.filter(pl.col("dst_addr") == "x"))) == 58


@pytest.mark.parametrize(("size", "goes_on"), [(400_000, True), (500_000, False)])
def test_what_moves_little_says_nothing_of_when_its_nics_begin(size: int, *, goes_on: bool) -> None:
    """A ring of 65 MB each way ends in the window; pairs of 6 or 7.5 MB beside it fell silent before that."""
    ended = [sent(every(2, 0, 130), *pair) for pair in ("ab", "ba")]
    beside = [sent(every(2, 20, 50), *pair).with_columns(bytes=pl.lit(size)) for pair in ("ac", "bc")]
    kept = since_restart(pl.concat([*ended, *beside], how="vertical_relaxed"), WINDOW, DEFAULT)
    assert kept.height == (130 if goes_on else 0)


def test_what_goes_to_others_than_members_are_no_weights() -> None:
    """Checkpoints go one way, too, to storage."""
    saved = sent([41, 101, 161, 181], "a", "storage").with_columns(bytes=pl.lit(10**9, dtype=pl.Int64))
    assert min(seconds(since_restart(pl.concat([ring(0), saved]), WHOLE, DEFAULT))) == 0


@pytest.mark.parametrize(("pause", "begins"), [(18, 0), (22, 180)])
def test_of_two_who_have_no_replicas_to_be_seen_long_pauses_are_restarts(pause: float, begins: float) -> None:
    cycles = [start for at in range(4) for start in every(1, 60 * at, 60 * (at + 1) - pause)]
    flows = pl.concat([sent(cycles, *pair) for pair in ("ab", "ba")])
    assert min(seconds(since_restart(flows, WHOLE, DEFAULT))) == begins


@pytest.mark.parametrize(("weights", "count"), [(LITTLE, 1), (MUCH, 2)])
def test_so_they_are_for_a_job(weights: int, count: int) -> None:
    """Those of pairs begin and end in the window: only the job's runs can be told."""
    flows = ring(weights).with_columns(job_id=pl.lit("j"))
    assert len(runs(flows, Window(150 * SECOND, 60 * SECOND), DEFAULT)) == count


PARTS = 3


def measured(*rows: list[Row], of: str = "all") -> OneWay:
    """Measure in parts of a second; of all pairs, or of some of them, all pairs being a row each."""
    bulk = nic_pairs.in_order(flows(*rows))
    pairs = nic_pairs.pairs_of(bulk, [*nic_pairs.PAIR]).select(nic_pairs.PAIR).rows()
    wanted = np.array([at for at, pair in enumerate(pairs) if of == "all" or "".join(pair) in of.split()])
    starts = bulk["flow_start_ns"].to_numpy()
    return one_way(bulk, np.arange(len(pairs)), wanted, (starts - starts.min()) // 10**9, PARTS)


def test_round_a_ring_all_comes_back_and_weights_do_not() -> None:
    ring = [messages(*ends, [0, 1000, 2000], 1000) for ends in ("ab", "bc", "ca")]
    found = measured(*ring, messages("a", "b", [1500], 600))
    # A hundredth of what all have sent and got, and 600 that one has sent and another got.
    assert found.bytes.tolist() == [[60, 1200, 60]]
    assert found.replicated.tolist() == [True]
    assert found.groups.tolist() == [0, 0, 0]


def test_groups_are_of_those_that_pairs_join() -> None:
    line = [messages(*ends, [0], 1000) for ends in ("ab", "ba", "bc", "cb")]
    found = measured(*line, messages("x", "y", [0], 500))
    groups = dict(zip(["ab", "ba", "bc", "cb", "xy"], found.groups.tolist(), strict=True))
    assert len({groups[pair] for pair in ("ab", "ba", "bc", "cb")}) == 1
    assert groups["xy"] != groups["ab"]
    assert not found.replicated.any()
    assert found.bytes[groups["xy"]].tolist() == [1000, 0, 0]


@pytest.mark.parametrize(("of", "expected"), [("ab", [1000, 0, 0]), ("all", [2000, 0, 0])])
def test_only_what_the_nics_in_question_send_each_other_counts(of: str, expected: list[int]) -> None:
    found = measured(messages("a", "b", [0], 500), messages("b", "c", [0], 1000), of=of)
    assert found.bytes[found.groups[0]].tolist() == expected


@pytest.mark.parametrize("also", [True, False])
def test_stages_whose_nics_reduce_with_others_have_replicas(also: bool) -> None:
    """Two lines of two stages, each a and b, c and d; gradients go from a to c and from b to d and back."""
    lines = [messages(*ends, [0], 1000) for ends in ("ab", "ba", "cd", "dc")]
    gradients = [messages(*ends, [0], 1000) for ends in ("ac", "ca", "bd", "db")] if also else []
    found = measured(*lines, *gradients, of="ab ba cd dc")
    assert found.replicated[found.groups].tolist() == [also] * 4


def test_nics_are_numbered_through() -> None:
    bulk = nic_pairs.in_order(flows(messages("b", "a", [0], 1), messages("c", "a", [0], 1)))
    source, target, count = ends_of_pairs(bulk)
    assert (source.tolist(), target.tolist(), count) == ([1, 2], [0, 0], 3)
