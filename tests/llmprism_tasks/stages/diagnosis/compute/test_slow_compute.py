"""The slow one is named, its victims are not, and what is chance or too little is not news."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row
from hypothesis import given
from hypothesis import settings as generated
from hypothesis import strategies as st
from job_evidence import DEFAULT, STEP, history, kinds, shuffled, steps, without_rows, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.compute import slow_compute
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence

WELL = [500.0] * 10
"""When a healthy NIC begins to send, in ms, in each of ten steps of a second."""


def late(by: float, steps: Sequence[int] = range(10), base: float = 500) -> list[float]:
    return [base + (by if i in steps else 0) for i in range(10)]


def found(evidence: Evidence, **changed: Any) -> pl.DataFrame:
    return slow_compute.find(evidence, dataclasses.replace(DEFAULT, **{"least_lasting_s": 0, **changed}))


def named(evidence: Evidence, **changed: Any) -> list[tuple[str, str]]:
    return found(evidence, **changed).select("subject_type", "subject").rows()


def ring(late_one: Sequence[float], base: float = 500) -> dict[str, Sequence[float]]:
    """Return a ring of four, of which `b` is the suspect; the others begin when they are ready."""
    return {"a": [base] * 10, "b": late_one, "c": [base] * 10, "d": [base] * 10}


def test_the_slow_nic_is_named_and_what_it_costs_is_told() -> None:
    rows = found(working([ring(late(100))], lookback=[900] * 5))
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    row = rows.row(0, named=True)
    assert rows.height == 1
    assert (row["kind"], row["subject_type"], row["subject"]) == ("slow_compute", "addr", "b")
    assert row["score"] == pytest.approx(0.2 / DEFAULT.least_noise)
    assert (row["start_ns"], row["end_ns"]) == (WINDOW.start_ns, WINDOW.start_ns + 10 * STEP * MS)
    assert row["severity"] == pytest.approx(1000 / 900 - 1)
    assert "b on host-b computes 1.20 times as long as its peers" in row["explanation"]
    assert "600 ms against 500 ms" in row["explanation"]
    assert row["confidence"] == pytest.approx(1.0)
    assert row["peers"] == ["a", "c", "d"]


def test_the_severity_is_the_same_whether_or_not_quick_steps_were_seen() -> None:
    """A live feed may start while a fault is near: peers then show what the past would have shown."""
    seen, unseen = (
        found(working([ring(late(300))], lookback=lookback)).row(0, named=True) for lookback in ([700] * 5, [1000] * 5)
    )
    assert seen["severity"] == pytest.approx(1000 / 700 - 1)
    assert unseen["severity"] == pytest.approx(seen["severity"])
    assert unseen["confidence"] == pytest.approx(1.0)
    assert "1.43 times as long as they need to" in unseen["explanation"]


@pytest.mark.parametrize(("excess", "names"), [(0.22, ["b"]), (0.21, [])])
def test_work_that_is_longer_than_before_makes_steps_longer_by_as_much_at_most(excess: float, names: list[str]) -> None:
    """Steps of 1000 ms instead of 700: three sevenths more, of which it explains a half or less."""
    evidence = working([ring(late(300))], lookback=[700] * 5)
    times = {"start_ns": WINDOW.start_ns, "end_ns": WINDOW.start_ns + 10 * STEP * MS, "own_ns": 800 * MS}
    shown = {"score": 20.0, "slow": 10, "steps": 10, "by_past": True, "at_first": False, "component": 0}
    suspect = pl.DataFrame([{"job_id": "j", "addr": "b", "excess": excess, "loss": 0.3} | times | shown])
    rows = slow_compute.finding_rows(suspect, suspect.clear(), evidence)
    assert rows["subject"].to_list() == names


def test_a_job_in_which_all_are_well_is_silent() -> None:
    assert named(working([ring(WELL)])) == []
    assert named(working([ring(late(-200))])) == []


def test_the_run_of_slow_steps_is_dated() -> None:
    row = found(working([ring(late(100, range(4, 9)))])).row(0, named=True)
    assert (row["start_ns"], row["end_ns"]) == (WINDOW.start_ns + 4000 * MS, WINDOW.start_ns + (9000 + 5 * 100) * MS)
    assert "in 5 of 5 steps" in row["explanation"]


def test_lateness_that_no_step_pays_for_is_not_told_unless_there_is_no_step_without_it() -> None:
    """A record that is missing looks like it; two steps without it are too few to tell."""
    assert named(working([ring(late(100, range(4, 9)))], paid=False)) == []
    assert named(working([ring(late(100, range(8)))], paid=False)) == [("addr", "b")]
    assert named(working([ring(late(100, range(7)))], paid=False)) == []


@pytest.mark.parametrize(
    ("before", "names"), [([920] * 11, [("addr", "b")]), ([930] * 11, []), ([930] * 10, [("addr", "b")])]
)
def test_lateness_since_which_steps_are_no_longer_costs_nothing(
    before: list[int], names: list[tuple[str, str]]
) -> None:
    """It is late by 150 ms of a second. What its work took before is not known; in few steps that tells nothing."""
    assert named(working([ring(late(150))], lookback=before)) == names


@pytest.mark.parametrize(("by", "names"), [(39, []), (41, [("addr", "b")])])
def test_what_costs_the_job_too_little_is_not_told(by: float, names: list[tuple[str, str]]) -> None:
    """4 % of a step of a second are 40 ms."""
    assert named(working([ring(late(by))])) == names
    assert named(working([ring(late(by))]), least_effect=0.1) == []
    assert named(working([ring(late(101))]), least_effect=0.1) == [("addr", "b")]


@pytest.mark.parametrize(("steps", "names"), [(2, []), (3, [("addr", "b")])])
def test_two_slow_steps_are_chance(steps: int, names: list[tuple[str, str]]) -> None:
    evidence = working([ring(late(100, range(3, 3 + steps)))])
    assert named(evidence) == names
    assert named(evidence, least_steps=2) == [("addr", "b")]


@pytest.mark.parametrize(("steps", "names"), [((0, 2, 3, 5, 6, 8, 9), [("addr", "b")]), ((0, 2, 4, 6, 7, 8), [])])
def test_a_trouble_shows_in_most_steps(steps: tuple[int, ...], names: list[tuple[str, str]]) -> None:
    """Seven of ten, or six of nine."""
    evidence = working([ring(late(300, steps))])
    assert named(evidence) == names
    assert named(evidence, persistence=0.8) == []
    assert named(evidence, persistence=0.6) == [("addr", "b")]


@pytest.mark.parametrize(
    ("well", "lasts_s", "names"), [(range(3, 7), 3, [("addr", "b")]), (range(3, 7), 5, []), (range(3, 5), 0, [])]
)
def test_a_trouble_is_over_once_all_was_well_for_as_long_as_one_has_to_last(
    well: range, lasts_s: float, names: list[tuple[str, str]]
) -> None:
    """Three slow steps, four quick ones that take four seconds, and three slow ones: what is back has a name."""
    evidence = working([ring(late(300, [step for step in range(10) if step not in well]))])
    assert named(evidence, persistence=0.9, least_lasting_s=lasts_s) == names


def test_a_trouble_that_is_back_is_told_and_not_a_worse_one_that_was_over_before_the_window() -> None:
    ready = [500.0 + 600 * (step < 3) + 300 * (step > 12) for step in range(16)]
    evidence = working([{"a": [500] * 16, "b": ready, "c": [500] * 16, "d": [500] * 16}])
    begins = evidence.history["start_ns"]
    in_window = pl.col("start_ns") >= begins[10]
    both = {name: getattr(evidence, name).with_columns(current=in_window) for name in ("steps", "history")}
    evidence = dataclasses.replace(evidence, **both)
    (row,) = found(evidence).to_dicts()
    assert (row["subject"], row["start_ns"]) == ("b", begins[13])


@pytest.mark.parametrize(("by", "names"), [(44, []), (46, [("addr", "b")])])
def test_five_deviations_are_asked_for(by: float, names: list[tuple[str, str]]) -> None:
    """Of 900 ms, by the least deviation of 1 % that is believed: 45 ms."""
    evidence = working([ring(late(by, base=900), base=900)])
    assert named(evidence) == names
    assert named(evidence, sigmas=4.5) == [("addr", "b")]
    assert named(evidence, least_noise=0.02) == []


def noisy_ring(late_one: Sequence[float]) -> dict[str, Sequence[float]]:
    """Return a ring of which `b` is the suspect; neighbours are ready together, so that each shows its own time."""
    pace = [480, 500, 520, 480, 520, 500]
    others = {f"{name}{i}": [float(ready)] * 10 for name, ready in zip("acdefg", pace, strict=True) for i in range(2)}
    return {"b": late_one, **others}


@pytest.mark.parametrize(("by", "names"), [(135, []), (175, [("addr", "b")])])
def test_a_job_whose_nics_differ_by_themselves_asks_for_more(by: float, names: list[tuple[str, str]]) -> None:
    """Half of the NICs are 20 ms early or late: 4 %, a deviation of 0.06, and 0.18 is the margin of one step.

    Of 500 ms 135 are 0.27, and 175 are 0.35; five deviations are 0.30.
    """
    noisy = noisy_ring(late(by))
    assert named(working([noisy])) == names


@pytest.mark.parametrize(
    ("ready", "names"),
    [
        ([600.0 + (20 if step % 2 else -20) for step in range(10)], [("addr", "b")]),
        ([600.0 + (25 if step % 2 else -25) for step in range(10)], []),
        ([500.0 + (0, 0, 40)[step % 3] for step in range(12)] + [600.0] * 5, [("addr", "b")]),
        ([500.0 + (0, 50)[step % 2] for step in range(12)] + [600.0] * 5, []),
    ],
)
def test_who_varies_by_itself_is_asked_for_more(ready: list[float], names: list[tuple[str, str]]) -> None:
    """A fifth of 500 ms more, three deviations of which are 6.7 %: 4 and 5 % are deviations of 5.9 and 7.4 %, in the
    slow steps or before."""
    others = [500.0] * len(ready)
    assert named(working([{"a": others, "b": ready, "c": others, "d": others, "e": others}])) == names


@pytest.mark.parametrize(("by", "names"), [(80, []), (100, [("addr", "b")])])
def test_a_step_counts_as_slow_beyond_the_job_s_noise(by: float, names: list[tuple[str, str]]) -> None:
    """As above, with the other thresholds out of the way: 0.18 of 500 ms are 89 ms."""
    noisy = noisy_ring(late(by))
    assert named(working([noisy]), sigmas=1) == names
    assert named(working([noisy]), sigmas=1, noise_margin=2) == [("addr", "b")]


@pytest.mark.parametrize(
    ("steps", "by", "names"),
    [(16, 0.052, [("addr", "b")]), (16, 0.056, []), (64, 0.105, [("addr", "b")]), (64, 0.11, [])],
)
def test_where_work_differs_from_step_to_step_more_or_slower_steps_are_asked_for(
    steps: int, by: float, names: list[tuple[str, str]]
) -> None:
    """A fifth more in sixteen steps is ten deviations of 8 %, which are differences of 5.4 %; in four times as many, of
    twice as much."""
    usual = [500.0 * (1 + by * (0, 1, -1)[step % 3]) for step in range(steps)]
    longer = [1.2 * ready for ready in usual]
    assert named(working([{"a": usual, "b": longer, "c": usual, "d": usual, "e": usual}])) == names


def uneven(steps: int, by: float, factor: float, own: float) -> dict[str, list[float]]:
    """Return a ring of eight whose samples differ in length by these ratios; `b` computes longer."""
    draw = random.Random(1)

    def ready(differ: float) -> list[float]:
        return [500.0 * (1 + differ * draw.gauss()) for _ in range(steps)]

    return {name: ready(by) for name in "acdefgh"} | {"b": [factor * at for at in ready(own)]}


@pytest.mark.parametrize(
    ("steps", "factor", "names"),
    [(12, 1.3, [("addr", "b")]), (12, 1.2, []), (48, 1.4, [("addr", "b")]), (48, 1.15, [])],
)
def test_beside_samples_of_uneven_length_many_steps_tell_what_few_do_not(
    steps: int, factor: float, names: list[tuple[str, str]]
) -> None:
    """Samples differ by a tenth, and so its excess by 0.14, of which three deviations are more than it is late."""
    assert named(working([uneven(steps, 0.1, factor, 0.1)])) == names


@pytest.mark.parametrize(("own", "names"), [(0.02, [("addr", "b")]), (0.04, [])])
def test_who_varies_beside_peers_that_do_not_has_no_longer_samples(own: float, names: list[tuple[str, str]]) -> None:
    """It is late by a tenth, which is more than three of its own deviations or less."""
    assert named(working([uneven(24, 0.0, 1.1, own)])) == names


@pytest.mark.parametrize(("own", "names"), [(0.1, [("addr", "b")]), (0.3, [])])
def test_who_varies_far_more_than_samples_do_does_not_compute_slowly(own: float, names: list[tuple[str, str]]) -> None:
    """Four times as much as its peers, by 0.03 each."""
    assert named(working([uneven(24, 0.03, 1.5, own)])) == names


@pytest.mark.parametrize(("least", "names"), [(651, []), (499, [("addr", "b")])])
def test_work_that_takes_next_to_no_time_tells_nothing(least: float, names: list[tuple[str, str]]) -> None:
    assert named(working([ring(late(150))]), least_work_ms=least) == names


@pytest.mark.parametrize(("steps", "names"), [(9, []), (10, [("addr", "b")])])
def test_what_is_over_within_ten_seconds_is_a_pause(steps: int, names: list[tuple[str, str]]) -> None:
    assert named(working([ring(late(100, range(steps)))]), least_lasting_s=DEFAULT.least_lasting_s) == names


def test_who_waits_for_the_slow_one_beside_it_is_not_named() -> None:
    """Both hops of `b` begin late, but only one of each of its neighbours'."""
    assert named(working([ring(late(100))])) == [("addr", "b")]


def test_of_two_neighbours_the_slower_one_is_named_and_the_other_for_what_is_its_own() -> None:
    slower = working([{"a": late(160), "b": late(100), "c": WELL, "d": WELL, "e": WELL}])
    assert named(slower) == [("addr", "a"), ("addr", "b")]


def test_of_two_nics_that_only_exchange_with_each_other_nobody_can_tell_who_is_late() -> None:
    """Hosts hold two replicas each, so rings pass through them unseen: `b` to `c` is a hop of its own."""
    hops = [("a", "h", 500), ("b", "c", 700), ("d", "e", 500), ("f", "g", 500)]
    rows = [(step * STEP + at, step * STEP + 950, one, two, 8 * MB) for step in range(10) for one, two, at in hops]
    whole = working([dict.fromkeys("abcdefgh", WELL)])
    found_ = found(dataclasses.replace(whole, flows=kinds(dp=rows)))
    assert found_.select("kind", "subject_type", "subject").rows() == [("straggler", "job", "j")]
    assert "b, c begin late together" in found_["explanation"][0]


def test_in_a_pipeline_nobody_is_excused_by_its_ring() -> None:
    """Who sends activations first is measured by them, not by its first gradient."""
    pp: list[Row] = []
    for step in range(10):
        for addr, next_one, begin in (
            ("a", "p", 300),
            ("b", "q", 300),
            ("c", "r", 200),
            ("d", "s", 200),
            ("e", "t", 200),
        ):
            pp.append((step * STEP + begin, step * STEP + begin + 2, addr, next_one, 8 * MB))
            pp.append((step * STEP + 700, step * STEP + 702, next_one, addr, 8 * MB))
    ready = {addr: [800.0] * 10 for addr in "abcde"}
    assert named(working([ready], pp=pp)) == [("addr", "a"), ("addr", "b")]


def test_the_work_of_each_micro_batch_counts() -> None:
    """12 ms more before each of four micro-batches cost 48 ms a step, before a single one only 12."""

    def forward(count: int) -> list[Row]:
        return [
            (step * STEP + at + 100 * i, step * STEP + at + 100 * i + 2, sender, receiver, 8 * MB)
            for step in range(10)
            for addr, next_one, begin in (("a", "p", 100), ("b", "q", 112), ("c", "r", 100), ("d", "s", 100))
            for sender, receiver, at in ((addr, next_one, begin), (next_one, addr, 450))
            for i in range(count)
        ]

    ready = {addr: [800.0] * 10 for addr in "abcd"}
    assert named(working([ready], pp=forward(1))) == []
    assert named(working([ready], pp=forward(4))) == [("addr", "b")]


def rails(slow: Sequence[str], nics: int = 4, by: float = 100) -> Evidence:
    """Return four hosts with a ring on each of their rails; the slow NICs are those of these names."""
    rings = [{f"{host}{g}": late(by) if f"{host}{g}" in slow else WELL for host in "abcd"} for g in range(nics)]
    return working(rings, hosts={f"{host}{g}": f"host-{host}" for host in "abcd" for g in range(nics)})


@pytest.mark.parametrize(
    ("slow", "names"),
    [
        (["b0", "b1", "b2", "b3"], [("host", "host-b")]),
        (["b1", "b2"], [("host", "host-b")]),
        (["b2"], [("addr", "b2")]),
        (["b2", "c1"], [("addr", "b2"), ("addr", "c1")]),
    ],
)
def test_nics_of_one_host_that_slow_down_together_are_the_host(slow: list[str], names: list[tuple[str, str]]) -> None:
    """All of them, or half; fewer are named by their address."""
    rows = found(rails(slow))
    assert rows.select("subject_type", "subject").rows() == names
    assert all(
        ("NICs)" in text) == (kind == "host") for text, (kind, _) in zip(rows["explanation"], names, strict=True)
    )


def test_fewer_than_half_of_a_host_s_nics_are_not_the_host() -> None:
    assert named(rails(["b1", "b2"], nics=5)) == [("addr", "b1"), ("addr", "b2")]


@pytest.mark.parametrize(("other", "names"), [(140, ["b"]), (160, ["b", "f"])])
def test_the_worst_is_named_and_who_costs_at_least_half_as_much(other: float, names: list[str]) -> None:
    both = {**dict.fromkeys("abcdefgh", WELL), "b": late(300), "d": WELL, "f": late(other)}
    assert [subject for _, subject in named(working([both]))] == names


def test_of_two_peers_the_later_is_named() -> None:
    """Two replicas of two stages: `a` and `b` send activations, `c` and `d` send back gradients after equal work."""
    pp = [
        row
        for step in range(10)
        for addr, peer, begin in (("a", "c", 200), ("b", "d", 300))
        for row in (
            (step * STEP + begin, step * STEP + begin + 2, addr, peer, 8 * MB),
            (step * STEP + begin + 202, step * STEP + begin + 204, peer, addr, 8 * MB),
        )
    ]
    ready = [{addr: [800.0] * 10 for addr in stage} for stage in ("ab", "cd")]
    assert named(working(ready, pp=pp)) == [("addr", "b")]


def test_of_two_that_begin_together_nobody_can_be_named() -> None:
    """In a ring of two each hop waits for both: the slow one cannot be told from the other."""
    assert named(working([{"a": late(100), "b": late(100)}])) == []


def test_jobs_are_judged_by_their_own_noise() -> None:
    """What is late in one job is ordinary in another whose NICs differ as much."""
    calm = working([ring(late(100))])
    wild = working([{"a": [420.0] * 10, "b": late(100), "c": [580.0] * 10, "d": [450.0] * 10, "e": late(80)}])
    assert named(calm) == [("addr", "b")]
    assert named(wild) == []


def test_no_evidence_no_rows() -> None:
    assert_frame_equal(found(without_rows(working([ring(late(100))]))), pl.DataFrame(schema=FINDING_SCHEMA))


@generated(max_examples=15)
@given(st.integers(60, 400), st.integers(0, 3), st.integers(3, 10), st.integers(0, 10**6))
def test_whoever_is_slow_is_named_in_whatever_order_rows_come(by: int, who: int, steps: int, seed: int) -> None:
    """With jitter of up to 1 %."""
    jitter = [(seed * (i + 1)) % 11 - 5 for i in range(40)]
    begins = [[500.0 + jitter[10 * nic + i] for i in range(10)] for nic in range(4)]
    begins[who] = [begin + by if i < steps else begin for i, begin in enumerate(begins[who])]
    evidence = working([{**dict(zip("abcd", begins, strict=True)), "e": WELL, "f": WELL, "g": WELL}])
    rows = found(evidence)
    assert rows["subject"].to_list() == ["abcd"[who]]
    assert_frame_equal(found(shuffled(evidence, seed)), rows)


def test_without_replicas_a_nic_is_compared_with_its_own_past() -> None:
    """Stage `b` of a pipeline of four takes 160 instead of 100 ms from the sixth step of twelve on."""
    evidence = pipeline(slow=range(6, 12))
    rows = found(evidence)
    assert rows.select("kind", "subject", "peers").rows() == [("slow_compute", "b", None)]
    assert "1.60 times as long as it used to" in rows["explanation"][0]
    assert named(pipeline(slow=range(0))) == []
    assert named(pipeline(slow=range(12))) == []


@pytest.mark.parametrize(("usual", "names"), [((100, 100, 155), [("addr", "b")]), ((100, 155, 155), [])])
def test_its_own_past_is_what_it_took_in_most_other_steps(
    usual: tuple[float, ...], names: list[tuple[str, str]]
) -> None:
    """Work that varies is longer than its lower quartile in most steps."""
    assert named(pipeline(slow=range(6, 12), usual=usual)) == names


@pytest.mark.parametrize(("passes", "names"), [(0, []), (0.6, []), (0.7, [("addr", "b")])])
def test_who_is_slower_than_before_while_steps_are_as_short_costs_nothing(
    passes: float, names: list[tuple[str, str]]
) -> None:
    """Its quick passes are too short to be measured, so that nothing else shows whether steps are longer for it."""
    evidence = pipeline(slow=range(6, 12), passes=passes)
    assert named(evidence, least_work_ms=110) == names


@pytest.mark.parametrize(("slow", "names"), [(range(6, 12), [("addr", "b")]), (range(0), [])])
def test_without_replicas_samples_that_are_long_for_all_stages_hide_no_slow_one(
    slow: Sequence[int], names: list[tuple[str, str]]
) -> None:
    """All stages pass the same samples, which take up to two and a half times as long as others."""
    evidence = pipeline(slow, samples=(1, 1.7, 0.7, 1.3, 1.6))
    assert named(evidence) == names


def pipeline(
    slow: Sequence[int], passes: float = 3, usual: Sequence[float] = (100,), samples: Sequence[float] = (1,)
) -> Evidence:
    """Return twelve steps of a pipeline of four stages without replicas, of which six are the window's; some are longer
    by what a slow pass takes more, so many times. In the others a pass takes as long as is usual, in turn. The samples
    of a step take so many times as long in all stages, in turn."""
    lengths = [STEP + passes * 60 * (step in slow) for step in range(12)]
    pp: list[Row] = []
    for step in range(12):
        work, begins = (160 if step in slow else usual[step % len(usual)]), sum(lengths[:step])
        length = samples[step % len(samples)]
        at = begins + 50.0
        for addr, peer, spent in (("a", "b", 50), ("b", "c", work), ("c", "d", 100), ("d", "c", 100), ("c", "b", 100)):
            at += spent * length
            pp.append((at, at + 2, addr, peer, 8 * MB))
            at += 2
        pp.append((begins + 900, begins + 902, "b", "a", 8 * MB))
    whole = working([dict.fromkeys("abcd", WELL)])
    spans = steps("abcd", 12, lengths=lengths).with_columns(current=pl.col("step_index") >= 6)
    known = history(lengths).with_columns(current=pl.int_range(pl.len()) >= 6)
    return dataclasses.replace(whole, flows=kinds(pp=pp), steps=spans, history=known, groups=whole.groups.clear())
