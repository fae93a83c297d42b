"""The transfers of each NIC, sent and received, in order of time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.grouped_sort import KEY_BITS
from llmprism_tasks.numerics.jit import BOOLEANS, INT32S, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Integers


def in_order(
    starts: Integers,
    ends: Integers,
    offsets: Integers,
    senders: Integers,
    receivers: Integers,
    *,
    since: Integers,
    wanted: npt.NDArray[np.bool_],
) -> tuple[Integers, Integers]:
    """Return what each endpoint sends and receives, in order of start, end and other end.

    Parameters
    ----------
    starts, ends : shape (transfers,), any unit
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    senders, receivers : shape (series,): numbers of endpoints
    since : shape (series,): transfers that start before are left out
    wanted : shape (endpoints,): those to look at; the others have nothing

    Returns
    -------
    seen : endpoint by endpoint, `2 * transfer` for what it sends and `2 * transfer + 1` for what it receives; of what
        is equal the first transfer is first
    bounds : shape (endpoints + 1,): endpoint i has `seen[bounds[i]:bounds[i + 1]]`
    """
    series = np.repeat(np.arange(senders.size, dtype=np.int32), np.diff(offsets))
    order = time_order(starts, _wanted_places(starts, offsets, since, wanted[senders] | wanted[receivers]))
    return _deal_to_endpoints(order, series[order], senders, receivers, wanted, starts, ends, series)


def time_order(times: Integers, places: Integers) -> Integers:
    """Return places in order of their times. Times are rounded where time and place do not fit into 63 bits together.

    Parameters
    ----------
    times : shape (n,)
    places : shape (m,), ascending positions in `times`

    Returns
    -------
    shape (m,); of equal times the first place is first
    """
    if not places.size:
        return places
    chosen = times[places]
    chosen -= chosen.min()
    bits = int(places[-1]).bit_length()
    chosen >>= max(int(chosen.max()).bit_length() + bits - KEY_BITS, 0)
    keys = (chosen << bits) | places
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


@kernel(INT64S, INT64S, INT64S, BOOLEANS)
def _wanted_places(starts: Integers, offsets: Integers, since: Integers, wanted: npt.NDArray[np.bool_]) -> Integers:
    """Return the places of the wanted series' transfers that start at or after the series' `since`."""
    places, count = np.empty(starts.size, np.int64), 0
    for s in range(wanted.size):
        if wanted[s]:
            for i in range(offsets[s], offsets[s + 1]):
                places[count] = i
                count += starts[i] >= since[s]
    return places[:count].copy()


@subroutine
def _insertion_sort_rows(
    seen: Integers,
    bounds: Integers,
    starts: Integers,
    ends: Integers,
    series: npt.NDArray[np.int32],
    both: Integers,
) -> None:
    """Sort rows that are nearly in order: by start, end, and the number of the other endpoint.

    Parameters
    ----------
    both : shape (series,): the sum of the numbers of its two ends: of one end's series, it grows as the other does
    """
    for endpoint in range(bounds.size - 1):
        for i in range(bounds[endpoint] + 1, bounds[endpoint + 1]):
            moved, place = seen[i], i
            one = moved >> 1
            while place > bounds[endpoint]:
                before = seen[place - 1] >> 1
                if starts[before] < starts[one]:
                    break
                if starts[before] == starts[one] and (ends[before], both[series[before]]) <= (
                    ends[one],
                    both[series[one]],
                ):
                    break
                seen[place] = seen[place - 1]
                place -= 1
            seen[place] = moved


@kernel(INT64S, INT32S, INT64S, INT64S, BOOLEANS, INT64S, INT64S, INT32S)
def _deal_to_endpoints(
    order: Integers,
    series: npt.NDArray[np.int32],
    senders: Integers,
    receivers: Integers,
    wanted: npt.NDArray[np.bool_],
    starts: Integers,
    ends: Integers,
    all_series: npt.NDArray[np.int32],
) -> tuple[Integers, Integers]:
    counts = np.zeros(wanted.size + 1, np.int64)
    for i in series:
        counts[senders[i] + 1] += wanted[senders[i]]
        counts[receivers[i] + 1] += wanted[receivers[i]]
    bounds = np.cumsum(counts)
    following = bounds.copy()
    seen = np.empty(bounds[-1], np.int64)
    for k in range(order.size):
        sender, receiver = senders[series[k]], receivers[series[k]]
        if wanted[sender]:
            seen[following[sender]] = 2 * order[k]
            following[sender] += 1
        if wanted[receiver]:
            seen[following[receiver]] = 2 * order[k] + 1
            following[receiver] += 1
    _insertion_sort_rows(seen, bounds, starts, ends, all_series, senders + receivers)
    return seen, bounds
