"""Platforms by how well their collector sees, and the points of the curves, which turn one knob of it at a time."""

from __future__ import annotations

from typing import NamedTuple

from accuracy.families.scenario_draw import Content, Draw

DAMAGE: Content = {
    "lost": 0.05,
    "doubled": 0.01,
    "doubled_us": 20,
    "skew_us": 1000,
    "seen_by": "any",
    "clock_us": 1,
    "disorder_ms": 200,
    "retransmitted": 0.001,
}
"""Records lost and doubled, times off by their switch's clock and cut to microseconds, rows out of order."""


def damaged(seed: int) -> Content:
    """Three tenants before a collector that loses, doubles, disorders and mistimes records."""
    return _three("damaged", seed) | {"collector": DAMAGE}


def damaged_more(seed: int) -> Content:
    """The same damage with twice as many records lost."""
    return _three("damaged_more", seed) | {"collector": DAMAGE | {"lost": 0.10}}


def _three(family: str, seed: int) -> Content:
    draw = Draw(family, seed)
    jobs = [
        draw.dense("pipes", draw.one_of(4, 8), tp=8, pp=draw.one_of(2, 4)),
        draw.dense("replicas", 4, tp=8, pp=1),
        draw.dense("both", 4, tp=4, pp=2, model=draw.one_of("3b", "7b")),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


class Curve(NamedTuple):
    """A knob of the collector and the values it is turned to.

    Attributes
    ----------
    title : what the axis says, with its unit
    key : of the collector's table
    values : as the axis says them, and as the key takes them
    """

    title: str
    key: str
    values: tuple[tuple[str, float], ...]


CURVES = {
    "loss": Curve("records lost, %", "lost", tuple((str(one), one / 100) for one in (0, 1, 2, 5, 10, 20))),
    "skew": Curve(
        "standard deviation of the switches' clocks, ms",
        "skew_us",
        tuple((f"{one:g}", 1000 * one) for one in (0, 0.1, 0.5, 1, 2, 5)),
    ),
    "sampling": Curve("one packet counted in", "sampled", tuple((f"{one:,}", one) for one in (1, 10, 100, 1000))),
    "idle": Curve("idle timeout, ms", "idle_timeout_ms", tuple((f"{one:g}", one) for one in (0.2, 1, 5, 20, 50))),
}


def point(key: str, value: float, seed: int) -> Content:
    """Return the platform of the curves, the same at all points, before a collector with one knob turned."""
    draw = Draw("curves", seed)
    jobs = [
        draw.dense("pipes", 4, (2, 4), tp=8, pp=2, micro_batches=8, model="7b"),
        draw.dense("replicas", 3, (2, 4), tp=8, pp=1, model="7b"),
    ]
    turned = int(value) if key == "sampled" else value
    collector = {"seen_by": "any", "sampled": 1, "lost": 0.0, "skew_us": 0.0, "idle_timeout_ms": 1.0} | {key: turned}
    return {"jobs": jobs, "collector": collector, "fabric": draw.fabric()}
