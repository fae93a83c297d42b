"""The cuts that divide a group's traffic into segments that all move the bytes of one template, by dynamic programming.

Every step moves the same bytes on every stream, however long it takes, and between two steps all of them are silent.
So of all ways to cut at silences the best one makes most segments like the template, and cuts where the silence is long
(a semi-Markov segmentation with free durations; bounded as PELT is: no segment is as long as two).
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64, FLOAT64S, array, kernel
from llmprism_tasks.numerics.robust import Floats, Integers

SILENCE_WORTH = 0.15
"""What a cut is worth for each e-fold of its silence, in segments that are like the template: a silence a hundred times
as long is not worth a segment, but decides between two cuts that both make one."""

UNLIKE_COST = 0.5
"""What a segment costs that is unlike the template, in segments that are: two cuts in the wrong place are not worth
it. The last segment costs nothing, for the data end in it."""

LONGEST_SEGMENT = 1.6
"""Times the template's bytes that a segment may carry: less than two of them, so that none is passed over."""


@kernel(array(FLOAT64, 2), FLOAT64S, FLOAT64, FLOAT64)
def best_cuts(moved: Floats, silences: Floats, tolerance: float, most: float) -> Integers:
    """Return the places of the best cuts, the first and the last place among them.

    Parameters
    ----------
    moved : shape (places, streams), what each stream moved before a place, over its bytes in the template; ascending
    silences : shape (places,), logarithm of the silence there
    tolerance : ratio by which a stream's bytes may differ from the template's
    most : ratio of the streams that must be alike in a segment that is like the template; others count by how near
        they are
    """
    places, streams = moved.shape
    best, back = np.full(places, -np.inf), np.full(places, -1, np.int64)
    progress = np.zeros(places)
    for j in range(places):
        for s in range(streams):
            progress[j] += moved[j, s] / streams
    best[0] = 0.0
    for j in range(1, places):
        i = j - 1
        while i >= 0 and (i == j - 1 or progress[j] - progress[i] <= LONGEST_SEGMENT):
            unlike = 0.0
            for s in range(streams):
                unlike += min(abs(moved[j, s] - moved[i, s] - 1.0) / tolerance, 1.0)
            unlike /= streams
            cost = 0.0 if j == places - 1 else UNLIKE_COST
            value = best[i] + (1.0 - unlike if unlike <= most else -cost)
            if value > best[j]:
                best[j], back[j] = value, i
            i -= 1
        best[j] += SILENCE_WORTH * silences[j]
    count, place = 0, places - 1
    while place >= 0:
        count, place = count + 1, back[place]
    cuts, place = np.empty(count, np.int64), places - 1
    for k in range(count - 1, -1, -1):
        cuts[k], place = place, back[place]
    return cuts
