"""Intake: what a landing must know besides the files; the defaults need neither a clock nor a topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.settings.platform import MOST_EMPTY_WINDOWS

MOST_UNLISTED = 100_000
"""Addresses of a window that the topology does not list and whose flows are landed. Storage, management and tenants'
other
hosts are some thousands even at 32,768 GPUs; above this, memory would follow whoever sends, not the platform."""


@dataclass(frozen=True)
class Intake:
    """How files of flows are taken in.

    Attributes
    ----------
    columns : the user's names of columns, by field
    now_ns : the time, nanoseconds since the Unix epoch; 0 if files are not judged by their age
    young_ns : a file that cannot be read is probably still being written if it was changed less than this ago
    quiet_ns : a file that was changed less than this ago may still be written
    waits_for_next : whether the file of the next window is expected to hold records of a window
    listed : addresses of the topology; None if they are not known
    most_unlisted : such addresses of a window whose flows are landed, if the topology does not list them
    most_empty_windows : empty windows between records that one run fills in
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    now_ns: int = 0
    young_ns: int = 0
    quiet_ns: int = 0
    waits_for_next: bool = False
    listed: pl.Series | None = None
    most_unlisted: int = MOST_UNLISTED
    most_empty_windows: int = MOST_EMPTY_WINDOWS

    def age_ns(self, path: str) -> int | None:
        """Return how long ago a file was changed; None if nobody asks, or it is gone."""
        if not self.now_ns:
            return None
        try:
            return self.now_ns - Path(path).stat().st_mtime_ns
        except OSError:
            return None

    def is_young(self, path: str) -> bool:
        """Return whether a file that cannot be read is probably still being written."""
        age_ns = self.age_ns(path)
        return age_ns is not None and age_ns < self.young_ns

    def is_quiet(self, path: str) -> bool:
        """Return whether a file has not been changed for some time."""
        age_ns = self.age_ns(path)
        return age_ns is None or not self.quiet_ns or age_ns >= self.quiet_ns

    @property
    def young_s(self) -> int:
        """How old a file may be, in s, and still be taken for one that is being written."""
        return self.young_ns // NANOSECONDS_PER_SECOND
