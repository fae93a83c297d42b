"""Placing: transfers of many series put into the spans of time of those that they belong to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers


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
    """Transfers in spans.

    Attributes
    ----------
    offsets : shape (spans + 1,): span i has the rows `offsets[i]` to `offsets[i + 1]`
    transfers, of_series : shape (rows,), the transfer and its series; within a span in order of the series, within
        these of the transfers
    starts, ends : ns, shape (rows,), those of the transfer as far as they lie in the span
    """

    offsets: Integers
    transfers: Numbers
    of_series: Numbers
    starts: Integers
    ends: Integers


def placed(starts: Integers, ends: Integers, series: Series, spans: Spans) -> Placings:
    """Put the transfers of each series into the owner's first span that ends no earlier than they start.

    What ends before its span begins is left out, or begins after the last one ends.

    Parameters
    ----------
    starts, ends : ns, shape (transfers,); quickest where each series is in order of the starts
    """
    return Placings(*_placed(starts, ends, *series, *spans))


@compiled
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
) -> tuple[Integers, Numbers, Numbers, Integers, Integers]:
    following = np.zeros(span_starts.size + 1, np.int64)
    transfers, of_series = np.empty(0, np.int32), np.empty(0, np.int32)
    begun, ended = np.empty(0, np.int64), np.empty(0, np.int64)
    bounds = following
    for filling in (False, True):
        for s in range(owners.size):
            first, last = offsets[owners[s]], offsets[owners[s] + 1]
            at, i = first, begins[s]
            while i < untils[s]:
                if i > begins[s] and starts[i] < starts[i - 1]:
                    at = first
                while at < last and span_ends[by_end[at]] < starts[i]:
                    at += 1
                if at == last:
                    i += 1
                    continue
                span = by_end[at]
                to, stays = span if filling else span + 1, True
                row = following[to]
                while stays:
                    if ends[i] > span_starts[span]:
                        if filling:
                            transfers[row], of_series[row] = i, s
                            begun[row], ended[row] = max(starts[i], span_starts[span]), min(ends[i], span_ends[span])
                        row += 1
                    i += 1
                    stays = i < untils[s] and starts[i - 1] <= starts[i] <= span_ends[span]
                following[to] = row
        if not filling:
            bounds = np.cumsum(following)
            following = bounds.copy()
            transfers, of_series = np.empty(bounds[-1], np.int32), np.empty(bounds[-1], np.int32)
            begun, ended = np.empty(bounds[-1], np.int64), np.empty(bounds[-1], np.int64)
    return bounds, transfers, of_series, begun, ended
