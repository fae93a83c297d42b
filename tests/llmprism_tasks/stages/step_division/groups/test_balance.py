"""What comes back later than in its step, and when a pipeline is empty."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from llmprism_tasks.numerics.robust import MAJORITY, Floats, Integers
from llmprism_tasks.stages.step_division.groups import balance

BACK: Integers = np.array([1, 0, 3, 2])
"""Two links in both directions: from the first stage on, and from the second stage on."""


def parts(steps: int, micro_batches: int, *, ahead: tuple[int, int] = (2, 1)) -> Floats:
    """Return the bytes of each pair in each part of steps, in messages: parts that fill the pipeline, parts in which
    each link moves one each way, and parts that drain it."""
    fill, links = max(ahead), []
    for under_way in ahead:
        forward = [1] * micro_batches + [0] * fill
        back = [0] * under_way + [1] * micro_batches + [0] * (fill - under_way)
        links += [forward * steps, back * steps]
    return np.array(links, np.float64)


def test_the_answer_of_a_pair_goes_the_other_way() -> None:
    pairs = pl.DataFrame({"group": 1, "src_addr": ["a", "b", "b", "c"], "dst_addr": ["b", "a", "c", "a"]})
    assert balance.answers(pairs).tolist() == [1, 0, -1, -1]


def test_answers_are_counted_in_each_group() -> None:
    """The second group has one of the first group's pairs, too, and no answer to it."""
    pairs = pl.DataFrame({"group": [1, 1, 2, 2, 2], "src_addr": list("abacd"), "dst_addr": list("babdc")})
    assert balance.answers(pairs).tolist() == [1, 0, -1, 2, 1]


def test_in_steps_everything_comes_back() -> None:
    whole = parts(5, 8).reshape(4, 5, 10).sum(axis=2)
    assert balance.unreturned(whole, BACK) == 0


@pytest.mark.parametrize(("micro_batches", "told"), [(16, True), (120, False)])
def test_of_parts_that_fill_and_drain_a_pipeline_some_does_not(micro_batches: int, told: bool) -> None:
    """Three messages of each of its two links' micro-batches, twice: at 120 this is a little less than lost records
    may make of steps."""
    found = balance.unreturned(parts(5, micro_batches), BACK)
    assert found == pytest.approx(3 / (2 * micro_batches))
    assert (found > balance.UNRETURNED) == told


def test_what_fills_a_pipeline_has_not_come_back_when_the_data_end() -> None:
    assert balance.unreturned(parts(1, 16)[:, :16], BACK) > balance.UNRETURNED


@pytest.mark.parametrize(("messages", "counts"), [(1, True), (2, False)])
def test_a_lost_message_of_several_is_not_out_of_balance(messages: int, counts: bool) -> None:
    """A link moves so many messages each way in a step; in two of twenty steps one is lost, one way or the other."""
    each = np.full((2, 20), float(messages))
    each[0, 3] -= 1
    each[1, 9] -= 1
    assert (balance.unreturned(each, BACK[:2]) > 0) == counts


@pytest.mark.parametrize(("one_by_one", "at_once", "counts"), [(True, 1, False), (True, 2, True), (False, 1, True)])
def test_one_link_of_several_that_is_out_of_balance_has_lost_a_message(
    one_by_one: bool, at_once: int, counts: bool
) -> None:
    """Four links move a message each way in a step. In every third one so many of them lack one, turn by turn. Where
    they show no steps by themselves, it may be a part of one."""
    each = np.full((8, 24), 1.0)
    for step in range(0, 24, 3):
        for link in range(at_once):
            each[2 * ((step // 3 + link) % 4) + step % 2, step] = 0.0
    back = np.array([1, 0, 3, 2, 5, 4, 7, 6])
    assert (balance.unreturned(each, back, one_by_one=one_by_one) > balance.UNRETURNED) == counts


@pytest.mark.parametrize(("share", "counts"), [(0.05, False), (0.2, True)])
def test_links_that_move_next_to_nothing_say_nothing(share: float, counts: bool) -> None:
    each = np.vstack([np.full((2, 40), 10.0), 10 * share * parts(4, 8)[:2]])
    assert (balance.unreturned(each, BACK) > 0) == counts


@pytest.mark.parametrize(("silent", "counts"), [(12, True), (13, False)])
def test_what_goes_one_way_in_all_is_not_awaited(silent: int, counts: bool) -> None:
    """In so many of 38 steps nothing comes back."""
    each = np.full((2, 38), 1.0)
    each[1, :silent] = 0.0
    assert (balance.unreturned(each, BACK[:2]) > 0) == counts


@pytest.mark.parametrize(("answer", "counts"), [(0.0, False), (3.0, True)])
def test_a_copy_is_not_awaited_unless_as_much_comes_back_later(answer: float, counts: bool) -> None:
    each = np.full((2, 20), 1.0)
    each[0, 4] += 3.0
    each[1, 9] += answer
    assert (balance.unreturned(each, BACK[:2]) > balance.UNRETURNED) == counts


@pytest.mark.parametrize(("answer", "counts"), [(0.0, False), (0.85, True)])
def test_a_slow_copy_is_not_awaited_unless_as_much_comes_back_later(answer: float, counts: bool) -> None:
    """In each of five steps it moves less than the link does."""
    each = np.full((2, 26), 1.0)
    each[0, 3:8] += 0.85
    each[1, 15:20] += answer
    assert (balance.unreturned(each, BACK[:2]) > balance.UNRETURNED) == counts


def test_bytes_that_are_as_many_as_those_of_a_copy_are_not_its_answer() -> None:
    """Sixteen bytes a step, and a copy in one of nine; as many come back in all, evenly."""
    sent = np.full(9, 16.0)
    sent[4] += 150.0
    each = np.array([sent, np.full(9, sent.mean())])
    assert balance.unreturned(each, BACK[:2]) == 0


def test_without_links_in_both_directions_nothing_is_awaited() -> None:
    each = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    assert balance.unreturned(each, np.array([-1, -1])) == 0
    assert balance.ends_of_steps(each, np.array([-1, -1])).tolist() == []


@pytest.mark.parametrize("forward", [True, False])
def test_a_step_ends_where_the_pipeline_is_empty(forward: bool) -> None:
    """Whichever way the links are numbered."""
    each = parts(4, 8) if forward else parts(4, 8)[[1, 0, 3, 2]]
    assert balance.ends_of_steps(each, BACK).tolist() == [9, 19, 29, 39]


@pytest.mark.parametrize(("seen", "ends"), [(38, [9, 19, 29]), (39, [9, 19, 29]), (40, [9, 19, 29, 39])])
def test_a_pipeline_that_is_being_drained_when_the_data_end_is_not_empty(seen: int, ends: list[int]) -> None:
    assert balance.ends_of_steps(parts(4, 8)[:, :seen], BACK).tolist() == ends


def test_gradients_after_the_last_micro_batch_are_of_the_step() -> None:
    """They go round over other pairs, and nothing is under way before or after them."""
    one = np.concatenate([parts(1, 8), np.zeros((4, 1))], axis=1)
    each = np.concatenate([np.tile(one, 4), np.tile([[0.0] * 10 + [9.0]], 4)])
    assert balance.ends_of_steps(each, np.append(BACK, -1)).tolist() == [10, 21, 32, 43]


@pytest.mark.parametrize(("gradients", "ends"), [(1.0, [10, 21, 32, 43]), (0.3, [3, 14, 25, 36])])
def test_a_pipeline_that_is_seldom_full_is_emptied_before_its_gradients(gradients: float, ends: list[int]) -> None:
    """GPipe: four micro-batches go there, four come back, then three buckets of gradients go round. Of less than a
    tenth of the link's bytes nobody knows that it is gradients."""
    there, back, ring = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0], [0] * 8 + [1, 1, 1]
    each = np.tile(np.array([there, back, ring], dtype=float), 4) * np.array([[1], [1], [gradients * 8 / 30]])
    assert balance.ends_of_steps(each, np.array([1, 0, -1])).tolist() == ends


@pytest.mark.parametrize(("share", "ends"), [(0.4, [9, 19, 29, 39]), (0.95, [4, 9, 19, 29, 39])])
def test_a_pipeline_that_is_half_empty_for_a_moment_is_not_drained(share: float, ends: list[int]) -> None:
    """So much of what is under way comes back in the middle of the first step, and as much is sent again; nearly all
    must have come back."""
    each = parts(4, 8)
    each[[1, 3], 4] += share * np.array([2, 1])
    each[[0, 2], 5] += share * np.array([2, 1])
    assert balance.ends_of_steps(each, BACK).tolist() == ends


@pytest.mark.parametrize(("share", "ends"), [(0.4, [7, 15]), (0.6, [5, 7, 13, 15])])
def test_a_pipeline_that_is_not_filled_again_goes_on_being_empty(share: float, ends: list[int]) -> None:
    """After it is empty, a share of what it was filled with is sent, and comes back."""
    net = np.array([2, 0, 0, 0, 0, -2, 2 * share, -2 * share] * 2)
    each = 1 + np.stack([np.maximum(net, 0), np.maximum(-net, 0)])
    assert balance.ends_of_steps(each, BACK[:2]).tolist() == ends


@pytest.mark.parametrize(("short", "ratio"), [(0.5, 1.0), (0.4, 8 / 8.8)])
def test_steps_are_alike_in_which_all_send_about_what_they_typically_do(short: float, ratio: float) -> None:
    """Two of ten steps of each sender are short by a half, which records that are lost may do, or by more."""
    sent = np.full((3, 10), 1.0)
    sent[:, [2, 7]] = short
    assert balance.alike_bytes_ratio(sent) == pytest.approx(ratio)


@pytest.mark.parametrize(("gradients", "steps"), [(6.0, True), (8.0, False)])
def test_where_most_bytes_are_sent_in_few_parts_these_are_no_steps(gradients: float, *, steps: bool) -> None:
    """Seven parts of a layer each, and one in which the gradients are sent."""
    sent = np.tile([1.0] * 7 + [gradients], (2, 5))
    assert (balance.alike_bytes_ratio(sent) >= MAJORITY) == steps
