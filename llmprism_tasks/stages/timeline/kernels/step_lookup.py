"""The step of each transfer: transfers of many series are placed in the time spans of their owners."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.asof import advance
from llmprism_tasks.numerics.jit import INT64S, kernel
from llmprism_tasks.numerics.robust import Integers


class Series(NamedTuple):
    """Which transfers belong to which owner: series i holds the transfers `begins[i]` to `ends[i]`.

    Attributes
    ----------
    begins, ends, owners : shape (series,); a transfer may be in several series
    """

    begins: Integers
    ends: Integers
    owners: Integers


class Spans(NamedTuple):
    """Spans of time of owners, numbered owner by owner.

    Attributes
    ----------
    starts, ends : ns, shape (spans,)
    by_end : shape (spans,), the numbers of the spans, owner by owner in order of their ends
    offsets : shape (owners + 1,): owner i has the spans `offsets[i]` to `offsets[i + 1]`
    """

    starts: Integers
    ends: Integers
    by_end: Integers
    offsets: Integers


Numbers = npt.NDArray[np.int32]


class Placings(NamedTuple):
    """Transfers in spans, stored as runs: transfers that follow each other in a series are mostly in one span.

    Attributes
    ----------
    offsets : shape (spans + 1,): span i has the runs `offsets[i]` to `offsets[i + 1]`
    series, begins, untils : shape (runs,): run i holds the transfers `begins[i]` to `untils[i]` of a series, in order
        of their starts; within a span in order of the series, within these of the transfers
    """

    offsets: Integers
    series: Numbers
    begins: Numbers
    untils: Numbers


def placed(starts: Integers, ends: Integers, series: Series, spans: Spans) -> Placings:
    """Put the transfers of each series into the owner's first span that ends no earlier than they start.

    What ends before its span begins is left out, or begins after the last one ends.

    Parameters
    ----------
    starts, ends : ns, shape (transfers,); quickest where each series is in order of the starts
    """
    return Placings(*_placed(starts, ends, *series, *spans))


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S)
def _placed(
    starts: Integers,
    ends: Integers,
    begins: Integers,
    untils: Integers,
    owners: Integers,
    span_starts: Integers,
    span_ends: Integers,
    by_end: Integers,
    offsets: Integers,
) -> tuple[Integers, Numbers, Numbers, Numbers]:
    most = 0
    for s in range(owners.size):
        most += max(untils[s] - begins[s], 0)
    spans, of_series = np.empty(most, np.int32), np.empty(most, np.int32)
    firsts, lasts, runs = np.empty(most, np.int32), np.empty(most, np.int32), 0
    bounds, ends_in_order = np.zeros(span_starts.size + 1, np.int64), span_ends[by_end]
    for s in range(owners.size):
        first, last = offsets[owners[s]], offsets[owners[s] + 1]
        at, i = first, begins[s]
        while i < untils[s]:
            if i > begins[s] and starts[i] < starts[i - 1]:
                at = first
            at = advance(ends_in_order, at, last, starts[i])
            if at == last or ends[i] <= span_starts[by_end[at]]:
                i += 1
                continue
            span = by_end[at]
            spans[runs], of_series[runs], firsts[runs] = span, s, i
            stays = True
            while stays:
                i += 1
                stays = i < untils[s] and starts[i - 1] <= starts[i] <= span_ends[span] and ends[i] > span_starts[span]
            lasts[runs] = i
            bounds[span + 1] += 1
            runs += 1
    bounds = np.cumsum(bounds)
    following = bounds.copy()
    series, begun, over = np.empty(runs, np.int32), np.empty(runs, np.int32), np.empty(runs, np.int32)
    for run in range(runs):
        place = following[spans[run]]
        following[spans[run]] += 1
        series[place], begun[place], over[place] = of_series[run], firsts[run], lasts[run]
    return bounds, series, begun, over
