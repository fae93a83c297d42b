"""Endpoints work on the first micro-batch of a step from its input to its output."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from step_rows import ALL, DP, EP, NOBODY, PP, ROWS, STEPS, Row, row, transfers

from llmprism_tasks.stages.diagnosis.own_work.kernels.first_forward_ends import NO_TIME, entries


class Entry(NamedTuple):
    """What is known of the first micro-batch of a step."""

    input_ns: int
    begins_ns: int
    output_ns: int
    last: bool
    outputs: int
    together: int
    unanswered: int
    first_input: int


def plain_entries(rows: list[Row], at_once: float) -> dict[int, Entry]:
    """Return the entry of each step that has an output."""
    real: dict[int, list[Row]] = defaultdict(list)
    shortest: dict[int, float] = {}
    sent = Counter(one.step for one in rows if one.kind == PP and one.sends)
    for one in rows:
        apart = (STEPS.ends[one.step] - STEPS.starts[one.step]) / max(sent[one.step], 1)
        shortest[one.step] = float(np.ceil(at_once * apart))
        least = STEPS.starts[one.step] + shortest[one.step]
        if one.kind != EP and not (one.kind == PP and one.sends and one.start < least):
            real[one.step].append(one)
    inputs = {step: next((r for r in mine if r.kind == PP and not r.sends), None) for step, mine in real.items()}
    firsts = {step: next((r for r in mine if r.kind == PP and r.sends), None) for step, mine in real.items()}
    found = {}
    for step, mine in real.items():
        others = [each for each in real if STEPS.endpoints[each] == STEPS.endpoints[step]]
        waits = [
            (came := inputs[each]) is not None and (left := firsts[each]) is not None and left.start >= came.end
            for each in others
        ]
        entered = inputs[step] if 2 * sum(waits) >= len(waits) else None
        since = None if entered is None else entered.end + shortest[step]
        outputs = [r for r in mine if r.kind == PP and r.sends and (since is None or r.start >= since)]
        if outputs:
            came_in = [r for r in mine if r.kind == PP and not r.sends]
            before = [r.end for r in mine if r.kind == DP and r.end <= outputs[0].start]
            found[step] = Entry(
                NO_TIME if entered is None else entered.end,
                entered.end if entered is not None else max(before, default=int(STEPS.starts[step])),
                outputs[0].start,
                entered is not None and entered.peer == outputs[0].peer,
                len(outputs),
                sum(r.start < outputs[0].end for r in outputs),
                sum(r.start < outputs[0].start for r in came_in),
                sum(r.start < came_in[0].end for r in came_in),
            )
    return found


@given(ROWS, st.sampled_from([0.0, 0.3, 0.7]), st.lists(st.booleans(), min_size=2, max_size=2))
def test_the_first_micro_batch_is_worked_on_from_its_input_to_its_output(
    rows: list[Row], at_once: float, wanted: list[bool]
) -> None:
    some = np.array([*wanted, *ALL[2:]])
    found = entries(transfers(rows), STEPS, some, piped=PP, synchronising=DP, at_once=at_once)
    expected = plain_entries(rows, at_once)
    for step in range(STEPS.starts.size):
        if wanted[STEPS.endpoints[step]] and step in expected:
            assert Entry(*(column[step] for column in found)) == expected[step]
        else:
            assert found.outputs[step] == 0


def test_nothing_in_nothing_out() -> None:
    none = np.array([], dtype=np.bool_)
    entered = entries(transfers([]), NOBODY, none, piped=PP, synchronising=DP, at_once=0.1)
    assert [part.size for part in entered] == [0] * 8


def test_what_is_sent_at_once_after_the_first_input_is_no_pass_over_it() -> None:
    """In an interleaved pipeline a micro-batch of the step before may leave when the first of this one comes."""
    rows = [row(0, 2, 1, 9, PP, False, 5)] + [row(0, at, 1, 9, PP, True, 6) for at in (4, 9, 14, 18)]
    assert [
        int(entries(transfers(rows), STEPS, ALL, piped=PP, synchronising=DP, at_once=ratio).output_ns[0])
        for ratio in (0.2, 0.21)
    ] == [4, 9]
