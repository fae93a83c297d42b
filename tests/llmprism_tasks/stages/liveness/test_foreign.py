"""Who goes on while a job stands still is foreign to it; who carries the job is not."""

from __future__ import annotations

from itertools import permutations

import polars as pl
import pytest
from handmade import MB, WINDOW, Row, every, flows, ring, settings

from llmprism_tasks.stages.liveness.foreign import foreign_pairs, is_beyond_chatter
from llmprism_tasks.stages.liveness.quiet_times import beyond_chatter, quiet_times
from llmprism_tasks.stages.traffic import nic_pairs

NICS = "abcdef"
RING = ring(NICS, every(2000, count=29))
SECOND_NS = 10**9


@pytest.mark.parametrize(("size", "foreign"), [(MB // 10, 0), (400 * MB, len(NICS))])
def test_what_chatters_is_not_asked_whether_the_job_stands_still(size: int, foreign: int) -> None:
    """A ring of six NICs goes on while all other pairs are silent for most of the minute. If these carry as much as the
    ring, it is the ring that has nothing to do with the job."""
    apart = [link for link in permutations(NICS, 2) if link not in {(src, dst) for _, _, src, dst, _ in RING}]
    rest = [(at, at + 50, src, dst, size) for src, dst in apart for at in (100, 200, 300, 50_000)]
    inside = nic_pairs.inside_jobs(flows(RING, rest), pl.DataFrame({"addr": list(NICS), "job_id": "j"}))
    bulk = nic_pairs.in_order(nic_pairs.bulk(inside, settings().traffic))
    assert foreign_pairs(bulk, WINDOW, least_ns=10 * SECOND_NS, more=1.0).height == foreign


def still_at_work(*parts: list[Row]) -> set[tuple[str, str, int]]:
    """Return who sends to whom, and in which second, about times when the pair moves more than chatter."""
    seconds = (pl.col("flow_start_ns") - WINDOW.start_ns) // SECOND_NS
    return set(kept(*parts).select("src_addr", "dst_addr", seconds).rows())


def kept(*parts: list[Row]) -> pl.DataFrame:
    inside = nic_pairs.inside_jobs(flows(*parts), pl.DataFrame({"addr": list(NICS), "job_id": "j"}))
    bulk = nic_pairs.in_order(inside)
    works = is_beyond_chatter(bulk, least_ns=10 * SECOND_NS, same_size=0.02)
    return nic_pairs.named(bulk.filter(pl.Series(works)))


@pytest.mark.parametrize(("ratio", "works"), [(0.01, False), (0.04, True)])
def test_a_pair_is_at_work_as_long_as_it_moves_more_than_a_fiftieth_of_its_pace(ratio: float, works: bool) -> None:
    pace = [(at, at + 100, "a", "b", 10 * MB) for at in every(1000, count=40)]
    later = [(at, at + 100, "a", "b", round(ratio * 10 * MB)) for at in every(1000, count=14, start=46_000)]
    assert {second for *_, second in still_at_work(pace, later)} >= set(range(40))
    assert (("a", "b", 53) in still_at_work(pace, later)) == works


@pytest.mark.parametrize(("size", "works"), [(100_000, False), (2 * MB, True)])
def test_a_pair_that_sent_once_is_measured_by_the_others_of_its_nics(size: int, works: bool) -> None:
    """Chatter is far below a thousandth of training; activations beside gradients are above a hundredth."""
    gradients = [(at, at + 400, "a", "b", 100 * MB) for at in every(2000, count=29)]
    little = [(at, at + 5, "a", "c", size) for at in every(10_000, count=5, start=5000)]
    assert (("a", "c", 25) in still_at_work(gradients, little)) == works


@pytest.mark.parametrize(
    ("size", "after_ms", "works"), [(50_000, 1200, False), (100_000, 1200, True), (50_000, 900, True)]
)
def test_what_is_small_after_the_last_message_is_chatter_unless_it_is_a_part_of_it(
    size: int, after_ms: float, works: bool
) -> None:
    pace = [(at, at + 100, "a", "b", 10 * MB) for at in every(1000, count=41)]
    last = [(40_000 + after_ms, 40_001 + after_ms, "a", "b", size)]
    assert kept(pace, last).height == len(pace) + works


@pytest.mark.parametrize(
    ("begun", "first", "size", "works"),
    [
        (4, 200, 31_000, True),
        (3, 200, 31_000, True),
        (2, 200, 31_000, False),
        (4, 200, 33_000, False),
        (4, 1500, 31_000, False),
    ],
)
def test_what_each_burst_began_with_begins_the_next_one(begun: int, first: float, size: int, works: bool) -> None:
    """Four steps, 8 s apart, of which some begin with a small record soon before the others. A step later a record of
    that size comes, or of another one, and nothing follows: one of the members hangs."""
    starts = every(8000, count=4)
    small = [(at, at + 1, "a", "b", 31_000) for at in starts[:begun]]
    rest = [(at + first, at + first + 800, "a", "b", 100 * MB) for at in starts]
    assert kept(small, rest, [(32_000, 32_001, "a", "b", size)]).height == begun + len(rest) + works


@pytest.mark.parametrize(("others", "works"), [(2, True), (3, False)])
def test_most_bursts_have_to_begin_so(others: int, works: bool) -> None:
    """Three of them do, 8 s apart, and the others begin with a record of another small size."""
    starts = every(8000, count=3 + others)
    small = [(at, at + 1, "a", "b", 31_000 if step < 3 else 50_000) for step, at in enumerate(starts)]
    rest = [(at + 200, at + 1000, "a", "b", 100 * MB) for at in starts]
    end = starts[-1] + 8000
    assert kept(small, rest, [(end, end + 1, "a", "b", 31_000)]).height == 2 * len(starts) + works


@pytest.mark.parametrize(("after", "works"), [(1.2, True), (1.3, False)])
def test_the_beginning_of_a_step_is_no_chatter_though_nothing_follows(after: float, works: bool) -> None:
    """Steps are 8 s apart, and what is near such a beginning is sent within 5 s. A pause of 20 s comes once."""
    starts = [*every(8000, count=3), *every(8000, count=4, start=42_000)]
    steps = [(at, at + 1000, "a", "b", 100 * MB) for at in starts]
    ahead = 67_000 + after * 7000
    assert kept(steps, [(ahead, ahead + 1, "a", "b", MB)]).height == len(steps) + works


@pytest.mark.parametrize(("until_s", "foreign"), [(33, 0), (45, 1)])
def test_the_last_of_a_pipeline_to_fall_silent_is_no_foreigner(until_s: int, foreign: int) -> None:
    """Most pairs fall silent 10 s before the last of a step: from then on, and not from when most did, the job is
    silent. A pair that goes on sending until the middle of that silence does not train."""
    early = [
        row for link in permutations("abc", 2) for row in [(at, at + 50, *link, MB) for at in every(1000, count=20)]
    ]
    last = [(at, at + 50, "d", "e", MB) for at in every(1000, count=until_s)]
    others = [(at, at + 50, "e", "d", MB) for at in every(1000, count=30)]
    inside = nic_pairs.inside_jobs(flows(early, last, others), pl.DataFrame({"addr": list(NICS), "job_id": "j"}))
    bulk = nic_pairs.in_order(nic_pairs.bulk(inside, settings().traffic))
    assert foreign_pairs(bulk, WINDOW, least_ns=10 * SECOND_NS, more=1.0).height == foreign


def test_heartbeats_do_not_cut_a_pause_into_pieces() -> None:
    """The longest silence of all flows is that between two heartbeats, of two seconds."""
    work = [(at, at + 900, "a", "b", 100 * MB) for at in [*every(1000, count=15), *every(1000, count=15, start=45_000)]]
    beats = [(at, at + 5, "a", "b", 10_000) for at in every(2000, count=14, start=16_000)]
    inside = nic_pairs.inside_jobs(flows(work, beats), pl.DataFrame({"addr": list(NICS), "job_id": "j"}))
    lasted = pl.col("back_ns") - pl.col("since_ns")
    every_ns, pause_ns = (
        quiet_times(some).select(lasted.max()).item() for some in (inside, beyond_chatter(inside, settings()))
    )
    assert every_ns <= 3 * SECOND_NS
    assert pause_ns >= 15 * SECOND_NS
