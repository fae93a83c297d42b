"""The curves as SVG: ratios against a knob of the collector, a panel for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

PANEL_WIDTH, PANEL_HEIGHT = 330, 190
LEFT, TOP, BETWEEN, BOTTOM = 44, 30, 40, 74
MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)


class Line(NamedTuple):
    """A line's name, colour and dashes (empty: drawn through), and its width; lines that coincide show by width."""

    name: str
    colour: str
    dashes: str
    width: float


LINES = {
    "exact": Line("job sets exact", "#4477aa", "", 5.0),
    "pairs_right": Line("pairs right", "#228833", "", 3.2),
    "steps_found": Line("steps found", "#ccbb44", "", 1.6),
    "confidence": Line("confidence of jobs", "#aa3377", "5 4", 1.8),
}
"""Figures that are drawn, the widest first; colours that most eyes tell apart (Paul Tol's bright scheme)."""

Values = Mapping[str, Sequence[float | None]]


def curves(title: str, ticks: Sequence[str], panels: Mapping[str, Values]) -> str:
    """Return a picture.

    Parameters
    ----------
    title : what is along the horizontal axis
    ticks : the knob's values, drawn at equal distances
    panels : by method, each figure's ratio (0 to 1) at each tick; None where there is none
    """
    width = LEFT + len(panels) * PANEL_WIDTH + (len(panels) - 1) * BETWEEN + 16
    height = TOP + PANEL_HEIGHT + BOTTOM
    parts: list[str] = []
    for index, (method, values) in enumerate(panels.items()):
        parts += _panel(LEFT + index * (PANEL_WIDTH + BETWEEN), method, title, ticks, values)
    return document(width, height, [*parts, *_legend(LEFT, height - 14)])


def calibration(shares: Mapping[str, Sequence[tuple[float, float, int]]]) -> str:
    """Return a picture of how often rows are right, by their confidence, beside the line on which both are equal.

    Parameters
    ----------
    shares : for each kind of row, bands as `known_gaps.confidence_shares` returns
    """
    height, parts = TOP + PANEL_HEIGHT + BOTTOM, []
    for index, (of, bands) in enumerate(shares.items()):
        left = LEFT + index * (PANEL_WIDTH + BETWEEN)
        parts.append(text(left + PANEL_WIDTH / 2, TOP - 12, of, weight="bold"))
        for mark in MARKS:
            x = left + PANEL_WIDTH * mark
            parts.append(
                f'<line x1="{left}" x2="{left + PANEL_WIDTH}" y1="{_y(mark)}" y2="{_y(mark)}" stroke="#dddddd"/>'
            )
            parts.append(text(left - 6, _y(mark) + 4, f"{mark:g}", anchor="end"))
            parts.append(text(x, TOP + PANEL_HEIGHT + 16, f"{mark:g}"))
        parts.append(
            f'<line x1="{left}" x2="{left + PANEL_WIDTH}" y1="{_y(0)}" y2="{_y(1)}" stroke="#888888" '
            'stroke-dasharray="4 4"/>'
        )
        places = [(left + PANEL_WIDTH * confidence, _y(right), rows) for confidence, right, rows in bands]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        colour = LINES["exact"].colour
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y, rows in places:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
            parts.append(text(x - 6, y + 16, f"{rows:,}", anchor="end"))
        parts.append(text(left + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT + 34, "confidence (numbers: rows)"))
    return document(LEFT + 2 * PANEL_WIDTH + BETWEEN + 16, height, parts)


def document(width: float, height: float, parts: Sequence[str]) -> str:
    """Return an SVG picture of a size, on white, of parts in the order in which they are drawn."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


def _panel(left: float, method: str, title: str, ticks: Sequence[str], values: Values) -> list[str]:
    across = [left + PANEL_WIDTH * (at + 0.5) / len(ticks) for at in range(len(ticks))]
    parts = [text(left + PANEL_WIDTH / 2, TOP - 12, method, weight="bold")]
    for mark in MARKS:
        parts.append(f'<line x1="{left}" x2="{left + PANEL_WIDTH}" y1="{_y(mark)}" y2="{_y(mark)}" stroke="#dddddd"/>')
        parts.append(text(left - 6, _y(mark) + 4, f"{mark:g}", anchor="end"))
    parts += [text(x, TOP + PANEL_HEIGHT + 16, tick) for x, tick in zip(across, ticks, strict=True)]
    parts.append(text(left + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT + 34, title))
    for figure, line in LINES.items():
        points = [(x, _y(value)) for x, value in zip(across, values[figure], strict=True) if value is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        stroke = f'stroke="{line.colour}" stroke-width="{line.width}" stroke-dasharray="{line.dashes or "none"}"'
        parts.append(f'<polyline points="{path}" fill="none" {stroke}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{line.width}" fill="{line.colour}"/>' for x, y in points]
    return parts


def _y(ratio: float) -> float:
    return round(TOP + PANEL_HEIGHT * (1 - ratio), 1)


def _legend(left: float, y: float) -> list[str]:
    parts = []
    for index, line in enumerate(LINES.values()):
        x = left + 165 * index
        stroke = f'stroke="{line.colour}" stroke-width="{line.width}" stroke-dasharray="{line.dashes or "none"}"'
        parts.append(f'<line x1="{x}" x2="{x + 26}" y1="{y - 4}" y2="{y - 4}" {stroke}/>')
        parts.append(text(x + 32, y, line.name, anchor="start"))
    return parts


def text(x: float, y: float, words: str, *, anchor: str = "middle", weight: str = "normal") -> str:
    """Return words at a place of an SVG picture."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="#222222">'
        f"{escape(words)}</text>"
    )
