"""The longest gap between neighbouring moments of a series, near each of some marks."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import BOOLEAN, INT64S, kernel
from llmprism_tasks.numerics.robust import Integers


def longest(
    moments: Integers, offsets: Integers, marks: Integers, mark_offsets: Integers, *, nearest: bool
) -> Integers:
    """Find the longest pause at each mark: shape (marks,), the moment that ends it, -1 where none does.

    A pause counts to the latest mark before the moment that ends it, or to the nearest; of two equal ones, or two marks
    equally near, the later.

    Parameters
    ----------
    moments : ns, of all series one after another, each series ascending
    offsets : shape (series + 1,): series i holds the moments `offsets[i]` to `offsets[i + 1]`
    marks, mark_offsets : the same of the marks
    """
    return _longest(moments, offsets, marks, mark_offsets, nearest)


@kernel(INT64S, INT64S, INT64S, INT64S, BOOLEAN)
def _longest(moments: Integers, offsets: Integers, marks: Integers, mark_offsets: Integers, nearest: bool) -> Integers:
    found = np.full(marks.size, -1, np.int64)
    length = np.zeros(marks.size, np.int64)
    for series in range(offsets.size - 1):
        mark, last = mark_offsets[series], mark_offsets[series + 1] - 1
        for i in range(offsets[series] + 1, offsets[series + 1]):
            moment, pause = moments[i], moments[i] - moments[i - 1]
            while mark < last and (
                abs(marks[mark + 1] - moment) <= abs(marks[mark] - moment) if nearest else marks[mark + 1] <= moment
            ):
                mark += 1
            if mark <= last and (nearest or marks[mark] <= moment) and pause >= length[mark]:
                found[mark], length[mark] = moment, pause
    return found
