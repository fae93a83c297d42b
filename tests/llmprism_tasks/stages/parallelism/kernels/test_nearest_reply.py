"""The ends of a stream's step are compared with what comes back in the same step, and in those beside it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.kernels import nearest_reply

Step = dict[int, list[int]]
"""The starts of a stream, by step."""


def ends(*streams: Step, answering: list[int]) -> list[list[tuple[int, bool]]]:
    """Return for each stream's step what its first and last transfer miss, and whether that is mutual."""
    found = _of(*streams, answering=answering)
    return [list(zip(*rows, strict=True)) for rows in zip(found.missed.tolist(), found.mutual.tolist(), strict=True)]


def _of(*streams: Step, answering: list[int]) -> nearest_reply.Ends:
    segments = [(step, sorted(starts)) for stream in streams for step, starts in sorted(stream.items())]
    return nearest_reply.reply_distances(
        np.array([start for _, starts in segments for start in starts], dtype=np.int64),
        np.array([step for step, _ in segments], dtype=np.int64),
        np.cumsum([0, *(len(starts) for _, starts in segments)]).astype(np.int64),
        np.cumsum([0, *map(len, streams)]).astype(np.int64),
        np.array(answering, dtype=np.int64),
    )


def around(*streams: Step, answering: list[int]) -> list[list[int]]:
    """Return likewise what each misses of what comes back in its step or those beside it."""
    return _of(*streams, answering=answering).around.tolist()


def test_nothing_comes_back() -> None:
    assert ends({0: [5, 9]}, answering=[-1]) == [[(-1, False), (-1, False)]]
    assert ends({0: [5]}, {1: [5]}, answering=[1, 0]) == [[(-1, False)] * 2] * 2


def test_both_directions_of_a_collective_go_at_once() -> None:
    assert ends({0: [10, 20]}, {0: [11, 20]}, answering=[1, 0]) == [[(1, True), (0, True)]] * 2


def test_an_activation_that_goes_alone_has_a_nearer_one_after_it() -> None:
    """Two go before the first comes back, which is nearest to the second."""
    there, back = ends({0: [0, 10, 20]}, {0: [14, 24]}, answering=[1, 0])
    assert there == [(14, False), (4, True)]
    assert back == [(4, True), (4, True)]


def test_of_two_equally_near_the_later_one_answers() -> None:
    assert ends({0: [10]}, {0: [8, 12]}, answering=[1, 0])[1] == [(2, False), (2, True)]
    assert ends({0: [10]}, {0: [8, 12]}, answering=[1, 0])[0] == [(2, True)] * 2


def test_what_comes_back_may_be_answered_by_another_stream() -> None:
    """Nearest to what comes back is then a transfer of that other stream, perhaps at the very same time."""
    assert ends({0: [10]}, {0: [12]}, {0: [13]}, answering=[1, 2, 1])[0] == [(2, False)] * 2
    assert ends({0: [10]}, {0: [12]}, {0: [10]}, answering=[1, 2, 1])[0] == [(2, True)] * 2
    assert ends({0: [10]}, {0: [12]}, answering=[1, -1])[0] == [(2, False)] * 2


def test_what_is_counted_to_the_step_beside_comes_back_as_well() -> None:
    there, back = {0: [0, 10], 1: [100]}, {0: [0], 1: [9, 100], 3: [101]}
    assert ends(there, back, answering=[1, 0])[0] == [(0, True), (10, False)]
    assert around(there, back, answering=[1, 0]) == [[0, 1], [0, 0], [0, 0], [1, 0], [-1, -1]]


STEPS = st.dictionaries(st.integers(0, 3), st.lists(st.integers(0, 20), min_size=1, max_size=5), max_size=4)


@given(STEPS, STEPS)
def test_it_is_the_nearest_of_all(there: Step, back: Step) -> None:
    def nearest(starts: list[int], moment: int) -> int:
        return min(starts, key=lambda start: (abs(start - moment), -start))

    expected = []
    for step, starts in sorted(there.items()):
        for moment in (min(starts), max(starts)):
            missed = abs(nearest(back[step], moment) - moment) if step in back else -1
            mutual = step in back and nearest(starts, nearest(back[step], moment)) == moment
            expected.append((missed, mutual))
    found = ends(there, back, answering=[1, 0])[: len(there)]
    assert [end for pair in found for end in pair] == expected
    assert all(
        0 <= beside <= missed or missed == beside == -1
        for (missed, _), beside in zip(
            expected, np.ravel(around(there, back, answering=[1, 0]))[: 2 * len(there)], strict=True
        )
    )
