"""How far the first and the last transfer of a stream's step lie from the nearest transfer that comes back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.asof import lower_bound, nearest
from llmprism_tasks.numerics.jit import INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Integers


class Ends(NamedTuple):
    """How far the replies to the first and the last transfer of each segment are; arrays of shape (segments, 2).

    Attributes
    ----------
    missed : ns from its start to the nearest start that comes back in its step; -1 where none does
    around : the same, where what is counted to the step before or after comes back as well
    mutual : whether the nearest to the one in its step is the transfer itself
    """

    missed: Integers
    around: Integers
    mutual: npt.NDArray[np.bool_]


def reply_distances(
    starts: Integers, steps: Integers, offsets: Integers, streams: Integers, answering: Integers
) -> Ends:
    """Compare the ends of each stream's steps with the stream that answers it.

    Parameters
    ----------
    starts : ns, shape (transfers,), ascending in each segment
    steps : shape (segments,): a segment is what a stream sends in one step, its steps ascending
    offsets : shape (segments + 1,): segment i holds the transfers `offsets[i]` to `offsets[i + 1]`
    streams : shape (streams + 1,): stream i holds the segments `streams[i]` to `streams[i + 1]`
    answering : shape (streams,): the stream that comes back, -1 where none does. It may have another answer itself.
    """
    missed, around, mutual = _reply_distances(starts, steps, offsets, streams, answering)
    return Ends(missed.T, around.T, mutual.T)


@subroutine
def _find_segment(step: int, steps: Integers, streams: Integers, stream: int) -> int:
    """Find a stream's segment of a step; -1 if it sends nothing in it, or if there is no stream."""
    if stream < 0:
        return -1
    low, high = streams[stream], streams[stream + 1]
    at = lower_bound(steps, low, high, step)
    return int(at) if at < high and steps[at] == step else -1


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S)
def _reply_distances(
    starts: Integers, steps: Integers, offsets: Integers, streams: Integers, answering: Integers
) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
    missed = np.full((2, steps.size), -1, np.int64)
    around = np.full((2, steps.size), -1, np.int64)
    mutual = np.zeros((2, steps.size), np.bool_)
    for stream in range(streams.size - 1):
        back = answering[stream]
        for own in range(streams[stream], streams[stream + 1]):
            theirs = _find_segment(steps[own], steps, streams, back)
            if theirs < 0:
                continue
            returned = _find_segment(steps[own], steps, streams, answering[back])
            for end in range(2):
                place = offsets[own + 1] - 1 if end else offsets[own]
                reply = starts[nearest(starts, offsets[theirs], offsets[theirs + 1], starts[place])]
                missed[end, own] = around[end, own] = abs(starts[place] - reply)
                for beside in range(max(theirs - 1, streams[back]), min(theirs + 2, streams[back + 1])):
                    other = starts[nearest(starts, offsets[beside], offsets[beside + 1], starts[place])]
                    around[end, own] = min(around[end, own], abs(starts[place] - other))
                if returned >= 0:
                    partner = starts[nearest(starts, offsets[returned], offsets[returned + 1], reply)]
                    mutual[end, own] = partner == starts[place]
    return missed, around, mutual
