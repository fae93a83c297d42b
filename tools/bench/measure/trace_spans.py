"""Spans: what parts of this process take, nested in one another, one after another on the main thread."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Figures: TypeAlias = dict[str, Any]
CLEAR_REFS, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
RESET_PEAK = "5"  # what Linux's proc(5) has for "make the peak of resident memory what it is now"
COUNTED_LATE_BYTES = 2**24
"""Linux counts pages on each processor and adds them up later: a new peak may begin so far from the resident memory."""


@dataclass
class Spans:
    """Spans as they end; those inside others have their names in front.

    Attributes
    ----------
    ended : of each span its `name`, `wall_s`, `cpu_s` and, if it is in no other, `peak_bytes`: the greatest resident
        memory of its own time, or None where Linux does not let a peak begin anew
    peak_bytes : the greatest resident memory seen so far
    """

    ended: list[Figures] = field(default_factory=list)
    peak_bytes: int = 0
    _open: list[str] = field(default_factory=list)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Measure a block. Processor time is the whole process's, whatever threads the block uses."""
        outermost = not self._open
        self._open.append(name)
        own_peak = outermost and self._begin_peak()
        wall, cpu = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            taken: Figures = {"wall_s": time.monotonic() - wall, "cpu_s": time.process_time() - cpu}
            if outermost:
                peak = self._peak()
                taken["peak_bytes"] = peak if own_peak else None
            self.ended.append({"name": "/".join(self._open), **taken})
            self._open.pop()

    def hooked(self, function: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """Return a function with a span around it when the main thread calls it.

        Parameters
        ----------
        name : of the span, from the function's arguments
        """

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return function(*args, **kwargs)
            with self.span(name(*args, **kwargs)):
                return function(*args, **kwargs)

        return measured

    def figures(self) -> Figures:
        """Return the spans that have ended, and the process's peak of memory in bytes."""
        self._peak()
        return {"spans": self.ended, "peak_bytes": self.peak_bytes}

    def _begin_peak(self) -> bool:
        """Let the peak of memory begin anew; returns whether it did."""
        self._peak()  # what was before is not lost
        with suppress(OSError):
            CLEAR_REFS.write_text(RESET_PEAK)
        return _memory("VmHWM") - _memory("VmRSS") <= COUNTED_LATE_BYTES

    def _peak(self) -> int:
        peak = _memory("VmHWM")
        self.peak_bytes = max(self.peak_bytes, peak)
        return peak


def _memory(name: str) -> int:
    """Return one of the sizes in /proc/self/status, in bytes."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
