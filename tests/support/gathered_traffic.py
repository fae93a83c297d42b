"""Traffic of two senders whose parameters are gathered layer by layer."""

from __future__ import annotations

import numpy as np
from handmade import MB, MS

from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic

UNIT = 10 * MB
"""Parameters of a layer on a sender."""

SEND = 10.0
"""Milliseconds that they take on the wire."""

Bursts = list[tuple[float, float]]
"""The silence before each burst, ms, and how many layers' parameters it moves."""


def gathered_traffic(bursts: Bursts, jitter: float = 0.05, seed: int = 7) -> Traffic:
    """Return the traffic of two senders, whose silences vary by `jitter` (sigma of the logarithm)."""
    draw, starts, ends, sizes, at = np.random.default_rng(seed), [], [], [], 0.0
    for silence, units in bursts:
        at += silence * draw.lognormal(0, jitter)
        for sender in range(2):
            starts.append(at + sender * 0.1)
            ends.append(at + units * SEND)
            sizes.append(units * UNIT)
        at += units * SEND
    begins, lasts = (np.round(np.array(times) * MS).astype(np.int64) for times in (starts, ends))
    stream = np.tile([0, 1], begins.size // 2)
    return Traffic(stream, stream, begins, np.maximum.accumulate(lasts), lasts, np.array(sizes))
