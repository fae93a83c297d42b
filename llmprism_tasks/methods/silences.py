"""Silences: where a series of transfers stopped for far longer than it usually does, and went on."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers

AGAIN = 3
"""Silences that last alike from which on they are pauses, as for checkpoints."""

TOO_SHORT = 2
"""Times the shortest silence below which they are: a job that crashes again and again takes longer to come back."""

ALIKE = 0.25
"""Ratio by which they may differ: the same data are written each time, and parts of time are coarse."""


def occupied(starts: Integers, ends: Integers, offsets: Integers, rows: Integers, part: int, until: int) -> Integers:
    """Say up to when transfers go on that begin in each part of time.

    Parameters
    ----------
    starts, ends : ns, > 0, each series in order of its starts
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    rows : shape (series,): the row of the result that each series counts for
    part : ns
    until : the last part is the one with this time, or with the last start

    Returns
    -------
    shape (rows, parts): the number of the part in which the last of those transfers ends, counted like columns; -1
    where none begins. The first part is the one with the first start.
    """
    first = int(starts.min(initial=until)) // part
    parts = max(int(starts.max(initial=0)), until) // part - first + 1
    return _occupied(starts, ends, offsets, rows, int(rows.max(initial=-1)) + 1, part, first, parts)


def last_long(table: Integers, now: int, least: int, ratio: float, latest_since: int, latest_part: int) -> Integers:
    """Return the part in which each row goes on after the last of its long silences; -1 if there is none.

    A silence is long if it lasts more than `least` parts, and `ratio` times as long as in half of all other time, of
    which `least` parts must have been seen. Short ones that come again and again are none; one that is not over
    yet may still become like them.

    Parameters
    ----------
    table : as `occupied` returns
    now : the part up to which a silence may last that is not over yet; transfers are then thought to go on
    least, ratio : see above
    latest_since, latest_part : silences that begin after the one, or end after the other, are not looked for
    """
    return _last_long(table, now, least, float(ratio), latest_since, latest_part)


@compiled
def _occupied(
    starts: Integers,
    ends: Integers,
    offsets: Integers,
    rows: Integers,
    number: int,
    part: int,
    first: int,
    parts: int,
) -> Integers:
    table = np.full((number, parts), -1, np.int64)
    for series in range(offsets.size - 1):
        column, edge, row = -1, 0, rows[series]
        for i in range(offsets[series], offsets[series + 1]):
            if starts[i] >= edge:  # a division each would take longer than all the rest
                column = starts[i] // part - first
                edge = (column + first + 1) * part
            table[row, column] = max(table[row, column], ends[i])
    for row in range(number):
        for column in range(parts):
            if table[row, column] >= 0:
                table[row, column] = table[row, column] // part - first
    return table


@compiled
def _last_long(table: Integers, now: int, least: int, ratio: float, latest_since: int, latest_part: int) -> Integers:
    found = np.full(table.shape[0], -1, np.int64)
    silence, time = np.empty(table.shape[1], np.int64), np.empty(table.shape[1], np.int64)
    since, parts = np.empty(table.shape[1], np.int64), np.empty(table.shape[1], np.int64)
    for row in range(table.shape[0]):
        count, before, latest = 0, -1, -1
        for part in range(table.shape[1]):
            last = max(table[row, part], now) if part == now else table[row, part]
            if last < 0:
                continue
            if before >= 0:
                parts[count], since[count] = part, latest
                silence[count], time[count] = part - latest, part - before
                count += 1
            before, latest = part, max(latest, last)
        for i in range(count):
            if silence[i] <= least or since[i] > latest_since or parts[i] > latest_part:
                continue
            under_way = parts[i] == now and table[row, now] < 0
            usual, all_time, alike = 0, 0, 0
            for other in range(count):
                all_time += time[other]
                if silence[other] <= silence[i] / ratio:
                    usual += time[other]
                no_longer = under_way or silence[other] <= (1 + ALIKE) * silence[i]
                alike += no_longer and silence[i] <= (1 + ALIKE) * silence[other]
            pauses = alike >= AGAIN and silence[i] < TOO_SHORT * least
            if not pauses and usual >= least and usual >= (all_time - time[i]) / 2:
                found[row] = parts[i]
    return found
