"""Ranges of time that a page shows, and how a long one is thinned to what can be read quickly."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from llmprism_tasks.contract.errors import RequestError
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.warehouse.asking import Asked, asking
from llmprism_tasks.warehouse.connect import Warehouse

LASTS = {"15m": 900, "1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000}
"""Ranges that a page offers, in seconds, counted back from the newest window that was landed or expected."""

DEFAULT_LAST = "6h"
MINUTE_NS = 60 * NANOSECONDS_PER_SECOND

LONGEST_S = 0.9
"""Seconds for which a page may keep a DuckDB file from a run that wants to write; no run is to wait for 1 s."""

CALENDARS = ((28_800, 3_600, 60), (172_800, 21_600, 300), (864_000, 86_400, 900), (math.inf, 86_400, 3_600))
"""Calendars by the longest range that each is for, and the length of a row and of a cell, all in seconds: at most about
as many cells as a week has quarters of an hour, in rows that begin at whole hours or days."""

SLICES = 120
"""Points of a line over a range; more than these cannot be told apart in a chart of a page."""


@dataclass(frozen=True)
class Range:
    """A half-open range of time in ns, how it was asked for, and what windows there are.

    Attributes
    ----------
    last : one of `LASTS`, or empty for a range from one time to another
    window_ns : length of a window
    newest_ns : end of the newest window; None in an empty warehouse
    done_ns : end of the newest finished window; None if there is none
    """

    from_ns: int
    to_ns: int
    last: str
    window_ns: int
    newest_ns: int | None
    done_ns: int | None

    @property
    def windows(self) -> int:
        """Windows that the range has room for."""
        return -(-(self.to_ns - self.from_ns) // self.window_ns)

    def slice_ns(self, most: int = SLICES) -> int:
        """Return the length of a slice: whole windows, so that at most `most` slices cover the range."""
        return self.window_ns * max(1, -(-self.windows // most))

    def slices(self, most: int = SLICES) -> list[int]:
        """Return the starts of all slices."""
        return list(range(self.from_ns, self.to_ns, self.slice_ns(most)))

    @property
    def calendar(self) -> tuple[int, int]:
        """Lengths in ns of a row and of a cell of a calendar of the range, cells at least a window long."""
        length_s = (self.to_ns - self.from_ns) / NANOSECONDS_PER_SECOND
        row_s, cell_s = next(row for longest_s, *row in CALENDARS if length_s <= longest_s)
        cell_ns = max(cell_s * NANOSECONDS_PER_SECOND, self.window_ns)
        return max(row_s * NANOSECONDS_PER_SECOND // cell_ns, 1) * cell_ns, cell_ns

    @property
    def values(self) -> dict[str, int]:
        """The range as queries take it."""
        return {"from_ns": self.from_ns, "to_ns": self.to_ns}


def newest(warehouse: Warehouse) -> str:
    """Return the end of the newest finished window in ns, as text; empty without one. Pages ask whether it is new."""
    with asking(warehouse, longest_s=LONGEST_S) as ask:
        return str(ask("span")["done_end_ns"][0] or "")


def asked_range(ask: Asked, query: Mapping[str, str]) -> Range:
    """Return the range that a query asks for by `last`, or by `from` and `to` in ISO 8601.

    Raises
    ------
    RequestError : the range is not one of those offered, a time cannot be read, or the end is not after the start
    """
    row = ask("span").row(0, named=True)
    window_ns = row["length_ns"] or MINUTE_NS
    newest = row["end_ns"]
    known = {"window_ns": window_ns, "newest_ns": newest, "done_ns": row["done_end_ns"]}
    if query.get("from") or query.get("to"):
        start, end = _time(query, "from", row["first_ns"] or 0), _time(query, "to", row["expected_end_ns"] or window_ns)
        if end <= start:
            raise RequestError(
                found=f"a range from {Window(start, 1)} to {Window(end, 1)}",
                expected="a beginning before the end; without one of them, the data begin or end the range",
                todo="Choose another range.",
            )
        return Range(start - start % window_ns, end, "", **known)
    last = query.get("last") or DEFAULT_LAST
    if last not in LASTS:
        raise RequestError(
            found=f"last={last[:40]}", expected=f"one of {', '.join(LASTS)}", todo="Choose one, or from and to."
        )
    end = row["expected_end_ns"] or window_ns
    start = max(end - LASTS[last] * NANOSECONDS_PER_SECOND, row["first_ns"] or 0)
    return Range(start - start % window_ns, end, last, **known)


def _time(query: Mapping[str, str], name: str, other: int) -> int:
    text = query.get(name)
    if not text:
        return other
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise RequestError(
            found=f"{name}={text[:40]}", expected="a time such as 2026-05-01T04:12", todo="Choose a time."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).total_seconds()) * NANOSECONDS_PER_SECOND


def sample(windows: pl.Series, most: int) -> list[int]:
    """Return at most `most` of some windows, at equal distances, the last one among them."""
    found = windows.to_list()
    if len(found) <= most:
        return found
    step = (len(found) - 1) / (most - 1)
    return [found[round(number * step)] for number in range(most)]


def listed(windows: Sequence[int]) -> dict[str, Any]:
    """Return windows as queries take them: a list, and its ends, by which DuckDB skips most of a table."""
    return {"windows": list(windows), "first_ns": min(windows, default=0), "last_ns": max(windows, default=0)}
