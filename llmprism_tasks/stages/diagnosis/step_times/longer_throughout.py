"""Longer throughout: whether a long step took longer in all its parts, or stood still at one place.

A step that holds longer samples computes for longer everywhere: each share of its bytes leaves later by the same ratio
of the time before it, or of the silence before it where transfers do not overlap with computing. A step that stood
still is later by the same time from that place on. Of a step that sends all at once, both may be said.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.robust import MAJORITY, Flags

Integers = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]

PARTS = 50
"""Shares of a step's bytes whose times are compared. It is a resolution: a pause shows in all parts after it."""


def longer_throughout(
    begins: Integers, until: Integers, sizes: Times, starts: Integers, ends: Integers, quick: Flags
) -> Flags:
    """Return which steps are longer than quick ones by the same ratio in all their parts.

    That must explain a step's course with less than half of the deviation that a standstill at any place leaves.

    Parameters
    ----------
    begins, until, sizes : when the records of a job began, ascending; the latest end of any so far; their bytes
    starts, ends : of its steps, in order, ns
    quick : which steps show what is usual
    """
    if not begins.size or not quick.any():
        return np.zeros(starts.size, np.bool_)
    took, silent = _courses(begins, until, sizes, starts, ends)
    usual = np.median(took[quick], axis=0)
    later = took - usual
    excess = later[:, -1:]
    throughout = np.full(starts.size, np.inf)
    for grows in (usual, np.median(silent[quick], axis=0)):
        left = np.abs(later - excess * grows / max(grows[-1], 1.0)).mean(axis=1)
        throughout = np.minimum(throughout, left)
    from_place_on = np.triu(np.ones((PARTS, PARTS)))  # each row: on time before a place, and late from it on
    still = np.abs(later[:, np.newaxis] - excess[:, np.newaxis] * from_place_on).mean(axis=2).min(axis=1)
    return np.asarray((excess[:, 0] > 0) & (throughout < MAJORITY * still))


def _courses(begins: Integers, until: Integers, sizes: Times, starts: Integers, ends: Integers) -> tuple[Times, Times]:
    """Return how long each step took to begin each share of its bytes, and how much of that it was silent; ns.

    Shape (steps, `PARTS`); the last column is the whole step.
    """
    sent = np.concatenate([[0.0], np.cumsum(sizes, dtype=np.float64)])
    first, after = np.searchsorted(begins, starts), np.searchsorted(begins, ends, side="right")
    shares = np.arange(1, PARTS) / PARTS
    wanted = sent[first][:, np.newaxis] + shares * (sent[after] - sent[first])[:, np.newaxis]
    at = np.clip(np.searchsorted(sent, wanted.ravel()) - 1, 0, begins.size - 1).reshape(wanted.shape)
    reached = np.where((after > first)[:, np.newaxis], begins[at], ends[:, np.newaxis])
    points = np.column_stack([starts, reached, ends])
    gaps = np.maximum(begins - np.concatenate([begins[:1], until[:-1]]), 0)
    before = np.maximum(np.searchsorted(begins, points.ravel(), side="right") - 1, 0)
    silent = np.cumsum(gaps)[before] + np.maximum(points.ravel() - until[before], 0)
    both = (points.astype(np.float64), silent.reshape(points.shape).astype(np.float64))
    took, quiet = (values[:, 1:] - values[:, :1] for values in both)
    return took, quiet
