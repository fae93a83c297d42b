"""When the first micro-batch of each step reaches an endpoint, and when the endpoint passes it on.

The first of an endpoint's transfers, and their number, are found pair by pair, in the order in which the transfers are
stored. So no endpoint's transfers need sorting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.asof import AFTER_ALL, advance
from llmprism_tasks.numerics.jit import INT64S, kernel, named_tuple
from llmprism_tasks.numerics.robust import Flags, Integers
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import STEPS, TRANSFERS, Steps, Transfers

NO_TIME = np.iinfo(np.int64).min
"""A time that is not known; it is before all others."""


class Ways(NamedTuple):
    """Pairs, each seen from one of its ends; arrays of shape (ways,).

    Attributes
    ----------
    begins, untils : way i has the transfers `begins[i]` to `untils[i]`
    owners, others : that end, and the other one
    """

    begins: Integers
    untils: Integers
    owners: Integers
    others: Integers


WAYS = named_tuple(Ways, INT64S, INT64S, INT64S, INT64S)


class First(NamedTuple):
    """The first of some transfers of each step; arrays of shape (steps,).

    Of those that start together the one that ends first is first, of these the one with the lower number of the other
    end.

    Attributes
    ----------
    starts, ends : ns; `AFTER_ALL` without one
    others : the other end; -1 without one
    """

    starts: Integers
    ends: Integers
    others: Integers


FIRST = named_tuple(First, INT64S, INT64S, INT64S)


class Entries(NamedTuple):
    """The first micro-batch of each step; arrays of shape (steps,).

    Attributes
    ----------
    input_ns : end of the first input; `NO_TIME` for an endpoint that waits for none
    begins_ns : when the work on it begins
    output_ns : start of the first output; `NO_TIME` without one
    last : whether the first output goes to where the first input came from
    outputs, together : how many outputs there are, and how many of them start before the first has ended
    unanswered, first_input : bytes of the inputs that start before the first output, and before the first has ended
    """

    input_ns: Integers
    begins_ns: Integers
    output_ns: Integers
    last: Flags
    outputs: Integers
    together: Integers
    unanswered: Integers
    first_input: Integers


def entries(
    transfers: Transfers, steps: Steps, wanted: Flags, *, piped: int, synchronising: int, at_once: float
) -> Entries:
    """Find when the first micro-batch of each step is received and sent on.

    An endpoint that mostly sends before it receives waits for no input.

    Parameters
    ----------
    wanted : shape (endpoints,): those to look at; the steps of others have no output
    piped, synchronising : the kinds of a pipeline's messages and of gradients; others are not looked at
    at_once : ratio of the time for which a step's outputs are apart on average, within which no pass is finished: what
        is sent down the pipeline so soon after a step's beginning belongs to the step before, and so soon after the
        first input it belongs to an input of the step before
    """
    sending, receiving = (transfers.senders, transfers.receivers), (transfers.receivers, transfers.senders)
    inputs, outputs = _ways(transfers, wanted, piped, receiving), _ways(transfers, wanted, piped, sending)
    exchanges = _ways(transfers, wanted, synchronising, sending, receiving)
    every, _, _ = _count_transfers(transfers, steps, outputs, steps.starts, steps.starts)
    apart = (steps.ends - steps.starts) / np.maximum(every, 1)
    shortest_ns = np.ceil(at_once * apart).astype(np.int64)
    passes_ns = steps.starts + shortest_ns
    came = _first_transfers(transfers, steps, inputs, steps.starts)
    left = _first_transfers(transfers, steps, outputs, passes_ns)
    synchronised_ns = _last_ends(transfers, steps, exchanges, np.full(steps.starts.size, AFTER_ALL))
    input_ns = _awaited_inputs(steps, came, left, synchronised_ns)
    since = np.maximum(passes_ns, input_ns + shortest_ns)
    first = _first_transfers(transfers, steps, outputs, since)
    output_ns = np.where(first.others >= 0, first.starts, NO_TIME)
    exchanged_ns = _last_ends(transfers, steps, exchanges, output_ns)
    waits = input_ns != NO_TIME
    begins_ns = np.where(waits, input_ns, np.where(exchanged_ns != NO_TIME, exchanged_ns, steps.starts))
    count, together, _ = _count_transfers(transfers, steps, outputs, since, first.ends)
    _, _, unanswered = _count_transfers(transfers, steps, inputs, steps.starts, output_ns)
    _, _, first_input = _count_transfers(transfers, steps, inputs, steps.starts, came.ends)
    last = waits & (came.others == first.others)
    return Entries(input_ns, begins_ns, output_ns, last, count, together, unanswered, first_input)


def _ways(transfers: Transfers, wanted: Flags, kind: int, *ends: tuple[Integers, Integers]) -> Ways:
    """Return the pairs of a kind as one of their ends sees them, or each of both; of some endpoints.

    Parameters
    ----------
    ends : the owners of all pairs, and the other ends
    """
    pair = np.flatnonzero(transfers.kinds == kind)
    owners, others = (np.concatenate([one[pair] for one in side]) for side in zip(*ends, strict=True))
    pair = np.tile(pair, len(ends))
    columns, some = (transfers.offsets[pair], transfers.offsets[pair + 1], owners, others), wanted[owners]
    return Ways(*(column[some] for column in columns))


@kernel(STEPS, FIRST, FIRST, INT64S)
def _awaited_inputs(steps: Steps, came: First, left: First, exchanged_ns: Integers) -> Integers:
    """Return the ends of the first inputs, given the first outputs; `NO_TIME` where the endpoint waits for none."""
    size, endpoints = steps.starts.size, steps.endpoints
    input_ns, sends_first = np.full(size, NO_TIME, np.int64), np.zeros(steps.bounds.size, np.int64)
    for step in range(size):
        both = came.others[step] >= 0 and left.others[step] >= 0
        if both or came.others[step] >= 0 or left.others[step] >= 0 or exchanged_ns[step] != NO_TIME:
            # Without one of them nobody can tell who waits for whom.
            sends_first[endpoints[step]] += -1 if both and left.starts[step] >= came.ends[step] else 1
    for step in range(size):
        if came.others[step] >= 0 and sends_first[endpoints[step]] <= 0:
            input_ns[step] = came.ends[step]
    return input_ns


@kernel(TRANSFERS, STEPS, WAYS, INT64S)
def _first_transfers(transfers: Transfers, steps: Steps, ways: Ways, since: Integers) -> First:
    """Find the first transfer of each step that starts at a time or later."""
    starts, ends, size = transfers.starts, transfers.ends, steps.starts.size
    first, over, others = (
        np.full(size, AFTER_ALL, np.int64),
        np.full(size, AFTER_ALL, np.int64),
        np.full(size, -1, np.int64),
    )
    for way in range(ways.owners.size):
        i, until, other = ways.begins[way], ways.untils[way], ways.others[way]
        for step in range(steps.bounds[ways.owners[way]], steps.bounds[ways.owners[way] + 1]):
            i = advance(starts, i, until, steps.starts[step])
            while i < until and starts[i] <= steps.ends[step]:
                if starts[i] >= since[step]:
                    earlier = (starts[i], ends[i], other) < (first[step], over[step], others[step])
                    if earlier:
                        first[step], over[step], others[step] = starts[i], ends[i], other
                i += 1
    return First(first, over, others)


@kernel(TRANSFERS, STEPS, WAYS, INT64S)
def _last_ends(transfers: Transfers, steps: Steps, ways: Ways, by: Integers) -> Integers:
    """Return the end of each step's last transfer that ends by a given time; `NO_TIME` without one."""
    starts, ends = transfers.starts, transfers.ends
    last = np.full(steps.starts.size, NO_TIME, np.int64)
    for way in range(ways.owners.size):
        i, until = ways.begins[way], ways.untils[way]
        for step in range(steps.bounds[ways.owners[way]], steps.bounds[ways.owners[way] + 1]):
            i = advance(starts, i, until, steps.starts[step])
            while i < until and starts[i] <= steps.ends[step]:
                if ends[i] <= by[step]:
                    last[step] = max(last[step], ends[i])
                i += 1
    return last


@kernel(TRANSFERS, STEPS, WAYS, INT64S, INT64S)
def _count_transfers(
    transfers: Transfers, steps: Steps, ways: Ways, since: Integers, over: Integers
) -> tuple[Integers, Integers, Integers]:
    """Count the transfers of each step as `_first_transfers` does, and those of them that start before another time,
    with their bytes."""
    starts = transfers.starts
    size = steps.starts.size
    count, together, sent = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    for way in range(ways.owners.size):
        i, until = ways.begins[way], ways.untils[way]
        for step in range(steps.bounds[ways.owners[way]], steps.bounds[ways.owners[way] + 1]):
            i = advance(starts, i, until, steps.starts[step])
            while i < until and starts[i] <= steps.ends[step]:
                if starts[i] >= since[step]:
                    count[step] += 1
                    if starts[i] < over[step]:
                        together[step] += 1
                        sent[step] += transfers.sizes[i]
                i += 1
    return count, together, sent
