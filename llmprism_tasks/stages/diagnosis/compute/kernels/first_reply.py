"""How soon each NIC sends something after the first message that it receives in a step."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.asof import advance
from llmprism_tasks.numerics.jit import INT64S, kernel
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.timeline.kernels.step_lookup import Series

NO_REPLY = -1
LATEST = np.iinfo(np.int64).max


def first_replies(
    starts: Integers,
    ends: Integers,
    came: Series,
    left: Series,
    returns: Integers,
    bounds: tuple[Integers, Integers],
    offsets: Integers,
) -> tuple[Integers, Integers]:
    """Return for each span when the first incoming transfer starts, and the time from its end to the next outgoing one.

    What came first has come as a whole when all records that begin before its first one ends have ended. A transfer is
    of the owner's latest span that has begun by its start, if that lasts until then.

    Parameters
    ----------
    starts, ends : ns, shape (transfers,), each series in order of the starts
    came, left : the transfers that come to owners, and those that they send
    returns : shape (owners,), 1 where what an owner sends comes back in the same span: what leaves after the last
        incoming transfer of a span is then of the next one
    bounds : ns, shape (spans,) twice: the starts of spans, in order for each owner, and their ends
    offsets : shape (owners + 1,): owner i has the spans `offsets[i]` to `offsets[i + 1]`

    Returns
    -------
    ns, shape (spans,) twice; NO_REPLY where nothing came, and for the time also where nothing left after it
    """
    return _first_replies(starts, ends, *came, *left, returns, *bounds, offsets)


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S)
def _first_replies(
    starts: Integers,
    ends: Integers,
    came_begins: Integers,
    came_untils: Integers,
    came_owners: Integers,
    left_begins: Integers,
    left_untils: Integers,
    left_owners: Integers,
    returns: Integers,
    span_starts: Integers,
    span_ends: Integers,
    offsets: Integers,
) -> tuple[Integers, Integers]:
    first_start, first_end = np.full(span_starts.size, LATEST), np.full(span_starts.size, LATEST)
    whole, replied = np.full(span_starts.size, NO_REPLY), np.full(span_starts.size, NO_REPLY)
    last_start = np.full(span_starts.size, NO_REPLY)
    for finding in (True, False):
        for s in range(came_owners.size):
            span, last = offsets[came_owners[s]], offsets[came_owners[s] + 1] - 1
            for i in range(came_begins[s], came_untils[s]):
                if span > last:
                    break
                span = advance(span_starts, span + 1, last + 1, starts[i] + 1) - 1  # the latest that has begun
                if not span_starts[span] <= starts[i] < span_ends[span]:
                    continue
                if finding and (starts[i], ends[i]) < (first_start[span], first_end[span]):
                    first_start[span], first_end[span] = starts[i], ends[i]
                elif not finding and starts[i] <= first_end[span]:
                    whole[span] = max(whole[span], ends[i])
                last_start[span] = max(last_start[span], starts[i])
    for s in range(left_owners.size):
        span, last = offsets[left_owners[s]], offsets[left_owners[s] + 1] - 1
        for i in range(left_begins[s], left_untils[s]):
            if span > last:
                break
            span = advance(span_starts, span + 1, last + 1, starts[i] + 1) - 1  # the latest that has begun
            took = starts[i] - whole[span]
            within = span_starts[span] <= starts[i] < span_ends[span]
            within = within and (returns[left_owners[s]] == 0 or starts[i] < last_start[span])
            if within and whole[span] != NO_REPLY and took > 0 and (replied[span] == NO_REPLY or took < replied[span]):
                replied[span] = took
    return np.where(first_start == LATEST, NO_REPLY, first_start), replied
