"""Gaps: which empty windows between records are run, because silence is a finding, and which are left out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window

logger = logging.getLogger(__name__)

LONGEST_GAP_NS = 86_400 * NANOSECONDS_PER_SECOND  # a longer one is a wrong year, or another day's flows


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
    short = [gap for gap in gaps if 0 < gap * length_ns <= LONGEST_GAP_NS]
    room, longest = most, 0
    for gap in sorted(short):
        room -= gap
        if room < 0:
            break
        longest = gap
    left_out = [gap for gap in short if gap > longest]
    if left_out:
        at = gaps.index(max(left_out))
        logger.warning(
            "%s", _sentence(Window(starts[at], length_ns), Window(starts[at + 1], length_ns), short, most, parts)
        )
    windows = []
    for number, start_ns in enumerate(starts):
        windows.append(Window(start_ns, length_ns))
        if number < len(gaps) and gaps[number] <= longest:
            windows += [Window(start_ns + step * length_ns, length_ns) for step in range(1, gaps[number] + 1)]
    return windows


def _sentence(
    before: Window, after: Window, gaps: Sequence[int], most: int, parts: Mapping[str, Mapping[int, int]]
) -> str:
    ends = (f"a record of {window} in {_file(window, parts)}" for window in (before, after))
    return (
        f"{sum(gaps):,} empty windows lie between records, more than window.most_empty_windows = {most:,}: the longest "
        f"gaps are left out, such as that between {' and '.join(ends)}. If these times are wrong, correct them; if "
        "they are right and the silence is to be looked at, raise the setting."
    )


def _file(window: Window, parts: Mapping[str, Mapping[int, int]]) -> str:
    return next((path for path, windows in parts.items() if window.start_ns in windows), "no file")
