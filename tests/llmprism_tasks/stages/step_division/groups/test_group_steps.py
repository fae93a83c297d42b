"""Steps that all pairs of a group show together, whatever time they take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from string import ascii_lowercase

import numpy as np
import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, every, flows, messages, ring

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_steps import steps_together
from llmprism_tasks.stages.step_division.periodicity import WHOLE_PAIR, stream_rhythms
from llmprism_tasks.stages.traffic import nic_pairs

DEFAULT = RhythmSettings()


def uneven(count: int, seed: int = 1, sigma: float = 0.35) -> list[float]:
    """Return when steps begin whose computing is as uneven as lengths of samples make it."""
    lasts = 1000 * np.exp(np.random.default_rng(seed).normal(0, sigma, count))
    return [0.0, *accumulate(lasts.tolist())][:count]


def steps_of(begins: list[float], nics: str = "abcd", pause: float = 15, buckets: int = 4) -> list[Row]:
    """Return steps of a ring, each of some buckets with a pause between them; the last has what is left."""
    rows: list[Row] = []
    for bucket in range(buckets):
        size = (20 if bucket < buckets - 1 else 12) * MB
        rows += ring(nics, [begin + 20 + bucket * (20 + pause) for begin in begins], length=20, parts=1, size=size)
    return rows


def ends(
    *parts: list[Row],
    told: bool = True,
    pair: str = "ab",
    turn: float | None = None,
    alone: bool = False,
    by_bytes: bool = False,
    line: bool = False,
) -> list[float]:
    """Return the ends of steps as a pair shows them, in ms; none where the group shows none together, of those that are
    told or of those that are not.

    Parameters
    ----------
    turn : ms from one turn of a link to the next; None if none turns
    alone : whether all pairs turn
    by_bytes : whether the byte clock may tell the steps
    line : whether the group is but a line of links
    """
    table = nic_pairs.in_order(flows(*parts))
    pairs = stream_rhythms(table, DEFAULT).filter(pl.col("size_class") == WHOLE_PAIR).with_columns(group=pl.lit("g"))
    turns = None if turn is None else pl.DataFrame({"group": ["g"], "period_ns": [turn * MS], "alone": [alone]})
    lines = pl.Series(["g"] if line else [], dtype=pl.String)
    found = steps_together(table, pairs, DEFAULT, turns=turns, by_bytes=by_bytes, turning=lines)
    found = found.of(found.streams.filter(told=told))
    shown = found.streams.filter(pl.col("pair") == pairs.filter(src_addr=pair[0], dst_addr=pair[1])["pair"][0])
    if shown.is_empty():
        return []
    own = table.filter(pair=shown["pair"][0])
    starts, lasts = own["flow_start_ns"].to_numpy(), own["flow_end_ns"].to_numpy()
    number = found.numbers(shown["pair"].to_numpy(), starts, lasts, np.array([0, starts.size]))
    return [(int(lasts[number == step].max()) - WINDOW.start_ns) / MS for step in range(int(number.max()) + 1)]


def expected(begins: list[float], pause: float = 15) -> list[float]:
    return [round(begin + 40 + 3 * (20 + pause), 6) for begin in begins]


def test_uneven_steps_are_told_by_their_bytes() -> None:
    begins = uneven(40)
    assert ends(steps_of(begins)) == pytest.approx(expected(begins), abs=1e-3)


def test_three_steps_are_enough() -> None:
    begins = [0.0, 900.0, 2100.0, 3000.0]
    assert ends(steps_of(begins)) == pytest.approx(expected(begins), abs=1e-3)


def test_a_pause_between_many_steps_is_none() -> None:
    begins = [begin + 5000 * (number // 10) for number, begin in enumerate(uneven(30))]
    assert ends(steps_of(begins)) == pytest.approx(expected(begins), abs=1e-3)


def test_foreign_bytes_between_two_of_the_nics_hide_no_step() -> None:
    """A copy whose record lasts for several steps goes over a pair of the ring."""
    begins = uneven(40)
    copy: list[Row] = [(10_000, 18_000, "b", "c", 300 * MB)]
    assert ends(steps_of(begins), copy) == pytest.approx(expected(begins), abs=1e-3)


def test_chatter_long_before_a_job_hides_none_of_its_pairs() -> None:
    """Two replicas, of which one has chattered with the other for two minutes: what both send has to be looked at."""
    begins = [120_000 + begin for begin in uneven(20)]
    chatter: list[Row] = [(at, at + 1, "a", "b", 20_000) for at in (0, 50_000, 90_000)]
    rows = [*steps_of(begins, "ab"), *chatter]
    assert ends(rows, pair="ab") == ends(rows, pair="ba") == pytest.approx(expected(begins), abs=1e-3)


def layered(
    count: int,
    spread: float,
    *,
    other: int = 0,
    other_from: int = 0,
    between: float = 0.7,
    nics: str = "abcd",
    first: int = 60,
) -> list[Row]:
    """Return steps of a sharded model: eight layers as far apart as the steps are, give or take so much, the first of
    which has another size. Some of the steps send half of a layer more.

    Parameters
    ----------
    other, other_from : how many of the steps send more, and the first of these
    between : logarithm of how many times as long the silences between steps are
    """
    draw = np.random.default_rng(1)
    rows: list[Row] = []
    begin = 0.0
    for step in range(count):
        for layer in range(8):
            size = (first if layer == 0 else 20) + (10 if layer == 3 and other_from <= step < other_from + other else 0)
            rows += ring(nics, [begin], length=20, parts=1, size=size * MB)
            begin += 20 + 100 * math.exp(draw.normal(0, spread) + (between if layer == 7 else 0))
    return rows


@pytest.mark.parametrize(("other", "other_from", "clear"), [(2, 20, True), (6, 20, False), (6, 0, True)])
def test_steps_that_explain_all_bytes_are_found_though_silences_alone_do_not_tell_them(
    other: int, other_from: int, *, clear: bool
) -> None:
    """All bytes between the first and the last of them: before and after these steps may be unlike them."""
    rows = layered(40, 0.45, other=other, other_from=other_from)
    assert ends(rows) == []
    assert bool(ends(rows, told=False)) == clear


@pytest.mark.parametrize(
    ("turn", "steps"),
    [(None, 40), (0.9, 0), (0.99, 40), (1.01, 40), (1.1, 0)],
    ids=["none", "shorter", "a bit", "a bit longer", "longer"],
)
def test_silences_need_not_tell_what_the_bytes_do_unless_links_turn_at_other_times(
    turn: float | None, steps: int
) -> None:
    """What has no links has no micro-batches."""
    rows = layered(40, 0.2, between=0.0)
    assert len(ends(rows, by_bytes=True, turn=None if turn is None else turn * 976)) == steps


def micro_batches(count: int) -> list[Row]:
    """Return micro-batches of a pipeline of four stages: single activations and gradients are 60 ms apart, give or take
    some, and micro-batches twice as far."""
    draw = np.random.default_rng(1)
    links, rows, begin = [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)], [], 0.0
    for _ in range(count):
        for place, (sender, receiver) in enumerate(links):
            rows.append((begin, begin + 20, "abcd"[sender], "abcd"[receiver], 20 * MB))
            begin += 20 + 60 * math.exp(draw.normal(0, 0.4) + (0.7 if place == len(links) - 1 else 0))
    return rows


@pytest.mark.parametrize(
    ("line", "turn", "found"),
    [(False, None, True), (True, None, False), (True, 1.1, False), (True, 1.0, True)],
    ids=["no line", "no turn", "other turns", "turns"],
)
def test_what_comes_again_on_a_line_of_links_is_a_micro_batch_unless_they_turn_once_in_it(
    turn: float | None, *, line: bool, found: bool
) -> None:
    rows = micro_batches(40)
    period = (rows[-6][0] - rows[0][0]) / 39
    assert bool(ends(rows, by_bytes=True, line=line, turn=None if turn is None else turn * period)) is found


@pytest.mark.parametrize(("count", "steps"), [(7, 0), (8, 8)])
@pytest.mark.parametrize("nics", ["abcd", "ab"], ids=["ring", "two hosts that share parameters"])
def test_bytes_alone_tell_many_steps_that_leave_nothing_between_them(nics: str, count: int, steps: int) -> None:
    assert len(ends(layered(count, 0.2, between=0.0, nics=nics), by_bytes=True)) == steps


@pytest.mark.parametrize(("line", "turn"), [(True, None), (False, 1.1)], ids=["line", "turns elsewhere"])
def test_bytes_alone_tell_no_steps_of_a_pipeline(turn: float | None, *, line: bool) -> None:
    rows = layered(12, 0.2, between=0.0, nics="ab")
    period = (rows[-16][0] - rows[0][0]) / 11
    assert ends(rows, by_bytes=True, line=line, turn=None if turn is None else turn * period) == []


def test_bytes_tell_no_steps_if_most_of_what_is_sent_is_in_none() -> None:
    """Thirteen of the steps, one here and one there, send half as much again."""
    rows = layered(40, 0.45, between=0.5)
    begins = sorted({row[0] for row in rows})[36::16][:13]
    more = [row for begin in begins for row in ring("abcd", [begin + 22], length=5, parts=1, size=100 * MB)]
    assert len(ends(rows, by_bytes=True)) == 40
    assert ends(rows, more, by_bytes=True) == []


def gathered(count: int, layers: int = 8) -> list[Row]:
    """Return steps of sharded parameters, the backward pass of which is silent for three times as long as the forward
    pass."""
    draw = np.random.default_rng(1)
    rows: list[Row] = []
    begin = 0.0
    for _ in range(count):
        for silent, units in [(20, 1)] * layers + [(60, 2)] * layers:
            rows += ring("abcd", [begin], length=5 * units, parts=1, size=20 * units * MB)
            begin += 5 * units + silent * math.exp(draw.normal(0, 0.2))
    return rows


@pytest.mark.parametrize("sent", [4, 8, 11])
def test_the_last_step_ends_where_it_does_however_little_is_seen_of_the_one_after_it(sent: int) -> None:
    """So many of 16 bursts are."""
    begins = sorted({row[0] for row in gathered(13)})[: 12 * 16 + sent]
    found = ends([row for row in gathered(13) if row[0] <= begins[-1]], told=False)
    assert found == pytest.approx(ends(gathered(13), told=False)[:12], abs=100)


@pytest.mark.parametrize(("turn", "steps"), [(None, 30), (800.0, 0)])
def test_silences_tell_no_passes_where_links_turn(turn: float | None, steps: int) -> None:
    """It is a pipeline then, though its activations may be next to nothing beside gradients."""
    assert len(ends(gathered(30), told=False, turn=turn)) == steps


@pytest.mark.parametrize(
    ("turn", "alone", "told"),
    [(0.9, True, False), (0.99, True, True), (1.01, True, True), (1.1, True, False), (1.01, False, False)],
)
def test_steps_that_explain_all_bytes_are_told_if_all_pairs_turn_once_in_each(
    turn: float, alone: bool, *, told: bool
) -> None:
    """All that is sent comes back at once, and some silences inside steps are as long as those between them."""
    forth = layered(40, 0.45)
    rows = forth + [(begin, end, to, sender, size) for begin, end, sender, to, size in forth]
    period = float(np.median(np.diff(ends(rows, told=False))))
    assert len(ends(rows, told=told, turn=turn * period, alone=alone)) == 40
    assert ends(rows, told=not told, turn=turn * period, alone=alone) == []


@pytest.mark.parametrize(("turn", "steps"), [(1100, 40), (1450, 40), (1550, 8)], ids=["a step", "about", "longer"])
def test_a_shorter_silence_is_one_if_links_turn_no_more_than_once_in_a_step(turn: float, steps: int) -> None:
    assert len(ends(saved(800), turn=turn) or ends(saved(800), told=False, turn=turn)) == steps


def test_what_is_silent_once_after_each_checkpoint_are_no_micro_batches() -> None:
    assert len(ends(saved(800, at_once=True), told=False, turn=1100)) == 40


def saved(pause: float, parts: int = 1, *, at_once: bool = False) -> list[Row]:
    """Return 40 steps of two NICs, whose silences are of any length, with a checkpoint after every fifth of them. A
    step takes 1.1 s; its first burst is as large as three others, or is so many of them.

    Parameters
    ----------
    at_once : whether two bursts of a step follow each other at once, but for those after a checkpoint
    """
    draw = np.random.default_rng(1)
    rows: list[Row] = []
    begin = 0.0
    for step in range(40):
        for layer in range(8):
            size, count = (60 * MB, parts) if layer == 0 else (20 * MB, 1)
            begins = [begin + 20 / count * part for part in range(count)]
            rows += ring("ab", begins, length=20 / count, parts=1, size=size // count)
            silence = 100 * math.exp(draw.normal(0, 0.45) + (0.7 if layer == 7 else 0))
            begin += 20 + (0 if at_once and layer == 3 and step % 5 else silence)
        begin += pause if step % 5 == 4 else 0
    return rows


@pytest.mark.parametrize(
    ("pause", "parts", "steps"),
    [(800, 1, 8), (1400, 1, 40), (4000, 1, 40), (9000, 1, 8), (1400, 3, 8)],
    ids=["shorter than a step", "longer", "much longer", "idle for most of it", "links of a pipeline"],
)
def test_a_silence_longer_than_a_step_after_every_few_of_them_is_a_pause(pause: float, parts: int, steps: int) -> None:
    """Messages of one size that come back may be of a pipeline, whose other stages work in the silence."""
    assert len(ends(saved(pause, parts)) or ends(saved(pause, parts), told=False)) == steps


@pytest.mark.parametrize(
    ("silent", "steps"),
    [(0.15, 128), (0.25, 16), (0.6, 128)],
    ids=["shorter than a forward pass", "a forward pass", "most of the time"],
)
def test_clear_buckets_of_a_ring_alone_are_a_step_if_it_is_silent_for_a_forward_pass(silent: float, steps: int) -> None:
    """Eight buckets of three parts each, 180 ms a bucket."""
    forward = 8 * 180 * silent / (1 - silent)
    draw = np.random.default_rng(1)
    rows, begin = [], 0.0
    for bucket in range(16 * 8):
        rows += steps_of([begin], buckets=3)
        begin += 180 * math.exp(draw.normal(0, 0.02)) + (forward if bucket % 8 == 7 else 0)
    assert len(ends(rows)) == steps


def faster_now_and_then(sizes: Sequence[int], among: tuple[float, float], pause: float, lost: int = 0) -> list[Row]:
    """Return 48 steps of twenty buckets of some sizes, in MB, which follow each other faster in two steps of six, and
    which are a little further apart after each six.

    Parameters
    ----------
    among : silences between buckets in faster steps, and in others, in ms
    pause : between two steps, in ms
    lost : after how many steps a record is lost; 0 for none
    """
    draw = np.random.default_rng(1)
    rows: list[Row] = []
    begin = 0.0
    for step in range(48):
        for bucket in range(20):
            begin += 20 + among[step % 6 >= 2] * math.exp(draw.normal(0, 0.02))
            sent = ring("abcd", [begin], length=20, parts=1, size=sizes[bucket % len(sizes)] * MB)
            rows += sent[lost > 0 and step % lost == 3 and bucket == 5 :]
        begin += pause * (1.15 if step % 6 == 5 else 1) * math.exp(draw.normal(0, 0.02))
    return rows


@pytest.mark.parametrize("pause", [300, 450])
def test_several_steps_that_are_clear_are_none_though_silences_show_passes_in_them(pause: float) -> None:
    """Equal buckets may be steps themselves, so nothing is told."""
    assert ends(faster_now_and_then([60], (50, 75), pause, lost=7), told=False) == []


@pytest.mark.parametrize("pause", [200, 300])
def test_steps_that_are_told_are_not_several_to_a_step_though_silences_come_again(pause: float) -> None:
    assert len(ends(faster_now_and_then([60, 40, 20], (40, 120), pause))) == 48


def test_what_goes_ahead_in_buckets_hides_not_that_they_are_parts_of_a_step() -> None:
    """Six buckets of a step, of each of which a little is sent 8 to 15 ms ahead."""
    draw = np.random.default_rng(1)
    rows, begin = [], 0.0
    for bucket in range(16 * 6):
        ahead = ring("abcd", [begin], length=1, parts=1, size=2 * MB)
        rows += ahead + ring("abcd", [begin + draw.uniform(8, 15)], length=20, parts=1, size=60 * MB)
        begin += 180 * math.exp(draw.normal(0, 0.02)) + (720 if bucket % 6 == 5 else 0)
    assert len(ends(rows)) == 16


@pytest.mark.parametrize("pause", [15, 400])
def test_silences_tell_steps_that_are_longer_between_them_or_come_again(pause: float) -> None:
    assert ends(steps_of([1800.0 * number for number in range(30)], pause=pause))


def test_silences_inside_that_are_as_long_as_those_between_tell_nothing() -> None:
    draw, begin, rows = np.random.default_rng(1), 0.0, []
    for _ in range(30):
        pause, between = draw.uniform(100, 500, 2)
        rows += steps_of([begin], pause=float(pause))
        begin += 100 + 3 * float(pause) + float(between)
    assert not ends(rows)


def test_bursts_without_a_silence_inside_may_be_parts_of_steps() -> None:
    """So may buckets that are all alike, and what several of them are is for others to say."""
    assert ends(ring("abcd", uneven(40), length=1, parts=1, size=80 * MB)) == []
    alike = [begin + 35 * bucket for begin in uneven(40) for bucket in range(4)]
    assert ends(ring("abcd", alike, length=20, parts=1, size=20 * MB)) == []


def test_other_bytes_each_time_are_no_steps() -> None:
    draw = np.random.default_rng(3)
    rows: list[Row] = []
    for begin in uneven(40):
        rows += ring("abcd", [begin, begin + 30], size=int(draw.integers(1, 90)) * MB)
    assert ends(rows) == []


@pytest.mark.parametrize(("share", "told"), [(0.9, True), (1.1, False)])
def test_most_bytes_must_be_in_the_steps(share: float, *, told: bool) -> None:
    """Most bytes: as many, a little fewer or more, go over another pair at once."""
    begins = [1000.0 * number for number in range(30)]
    others = messages("a", "c", [500.0], round(share * 30 * 4 * 72 * MB))
    assert bool(ends(steps_of(begins), others)) == told


def shown(*parts: list[Row], by_bytes: bool = False) -> dict[str, list[float]]:
    """Return the ends of steps, in ms, by the pairs that take part in them."""
    table = nic_pairs.in_order(flows(*parts))
    pairs = stream_rhythms(table, DEFAULT).filter(pl.col("size_class") == WHOLE_PAIR).with_columns(group=pl.lit("g"))
    found = steps_together(table, pairs, DEFAULT, by_bytes=by_bytes)
    named = found.streams.join(pairs, on="pair").select("pair", pl.concat_str("src_addr", "dst_addr").alias("name"))
    every: dict[str, list[float]] = {}
    for pair, name in named.rows():
        own = table.filter(pair=pair)
        starts, lasts = own["flow_start_ns"].to_numpy(), own["flow_end_ns"].to_numpy()
        number = found.numbers(np.array([pair]), starts, lasts, np.array([0, starts.size]))
        steps = range(int(number.max(initial=-1)) + 1)
        every[name] = [(int(lasts[number == step].max()) - WINDOW.start_ns) / MS for step in steps]
    return every


def routed(begins: list[float], layers: int = 4) -> list[Row]:
    """Return steps in each layer of which each of three NICs divides 30 MB by chance between the two others, and then
    all reduce gradients."""
    rng = np.random.default_rng(4)
    rows: list[Row] = []
    for begin in begins:
        for layer in range(layers):
            for own in range(3):
                part = float(rng.uniform(0.2, 0.8))
                for other, share in ((1, part), (2, 1 - part)):
                    moment = begin + 100 * layer + float(rng.uniform(0, 30))
                    rows.append((moment, moment + 20, "abc"[own], "abc"[(own + other) % 3], int(30 * MB * share)))
        rows += ring("abc", [begin + 100 * layers], length=20, parts=1, size=40 * MB)
    return rows


def test_experts_are_divided_by_chance_and_a_sender_moves_the_same_in_each_step() -> None:
    begins = [begin + 300.0 * step for step, begin in enumerate(uneven(30))]
    found = shown(routed(begins), by_bytes=True)
    assert len(found) == 6
    assert found["ab"] == pytest.approx([begin + 420 for begin in begins], abs=1e-3)


def test_a_copy_that_never_pauses_fills_no_silence() -> None:
    begins = uneven(40)
    copy: list[Row] = [(20 * part, 20 * part + 18, "a", "c", MB) for part in range(1500)]
    assert shown(steps_of(begins), copy)["ab"] == pytest.approx(expected(begins), abs=1e-3)
    assert "ac" not in shown(steps_of(begins), copy)


def test_a_ring_that_has_become_slow_is_no_copy() -> None:
    """Through a slow link its buckets take 13 seconds, with hardly a pause; then it is as quick as before."""
    quick, slow, after = (
        every(1000, count=30),
        every(14_000, count=4, start=30_000),
        every(1000, count=20, start=86_000),
    )
    busy: list[Row] = []
    for begin in slow:
        busy += ring("abcd", [begin + 20 + 130 * part for part in range(100)], length=128, parts=1, size=720_000)
    table = [*steps_of(quick), *busy, *steps_of(after)]
    told = [*expected(quick), *(begin + 20 + 130 * 99 + 128 for begin in slow), *expected(after)]
    assert ends(table) == pytest.approx(told, abs=1e-3)


@pytest.mark.parametrize(("until", "steps"), [(20_000, 20), (19_060, 19)])
def test_who_sends_in_the_silence_ends_a_step_before_it(until: float, steps: int) -> None:
    """Gradients go round all NICs, and each of them sends parameters to another all the time. E is none of those that
    are looked at. The last step is whole, or the data end in it."""
    begins = [1000.0 * number for number in range(20)]
    gathers = [
        (at, at + 30, src, dst, MB)
        for at in range(0, 20_000, 40)
        for one, other in zip(ascii_lowercase[:13], ascii_lowercase[13:], strict=True)
        for src, dst in ((one, other), (other, one))
    ]
    gradients = steps_of(begins, nics=ascii_lowercase)
    shown = ends(*([row for row in rows if row[1] <= until] for rows in (gradients, gathers)), pair="er")
    assert shown == pytest.approx(expected(begins)[:steps], abs=40)


def test_micro_batches_are_told_from_steps_by_the_turn_of_the_pipeline() -> None:
    """Its stages are never silent together for longer than between two micro-batches, but when the optimizer works."""
    begins = [2000.0 * step for step in range(14)]
    rng = np.random.default_rng(3)
    rows: list[Row] = []
    for begin in begins:
        order = [0] * 3 + [1, 0] * 5 + [1] * 3
        moments = begin + np.cumsum(rng.uniform(80, 110, len(order)))
        for way, moment in zip(order, moments, strict=True):
            for one, other in (("a", "b"), ("b", "c")):
                src, dst = (one, other) if way == 0 else (other, one)
                rows.append((float(moment), float(moment) + 10, src, dst, 8 * MB))
    found = shown(rows, by_bytes=True)
    assert {len(steps) for steps in found.values()} == {14}
