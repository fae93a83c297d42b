"""Endpoints work in the silences between their bursts."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from step_rows import ALL, DP, EP, NOBODY, PP, ROWS, STEPS, Row, row, transfers

from llmprism_tasks.stages.diagnosis.own_work.kernels.step_gaps import exchanges
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import Steps, Transfers


def kinds(burst: list[Row]) -> frozenset[int]:
    return frozenset(each.kind for each in burst)


def plain_exchanges(rows: list[Row], early: float, *, sent_only: bool) -> list[list[int]]:
    """Return step, computing, waiting, length and bytes of each exchange, up to what is sent where only that counts."""
    found: list[list[int]] = []
    for _, mine in groupby(rows, key=lambda one: STEPS.endpoints[one.step]):
        bursts: list[list[Row]] = []
        for one in mine:
            if bursts and one.start <= max(each.end for burst in bursts for each in burst):
                bursts[-1].append(one)
            else:
                bursts.append([one])
        shown = [([each for each in burst if each.sends or not sent_only], burst) for burst in bursts]
        counted = [(own, burst) for own, burst in shown if own]
        sizes: dict[frozenset[int], list[int]] = defaultdict(list)
        for own, _ in counted:
            sizes[kinds(own)].append(sum(each.size for each in own))
        came = 0
        for before, (own, burst) in zip([None, *counted], counted, strict=False):
            begins = int(STEPS.starts[burst[0].step])
            computed = 0
            if before is not None:
                over = max(each.end for each in before[1])
                ahead = sum(each.size for each in before[0]) < early * np.mean(sizes[kinds(before[0])])
                if ahead and before[1][0].step == burst[0].step:
                    found[-1][2:] = [own[0].start - came, *lasted(own, burst)]
                    continue
                begins = max(begins, over)
            came = max(each.end for each in burst)
            if all(each.kind != PP for each in [*own, *(before[0] if before else [])]):
                computed = max(own[0].start - begins, 0)
            found.append([burst[0].step, computed, 0, *lasted(own, burst)])
    return found


def lasted(own: list[Row], burst: list[Row]) -> tuple[int, int]:
    """Return how long a burst lasts from what is its owner's on, and the bytes of that."""
    return max(each.end for each in burst) - own[0].start, sum(each.size for each in own)


@given(ROWS, st.sampled_from([0.0, 0.1, 0.9]), st.booleans())
def test_exchanges_are_bursts_with_what_went_ahead_and_nobody_computes_beside_what_is_piped(
    rows: list[Row], early: float, sent_only: bool
) -> None:
    found = exchanges(transfers(rows), STEPS, ALL, early=early, piped=PP, sent_only=sent_only)
    assert np.transpose(found).tolist() == plain_exchanges(rows, early, sent_only=sent_only)


def test_which_kind_of_a_burst_comes_first_says_nothing_of_whether_it_went_ahead() -> None:
    def counted(*overlapping: int) -> int:
        small = [row(0, at, 3, 2, kind, True, 5) for at, kind in enumerate(overlapping, 1)]
        rows = [row(0, 6, 1, 30, EP, True, 5), row(0, 9, 1, 90, DP, True, 5), row(0, 15, 1, 90, DP, True, 5)]
        return int(np.sum(exchanges(transfers(small + rows), STEPS, ALL, early=0.1, piped=PP).computed > 0))

    assert counted(DP, EP) == counted(EP, DP)
    assert counted(DP) == counted(DP, EP) - 1  # a little of one kind is ahead; of both it is all there is


def test_who_waits_between_what_it_sends_does_not_compute_meanwhile() -> None:
    """It sends at 2 and again at 6, and receives all the while; then it receives at 9 what it answers at 12."""
    rows = [row(0, 2, 1, 9, DP, True, 5), row(0, 2, 6, 9, DP, False, 5), row(0, 6, 2, 9, DP, True, 5)]
    rows += [row(0, 9, 1, 9, DP, False, 5), row(0, 12, 1, 9, DP, True, 5)]
    sent = exchanges(transfers(rows), STEPS, ALL, early=0.0, piped=PP, sent_only=True)
    seen = exchanges(transfers(rows), STEPS, ALL, early=0.0, piped=PP)
    assert sent.computed.tolist() == [2, 4]
    assert seen.computed.tolist() == [2, 1, 2]


def test_what_begins_between_steps_ends_no_silence() -> None:
    """The steps are 10 to 20 and 25 to 30."""
    steps = Steps(np.array([10, 25]), np.array([20, 30]), np.array([0, 0]), np.array([0, 2, 2]))
    starts = np.array([9, 10, 20, 21, 30, 31])
    ends = np.array([0]), np.array([1])
    laid = Transfers(starts, starts, np.ones(6, np.int64), np.array([0, 6]), *ends, np.zeros(1, np.int8))
    found = exchanges(laid, steps, np.array([True, False]), early=0.1, piped=-1)
    gaps = found.computed > 0
    assert found.step[gaps].tolist() == [0, 1]
    assert found.computed[gaps].tolist() == [10, 5]


def test_nothing_in_nothing_out() -> None:
    found = exchanges(transfers([]), NOBODY, np.array([], dtype=np.bool_), early=0.1, piped=PP)
    assert [part.size for part in found] == [0, 0, 0, 0, 0]
