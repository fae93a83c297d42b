"""Windows: the minute that contains a time, the windows before it, and half-open intervals."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

NANOSECONDS_PER_SECOND = 1_000_000_000
NANOSECONDS_PER_MS = 1_000_000


@dataclass(frozen=True, order=True)
class Window:
    """A half-open interval `[start_ns, end_ns)`, in nanoseconds since the Unix epoch, UTC.

    Windows tile time: each one starts at a multiple of its length.
    """

    start_ns: int
    length_ns: int

    @classmethod
    def containing(cls, time_ns: int, length_ns: int) -> Window:
        """Return the window that contains a time."""
        return cls(time_ns - time_ns % length_ns, length_ns)

    @classmethod
    def starting(cls, moment: dt.datetime, length_ns: int) -> Window:
        """Return the window that contains a timezone-aware datetime, such as the start of a data interval."""
        delta = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        microseconds = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
        return cls.containing(microseconds * 1_000, length_ns)

    @property
    def end_ns(self) -> int:
        """The first nanosecond after the window."""
        return self.start_ns + self.length_ns

    def shifted(self, windows: int) -> Window:
        """Return the window `windows` later (earlier if negative)."""
        return Window(self.start_ns + windows * self.length_ns, self.length_ns)

    def lookback(self, windows: int) -> Window:
        """Return the interval from `windows` windows before this one up to its end, as one long window."""
        return Window(self.start_ns - windows * self.length_ns, (windows + 1) * self.length_ns)

    def contains(self, time_ns: int) -> bool:
        """Say whether a time, in ns, is in the window; its end is not."""
        return self.start_ns <= time_ns < self.end_ns

    @property
    def start(self) -> dt.datetime:
        """The window's start as a datetime in UTC."""
        return dt.datetime.fromtimestamp(self.start_ns // NANOSECONDS_PER_SECOND, tz=dt.UTC)

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M:%S}Z"


ALL_TIME = Window(0, 2**63 - 1)
