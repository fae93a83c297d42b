"""Gaps within steps: how long endpoints compute between one burst of transfers and the next.

The transfers of all of an endpoint's pairs are merged in order of time first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.asof import AFTER_ALL
from llmprism_tasks.numerics.intervals import extend_union
from llmprism_tasks.numerics.jit import BOOLEANS, INT8S, INT64S, kernel
from llmprism_tasks.numerics.robust import Flags, Integers
from llmprism_tasks.stages.diagnosis.own_work.kernels import transfers_by_nic
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import STEPS, TRANSFERS, Small, Steps, Transfers


class Bursts(NamedTuple):
    """Transfers of an endpoint that overlap, endpoint by endpoint in order of time; arrays of shape (bursts,).

    A collective may go over pairs of two kinds at once: which of them is a microsecond ahead says nothing.

    Attributes
    ----------
    step : in which they begin
    begins, over : ns, the first start of those that show the endpoint's GPU, and the last end of all
    sizes : bytes of those that show it
    kinds : as a set of bits
    """

    step: Integers
    begins: Integers
    over: Integers
    sizes: Integers
    kinds: Integers


class Exchanges(NamedTuple):
    """Exchanges of endpoints, endpoint by endpoint in order of time; arrays of shape (exchanges,).

    Attributes
    ----------
    step : in which they begin
    computed : ns for which the endpoint computed before it came; 0 where that is not known
    waited : ns from the end of what it sent ahead until the exchange began; 0 where it sent nothing ahead
    lasted, sizes : ns and bytes of the exchange without what went ahead
    """

    step: Integers
    computed: Integers
    waited: Integers
    lasted: Integers
    sizes: Integers


def exchanges(
    transfers: Transfers, steps: Steps, wanted: Flags, *, early: float, piped: int, sent_only: bool = False
) -> Exchanges:
    """Find the bursts of overlapping transfers of each step, and measure the gaps between them.

    What goes ahead belongs to the burst that follows in the same step. Of what is beside a burst with a pipeline's
    message nobody knows whether it was computed or waited.

    Parameters
    ----------
    wanted : shape (endpoints,): those to look at; others have no exchanges
    early : ratio of an endpoint's mean burst of the same kinds below which one went ahead
    piped : the kind of a pipeline's messages
    sent_only : whether a burst begins with what an endpoint sends, and is none without: a buffer fills without its
        owner. What the endpoint receives in a burst still belongs to it: between two of its own transfers it waits
    """
    bursts = _bursts_of_endpoints(transfers, steps, wanted, sent_only=sent_only)
    since, known, follows_early = _gap_starts(bursts, steps, early, piped)
    first = np.flatnonzero(~follows_early)
    last = np.append(first[1:], follows_early.size)[: first.size] - 1
    computed = np.where(known, bursts.begins - since, 0)[first]
    waited = np.maximum(bursts.begins[last] - bursts.over[first], 0)
    return Exchanges(bursts.step[first], computed, waited, (bursts.over - bursts.begins)[last], bursts.sizes[last])


def _bursts_of_endpoints(transfers: Transfers, steps: Steps, wanted: Flags, *, sent_only: bool) -> Bursts:
    """Return the bursts of some endpoints from their first step on."""
    present = np.diff(steps.bounds) > 0
    first = np.full(wanted.size, AFTER_ALL)
    first[present] = steps.starts[steps.bounds[:-1][present]]
    since = np.minimum(first[transfers.senders], first[transfers.receivers])
    seen, bounds = transfers_by_nic.in_order(*transfers[:2], *transfers[3:6], since=since, wanted=wanted & present)
    sent = (seen & 1) == 0
    # What has no bytes announces its sender, and says nothing of its receiver.
    shows = sent if sent_only else sent | (transfers.sizes[seen >> 1] > 0)
    kinds = np.repeat(transfers.kinds, np.diff(transfers.offsets))
    bursts = _find_bursts(seen, shows, bounds, transfers, kinds, steps)
    shown = bursts.begins < AFTER_ALL
    return Bursts(*(column[shown] for column in bursts))


def _gap_starts(bursts: Bursts, steps: Steps, early: float, piped: int) -> tuple[Integers, Flags, Flags]:
    """Return the start of the gap before each burst, within its step, whether that gap is known, and whether the burst
    follows one that went ahead."""
    endpoint, step_start = steps.endpoints[bursts.step], steps.starts[bursts.step]
    follows = np.zeros(endpoint.size, np.bool_)
    follows[1:] = endpoint[1:] == endpoint[:-1]
    since = np.where(follows, np.maximum(np.roll(bursts.over, 1), step_start), step_start)
    # What went ahead counts to the step of the rest: what a step ends with is whole, however small.
    rest = follows & (bursts.step == np.roll(bursts.step, 1))
    ahead, pipes = _is_early_burst(bursts, endpoint, early), (bursts.kinds & _kind_bit(piped)) != 0
    follows_early = rest & np.roll(ahead, 1)
    return since, (bursts.begins > since) & ~(pipes | (follows & np.roll(pipes, 1)) | follows_early), follows_early


def _is_early_burst(bursts: Bursts, endpoint: Integers, early: float) -> Flags:
    """Return which bursts are small compared with their endpoint's mean burst of the same kinds."""
    _, alike = np.unique(endpoint * (bursts.kinds.max(initial=0) + 1) + bursts.kinds, return_inverse=True)
    usual = np.bincount(alike, bursts.sizes) / np.bincount(alike)
    small: Flags = bursts.sizes < early * usual[alike]
    return small


def _kind_bit(kind: int) -> int:
    """Return the bit of a kind in a set of kinds; 0 for a negative number, which stands for no kind."""
    return 1 << kind if kind >= 0 else 0


@kernel(INT64S, BOOLEANS, INT64S, TRANSFERS, INT8S, STEPS)
def _find_bursts(
    seen: Integers, shows: Flags, seen_bounds: Integers, transfers: Transfers, kinds: Small, steps: Steps
) -> Bursts:
    """Find the bursts of what endpoints send and receive.

    Parameters
    ----------
    seen, seen_bounds : as `transfers_by_nic.in_order` returns
    shows : shape of `seen`, whether a transfer shows that the endpoint's GPU is there; bursts without any begin
        `AFTER_ALL`
    kinds : shape (transfers,)
    """
    begun, begins, shown = np.empty(seen.size, np.int64), np.empty(seen.size, np.int64), np.empty(seen.size, np.int64)
    over, sizes, kinds_of = np.empty(seen.size, np.int64), np.empty(seen.size, np.int64), np.empty(seen.size, np.int64)
    starts, ends, n = transfers.starts, transfers.ends, 0
    for endpoint in range(steps.bounds.size - 1):
        place, until, first = seen_bounds[endpoint], seen_bounds[endpoint + 1], n
        for step in range(steps.bounds[endpoint], steps.bounds[endpoint + 1]):
            while place < until and starts[seen[place] >> 1] <= steps.ends[step]:
                i, counts = seen[place] >> 1, shows[place]
                place += 1
                if starts[i] < steps.starts[step]:
                    continue
                bursts = extend_union(begins, over, first, n, starts[i], ends[i], 0)
                if bursts > n:
                    begun[n], shown[n], sizes[n], kinds_of[n] = step, AFTER_ALL, 0, 0
                n = bursts
                if counts:
                    shown[n - 1] = min(shown[n - 1], starts[i])
                    sizes[n - 1] += transfers.sizes[i]
                    kinds_of[n - 1] |= 1 << np.int64(kinds[i])
    return Bursts(begun[:n].copy(), shown[:n].copy(), over[:n].copy(), sizes[:n].copy(), kinds_of[:n].copy())
