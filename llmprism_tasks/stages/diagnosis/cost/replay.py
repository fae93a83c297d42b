"""Replay: run through a dependency graph of operations with measured or with other durations.

What-if analysis (Lin and others, "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025;
github.com/ByteDance-Seed/StragglerAnalysis): an operation starts when everything it depends on has ended. The cost of
stragglers is the time of the replay with measured durations over that of the replay with ideal durations.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import compiled
from llmprism_tasks.numerics.robust import Floats, Integers


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
    return _finish(durations, earliest, offsets, predecessors)


@compiled
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
    """Return how long each end of a transfer took once all its ends had started: its end minus the latest start.

    Parameters
    ----------
    starts, ends : shape (n,), times of each participant's operation
    groups : shape (n,), >= 0: the transfer (message or collective) that the operation is part of
    """
    latest = np.full(int(groups.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(latest, groups, starts)
    return np.asarray(np.maximum(ends - latest[groups], 0.0))


def idealised(durations: Floats, kinds: Integers, transferring: np.ndarray) -> Floats:
    """Give all operations of a kind the same duration: the mean for computing, the median for transfers.

    All ranks then share the work evenly, and no transfer is disturbed. The what-if analysis does the same
    (analyzer/analysis_util.py, `simulation_analysis_reduce_dim_v4`).

    Parameters
    ----------
    durations : shape (n,); for transfers as returned by `transfers`
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
    """Return the mean step's time over that of the ideal replay: 1 is no loss, 2 means half of the time is lost.

    Parameters
    ----------
    measured, ideal : shape (steps,): lengths of the replayed steps with measured and with ideal durations
    """
    return float(np.mean(measured) / np.mean(ideal))
