"""Cycles: parts of steps that were taken for steps, told by what comes once after several of them.

Where gradients are reduced layer by layer, or in few large buckets, their bursts in the backward pass are as regular as
steps, and all alike. But before the first one of a step the forward pass is computed. So after as many bursts every
time there is a longer interval, and in it the group sends what the others do not: tokens or blocks of the forward pass,
or a small first bucket. In the pause of a checkpoint nobody in the job sends more than in other steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, Floats
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.templates.levels import NEARLY_ALL
from llmprism_tasks.stages.step_division.groups.templates.passes import SHORTEST_PASS
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps
from llmprism_tasks.stages.step_division.joint.shown_steps import shown_steps
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS


def with_whole_steps(joint: JointSteps, settings: RhythmSettings) -> JointSteps:
    """Return the steps of groups, of which those that are parts of a longer one are joined, with the longer period.

    Where pairs are cut together, templates tell layers. But equal buckets far from each other are a template each.
    """
    steps, periods, longer = joint.steps.copy(), joint.periods.copy(), {}
    for shown in shown_steps(joint):
        candidates = cycles_by_time(np.diff(shown.ends).astype(np.float64))
        if not candidates:
            continue
        sent = shown.by_sender(shown.by_pair())
        chosen = next((one for one in candidates if sends_more(sent, *one, settings.byte_tolerance)), None)
        if chosen is None:
            continue
        count, first = chosen
        # The interval before a part is the first of its step; there is none before the first part. Of the first step
        # the data may hold a few parts alone, or what a job sends before it: it is none then, as `whole_steps` has it.
        whole = np.empty(int(shown.steps.max()) + 1, np.int64)
        whole[shown.steps] = (np.arange(shown.steps.size) - 1 - first) // count
        whole -= whole[shown.steps[0]] + (first + 1 < settings.least_step * count)
        bursts = np.flatnonzero((joint.steps >= 0) & np.isin(joint.places, shown.places))
        steps[bursts] = whole[joint.steps[bursts]]
        period = float(np.median(shown.ends[count:] - shown.ends[:-count]))
        periods[shown.places] = np.where(np.isnan(periods[shown.places]), np.nan, period)
        longer[shown.pairs["group"][0]] = period
    if not longer:
        return joint
    in_step = joint.streams.in_step
    period_ns = pl.col("group").replace_strict(longer, default=pl.col("group_period_ns"), return_dtype=pl.Float64)
    streams = replace(joint.streams, in_step=in_step.with_columns(group_period_ns=period_ns))
    return replace(joint, steps=steps, periods=periods, streams=streams)


def cycles_by_time(lasts: Floats) -> list[tuple[int, int]]:
    """Return after how many intervals a longer one comes every time, and which is the first: fewest first.

    It is longer than any of the others by what a pass takes of them all, and by no more than half of that.

    Parameters
    ----------
    lasts : shape (intervals,), ns
    """
    found = []
    for count in range(2, lasts.size // 2 + 1):
        cycles = lasts.size // count
        first = int(np.argmax(np.median(lasts[: cycles * count].reshape(cycles, count), axis=0)))
        whole = (lasts.size - first) // count
        if lasts[first::count].size < FEW_BURSTS:
            continue
        each = lasts[first : first + whole * count].reshape(whole, count)
        share = (each[:, 0] - each[:, 1:].max(axis=1)) / each.sum(axis=1)
        if ((share >= SHORTEST_PASS) & (share <= MAJORITY)).mean() >= NEARLY_ALL:
            found.append((count, first))
    return found


def sends_more(sent: Floats, count: int, first: int, tolerance: float) -> bool:
    """Say whether most senders send more in the longer interval of a cycle than in others, and in nearly all cycles
    what they do in the one before.

    It may be little more: the first bucket of gradients is a megabyte by PyTorch's default, where others may be
    hundreds. But it is more than in nearly all others, in nearly all cycles.

    Parameters
    ----------
    sent : shape (senders, intervals), bytes
    count, first : after how many intervals the longer one comes, and which is the first
    """
    longer = np.arange(sent.shape[1]) % count == first
    usual = np.quantile(sent[:, ~longer], NEARLY_ALL, axis=1, keepdims=True)
    more = (sent[:, longer] > usual).mean(axis=1) >= NEARLY_ALL
    again = np.abs(sent[:, count:] - sent[:, :-count]) <= tolerance * sent[:, count:]
    return bool(more.mean() >= MAJORITY and again.mean() >= NEARLY_ALL)
