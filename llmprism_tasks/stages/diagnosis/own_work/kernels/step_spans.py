"""In which step of an endpoint each transfer begins, and how many bytes each step carries.

A transfer belongs to the endpoint's first step that ends no earlier than the transfer starts, if that step has begun by
then. Steps and the transfers of a pair are both in order of time, so both are walked through together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.asof import advance
from llmprism_tasks.numerics.jit import BOOLEANS, INT8S, INT64S, kernel, named_tuple
from llmprism_tasks.numerics.robust import Flags, Integers

Small = npt.NDArray[np.int8]


class Transfers(NamedTuple):
    """Transfers between endpoints, pair by pair, each pair in order of the starts.

    Attributes
    ----------
    starts, ends, sizes : ns and bytes, shape (transfers,)
    offsets : shape (pairs + 1,): pair i has the transfers `offsets[i]` to `offsets[i + 1]`
    senders, receivers : numbers of endpoints, shape (pairs,)
    kinds : numbers from 0, shape (pairs,)
    """

    starts: Integers
    ends: Integers
    sizes: Integers
    offsets: Integers
    senders: Integers
    receivers: Integers
    kinds: Small


TRANSFERS = named_tuple(Transfers, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT8S)


class Steps(NamedTuple):
    """The steps of endpoints, endpoint by endpoint in order of their ends.

    Attributes
    ----------
    starts, ends : ns, shape (steps,)
    endpoints : whose they are, shape (steps,)
    bounds : shape (endpoints + 1,): endpoint i has the steps `bounds[i]` to `bounds[i + 1]`
    """

    starts: Integers
    ends: Integers
    endpoints: Integers
    bounds: Integers


STEPS = named_tuple(Steps, INT64S, INT64S, INT64S, INT64S)


@kernel(TRANSFERS, STEPS, BOOLEANS, INT64S)
def carried(transfers: Transfers, steps: Steps, chosen: Flags, owners: Integers) -> Integers:
    """Return the bytes that begin in each step, shape (steps,).

    Parameters
    ----------
    chosen : shape (pairs,): those that count
    owners : shape (pairs,): at which end, the `senders` or the `receivers`
    """
    starts, total = transfers.starts, np.zeros(steps.starts.size, np.int64)
    for pair in range(owners.size):
        if not chosen[pair]:
            continue
        i, until = transfers.offsets[pair], transfers.offsets[pair + 1]
        for step in range(steps.bounds[owners[pair]], steps.bounds[owners[pair] + 1]):
            i = advance(starts, i, until, steps.starts[step])
            while i < until and starts[i] <= steps.ends[step]:
                total[step] += transfers.sizes[i]
                i += 1
    return total
