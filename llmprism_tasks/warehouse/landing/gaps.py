"""Gaps: which empty windows between records are run, because silence is a finding, and which are left out."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window

logger = logging.getLogger(__name__)

DAY_NS = 86_400 * NANOSECONDS_PER_SECOND
LONGEST_GAP_NS = DAY_NS  # a longer one is a wrong year, or another day's flows


def without_long_gaps(
    starts: Sequence[int], length_ns: int, most: int, parts: Mapping[str, Mapping[int, int]]
) -> list[Window]:
    """Return windows with the empty ones between them, except in gaps that are too long.

    The shortest gaps are filled first, as long as there are not too many empty windows; what is left out is told.

    Parameters
    ----------
    starts : starts of the windows that are not empty, ascending
    most : empty windows that may be filled in
    parts : by file, how many of its records are in each window, to name the two ends of a gap
    """
    gaps = [(after - before) // length_ns - 1 for before, after in pairwise(starts)]
    short = [number for number, gap in enumerate(gaps) if 0 < gap * length_ns <= LONGEST_GAP_NS]
    by_length = sorted(short, key=lambda number: (gaps[number], number))
    filled = set(by_length[: bisect_right(list(accumulate(gaps[number] for number in by_length)), most)])
    if len(filled) < len(short):
        longest = max((number for number in short if number not in filled), key=gaps.__getitem__)
        ends = (Window(starts[longest], length_ns), Window(starts[longest + 1], length_ns))
        logger.warning("%s", _sentence(*ends, sum(gaps[number] for number in short), most, parts))
    wide = [number for number, gap in enumerate(gaps) if gap * length_ns > LONGEST_GAP_NS]
    if wide:
        ends = (Window(starts[wide[0]], length_ns), Window(starts[wide[0] + 1], length_ns))
        logger.warning("%s", _wide(*ends, gaps[wide[0]] * length_ns, len(wide), parts))
    windows = []
    for number, start_ns in enumerate(starts):
        count = 1 + (gaps[number] if number in filled else 0)
        windows += [Window(start_ns + step * length_ns, length_ns) for step in range(count)]
    return windows


def _sentence(before: Window, after: Window, empty: int, most: int, parts: Mapping[str, Mapping[int, int]]) -> str:
    return (
        f"{empty:,} empty windows lie between records, more than window.most_empty_windows = {most:,}: the longest "
        f"gaps are left out, such as that between {_ends(before, after, parts)}. If these times are wrong, correct "
        "them; if they are right and the silence is to be looked at, raise the setting."
    )


def _wide(before: Window, after: Window, gap_ns: int, count: int, parts: Mapping[str, Mapping[int, int]]) -> str:
    return (
        f"{gap_ns / DAY_NS:,.1f} days without a record lie between {_ends(before, after, parts)}"
        f"{f', the first of {count} such gaps' if count > 1 else ''}; the windows in them are left out. "
        "If a clock was wrong, correct these times and send the file again."
    )


def _ends(before: Window, after: Window, parts: Mapping[str, Mapping[int, int]]) -> str:
    return " and ".join(f"a record of {window} in {_file(window, parts)}" for window in (before, after))


def _file(window: Window, parts: Mapping[str, Mapping[int, int]]) -> str:
    return next((path for path, windows in parts.items() if window.start_ns in windows), "no file")
