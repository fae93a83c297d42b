"""When groups of series have transfers under way, second by second or in other equal parts of time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.jit import INT64, INT64S, UINT32S, kernel
from llmprism_tasks.numerics.robust import Integers


def busy_parts(
    starts: Integers, ends: Integers, offsets: Integers, groups: npt.NDArray[np.uint32], part: int
) -> tuple[Integers, Integers, Integers]:
    """Return each group's first start and last end in each part of time in which one of its transfers starts.

    Parameters
    ----------
    starts, ends : shape (transfers,), any unit, not below 0
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    groups : shape (series,), from 0
    part : length of a part, in the same unit

    Returns
    -------
    groups, first starts and last ends, in order of groups and of time
    """
    if not starts.size:
        return (np.array([], dtype=np.int64),) * 3
    origin = int(starts.min()) // part
    parts = int(starts.max()) // part - origin + 1
    first, last = _extents(starts, ends, offsets, groups, part, origin, parts, int(groups.max()) + 1)
    group, at = np.nonzero(first >= 0)
    return group, first[group, at], last[group, at]


@kernel(INT64S, INT64S, INT64S, UINT32S, INT64, INT64, INT64, INT64)
def _extents(
    starts: Integers,
    ends: Integers,
    offsets: Integers,
    groups: npt.NDArray[np.uint32],
    part: int,
    origin: int,
    parts: int,
    number: int,
) -> tuple[Integers, Integers]:
    first, last = np.full((number, parts), -1, np.int64), np.full((number, parts), -1, np.int64)
    for series in range(groups.size):
        group, at, edge = groups[series], 0, 0
        for i in range(offsets[series], offsets[series + 1]):
            if starts[i] >= edge or starts[i] < edge - part:  # a division each would take longer than all the rest
                at = starts[i] // part - origin
                edge = (at + origin + 1) * part
            if first[group, at] < 0 or starts[i] < first[group, at]:
                first[group, at] = starts[i]
            last[group, at] = max(last[group, at], ends[i])
    return first, last
