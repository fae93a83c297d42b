"""Working: how long endpoints work in their steps while they wait for nobody, as their transfers show it.

A transfer is in the first step of an endpoint that has not ended before it starts, if that has begun by then. What the
first of some transfers says, or their sum, is found pair by pair, as they lie; only silences need an endpoint's
transfers in order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods import endpoints
from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Floats, Integers

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]
Small = npt.NDArray[np.int8]

NONE = np.iinfo(np.int64).min
"""A time that is not known; it is before all others."""

NEVER = np.iinfo(np.int64).max

INPUT, OUTPUT, EXCHANGE = range(3)
"""What the transfers of a pair are to a micro-batch at one of its ends."""


class Transfers(NamedTuple):
    """What endpoints send each other, pair by pair, of each in order of the starts.

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


class Ways(NamedTuple):
    """Pairs as one of their ends sees them; arrays of shape (ways,).

    Attributes
    ----------
    begins, untils : way i has the transfers `begins[i]` to `untils[i]`
    owners, others : that end, and the other one
    does : what the transfers are to the owner's micro-batches
    """

    begins: Integers
    untils: Integers
    owners: Integers
    others: Integers
    does: Integers

    def where(self, chosen: Flags) -> Ways:
        """Keep some."""
        begins, untils, owners, others, does = (column[chosen] for column in self)
        return Ways(begins, untils, owners, others, does)


class Entries(NamedTuple):
    """The first micro-batch of each step; arrays of shape (steps,).

    Attributes
    ----------
    input_ns : end of the first input; `NONE` for an endpoint that waits for none
    begins_ns : when the work on it begins
    output_ns : start of the first output; `NONE` without one
    last : whether the first output goes to where the first input came from
    outputs, together : how many outputs there are, and how many of them start before the first has ended
    """

    input_ns: Integers
    begins_ns: Integers
    output_ns: Integers
    last: Flags
    outputs: Integers
    together: Integers


def carried(transfers: Transfers, steps: Steps, chosen: Flags, owners: Integers) -> Integers:
    """Return the bytes that begin in each step, shape (steps,).

    Parameters
    ----------
    chosen : shape (pairs,): those that count
    owners : shape (pairs,): at which end, the `senders` or the `receivers`
    """
    return _carried(transfers.starts, transfers.sizes, transfers.offsets, chosen, owners, *steps)


def silences(
    transfers: Transfers, steps: Steps, wanted: Flags, *, early: float, piped: int
) -> tuple[Floats, Floats, Floats, Integers]:
    """Measure the silences of each step, between one burst of transfers that overlap and the next.

    What follows a burst that went ahead, in the same step, is none, nor is what is beside a burst with a pipeline's
    message.

    Parameters
    ----------
    wanted : shape (endpoints,): those to look at; the steps of others have none
    early : ratio of an endpoint's mean burst of the same kinds below which one went ahead
    piped : the kind of a pipeline's messages

    Returns
    -------
    shape (steps,): the sum of the silences, that of their squares, the longest, and how many there are
    """
    step, begins, over, sizes, kinds = _bursts_of(transfers, steps, wanted)
    endpoint = steps.endpoints[step]
    pipes = (kinds & _bit(piped)) != 0
    _, alike = np.unique(endpoint * (kinds.max(initial=0) + 1) + kinds, return_inverse=True)
    usual = np.bincount(alike, sizes) / np.bincount(alike)
    ahead = sizes < early * usual[alike]
    follows = np.zeros(step.size, np.bool_)
    follows[1:] = endpoint[1:] == endpoint[:-1]
    since = np.where(follows, np.maximum(np.roll(over, 1), steps.starts[step]), steps.starts[step])
    # What went ahead counts to the step of the rest: what a step ends with is whole, however small.
    rest = follows & (step == np.roll(step, 1))
    found = (begins > since) & ~pipes & ~(follows & np.roll(pipes, 1)) & ~(rest & np.roll(ahead, 1))
    length = (begins - since)[found].astype(np.float64)
    sums = [np.zeros(steps.starts.size), np.zeros(steps.starts.size)]
    for total, values in zip(sums, (length, length * length), strict=True):
        np.add.at(total, step[found], values)
    longest = np.zeros(steps.starts.size)
    np.maximum.at(longest, step[found], length)
    return sums[0], sums[1], longest, np.bincount(step[found], minlength=steps.starts.size)


def entries(
    transfers: Transfers, steps: Steps, wanted: Flags, *, piped: int, synchronising: int, at_once: float
) -> Entries:
    """Find where the first micro-batch of each step comes in and leaves.

    An endpoint that mostly sends before it receives waits for no input. Of transfers that start together the one that
    ends first is first, of these the one with the lower number of the other end.

    Parameters
    ----------
    wanted : shape (endpoints,): those to look at; the steps of others have no output
    piped, synchronising : the kinds of a pipeline's messages and of gradients; others are not looked at
    at_once : ratio of a step within which what is sent down the pipeline belongs to the step before
    """
    least = steps.starts + at_once * (steps.ends - steps.starts)
    ways = _ways(transfers, wanted, piped, synchronising)
    times = transfers.starts, transfers.ends
    input_ns, senders = _inputs(*times, *ways, *steps, least)
    output_ns, over, takers = _first_outputs(*times, *ways.where(ways.does == OUTPUT), *steps, least, input_ns)
    outputs, together, exchanged_ns = _counted(*times, *ways, *steps, least, input_ns, output_ns, over)
    waits = input_ns != NONE
    begins_ns = np.where(waits, input_ns, np.where(exchanged_ns != NONE, exchanged_ns, steps.starts))
    return Entries(input_ns, begins_ns, output_ns, waits & (senders == takers), outputs, together)


def _bit(kind: int) -> int:
    """Return the bit of a kind in a set of kinds; 0 for none, a negative number."""
    return 1 << kind if kind >= 0 else 0


def _bursts_of(
    transfers: Transfers, steps: Steps, wanted: Flags
) -> tuple[Integers, Integers, Integers, Integers, Integers]:
    """Return what `_bursts` does, of some endpoints."""
    present = np.diff(steps.bounds) > 0
    first = np.full(wanted.size, NEVER)
    first[present] = steps.starts[steps.bounds[:-1][present]]
    since = np.minimum(first[transfers.senders], first[transfers.receivers])
    seen, bounds = endpoints.in_order(*transfers[:2], *transfers[3:6], since=since, wanted=wanted & present)
    kinds = np.repeat(transfers.kinds, np.diff(transfers.offsets))
    return _bursts(seen, bounds, *transfers[:3], kinds, steps.starts, steps.ends, steps.bounds)


def _ways(transfers: Transfers, wanted: Flags, piped: int, synchronising: int) -> Ways:
    """Return the pairs of two kinds as their ends see them, of some endpoints."""
    kinds, ends = transfers.kinds, (transfers.senders, transfers.receivers)
    pair = np.tile(np.flatnonzero((kinds == piped) | (kinds == synchronising)), 2)
    sends = np.arange(pair.size) < pair.size // 2
    owners, others = (np.where(which, ends[0][pair], ends[1][pair]) for which in (sends, ~sends))
    does = np.where(kinds[pair] == synchronising, EXCHANGE, np.where(sends, OUTPUT, INPUT))
    return Ways(transfers.offsets[pair], transfers.offsets[pair + 1], owners, others, does).where(wanted[owners])


@compiled
def _since(times: Integers, low: int, high: int, time: int) -> int:
    """Return the place of the first of some ascending times that is not before a time."""
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _not_over(step: int, none: int, time: int, step_ends: Integers) -> int:
    """Return the first step from one on that does not end before a time, or `none`."""
    while step < none and step_ends[step] < time:
        step += 1
    return step


@compiled
def _carried(
    starts: Integers,
    sizes: Integers,
    offsets: Integers,
    chosen: Flags,
    owners: Integers,
    step_starts: Integers,
    step_ends: Integers,
    endpoints: Integers,
    bounds: Integers,
) -> Integers:
    total = np.zeros(endpoints.size, np.int64)
    for pair in range(owners.size):
        step, none = bounds[owners[pair]], bounds[owners[pair] + 1]
        if step == none or not chosen[pair]:
            continue
        for i in range(_since(starts, offsets[pair], offsets[pair + 1], step_starts[step]), offsets[pair + 1]):
            step = _not_over(step, none, starts[i], step_ends)
            if step == none:
                break
            if step_starts[step] <= starts[i]:
                total[step] += sizes[i]
    return total


@compiled
def _bursts(
    seen: Integers,
    seen_bounds: Integers,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    kinds: Small,
    step_starts: Integers,
    step_ends: Integers,
    bounds: Integers,
) -> tuple[Integers, Integers, Integers, Integers, Integers]:
    """Return of each burst the step it begins in, when it begins, when it is over, its bytes, and its kinds as a set of
    bits.

    A collective may go over pairs of two kinds at once: which of them is a microsecond ahead says nothing.

    Parameters
    ----------
    seen, seen_bounds : as `endpoints.in_order` returns
    kinds : shape (transfers,)
    """
    begun_in, begins = np.empty(seen.size, np.int64), np.empty(seen.size, np.int64)
    over, bytes_, kinds_of = np.empty(seen.size, np.int64), np.empty(seen.size, np.int64), np.empty(seen.size, np.int64)
    last = -1
    for endpoint in range(bounds.size - 1):
        step, none, alone = bounds[endpoint], bounds[endpoint + 1], True
        for place in range(seen_bounds[endpoint], seen_bounds[endpoint + 1]):
            i = seen[place] >> 1
            step = _not_over(step, none, starts[i], step_ends)
            if step == none:
                break
            if starts[i] < step_starts[step]:
                continue
            if alone or starts[i] > over[last]:
                last += 1
                alone = False
                begun_in[last], begins[last], over[last], bytes_[last], kinds_of[last] = step, starts[i], ends[i], 0, 0
            over[last] = max(over[last], ends[i])
            bytes_[last] += sizes[i]
            kinds_of[last] |= 1 << np.int64(kinds[i])
    some = last + 1
    return (
        begun_in[:some].copy(),
        begins[:some].copy(),
        over[:some].copy(),
        bytes_[:some].copy(),
        kinds_of[:some].copy(),
    )


@compiled
def _inputs(
    starts: Integers,
    ends: Integers,
    begins: Integers,
    untils: Integers,
    owners: Integers,
    others: Integers,
    does: Integers,
    step_starts: Integers,
    step_ends: Integers,
    endpoints: Integers,
    bounds: Integers,
    least: Floats,
) -> tuple[Integers, Integers]:
    """Return of each step the end of the first input and its sender; nothing where the endpoint waits for none."""
    size = endpoints.size
    input_ns, output_ns = np.full(size, NONE, np.int64), np.full(size, NONE, np.int64)
    first, senders = np.full(size, NEVER, np.int64), np.full(size, -1, np.int64)
    seen, sends_first = np.zeros(size, np.bool_), np.zeros(bounds.size, np.int64)
    for way in range(owners.size):
        step, none = bounds[owners[way]], bounds[owners[way] + 1]
        if step == none:
            continue
        for i in range(_since(starts, begins[way], untils[way], step_starts[step]), untils[way]):
            step = _not_over(step, none, starts[i], step_ends)
            if step == none:
                break
            if starts[i] < step_starts[step] or (does[way] == OUTPUT and starts[i] < least[step]):
                continue
            seen[step] = True
            if does[way] == OUTPUT and (output_ns[step] == NONE or starts[i] < output_ns[step]):
                output_ns[step] = starts[i]
            if does[way] == INPUT and (starts[i], ends[i], others[way]) < (first[step], input_ns[step], senders[step]):
                first[step], input_ns[step], senders[step] = starts[i], ends[i], others[way]
    for step in range(size):
        if seen[step]:
            # Without one of them nobody can tell who waits for whom.
            waits = output_ns[step] != NONE and input_ns[step] != NONE and output_ns[step] >= input_ns[step]
            sends_first[endpoints[step]] += -1 if waits else 1
    for step in range(size):
        if sends_first[endpoints[step]] > 0:
            input_ns[step] = NONE
    return input_ns, senders


@compiled
def _first_outputs(
    starts: Integers,
    ends: Integers,
    begins: Integers,
    untils: Integers,
    owners: Integers,
    others: Integers,
    does: Integers,
    step_starts: Integers,
    step_ends: Integers,
    endpoints: Integers,
    bounds: Integers,
    least: Floats,
    input_ns: Integers,
) -> tuple[Integers, Integers, Integers]:
    """Return of each step when the first output after the input starts and ends, and where it goes."""
    size = endpoints.size
    first, over, takers = np.full(size, NEVER, np.int64), np.full(size, NEVER, np.int64), np.full(size, -1, np.int64)
    for way in range(owners.size):
        step, none = bounds[owners[way]], bounds[owners[way] + 1]
        if step == none:
            continue
        for i in range(_since(starts, begins[way], untils[way], step_starts[step]), untils[way]):
            step = _not_over(step, none, starts[i], step_ends)
            if step == none:
                break
            if starts[i] < step_starts[step] or starts[i] < least[step] or starts[i] < input_ns[step]:
                continue
            earlier = (starts[i], ends[i], others[way]) < (first[step], over[step], takers[step])
            if earlier:
                first[step], over[step], takers[step] = starts[i], ends[i], others[way]
    for step in range(size):
        if takers[step] < 0:
            first[step] = NONE
    return first, over, takers


@compiled
def _counted(
    starts: Integers,
    ends: Integers,
    begins: Integers,
    untils: Integers,
    owners: Integers,
    others: Integers,
    does: Integers,
    step_starts: Integers,
    step_ends: Integers,
    endpoints: Integers,
    bounds: Integers,
    least: Floats,
    input_ns: Integers,
    output_ns: Integers,
    over: Integers,
) -> tuple[Integers, Integers, Integers]:
    """Return of each step how many outputs there are, how many start before the first is over, and when the last
    exchange before them ends."""
    size = endpoints.size
    outputs, together = np.zeros(size, np.int64), np.zeros(size, np.int64)
    exchanged_ns = np.full(size, NONE, np.int64)
    for way in range(owners.size):
        step, none = bounds[owners[way]], bounds[owners[way] + 1]
        if step == none or does[way] == INPUT:
            continue
        for i in range(_since(starts, begins[way], untils[way], step_starts[step]), untils[way]):
            step = _not_over(step, none, starts[i], step_ends)
            if step == none:
                break
            if starts[i] < step_starts[step]:
                continue
            if does[way] == EXCHANGE:
                if ends[i] <= output_ns[step]:
                    exchanged_ns[step] = max(exchanged_ns[step], ends[i])
            elif starts[i] >= least[step] and starts[i] >= input_ns[step]:
                outputs[step] += 1
                together[step] += starts[i] < over[step]
    return outputs, together, exchanged_ns
