"""Replay: run through a dependency graph of operations with measured or with other durations.

What-if analysis (Lin and others, "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025;
github.com/ByteDance-Seed/StragglerAnalysis): an operation starts when everything it depends on has ended. The cost of
stragglers is the time of the replay with measured durations over that of the replay with ideal durations.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64S, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers


@kernel(FLOAT64S, FLOAT64S, INT64S, INT64S)
def finish(durations: Floats, earliest: Floats, offsets: Integers, predecessors: Integers) -> Floats:
    """Compute when each operation ends.

    Parameters
    ----------
    durations : shape (n,), any unit; operations in topological order
    earliest : shape (n,), same unit: time before which the operation cannot start; -inf if only predecessors count
    offsets : shape (n + 1,): operation i waits for `predecessors[offsets[i]:offsets[i + 1]]`
    predecessors : positions of operations; each is smaller than the position of the operation that waits

    Returns
    -------
    shape (n,). An operation that waits for nothing starts at its `earliest`, or at 0.
    """
    ends = np.empty(len(durations))
    for i in range(len(durations)):
        start = earliest[i]
        for k in range(offsets[i], offsets[i + 1]):
            start = max(start, ends[predecessors[k]])
        if start == -np.inf:
            start = 0.0
        ends[i] = start + durations[i]
    return ends
