"""Picture: lanes of a few steps as SVG, a band for each NIC; the NICs that were diagnosed stand out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.reports.timeline.lanes import Lanes

Row = dict[str, Any]

MOST_NICS = 64
"""Bands that fit on two screens."""

WIDTH, LEFT, TOP, BAND, BOTTOM = 1200, 210, 44, 24, 34
TRACKS = {
    "compute": (0, 9, "#4477aa"),
    "idle": (0, 9, "#dddddd"),
    "pp_send": (10, 3, "#ee6677"),
    "pp_recv": (13, 3, "#ccbb44"),
    "dp_sync": (16, 3, "#228833"),
    "other": (16, 3, "#aa3377"),
}
"""Where in its band a kind is drawn, how high, and its colour (Paul Tol's bright scheme: most eyes tell them apart)."""

LABELS = {"compute": "computing (inferred)", "idle": "idle (inferred)"}
ALARM = "#bb2233"
LONGEST_NAME = 30


def svg(lanes: Lanes) -> str:
    """Return the picture of at least one step. Names are escaped, and cut where they are long; it loads nothing."""
    own = lanes.steps.filter(pl.col("addr").is_null())
    start_ns = int(lanes.steps.select(pl.col("start_ns").min()).item())
    end_ns = int(lanes.steps.select(pl.col("end_ns").max()).item())
    scale = (WIDTH - LEFT - 10) / (end_ns - start_ns)
    height = TOP + BAND * lanes.nics.height + BOTTOM
    suspects = _suspects(lanes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="6" y="16" font-weight="bold">from {_time(start_ns)}</text>',
    ]
    for band, nic in enumerate(lanes.nics.iter_rows(named=True)):
        parts += _band(lanes, nic, TOP + BAND * band, start_ns, scale, suspects)
    for step in own.iter_rows(named=True):
        x = LEFT + (step["start_ns"] - start_ns) * scale
        duration_s = (step["end_ns"] - step["start_ns"]) / NANOSECONDS_PER_SECOND
        parts += [
            f'<text x="{x + 3:.1f}" y="{TOP - 8}">step {step["step"]}: {duration_s:.3f} s</text>',
            f'<path d="M{x:.1f} {TOP - 20}V{height - BOTTOM}" stroke="black" stroke-dasharray="3 2"/>',
        ]
    parts += _legend(set(lanes.slices["kind"]), height - 12)
    return "\n".join([*parts, "</svg>", ""])


def _suspects(lanes: Lanes) -> dict[str, str]:
    """Return what is wrong with NICs and hosts, by name; the worst fault of each."""
    found = lanes.faults.filter(pl.col("subject_type").is_in(["addr", "host"])).select("subject", "kind").rows()
    return dict(reversed(found))


def _band(lanes: Lanes, nic: Row, y: int, start_ns: int, scale: float, suspects: dict[str, str]) -> Iterator[str]:
    fault = suspects.get(nic["addr"]) or suspects.get(nic["host"])
    name = f"{nic['addr']} {nic['host']}" + ("" if nic["pp_stage"] is None else f" stage {nic['pp_stage']}")
    if fault is not None:
        yield f'<rect x="0" y="{y - 2}" width="{WIDTH}" height="{BAND - 1}" fill="{ALARM}" fill-opacity="0.12"/>'
        name = f"{fault}: {name}"
    colour = "black" if fault is None else ALARM
    yield f'<text x="6" y="{y + 12}" fill="{colour}"><title>{_text(name)}</title>{_text(name, LONGEST_NAME)}</text>'
    mine = lanes.slices.filter(pl.col("addr") == nic["addr"])
    for kind, (top, high, fill) in TRACKS.items():
        times = mine.filter(pl.col("kind") == kind).select(
            x=LEFT + (pl.col("start_ns") - start_ns) * scale, width=(pl.col("end_ns") - pl.col("start_ns")) * scale
        )
        drawn = "".join(f"M{x:.2f} {y + top}h{width:.2f}v{high}h{-width:.2f}z" for x, width in times.iter_rows())
        if drawn:
            yield f'<path d="{drawn}" fill="{fill}"><title>{LABELS.get(kind, kind)}</title></path>'


def _legend(kinds: set[str], y: int) -> Iterator[str]:
    for place, kind in enumerate(kind for kind in TRACKS if kind in kinds):
        x = LEFT + place * 150
        yield f'<rect x="{x}" y="{y - 9}" width="14" height="10" fill="{TRACKS[kind][2]}"/>'
        yield f'<text x="{x + 19}" y="{y}">{LABELS.get(kind, kind)}</text>'


def _text(name: str, longest: int = 1_000) -> str:
    """Cut a name, and replace what XML cannot hold and what changes the direction of writing."""
    shown = name if len(name) <= longest else name[: longest - 1] + "…"
    return escape("".join(one if one.isprintable() else "\ufffd" for one in shown))


def _time(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, NANOSECONDS_PER_SECOND)
    return f"{dt.datetime.fromtimestamp(seconds, tz=dt.UTC):%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d} UTC"
