"""Wait chains: follow each waiting NIC to the NIC that caused the wait.

A NIC waits for its neighbour in the pipeline or for the last member of its gradient group, and that NIC may wait for
another. The chain goes on while the next NIC waited for a good part of the time too. It ends at a NIC that hardly
waited: that NIC was working, so it caused the wait.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.robust import MAJORITY, Integers
from llmprism_tasks.stages.timeline.kernels.longest_wait import followed

LEAST_WAIT = 0.01
"""Ratio of its step that a NIC must have waited for another: below, jitter makes chains that mean nothing."""

LONGEST_CHAIN = 64
"""Links that are walked at most: more than pipelines have stages."""


def root_causes(part: Integers, target: Integers, wait_ns: Integers, step_ns: Integers) -> Integers:
    """Say for whom each NIC waited longest in a step, when all chains are walked: shape (parts,), a part or `NO_NIC`.

    Parameters
    ----------
    part, target : shape (waits,), a NIC's step, and that of who was waited for, which is another
    wait_ns : shape (waits,)
    step_ns : shape (parts,), the length of each step
    """
    worth_ns = LEAST_WAIT * step_ns.astype(np.float64)
    return followed(part, target, wait_ns, worth_ns, share=MAJORITY, longest=LONGEST_CHAIN)
