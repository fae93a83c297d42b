"""Replay: a graph of operations, played through with the durations they had, or with others.

What-if analysis (Lin and others, "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025;
github.com/ByteDance-Seed/StragglerAnalysis): an operation starts when all that it depends on has ended. The price of
stragglers is the time of the replay with measured durations over that with idealised ones.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64S, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers


def finish(durations: Floats, earliest: Floats, offsets: Integers, predecessors: Integers) -> Floats:
    """Compute when each operation ends.

    Parameters
    ----------
    durations : shape (n,), any unit; operations in topological order
    earliest : shape (n,), before which none starts; -inf where nothing but predecessors counts
    offsets : shape (n + 1,): operation i waits for `predecessors[offsets[i]:offsets[i + 1]]`
    predecessors : positions of operations, each before the one that waits for it

    Returns
    -------
    shape (n,). An operation that waits for nothing starts at its `earliest`, or at 0.
    """
    return _finish(durations, earliest, offsets, predecessors)


@kernel(FLOAT64S, FLOAT64S, INT64S, INT64S)
def _finish(durations: Floats, earliest: Floats, offsets: Integers, predecessors: Integers) -> Floats:
    ends = np.empty(len(durations))
    for i in range(len(durations)):
        start = earliest[i]
        for k in range(offsets[i], offsets[i + 1]):
            start = max(start, ends[predecessors[k]])
        if start == -np.inf:
            start = 0.0
        ends[i] = start + durations[i]
    return ends


def transfers(starts: Floats, ends: Floats, groups: Integers) -> Floats:
    """Return how long each end of a transfer took once all of its ends were there: its end less the latest start.

    Parameters
    ----------
    starts, ends : shape (n,), of each participant's operation
    groups : shape (n,), >= 0: which transfer (a message, a collective) the operation is a part of
    """
    latest = np.full(int(groups.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(latest, groups, starts)
    return np.asarray(np.maximum(ends - latest[groups], 0.0))


def idealised(durations: Floats, kinds: Integers, transferring: np.ndarray) -> Floats:
    """Give all operations of a kind the same duration: the mean of what is computed, the median of what is transferred.

    All ranks then share the work that is there evenly, and no transfer meets trouble. So does the what-if analysis
    (analyzer/analysis_util.py, `simulation_analysis_reduce_dim_v4`).

    Parameters
    ----------
    durations : shape (n,); for transfers as `transfers` returns
    kinds : shape (n,), >= 0
    transferring : bool, shape (n,), the same for all operations of a kind
    """
    ideal = np.empty(len(durations))
    for kind in range(int(kinds.max(initial=-1)) + 1):
        of_kind = kinds == kind
        if of_kind.any():
            typical = np.median if transferring[of_kind][0] else np.mean
            ideal[of_kind] = typical(durations[of_kind])
    return ideal


def slowdown(measured: Floats, ideal: Floats) -> float:
    """Return the mean step's time over that of the ideal replay: 1 is no loss, 2 is half of the time lost.

    Parameters
    ----------
    measured, ideal : shape (steps,): lengths of the replayed steps, with measured and with idealised durations
    """
    return float(np.mean(measured) / np.mean(ideal))
