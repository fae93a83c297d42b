"""What a NIC both gets and sends: the measure for what else it gets or sends."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.robust import Floats, Integers

IDLE_SHARE_OF_NIC = 0.002
"""Share of what either of its NICs moves both ways up to which a pair moves next to nothing: chatter and
acknowledgements move at most 0.0004 of that, the smallest activations 0.013."""


def both_ways(source: Integers, target: Integers, moved: Integers | Floats) -> Floats:
    """Return for each pair what its ends move both ways, that of the end that moves more.

    In training a NIC sends about what it gets, as in rings, or as much as it gets back, as in pipelines. A copy goes
    one way: beside one of a terabyte, a job would seem to be chatter. So a NIC moves both ways what its largest pair
    gets or its largest pair sends, whichever is less; one that only sends, or only gets, all of that.

    Parameters
    ----------
    source, target : numbers of each pair's NICs, from 0
    moved : what each pair moves, above 0
    """
    largest = np.zeros((2, max(source.max(initial=-1), target.max(initial=-1)) + 1))
    np.maximum.at(largest[0], source, moved)
    np.maximum.at(largest[1], target, moved)
    less, more = largest.min(axis=0), largest.max(axis=0)
    nics = np.where(less > 0, less, more)
    of_pairs: Floats = np.maximum(nics[source], nics[target])
    return of_pairs
