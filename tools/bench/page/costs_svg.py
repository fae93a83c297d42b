"""Costs against flows as SVG, both on logarithmic scales: a panel of seconds and one of memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from accuracy.pages.curves_svg import document, text

WIDTH, HEIGHT = 360, 280
LEFT, TOP, BETWEEN, BOTTOM = 58, 34, 66, 82
LEGEND = 160

Point = tuple[float, float]
"""Flows, and what they cost."""


class Line(NamedTuple):
    """How a figure is drawn: its name, colour and dashes (empty: drawn through)."""

    name: str
    colour: str
    dashes: str


class Panel(NamedTuple):
    """A panel: what it shows with its unit, and each line's points."""

    title: str
    lines: Mapping[Line, Sequence[Point]]


def fitted(points: Sequence[Point]) -> tuple[float, float] | None:
    """Return slope and intercept of the least squares line through the points' logarithms; None below two sizes."""
    across, up = ([math.log10(point[axis]) for point in points] for axis in (0, 1))
    if len(points) < 2 or max(across) - min(across) < math.log10(1.5):
        return None
    mean_x, mean_y = sum(across) / len(across), sum(up) / len(up)
    spread = sum((x - mean_x) ** 2 for x in across)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(across, up, strict=True)) / spread
    return slope, mean_y - slope * mean_x


def picture(panels: Sequence[Panel]) -> str:
    """Return a picture: the points as they are, and through them the line that fits best."""
    width = LEFT + len(panels) * WIDTH + (len(panels) - 1) * BETWEEN + 16
    height = TOP + HEIGHT + BOTTOM
    parts: list[str] = []
    for index, panel in enumerate(panels):
        parts += _panel(LEFT + index * (WIDTH + BETWEEN), panel)
    parts += _legend([line for panel in panels for line, points in panel.lines.items() if points], height - 14)
    return document(width, height, parts)


def _panel(left: float, panel: Panel) -> list[str]:
    points = [point for several in panel.lines.values() for point in several]
    across, up = (_marks([point[axis] for point in points]) for axis in (0, 1))

    def x_at(value: float) -> float:
        return round(left + WIDTH * math.log(value / across[0]) / math.log(across[-1] / across[0]), 1)

    def y_at(value: float) -> float:
        return round(TOP + HEIGHT * (1 - math.log(value / up[0]) / math.log(up[-1] / up[0])), 1)

    parts = [text(left + WIDTH / 2, TOP - 14, panel.title, weight="bold")]
    for mark in up:
        y = y_at(mark)
        parts += [_rule(left, left + WIDTH, y, y), text(left - 6, y + 4, _shown(mark), anchor="end")]
    for mark in across:
        x = x_at(mark)
        parts += [_rule(x, x, TOP, TOP + HEIGHT), text(x, TOP + HEIGHT + 16, _shown(mark))]
    parts.append(text(left + WIDTH / 2, TOP + HEIGHT + 34, "flow records in the minute"))
    for line, several in panel.lines.items():
        fit = fitted(several)
        if fit is not None:
            ends = [min(point[0] for point in several), max(point[0] for point in several)]
            path = " ".join(f"{x_at(x)},{y_at(10 ** (fit[1] + fit[0] * math.log10(x)))}" for x in ends)
            parts.append(f'<polyline points="{path}" fill="none" {_stroke(line)}/>')
        parts += [f'<circle cx="{x_at(x)}" cy="{y_at(y)}" r="3.2" fill="{line.colour}"/>' for x, y in several]
    return parts


def _marks(values: Sequence[float]) -> list[float]:
    """Return marks of 1, 2 and 5 times powers of ten, from the last one below the values to the first one above."""
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    marks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    first = max((mark for mark in marks if mark <= min(values)), default=marks[0])
    last = min(mark for mark in marks if mark > max(values))
    return [mark for mark in marks if first <= mark <= last]


def _shown(mark: float) -> str:
    return f"{mark / 1e6:g} M" if mark >= 1e5 else f"{mark:g}"


def _legend(lines: Sequence[Line], y: float) -> list[str]:
    parts = []
    for index, line in enumerate(dict.fromkeys(lines)):
        x = LEFT + LEGEND * index
        parts.append(f'<line x1="{x}" x2="{x + 26}" y1="{y - 4}" y2="{y - 4}" {_stroke(line)}/>')
        parts.append(text(x + 32, y, line.name, anchor="start"))
    return parts


def _stroke(line: Line) -> str:
    return f'stroke="{line.colour}" stroke-width="2" stroke-dasharray="{line.dashes or "none"}"'


def _rule(x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}" stroke="#dddddd"/>'
