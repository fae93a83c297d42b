"""Records of rings and pairs of a job whose last three of nine steps took twice as long."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl
from handmade import MB
from job_evidence import DEFAULT, groups, history, kinds, working

from llmprism_tasks.stages.diagnosis.network import path_pace
from llmprism_tasks.stages.diagnosis.step_times.slow_steps import mark_slow_steps

STEPS = mark_slow_steps(history([1000] * 6 + [2000] * 3), DEFAULT)

Row = tuple[float, float, str, str, int]
RING = ("ab", "bc", "cd", "da")


def placed(*rows: Row, kind: str = "pp", rings: Sequence[str] = ("ab", "cd")) -> pl.DataFrame:
    evidence = dataclasses.replace(working([{"a": [0.0]}]), flows=kinds("j", **{kind: rows}), groups=groups(*rings))
    return path_pace.placed(evidence, STEPS)


def passed_on(at: float, slow: str, pause: float, come: float = 0.0) -> list[Row]:
    """Return one round of the ring `abcd`, ms: each member sends its own part of 1 MB in 10 ms, then five it received.

    Before `slow` a part goes in two halves of 5 ms with a pause between; `d` comes late by `come`.
    """
    rows: list[Row] = []
    has, free = (dict.fromkeys("abcd", at) | {"d": at + come} for _ in range(2))
    for _ in range(6):
        for src, dst in RING:
            begin = max(has[src], free[src])
            halves = [begin, begin + 5 + pause * (src == slow)]
            rows += [(half, half + 5, src, dst, MB // 2) for half in halves]
            free[src] = halves[1] + 5
        has = {dst: max(free[src], has[dst]) for src, dst in RING}
    return rows
