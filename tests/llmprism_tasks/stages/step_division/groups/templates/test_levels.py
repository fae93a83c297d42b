"""A template whose silences alone tell no steps is one of steps if it explains all, and no part of it does better."""

from __future__ import annotations

import numpy as np
import pytest

from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic
from llmprism_tasks.stages.step_division.groups.templates import selection
from llmprism_tasks.stages.step_division.groups.templates.fit import Fitting
from llmprism_tasks.stages.step_division.groups.templates.levels import (
    CLEAR_SIGMAS,
    CLOCKED_CLEAR_SIGMAS,
    EXPLAINED_BYTES,
    NEARLY_ALL,
    SAME_TEMPLATE,
    Steps,
    has_more,
    has_same_pairs,
    is_between_longer,
    is_scatter_and_gather,
    is_several,
    leaves_out,
    times_of,
)

A_BIT = 1e-6


def steps(*, explained: float, clarity: float, of_parts: float = -np.inf) -> Steps:
    """Return steps of one stream."""
    times = np.array([10, 20, 30])
    like, share = np.ones((3, 1), np.bool_), np.ones(3)
    return Steps(np.ones(1), times, times, like, share, clarity, explained, clarity_of_parts=of_parts)


@pytest.mark.parametrize(("explained", "clear"), [(EXPLAINED_BYTES, True), (EXPLAINED_BYTES - A_BIT, False)])
def test_a_clear_template_explains_all(explained: float, clear: bool) -> None:
    assert steps(explained=explained, clarity=1.0).is_clear() == clear


@pytest.mark.parametrize(
    ("clarity", "clear"), [(CLOCKED_CLEAR_SIGMAS, True), (CLOCKED_CLEAR_SIGMAS - A_BIT, False), (np.nan, False)]
)
def test_silences_between_its_segments_are_longer(clarity: float, clear: bool) -> None:
    assert steps(explained=1.0, clarity=clarity).is_clear() == clear


@pytest.mark.parametrize(("of_parts", "clear"), [(1.4, True), (1.4 + A_BIT, False)])
def test_two_steps_yield_to_one(of_parts: float, clear: bool) -> None:
    assert steps(explained=1.0, clarity=1.4, of_parts=of_parts).is_clear() == clear


@pytest.mark.parametrize(
    ("parts", "explained", "times"),
    [
        (4.0, 1.0 / (1 + SAME_TEMPLATE), [4]),
        (4.0, 1.0 / (1 + SAME_TEMPLATE) - A_BIT, []),
        (4 * (1 + SAME_TEMPLATE / 2), 1.0, [4]),
        (4.4, 1.0, []),
        (1.0, 1.0, []),
        (0.3, 1.0, []),
    ],
)
def test_a_template_is_a_whole_number_of_those_that_explain_as_much(
    parts: float, explained: float, times: list[int]
) -> None:
    larger = steps(explained=1.0, clarity=1.0)._replace(template=np.array([parts]))
    assert times_of(larger, [larger, steps(explained=explained, clarity=0.0)]) == times


UNIT, STEP_COUNT, LAYERS = 1000, 6, 4


@pytest.mark.parametrize(("clarity", "times"), [(0.0, [3]), (np.nan, [])], ids=["silences inside", "a single burst"])
def test_a_single_burst_may_be_a_layer_and_does_not_count(clarity: float, times: list[int]) -> None:
    part = steps(explained=1.0, clarity=clarity)
    assert times_of(part._replace(template=3 * part.template), [part]) == times


def bursts(pairs: list[int], sizes: list[int]) -> Traffic:
    """Return bursts of one sender to several others, one each 10 ns, of 5 ns."""
    starts = 10 * np.arange(len(sizes))
    return Traffic(np.zeros(len(sizes), np.int64), np.array(pairs), starts, starts + 5, starts + 5, np.array(sizes))


def cut(ends: list[int], whole: list[bool], silence: list[float] | None = None) -> Steps:
    """Return segments that end with some of these bursts, of which some are like the template."""
    at = np.array(ends)
    until = at * 10 + 7 if silence is None else at * 10 + 5 + np.array(silence).astype(np.int64)
    like = np.array(whole)[:, np.newaxis]
    return Steps(np.array([float(at[0] + 1)]), until, at * 10 + 5, like, like[:, 0] * 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("once", "more"), [(LAYERS * UNIT * (1 / EXPLAINED_BYTES - 1) + 1, True), (LAYERS * UNIT * 0.05, False), (0, False)]
)
def test_layers_leave_out_what_comes_once_in_a_step(once: float, more: bool) -> None:
    each = LAYERS + 1
    sizes = [*[UNIT] * LAYERS, int(np.ceil(once))] * STEP_COUNT
    layers = cut(list(range(each * STEP_COUNT)), [*[True] * LAYERS, False] * STEP_COUNT)
    whole = cut([each * (step + 1) - 1 for step in range(STEP_COUNT)], [True] * STEP_COUNT)
    assert has_more(whole, layers, bursts([0] * len(sizes), sizes)) is more
    assert is_several(whole, layers, bursts([0] * len(sizes), sizes)) is not more


@pytest.mark.parametrize(
    ("explained", "gradients", "out"),
    [
        (NEARLY_ALL, UNIT, True),
        (NEARLY_ALL - A_BIT, UNIT, False),
        (NEARLY_ALL, 1, False),
    ],
    ids=["most", "less", "nothing more"],
)
def test_layers_are_no_steps_though_small_segments_lie_between_those(
    explained: float, gradients: int, *, out: bool
) -> None:
    """After the gradients of a step there is a long silence, something small, and another long silence."""
    count = 2 * LAYERS
    each, sizes = count + 2, [*[UNIT] * count, gradients, 1] * STEP_COUNT
    layers = cut(list(range(each * STEP_COUNT)), [*[True] * count, False, False] * STEP_COUNT)
    ends = [each * (step + 1) - last for step in range(STEP_COUNT) for last in (2, 1)]
    step = cut(ends, [True, False] * STEP_COUNT)._replace(explained=explained)
    traffic = bursts([0] * len(sizes), sizes)
    assert not step.is_likely()
    assert leaves_out(layers, [layers, step], traffic) is out
    assert not leaves_out(step, [layers, step], traffic)
    fitting = Fitting(traffic, Silences(*np.zeros((2, 0), np.int64)), 0.1)
    clear = [layers._replace(clarity=CLEAR_SIGMAS), step]
    chosen = selection._choose_clear_template(
        clear, fitting, selection.Signs(by_bytes=False, by_passes=False, by_pauses=False)
    )
    assert (chosen is None) is out


def test_steps_of_which_some_are_lost_are_not_parts_of_several() -> None:
    count = 12
    one = cut(list(range(count)), [place % 8 != 0 for place in range(count)])
    two = cut(list(range(1, count, 2)), [True] * (count // 2))
    assert not has_more(two, one, bursts([0] * count, [UNIT] * count))


def one_and_several(parts: int, share: float) -> tuple[Steps, Steps]:
    """Return segments, and several of them together; the silences after the latter are longer by so much of what chance
    does at most, which has as many tries."""
    larger = 6
    count = parts * larger
    error = np.sqrt(0.05 / larger + 0.05 / (count - larger))
    sigmas = np.sqrt(CLEAR_SIGMAS**2 + 2 * np.log(parts))
    last = np.exp(share * sigmas * error)
    silence = [1e6 * (last if place % parts == parts - 1 else 1.0) for place in range(count)]
    one = cut(list(range(count)), [True] * count, silence)
    # The last segment has no silence after it.
    several = one._replace(
        until_ns=one.until_ns[parts - 1 :: parts],
        ends_ns=one.ends_ns[parts - 1 :: parts],
        template=parts * one.template,
    )
    one, several = (some._replace(until_ns=np.append(some.until_ns, 10**9)) for some in (one, several))
    return one._replace(ends_ns=np.append(one.ends_ns, 10**9)), several._replace(
        ends_ns=np.append(several.ends_ns, 10**9)
    )


@pytest.mark.parametrize("parts", [2, 3, 6])
@pytest.mark.parametrize(("share", "longer"), [(0.9, False), (1.1, True)])
def test_silences_where_larger_segments_end_are_longer_and_not_by_chance(
    parts: int, share: float, *, longer: bool
) -> None:
    one, several = one_and_several(parts, share)
    assert is_between_longer(several, one) is longer


@pytest.mark.parametrize(("share", "longer"), [(0.9, False), (1.1, True)])
@pytest.mark.parametrize(("parts", "two"), [(2.0, True), (2 * (1 + SAME_TEMPLATE / 2), True), (2.2, False), (3, False)])
def test_two_halves_are_one_step_if_its_silences_are_longer_and_not_by_chance(
    share: float, parts: float, *, longer: bool, two: bool
) -> None:
    half, whole = one_and_several(2, share)
    whole = whole._replace(template=parts * half.template, clarity=half.clarity + 1)
    assert is_scatter_and_gather(whole, half) is (longer and two)


@pytest.mark.parametrize(("others", "likely"), [(3, True), (4, False)])
def test_most_segments_are_like_a_likely_template_also_before_the_first_that_is(others: int, *, likely: bool) -> None:
    """Few segments of several steps each follow chatter of as many segments."""
    whole = [False] * others + [True] * 7
    assert cut(list(range(len(whole))), whole).is_likely() is likely


@pytest.mark.parametrize(
    ("whole", "likely"),
    [
        ([False, True, True, True, False], True),
        ([True, False, True, True], True),
        ([True, True, True, False, False, True], False),
        ([False, True, True, False], False),
    ],
    ids=["cut off at both ends", "one between", "two between", "too few"],
)
def test_a_step_that_the_data_cut_off_is_no_reason_against_a_template(whole: list[bool], *, likely: bool) -> None:
    assert cut(list(range(len(whole))), whole).is_likely() is likely


CUT_OFF = [False, True, True, True, True, False]


@pytest.mark.parametrize(
    ("whole", "clarity", "found"),
    [
        (CUT_OFF, CLOCKED_CLEAR_SIGMAS, True),
        (CUT_OFF, CLOCKED_CLEAR_SIGMAS - A_BIT, False),
        ([True, True, False, True, True, True], CLOCKED_CLEAR_SIGMAS, False),
    ],
    ids=["steps", "by chance", "leaves one"],
)
def test_where_the_clock_tells_layers_that_explain_little_it_is_asked_again(
    whole: list[bool], clarity: float, monkeypatch: pytest.MonkeyPatch, *, found: bool
) -> None:
    """What comes again after more bytes has to leave nothing between the first and the last, and to be clear."""
    traffic = bursts([0] * 12, [UNIT] * 12)
    step = cut(list(range(1, 12, 2)), whole)._replace(clarity=clarity)
    tried = [cut(list(range(12)), [True, False] * 6), step]
    monkeypatch.setattr(selection.byte_clock, "step_bytes", lambda *_: iter([0.0, 1.0]))
    monkeypatch.setattr(Fitting, "template_of", lambda _, again: int(again))
    monkeypatch.setattr(Fitting, "fit", lambda _, place, **__: tried[place])
    chosen = selection._steps_by_byte_clock(Fitting(traffic, Silences(*np.zeros((2, 0), np.int64)), 0.1))
    assert (chosen is step) is found


@pytest.mark.parametrize(("half", "paused"), [(115, False), (300, True)], ids=["buckets", "steps"])
def test_a_forward_pass_that_takes_longer_than_half_of_the_buckets_is_no_pause(
    half: int, monkeypatch: pytest.MonkeyPatch, *, paused: bool
) -> None:
    """After every six bursts comes a silence that is longer than three take, with what is silent in the middle."""
    gaps = np.array([115, 115, half, 115, 115, 700] * STEP_COUNT)
    starts = np.cumsum(40 + gaps) - gaps
    traffic = bursts([0] * gaps.size, [UNIT] * gaps.size)._replace(starts=starts, ends=starts + 40, latest=starts + 40)
    until = starts + 40 + gaps // 2
    each = np.ones((gaps.size, 1), np.bool_)
    steps, several = (
        Steps(np.array([UNIT * n]), until[n - 1 :: n], starts[n - 1 :: n] + 40, each[::n], each[::n, 0], 1.0, 1.0)
        for n in (3, 6)
    )
    monkeypatch.setattr(selection, "_steps_by_byte_clock", lambda _: steps)
    fitting = Fitting(traffic, Silences(np.arange(1, gaps.size), np.log(gaps[:-1])), 0.1)
    found = selection._steps_between_pauses(several, [], fitting, np.nan)
    assert (found is not None) is paused


def test_passes_that_move_equal_bytes_to_others_are_no_steps() -> None:
    count = 12
    sizes = [UNIT] * count
    passes, both = cut(list(range(count)), [True] * count), cut(list(range(1, count, 2)), [True] * (count // 2))
    traffic = bursts([0, 1] * (count // 2), sizes)
    assert not has_same_pairs(passes, traffic)
    assert has_same_pairs(both, traffic)
    assert not has_same_pairs(both._replace(like=np.zeros((count // 2, 1), np.bool_)), traffic)
