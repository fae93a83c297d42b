"""Where a step ends: after which silence the bytes of a step come latest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, flows, messages, ring

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_steps import recut_at_step_ends
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic
from llmprism_tasks.stages.step_division.groups.templates import step_ends
from llmprism_tasks.stages.step_division.periodicity import WHOLE_PAIR, stream_rhythms
from llmprism_tasks.stages.traffic import nic_pairs

DEFAULT = RhythmSettings()
STEPS = [1000.0 * number for number in range(30)]


def ends(
    rows: list[Row],
    known: list[float],
    *,
    alone: bool = True,
    pausing: Sequence[str] = (),
    ending: Sequence[str] | None = None,
) -> list[float]:
    """Return when steps end, in ms, given when they did as somebody found them, and whose gradients pause, or what ends
    steps if not all does; none where nobody is asked."""
    table = nic_pairs.in_order(flows(rows))
    pairs = stream_rhythms(table, DEFAULT).filter(pl.col("size_class") == WHOLE_PAIR)
    name = pl.concat_str(nic_pairs.PAIR)
    pairs = pairs.with_columns(
        group=pl.lit("g"),
        pauses=name.is_in(pausing),
        ending=pl.lit(value=True) if ending is None else name.is_in(ending),
    )
    found_ns = [WINDOW.start_ns + round(end * MS) for end in known]
    steps = pl.DataFrame({"group": "g", "end_ns": found_ns})
    found = recut_at_step_ends(table, pairs, steps, pl.Series(["g"] if alone else [], dtype=pl.String), DEFAULT)
    if found.streams.is_empty():
        return []
    taken = table.filter(pl.col("pair").is_in(found.streams["pair"].implode()))
    begins, lasts = (taken[name].to_numpy() for name in ("flow_start_ns", "flow_end_ns"))
    offsets = nic_pairs.starts_of_pairs(taken)
    number = found.numbers(taken["pair"].to_numpy()[offsets[:-1]], begins, lasts, offsets)
    return [(int(lasts[number == step].max()) - WINDOW.start_ns) / MS for step in range(int(number.max()) + 1)]


def exchange(begins: list[float], seed: int) -> list[Row]:
    """Return tokens that all of four NICs send to each other, another number each time."""
    draw = np.random.default_rng(seed)
    return [
        (begin, begin + 10, source, target, int(draw.integers(500, 2500)) * 1000)
        for begin in begins
        for source, target in permutations("abcd", 2)
    ]


def experts() -> list[Row]:
    """Return steps that end after 860 ms, and are silent longest before the backward pass, after 210 ms."""
    rows: list[Row] = []
    for number, after in enumerate((0, 100, 200, 550, 700)):
        rows += exchange([step + after for step in STEPS], number)
    for after in (600, 750, 840):
        rows += ring("abcd", [step + after for step in STEPS], length=20, parts=1, size=30 * MB)
    return rows


def sharded() -> list[Row]:
    """Return steps that end after 920 ms: gathers go around one way, and gradients the other in the backward pass."""
    rows: list[Row] = []
    for after, size in ((0, 20), (100, 12), (200, 8), (550, 12)):
        rows += ring("abcd", [step + after for step in STEPS], length=20, parts=1, size=size * MB)
    for after, size in ((500, 8), (700, 12), (900, 20)):
        rows += ring("dcba", [step + after for step in STEPS], length=20, parts=1, size=size * MB)
    return rows


@pytest.mark.parametrize("found", [110.0, 210.0, 710.0])
def test_a_step_ends_with_its_gradients_wherever_its_finder_ended_it(found: float) -> None:
    known = [step + found for step in STEPS]
    assert ends(experts(), known)[:-1] == pytest.approx([step + 860 for step in STEPS][:-1])


def test_chatter_of_one_size_makes_no_pipeline() -> None:
    """Two NICs send each other as little now and then: `LEAST_PAIR_BYTES`."""
    chatter = [
        row for one, other in ("ae", "ea") for row in messages(one, other, [step + 300 for step in STEPS], 20_000)
    ]
    known = [step + 210 for step in STEPS]
    assert ends([*experts(), *chatter], known)[:-1] == pytest.approx([step + 860 for step in STEPS][:-1])


def test_gradients_tell_the_end_though_others_send_more() -> None:
    """Blocks of context go around one way and are never silent; gradients go the other way, twice in a step."""
    rows = ring(
        "abcd", [step + after for step in STEPS for after in range(0, 1000, 50)], length=50, parts=1, size=20 * MB
    )
    for after in (420, 820):
        rows += ring("dcba", [step + after for step in STEPS], length=40, parts=1, size=(after // 10) * MB)
    known, gradients = [step + 460 for step in STEPS], ["dc", "cb", "ba", "ad"]
    found = ends(rows, known, alone=False, ending=gradients)
    assert found[:-1] == pytest.approx([step + 860 for step in STEPS][:-1])
    assert ends(rows, known, alone=False) == []


@pytest.mark.parametrize("found", [220.0, 570.0, 720.0])
def test_gathers_of_the_next_step_begin_it_though_they_follow_soon(found: float) -> None:
    known = [step + found for step in STEPS]
    assert ends(sharded(), known)[:-1] == pytest.approx([step + 920 for step in STEPS][:-1])


@pytest.mark.parametrize(("late", "moved"), [(10.0, False), (120.0, True)])
def test_ends_that_are_about_right_stay(late: float, *, moved: bool) -> None:
    """`LATER`: somebody ends the steps in the silence after them."""
    assert bool(ends(experts(), [step + 860 + late for step in STEPS])) == moved


@pytest.mark.parametrize(("elsewhere", "moved"), [(3, False), (10, True)])
def test_some_steps_that_end_elsewhere_move_all(elsewhere: int, *, moved: bool) -> None:
    """`NEARLY_ALL`: of thirty steps some were ended sooner, as where a lost record shifts the cuts."""
    known = [step + (860 if number >= elsewhere else 210) for number, step in enumerate(STEPS)]
    assert bool(ends(experts(), known)) == moved


def test_a_pipeline_is_not_asked() -> None:
    """Its stages end a step one after another: here everybody is silent, and yet nobody says where."""
    forth = messages("a", "b", [step + after for step in STEPS for after in (0, 100, 200)], 10 * MB)
    back = messages("b", "a", [step + after for step in STEPS for after in (400, 550, 700)], 10 * MB)
    assert ends([*forth, *back], [step + 110 for step in STEPS]) == []


@pytest.mark.parametrize("alone", [True, False])
def test_who_shares_parameters_is_asked_unless_somebody_sends_activations(*, alone: bool) -> None:
    """Two send each other as much, and reduce gradients with two others once in a step."""
    rows: list[Row] = []
    for pair, offsets in (("ab", (0, 100, 500, 700)), ("cd", (0, 100, 500, 700)), ("ac", (900,)), ("bd", (900,))):
        rows += ring(pair, [step + after for step in STEPS for after in offsets], length=20, parts=1, size=20 * MB)
    found = ends(rows, [step + 130 for step in STEPS], alone=alone, pausing=["ac", "ca", "bd", "db"])
    assert found == (pytest.approx([step + 920 for step in STEPS]) if alone else [])


@pytest.mark.parametrize(("twice", "asked"), [(8, True), (12, False)])
def test_there_must_be_about_as_many_steps_as_were_found(twice: int, *, asked: bool) -> None:
    """Some of the steps were found twice, the second time in the silence after them."""
    known = [step + 210 for step in STEPS] + [step + 250 for step in STEPS[:twice]]
    assert bool(ends(experts(), sorted(known))) == asked


def test_parts_that_are_unlike_each_other_are_no_steps() -> None:
    assert ends(experts(), [step + after for step in STEPS for after in (110, 210, 560, 620, 710, 860)]) == []


def test_bytes_come_latest_after_what_is_sent_last() -> None:
    """Of two pairs one sends at 0, 20, 40, 60 and 80 of every 100, the other one, gradients, at 70 and 90."""
    of_step = [(0, 0), (20, 0), (40, 0), (60, 0), (70, 1), (80, 0), (90, 1)]
    times = np.array([step + at for step in range(0, 1000, 100) for at, _ in of_step])
    pair = np.array([one for _ in range(10) for _, one in of_step])
    at = np.arange(1, 8)
    since = times[at - 1] + 5
    records = pair, times, np.full(times.size, 100)
    one_sender, two = (step_ends.waits(records, np.array(who), at, since, 10) for who in ([0, 0], [0, 1]))
    assert int(np.argmax(one_sender)) == 6
    # After 95 the first pair sends at 100 to 180, the second at 170 and 190.
    assert np.exp(one_sender[6]) == pytest.approx(180 - 95)
    assert np.exp(two[6]) == pytest.approx(np.sqrt((140 - 95) * (180 - 95)))


@pytest.mark.parametrize(("share", "counts"), [(0.11, True), (0.09, False)])
def test_pairs_with_few_of_a_senders_bytes_end_no_step(share: float, *, counts: bool) -> None:
    """`balance.MAIN_LINK_BYTES`: what goes over the second pair once a step would be waited for longest."""
    times = np.array([step + at for step in range(0, 1000, 100) for at in (0, 50, 60)])
    records = np.tile([0, 0, 1], 10), times, np.tile([500, 500, round(1000 * share)], 10)
    wait = step_ends.waits(records, np.array([0, 0]), np.array([3]), np.array([65]), 10)
    assert np.exp(wait[0]) == pytest.approx(160 - 65 if counts else 125 - 65)


def test_where_less_than_half_of_a_step_is_left_nobody_knows_when_the_rest_of_it_comes() -> None:
    """The data end after ten steps of 100, with what is sent at 0, 10, 20 and 30 of each."""
    times = np.array([step + at for step in range(0, 1000, 100) for at in (0, 10, 20, 30)])
    at = np.array([20, 38, 39])
    records = np.zeros(times.size, np.int64), times, np.full(times.size, 100)
    waits = step_ends.waits(records, np.array([0]), at, times[at - 1] + 5, 10)
    # Two messages are left after the second moment, one after the third: no wait of 5, but the mean of the logarithms.
    assert np.exp(waits) == pytest.approx([515 - 435, 925 - 915, np.sqrt(80 * 10)])


def layers(begins: list[float]) -> list[Row]:
    """Return steps of sharded layers that end after 890 ms: 20 ms of silence in the forward pass, then 40 ms."""
    gaps = [(20, 2), *[(20, 1)] * 9, *[(40, 2)] * 8, *[(40, 1)] * 2]
    rows, after = [], 0.0
    for gap, units in gaps:
        after += gap
        rows += ring("abcd", [step + after for step in begins], length=10 * units, parts=1, size=30 * MB * units)
        after += 10 * units
    return rows


def few_layers(optimizer: float = 20, *, reductions: str = "dcba") -> list[Row]:
    """Return steps of two sharded layers, whose gathers are over after 480 ms and whose reductions begin at 640 ms.

    Parameters
    ----------
    optimizer : ms from the last reduction to the next gather
    reductions : the ring that they go around
    """
    rows: list[Row] = []
    for after in (20, 200, 350, 430):
        rows += ring("abcd", [step + after for step in STEPS], length=50, parts=1, size=20 * MB)
    for after in (640, 1020 - optimizer - 60):
        rows += ring(reductions, [step + after for step in STEPS], length=60, parts=1, size=40 * MB)
    return rows


@pytest.mark.parametrize("found", [480.0, 700.0])
def test_of_few_sharded_layers_the_step_ends_at_the_shorter_silence_between_reductions_and_gathers(
    found: float,
) -> None:
    known = [step + found for step in STEPS]
    assert ends(few_layers(), known)[:-1] == pytest.approx([step + 1000 for step in STEPS][:-1])


@pytest.mark.parametrize(("optimizer", "shorter"), [(150, True), (170, False)])
def test_where_the_optimizer_takes_longer_than_the_passes_the_other_silence_is_the_shorter_one(
    optimizer: float, *, shorter: bool
) -> None:
    """160 ms lie between the gathers and the reductions. Nobody can tell which are which by anything else."""
    kept = [step + 1020 - optimizer for step in STEPS]
    assert (ends(few_layers(optimizer), kept) == []) == shorter


@pytest.mark.parametrize(("reductions", "moved"), [("dcba", True), ("abcd", False)])
def test_gathers_and_reductions_over_the_same_pairs_are_not_told_apart(reductions: str, *, moved: bool) -> None:
    known = [step + 480 for step in STEPS]
    assert bool(ends(few_layers(reductions=reductions), known)) == moved


def changes_per_step(bursts: list[tuple[float, list[int]]], *, senders: int = 5) -> float:
    """Return how many silences after reductions are found in a step of 1000 ms, of bursts of 50 ms; 0 if none.

    Parameters
    ----------
    bursts : when each begins, ms, and the pairs that send
    senders : how many there are; pairs are theirs in turn
    """
    records = [(step + after, pair) for step in STEPS for after, pairs in bursts for pair in pairs]
    starts, pair = (np.array(one, np.int64) for one in zip(*records, strict=True))
    ends_ms = starts + 50
    traffic = Traffic(pair % senders, pair, starts, ends_ms, ends_ms, np.full(pair.size, 20 * MB))
    found = step_ends.after_reductions(traffic, traffic.silences(1), np.array(STEPS[1:]))
    return 0.0 if found is None else found.size / len(STEPS)


GATHERS, REDUCTIONS = [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]


def test_steps_send_once_over_some_pairs_and_once_over_others() -> None:
    once = [(20.0, GATHERS), (200.0, GATHERS), (640.0, REDUCTIONS), (930.0, REDUCTIONS)]
    assert changes_per_step(once) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("single", [0, 3])
def test_gathers_or_reductions_may_have_no_silence_between_them(single: int) -> None:
    """Of few layers one of the two is a single burst."""
    bursts = [(20.0, GATHERS), (200.0, GATHERS), (640.0, REDUCTIONS), (930.0, REDUCTIONS)]
    assert changes_per_step(bursts[:single] + bursts[single + 1 :]) == pytest.approx(1, abs=0.05)


def test_two_rings_of_gradients_in_one_burst_are_no_gathers_and_reductions() -> None:
    """Neither is in layers: both passes lie before them."""
    assert changes_per_step([(20.0, GATHERS), (80.0, REDUCTIONS)]) == 0
    assert changes_per_step([(20.0, GATHERS), (80.0, REDUCTIONS), (150.0, REDUCTIONS)]) == 0


@pytest.mark.parametrize(("begins", "told"), [(760.0, True), (780.0, False)])
def test_where_a_silence_takes_half_of_a_step_both_passes_may_lie_in_it(begins: float, *, told: bool) -> None:
    """The second burst is over after 270 ms."""
    bursts = [(30.0, GATHERS), (220.0, GATHERS), (begins, REDUCTIONS), (900.0, REDUCTIONS)]
    assert (changes_per_step(bursts) > 0) == told


@pytest.mark.parametrize(("senders", "told"), [(5, True), (2, False)])
def test_members_of_a_ring_have_one_receiver_each_way(senders: int, *, told: bool) -> None:
    """Who exchanges tokens sends to several, and over other pairs than gradients, too."""
    once = [(20.0, GATHERS), (200.0, GATHERS), (640.0, REDUCTIONS), (930.0, REDUCTIONS)]
    assert (changes_per_step(once, senders=senders) > 0) == told


def test_layers_that_are_gathered_between_reductions_do_not_show_where_a_step_ends() -> None:
    """Each layer is gathered, and its gradients are reduced, before the next one is gathered."""
    layered = [(at + start, pairs) for at in (0, 330, 660) for start, pairs in ((20.0, GATHERS), (250.0, REDUCTIONS))]
    assert changes_per_step(layered) == 0


def test_what_some_pairs_send_alone_goes_over_no_other_pairs() -> None:
    """The cosine between what two pairs of five send and what all of them do is 0.63."""
    alone = [(600.0, [0]), (700.0, [1])]
    assert changes_per_step([(20.0, GATHERS), (200.0, GATHERS), *alone]) == 0


@pytest.mark.parametrize(("alone", "moved"), [(True, True), (False, False)])
def test_passes_tell_where_nothing_else_is_sent(alone: bool, moved: bool) -> None:
    """Given steps that end with the forward pass."""
    begins = [890.0 * number for number in range(30)]
    rows = layers(begins)
    after = sorted({end for _, end, *_ in rows if end < 891.0})
    found = ends(rows, [step + after[9] for step in begins], alone=alone)
    assert (bool(found) and found[-2] % 890 == pytest.approx(after[-1] % 890, abs=1)) == moved
