"""Working: how long endpoints work in their steps while they wait for nobody, as their transfers show it.

Transfers are those of one endpoint after another, each in order of time, with the step that each starts in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Floats, Integers

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]
Small = npt.NDArray[np.int8]

NONE = np.iinfo(np.int64).min
"""A time that is not known; it is before all others."""

NOTHING, INPUT, OUTPUT, EXCHANGE = range(4)
"""What a transfer is to a micro-batch."""


@dataclass(frozen=True)
class Transfers:
    """What endpoints send and receive; arrays of shape (transfers,).

    Attributes
    ----------
    starts, ends : ns
    sizes : bytes
    kinds : numbers from 0
    sends : whether the endpoint is the sender
    peers : number of the other end
    steps : number of the step; those of one endpoint follow each other
    """

    starts: Integers
    ends: Integers
    sizes: Integers
    kinds: Small
    sends: Flags
    peers: Numbers
    steps: Numbers

    def __getitem__(self, chosen: Flags) -> Transfers:
        return Transfers(*(column[chosen] for column in vars(self).values()))


class Steps(NamedTuple):
    """The steps of endpoints; arrays of shape (steps,): when they start and end, ns, and whose they are (from 0)."""

    starts: Integers
    ends: Integers
    endpoints: Integers


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


def silences(
    transfers: Transfers, steps: Steps, *, early: float, piped: int
) -> tuple[Floats, Floats, Floats, Integers]:
    """Measure the silences of each step, between one burst of transfers that overlap and the next.

    What follows a burst that went ahead, in the same step, is none, nor is what is beside a burst with a pipeline's
    message.

    Parameters
    ----------
    early : ratio of an endpoint's mean burst of the same kinds below which one went ahead
    piped : the kind of a pipeline's messages

    Returns
    -------
    shape (steps,): the sum of the silences, that of their squares, the longest, and how many there are
    """
    endpoints = steps.endpoints[transfers.steps]
    first, over, sizes, kinds = _bursts(endpoints, transfers.starts, transfers.ends, transfers.sizes, transfers.kinds)
    step, begins, endpoint = transfers.steps[first], transfers.starts[first], endpoints[first]
    pipes = (kinds & _bit(piped)) != 0
    _, alike = np.unique(endpoint * (kinds.max(initial=0) + 1) + kinds, return_inverse=True)
    usual = np.bincount(alike, sizes) / np.bincount(alike)
    ahead = sizes < early * usual[alike]
    follows = np.zeros(first.size, np.bool_)
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

    An endpoint that mostly sends before it receives waits for no input.

    Parameters
    ----------
    wanted : shape (steps,): those to look at
    piped, synchronising : the kinds of a pipeline's messages and of gradients; others are not looked at
    at_once : ratio of a step within which what is sent down the pipeline belongs to the step before
    """
    columns = (transfers.starts, transfers.ends, transfers.peers, transfers.steps)
    least = steps.starts + at_once * (steps.ends - steps.starts)
    does = _does(transfers.kinds, transfers.sends, transfers.starts, transfers.steps, least, piped, synchronising)
    inputs = _inputs(does, *columns, wanted, steps.endpoints, int(steps.endpoints.max(initial=-1)) + 1)
    return Entries(inputs[0], *_outputs(does, *columns, wanted, steps.starts, *inputs))


def _bit(kind: int) -> int:
    """Return the bit of a kind in a set of kinds; 0 for none, a negative number."""
    return 1 << kind if kind >= 0 else 0


@compiled
def _bursts(
    endpoints: Integers, starts: Integers, ends: Integers, sizes: Integers, kinds: Small
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return of each burst its first transfer, when it is over, its bytes, and its kinds as a set of bits.

    A collective may go over pairs of two kinds at once: which of them is a microsecond ahead says nothing.
    """
    first, over = np.empty(starts.size, np.int64), np.empty(starts.size, np.int64)
    bytes_, seen = np.empty(starts.size, np.int64), np.empty(starts.size, np.int64)
    last = -1
    for i in range(starts.size):
        if i == 0 or endpoints[i] != endpoints[i - 1] or starts[i] > over[last]:
            last += 1
            first[last], over[last], bytes_[last], seen[last] = i, ends[i], 0, 0
        over[last] = max(over[last], ends[i])
        bytes_[last] += sizes[i]
        seen[last] |= 1 << np.int64(kinds[i])
    bursts = last + 1
    return first[:bursts], over[:bursts], bytes_[:bursts], seen[:bursts]


@compiled
def _does(
    kinds: Small, sends: Flags, starts: Integers, steps: Numbers, least: Floats, piped: int, synchronising: int
) -> Small:
    does = np.full(starts.size, NOTHING, np.int8)
    for i in range(starts.size):
        if kinds[i] == synchronising:
            does[i] = EXCHANGE
        elif kinds[i] == piped and not sends[i]:
            does[i] = INPUT
        elif kinds[i] == piped and starts[i] >= least[steps[i]]:
            does[i] = OUTPUT
    return does


@compiled
def _inputs(
    does: Small,
    starts: Integers,
    ends: Integers,
    peers: Numbers,
    steps: Numbers,
    wanted: Flags,
    endpoints: Integers,
    number: int,
) -> tuple[Integers, Integers]:
    """Return of each step the end of the first input and its sender; nothing where the endpoint waits for none."""
    size = endpoints.size
    input_ns, output_ns = np.full(size, NONE, np.int64), np.full(size, NONE, np.int64)
    senders = np.full(size, -1, np.int64)
    seen, sends_first = np.zeros(size, np.bool_), np.zeros(number, np.int64)
    for i in range(starts.size):
        step = steps[i]
        seen[step] |= does[i] != NOTHING
        if does[i] == OUTPUT and output_ns[step] == NONE:
            output_ns[step] = starts[i]
        if does[i] == INPUT and input_ns[step] == NONE:
            input_ns[step], senders[step] = ends[i], peers[i]
    for step in range(size):
        if seen[step]:
            # Without one of them nobody can tell who waits for whom.
            waits = output_ns[step] != NONE and input_ns[step] != NONE and output_ns[step] >= input_ns[step]
            sends_first[endpoints[step]] += -1 if waits else 1
    for step in range(size):
        if sends_first[endpoints[step]] > 0 or not wanted[step]:
            input_ns[step] = NONE
    return input_ns, senders


@compiled
def _outputs(
    does: Small,
    starts: Integers,
    ends: Integers,
    peers: Numbers,
    steps: Numbers,
    wanted: Flags,
    step_starts: Integers,
    input_ns: Integers,
    senders: Integers,
) -> tuple[Integers, Integers, Flags, Integers, Integers]:
    size = step_starts.size
    begins_ns, output_ns = np.full(size, NONE, np.int64), np.full(size, NONE, np.int64)
    first = np.full(size, -1, np.int64)
    last, outputs, together = np.zeros(size, np.bool_), np.zeros(size, np.int64), np.zeros(size, np.int64)
    for i in range(starts.size):
        step = steps[i]
        if does[i] == OUTPUT and wanted[step] and starts[i] >= input_ns[step]:
            if first[step] < 0:
                first[step], output_ns[step] = i, starts[i]
                last[step] = input_ns[step] != NONE and senders[step] == peers[i]
            outputs[step] += 1
            together[step] += starts[i] < ends[first[step]]
    for i in range(starts.size):
        step = steps[i]
        if does[i] == EXCHANGE and ends[i] <= output_ns[step]:
            begins_ns[step] = max(begins_ns[step], ends[i])
    for step in range(size):
        if input_ns[step] != NONE:
            begins_ns[step] = input_ns[step]
        elif begins_ns[step] == NONE:
            begins_ns[step] = step_starts[step]
    return begins_ns, output_ns, last, outputs, together
