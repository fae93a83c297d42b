"""Patterns of file names that contain the window's start, such as `flows/{window:%Y%m%dT%H%M}*.parquet`."""

from __future__ import annotations

import datetime as dt
import fnmatch
import glob
import os
import re
import string
from dataclasses import dataclass
from pathlib import Path

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window

FIELD = "window"
MAGIC = "*?["
"""Characters that make a path a glob."""

DIRECTIVE = re.compile(r"%(.)")

DIGITS = {"Y": 4, "m": 2, "d": 2, "j": 3, "H": 2, "M": 2, "S": 2}
"""Parts of a time that a name may contain, and their number of digits."""

UNITS_S = {"S": 1, "M": 60, "H": 3600, "d": 86_400, "j": 86_400}
"""Seconds of the parts that may be the last one, the finest first."""

MARK = "\ue000"
"""Stands for a part of the time in a name while the name is converted from glob to regular expression."""


@dataclass(frozen=True)
class Pattern:
    """File names that match a pattern.

    Attributes
    ----------
    text : the pattern as the user wrote it
    unit_ns : resolution of the time in a name, ns
    wildcard : a glob that matches the names of all times
    expression : matches a name and returns the digits of its time, one group for each of `directives`
    directives : parts of the time, such as `H`, in the order of the name
    """

    text: str
    unit_ns: int
    wildcard: str
    expression: re.Pattern[str]
    directives: tuple[str, ...]

    @staticmethod
    def is_one(flows: str) -> bool:
        """Return whether a source of flows is a pattern."""
        return "{" + FIELD in flows

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Parse a pattern.

        Raises
        ------
        InputError : the pattern contains no time to the day or finer, in digits
        """
        literal, directives = "", []
        try:
            for before, field, spec, conversion in string.Formatter().parse(text):
                literal += before
                if field is not None:
                    if field != FIELD or conversion or not spec:
                        raise ValueError(f"a field {field!r} without a time's format")
                    literal += DIRECTIVE.sub(lambda match: MARK if match[1] != "%" else "%", spec)
                    directives += [sign for sign in DIRECTIVE.findall(spec) if sign != "%"]
            if unknown := [sign for sign in directives if sign not in DIGITS]:
                raise ValueError(f"%{unknown[0]}")
            if "Y" not in directives or not ("j" in directives or {"m", "d"} <= set(directives)):
                raise ValueError("no day")
        except ValueError as error:
            raise InputError(
                found=f"pattern of flows {text}, with {error}",
                expected="the window's start in numbers, to the day or finer, such as {window:%Y%m%dT%H%M}",
                todo="Correct places.flows (--flows).",
            ) from error
        unit_s = next(unit for sign, unit in UNITS_S.items() if sign in directives)
        expression = fnmatch.translate(literal)
        for sign in directives:
            expression = expression.replace(MARK, rf"(\d{{{DIGITS[sign]}}})", 1)
        wildcard = re.sub(f"{MARK}+", "*", literal)
        return cls(text, unit_s * NANOSECONDS_PER_SECOND, wildcard, re.compile(expression), tuple(directives))

    @property
    def folder(self) -> str:
        """Folder that all names have in common."""
        return fixed_folder(self.wildcard)

    def everywhere(self, length_ns: int) -> dict[str, Window]:
        """Return all files whose names match, with the span that each name gives."""
        return self.spans(matching(self.wildcard), length_ns)

    def near(self, interval: Window, length_ns: int, lateness_ns: int) -> dict[str, Window]:
        """Return the files that may hold records of an interval: their span, widened by the lateness, overlaps it."""
        reach = lateness_ns + max(length_ns, self.unit_ns)
        first = (interval.start_ns - reach) // self.unit_ns * self.unit_ns
        names = {
            self.text.format(window=_moment(ns)) for ns in range(first, interval.end_ns + lateness_ns, self.unit_ns)
        }
        paths = [path for name in names for path in matching(name)]
        return {
            path: span
            for path, span in self.spans(paths, length_ns).items()
            if span.start_ns - lateness_ns < interval.end_ns and span.end_ns + lateness_ns > interval.start_ns
        }

    def within(self, interval: Window, length_ns: int) -> dict[str, Window]:
        """Return the files whose spans overlap an interval of many windows; each folder is listed once."""
        moments = range(interval.start_ns // self.unit_ns * self.unit_ns, interval.end_ns, self.unit_ns)
        folders = {os.path.dirname(self.text.format(window=_moment(ns))) for ns in moments}  # noqa: PTH120 - keeps "./"
        paths = [path for folder in folders for path in glob.glob(os.path.join(folder, "*"), recursive=True)]  # noqa: PTH118, PTH207 - as `matching`
        return {
            path: span
            for path, span in self.spans(paths, length_ns).items()
            if span.start_ns < interval.end_ns and span.end_ns > interval.start_ns and Path(path).is_file()
        }

    def spans(self, paths: list[str], length_ns: int) -> dict[str, Window]:
        """Return the paths whose names match, with the span that each gives."""
        spans = {path: self._span(path, length_ns) for path in paths}
        return {path: span for path, span in spans.items() if span is not None}

    def _span(self, path: str, length_ns: int) -> Window | None:
        """Return the span of a name: the window of its time or, if that is coarser, the whole hour or day."""
        match = self.expression.match(path)
        if match is None:
            return None
        parts: dict[str, int] = {}
        for sign, digits in zip(self.directives, match.groups(), strict=True):
            if parts.setdefault(sign, int(digits)) != int(digits):
                return None
        try:
            day = dt.date(parts["Y"], parts.get("m", 1), parts.get("d", 1))
            day += dt.timedelta(days=parts["j"] - 1 if "m" not in parts and "j" in parts else 0)
            hour, minute, second = (parts.get(sign, 0) for sign in "HMS")
            moment = dt.datetime.combine(day, dt.time(hour, minute, second, tzinfo=dt.UTC))
        except (ValueError, OverflowError):
            return None
        if day.year != parts["Y"]:  # a year has no such day
            return None
        return Window(Window.starting(moment, length_ns).start_ns, max(length_ns, self.unit_ns))


def matching(wildcard: str) -> list[str]:
    """Return the files that match a glob, absolute or relative; `**` matches any depth, as in a shell.

    A FIFO is left out, for it would keep its reader waiting, and so is a device, which has no end.
    """
    found = glob.glob(wildcard, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    return [path for path in found if Path(path).is_file()]


def fixed_folder(wildcard: str) -> str:
    """Return the folder before the first wildcard of a glob."""
    return os.path.dirname(re.split(f"[{re.escape(MAGIC)}]", wildcard, maxsplit=1)[0]) or "."  # noqa: PTH120 - keeps "./"


def _moment(time_ns: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ns // NANOSECONDS_PER_SECOND, tz=dt.UTC)
