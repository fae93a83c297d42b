"""Charts: figures as Plotly takes them, made of plain values. Colours are names that the page's style gives a value.

A browser draws them with `static/charts.js`. Names in them are escaped, as Plotly reads a little HTML in texts.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from llmprism_tasks.reports.pages.markup import PARTS, iso, shown

Figure = dict[str, Any]

DECADES = 4
"""Of a logarithmic axis, downwards from the largest value; what is less does not matter to bandwidth."""


class Chart(NamedTuple):
    """A figure with its title, what its axes say in a sentence (for who cannot see it), and its height in pixels."""

    title: str
    tells: str
    figure: Figure
    height: int = 260


class Shade(NamedTuple):
    """An interval of time that is marked in a chart."""

    start_ns: int
    end_ns: int
    label: str


def label(text: object, most: int = 40) -> str:
    """Return a name for a chart."""
    return html.escape(shown(text, most), quote=False)


def lines(
    series: Sequence[tuple[str, str, Sequence[int], Sequence[float | None]]],
    *,
    unit: str,
    shades: Sequence[Shade] = (),
    markers: bool = False,
    span: tuple[int, int] | None = None,
    hover: str = ".3f",
    by_decades: bool = False,
) -> Figure:
    """Return lines over time.

    Parameters
    ----------
    series : name, colour, times in ns and values of each line
    span : ends of the horizontal axis, ns; None for those of the values
    by_decades : whether the vertical axis is logarithmic, for values of which some are a hundred times others; it has
        `DECADES`
    """
    upright: Figure = {"rangemode": "tozero"}
    if by_decades:
        most = max((value for *_, values in series for value in values if value), default=1.0)
        upright = {"type": "log", "dtick": 1, "range": [math.log10(most) - DECADES, math.log10(most) + 0.3]}
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers" if markers else "lines",
                "name": label(name),
                "x": [iso(time) for time in times],
                "y": list(values),
                "line": {"color": colour, "width": 2 if colour != "--muted-line" else 1},
                "marker": {"size": 4},
                "hovertemplate": f"%{{y:{hover}}} {unit}",
            }
            for name, colour, times, values in series
        ],
        "layout": {
            "xaxis": _over(span),
            "yaxis": {"title": {"text": unit}, **upright},
            "shapes": [_marked(shade) for shade in shades],
            "showlegend": len(series) > 1,
        },
    }


def _marked(shade: Shade) -> Figure:
    return {
        **_place(shade),
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": "--shade",
        "label": {
            "text": label(shade.label, 60),
            "textposition": "bottom left",
            "padding": 6,
            "font": {"size": 12, "color": "--culprit"},
        },
    }


def _over(span: tuple[int, int] | None) -> Figure:
    return {"type": "date"} if span is None else {"type": "date", "range": [iso(time) for time in span]}


def _place(shade: Shade) -> Figure:
    return {
        "type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1,
        "x0": iso(shade.start_ns), "x1": iso(shade.end_ns),
    }  # fmt: skip


def areas(
    times: Sequence[int],
    parts: dict[str, Sequence[float]],
    *,
    unit: str,
    shades: Sequence[Shade] = (),
    span: tuple[int, int] | None = None,
) -> Figure:
    """Return stacked areas over time, a colour for each part of a step, level from each time to the next.

    Intervals are framed, as areas hide what is below them.
    """
    return {
        "data": [
            {
                "type": "scatter", "mode": "lines", "stackgroup": "one", "name": PARTS[part],
                "x": [iso(time) for time in times], "y": list(values),
                "line": {"width": 0.5, "color": f"--{part}", "shape": "hv"},
                "fillcolor": f"--{part}", "hovertemplate": f"%{{y:.3f}} {unit}",
            }
            for part, values in parts.items()
        ],
        "layout": {
            "xaxis": _over(span),
            "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
            "shapes": [
                {**_place(shade), "layer": "above", "line": {"width": 1.5, "color": "--culprit", "dash": "dot"}}
                for shade in shades
            ],
            "showlegend": True,
        },
    }  # fmt: skip


class Band(NamedTuple):
    """Neighbouring rows of a heat map that have one label; a frame marks a suspect, a line the first of a stage."""

    label: str
    first: int
    last: int
    suspect: bool
    opens: bool


def heat(
    times: Sequence[int],
    names: Sequence[str],
    rows: Sequence[Sequence[float | None]],
    *,
    bands: Sequence[Band],
    unit: str,
    limit: float,
) -> Figure:
    """Return a heat map, a row for each name, the first at the top; `limit` is where the colours end, on both sides."""
    distinct = [f"{label(name)}{chr(0x2009) * list(names[:at]).count(name)}" for at, name in enumerate(names)]
    across = [f"{number + 1}" for number in range(len(times))]
    some = range(0, len(times), max(-(-len(times) // 10), 1))
    right = len(times) - 0.5
    return {
        "data": [
            {
                "type": "heatmap", "x": across, "y": distinct, "z": [list(row) for row in rows],
                "customdata": [[iso(time)[11:23] for time in times]] * len(names),
                "zmin": -limit, "zmax": limit, "zmid": 0,
                "colorscale": [[0, "--cool"], [0.5, "--neutral"], [1, "--warm"]],
                "colorbar": {"thickness": 12, "ticksuffix": " %", "tickprefix": "", "len": 0.9},
                "hovertemplate": f"%{{y}}<br>step ending %{{customdata}}<br>%{{z:+.1f}} {unit}<extra></extra>",
                "xgap": 1, "ygap": 0 if len(names) > 64 else 1, "hoverongaps": False,
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": "end of the step"}, "type": "category", "tickvals": [across[at] for at in some],
                      "ticktext": [iso(times[at])[11:19] for at in some]},
            "yaxis": {"autorange": "reversed", "type": "category", "ticks": "",
                      "tickvals": [distinct[(band.first + band.last) // 2] for band in bands if band.label],
                      "ticktext": [label(band.label, 24) for band in bands if band.label]},
            "shapes": [
                *({"type": "line", "x0": -0.5, "x1": right, "y0": band.first - 0.5, "y1": band.first - 0.5,
                   "line": {"width": 1, "color": "--rule-strong"}} for band in bands if band.opens),
                *({"type": "rect", "x0": -0.5, "x1": right, "y0": band.first - 0.5, "y1": band.last + 0.5,
                   "line": {"width": 2.5, "color": "--ink"}} for band in bands if band.suspect),
            ],
            "hovermode": "closest",
        },
    }  # fmt: skip
