"""Long silences: where a series of transfers stopped for far longer than usual, and resumed."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import BOOLEAN, FLOAT64, INT64, INT64S, array, kernel, subroutine
from llmprism_tasks.numerics.robust import LEAST_RECURRENCES, Flags, Integers

ALIKE_SILENCES = 0.25
"""Ratio by which silences may differ that recur, as for checkpoints: the same data are written each time, and parts of
time are coarse. A silence that is over may also be longer than another long one by as much as the shortest long silence
lasts: an evaluation between two steps comes on top of the silence that each step has."""

LONGEST_PAUSE = 2
"""Times the shortest long silence from which on one is no pause where nothing else can tell: a job that crashes again
and again takes longer to come back than to save, and to be told of a checkpoint that was none is worse than not."""

ONE_WAY_EXCESS = 2
"""Times what goes one way at other times: what is on its way at the edge of a part, and a pipeline's first messages."""


def busy_until(starts: Integers, ends: Integers, offsets: Integers, rows: Integers, part: int, until: int) -> Integers:
    """Return the last end of the transfers that begin in each part of time.

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
    return _busy_until(starts, ends, offsets, rows, int(rows.max(initial=-1)) + 1, part, first, parts)


def last_long_silence(
    table: Integers,
    now: Integers,
    least: int,
    ratio: float,
    latest_since: int,
    latest_part: int,
    anew: Flags | None = None,
) -> tuple[Integers, Flags]:
    """Return the part of time in which each row resumes after its last long silence; -1 without one.

    A silence is long if it lasts more than `least` parts, and `ratio` times as long as in half of all other time, of
    which `least` parts must have been seen. Those that come again and again are pauses instead; one that is not over
    yet may still become like them.

    Parameters
    ----------
    table : as `busy_until` returns
    now : shape (rows,): the part up to which a silence may last that is not over yet; transfers are then thought to
        go on
    least, ratio : see above
    latest_since, latest_part : silences that begin after the one, or end after the other, are not looked for
    anew : as `begins_anew` returns: silences that end in such a part are no pauses

    Returns
    -------
    those parts, and whether any silence of a row was taken for a pause
    """
    if anew is None:
        anew = np.zeros(table.shape, np.bool_)
    return _last_long_silence(table, now, least, float(ratio), latest_since, latest_part, anew)


def begins_anew(table: Integers, one_way: Integers, groups: Integers, replicated: Flags, least: int) -> Flags:
    """Return the parts of time in which rows restart after more than `least` silent ones, as one-way bytes show.

    What an endpoint sends in a step of training comes back to it, round rings and along pipelines. Weights go one way,
    from those who have them to those who start. About the end of a long silence more goes one way then than at other
    times, to some of a group sooner than to others.

    Parameters
    ----------
    table : as `busy_until` returns
    one_way : shape (groups, parts): bytes that go one way in each part
    groups : shape (rows,): the group whose traffic tells of a row
    replicated : shape (groups,): whether there are replicas that weights would be seen to go to; of others nobody can
        tell, and they are thought to begin anew after `LONGEST_PAUSE` silences

    Returns
    -------
    shape (rows, parts); by weights nowhere where nothing is seen at other times
    """
    latest = np.maximum.accumulate(table, axis=1)
    before = np.concatenate([np.full((len(table), 1), -1), latest[:, :-1]], axis=1)
    silent = np.where(before < 0, least + 1, np.arange(table.shape[1]) - before)
    resumes = (table >= 0) & (silent > least)
    starting = np.zeros(one_way.shape, np.bool_)
    np.logical_or.at(starting, groups, resumes)
    soon, peak = starting.copy(), one_way.copy()
    for later in range(1, least):
        soon[:, later:] |= starting[:, :-later]
        peak[:, :-later] = np.maximum(peak[:, :-later], one_way[:, later:])
        peak[:, later:] = np.maximum(peak[:, later:], one_way[:, :-later])
    seen = np.zeros(one_way.shape, np.bool_)
    np.logical_or.at(seen, groups, table >= 0)
    other = np.where(seen & ~soon, one_way, -1).max(axis=1, keepdims=True, initial=-1)
    weights = ((other >= 0) & (peak > ONE_WAY_EXCESS * other))[groups]
    begins: Flags = resumes & (weights | (~replicated[groups, np.newaxis] & (silent >= LONGEST_PAUSE * least)))
    return begins


@kernel(INT64S, INT64S, INT64S, INT64S, INT64, INT64, INT64, INT64)
def _busy_until(
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
        column, edge, last, row = 0, (first + 1) * part, -1, rows[series]
        for i in range(offsets[series], offsets[series + 1]):
            if starts[i] >= edge:
                table[row, column] = max(table[row, column], last)
                last = -1
                while starts[i] >= edge:  # divisions would take longer than all the rest
                    column, edge = column + 1, edge + part
            last = max(last, ends[i])
        table[row, column] = max(table[row, column], last)
    for row in range(number):
        for column in range(parts):
            last, edge = table[row, column], (first + column + 1) * part
            if last >= 0:
                far = last >= edge + part
                table[row, column] = last // part - first if far else column + (last >= edge)
    return table


@subroutine
def _write_silences(
    busy: Integers, now: int, silent: Integers, apart: Integers, since: Integers, resumes: Integers
) -> int:
    """Write the silences of a row, also such as last no part, and return how many there are.

    Parameters
    ----------
    busy : the row of a table as `busy_until` returns
    now : as for `last_long_silence`, of this row
    silent, apart : parts that each lasts, and parts from one beginning of transfers to the next
    since, resumes : the part in which it begins, and that in which transfers begin again
    """
    count, before, latest = 0, -1, -1
    for part in range(busy.size):
        last = max(busy[part], part) if part == now else busy[part]
        if last < 0:
            continue
        if before >= 0:
            silent[count], apart[count], since[count], resumes[count] = part - latest, part - before, latest, part
            count += 1
        before, latest = part, max(latest, last)
    return count


@subroutine
def _is_unusual(i: int, silent: Integers, apart: Integers, count: int, least: int, ratio: float) -> bool:
    """Return whether a silence is `ratio` times as long as in half of all other time, of which `least` parts were
    seen."""
    usual, all_time = 0, 0
    for other in range(count):
        all_time += apart[other]
        if silent[other] <= silent[i] / ratio:
            usual += apart[other]
    return bool(usual >= least and usual >= (all_time - apart[i]) / 2)


@subroutine
def _is_like(length: int, other: int, least: int, under_way: bool) -> bool:
    """Return whether a silence lasts like another one. One that is under way may still become longer."""
    if under_way:
        return bool(length <= (1 + ALIKE_SILENCES) * other)
    longest = (1 + ALIKE_SILENCES) * other
    if other > least:
        longest = max(longest, other + least)
    return bool(other <= (1 + ALIKE_SILENCES) * length and length <= longest)


@kernel(array(INT64, 2), INT64S, INT64, FLOAT64, INT64, INT64, array(BOOLEAN, 2))
def _last_long_silence(
    table: Integers, now: Integers, least: int, ratio: float, latest_since: int, latest_part: int, anew: Flags
) -> tuple[Integers, Flags]:
    rows, parts = table.shape
    found, paused = np.full(rows, -1, np.int64), np.zeros(rows, np.bool_)
    silent, apart = np.empty(parts, np.int64), np.empty(parts, np.int64)
    since, resumes = np.empty(parts, np.int64), np.empty(parts, np.int64)
    for row in range(rows):
        count = _write_silences(table[row], now[row], silent, apart, since, resumes)
        for i in range(count):
            if silent[i] <= least or since[i] > latest_since or resumes[i] > latest_part:
                continue
            if not _is_unusual(i, silent, apart, count, least, ratio):
                continue
            under_way, alike = resumes[i] == now[row] and table[row, resumes[i]] < 0, 0
            for other in range(count):
                alike += _is_like(silent[i], silent[other], least, under_way) and not anew[row, resumes[other]]
            if alike >= LEAST_RECURRENCES and not anew[row, resumes[i]]:
                paused[row] = True
            else:
                found[row] = resumes[i]
    return found, paused
