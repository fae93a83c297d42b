"""Refusal: the groups whose single pairs show parts of a pipeline's steps, layers or something else, and no steps."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, Floats
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups import balance
from llmprism_tasks.stages.step_division.groups.templates.levels import NEARLY_ALL
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps
from llmprism_tasks.stages.step_division.joint.shown_steps import ShownSteps, shown_steps
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.clusters import connected_nics


def groups_without_steps(joint: JointSteps, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups whose single pairs show no steps: `group`, `parts`.

    What they show are `parts` of a pipeline's steps where bytes come back, over links that show them, later than in the
    one that they were sent in, and where only links show them, and what joins their pipelines is sent in few. And they
    are layers, or something else, where most bytes are sent in few of them, or many of them have far fewer or more
    bytes than others: layers of the forward pass reduce no gradients. Where just a few NICs show them, all senders have
    to send the same in nearly all of them, as in the steps of a template.
    """
    refused = [joint.streams.found.select("group", parts=pl.lit(value=True)).clear()]
    for shown in shown_steps(joint):
        if shown.together:
            continue
        each = shown.by_pair()
        parts = _comes_back_later(shown, each) or _links_are_joined_seldom(shown, each)
        if parts or not _is_sent_alike(shown, each, settings):
            refused.append(shown.pairs[:1].select("group", parts=pl.lit(parts)))
    return pl.concat(refused)


def groups_that_break_off(joint: JointSteps, since_ns: int, until_ns: int) -> pl.Series:
    """Return the groups whose single pairs no longer show steps where a template of all pairs of the same period does:
    a slow path of some may fill the silences of each, while all of them together still move the bytes of steps.

    Parameters
    ----------
    since_ns, until_ns : the time that is looked at
    """
    streams, broken = joint.streams.alike, []
    names = streams.streams["group"].to_list()
    of_group = dict(zip(names, zip(streams.low, streams.high, strict=True), strict=True))
    for shown in shown_steps(joint):
        name = shown.pairs["group"][0]
        if shown.together or name not in of_group:
            continue
        low, high = of_group[name]
        ends = streams.until_ns[low:high][streams.number[low:high] >= 0]
        of_template, of_pairs = (((one >= since_ns) & (one < until_ns)).sum() for one in (ends, shown.ends))
        if of_template >= FEW_BURSTS and of_pairs < NEARLY_ALL * of_template:
            broken.append(name)
    return pl.Series("group", broken, dtype=streams.streams.schema["group"])


def _comes_back_later(shown: ShownSteps, each: Floats) -> bool:
    """Say whether over the links that show the steps bytes come back later than in the one that they were sent in."""
    links = np.flatnonzero(shown.pairs["shows"].to_numpy())
    first = links[0] if links.size else 0
    # What the data end in the middle of may still come back, wherever in the step single pairs part it.
    seen = each[links][:, :-1] if each.shape[1] > 1 else each[links]
    back = np.maximum(shown.pairs["back"].to_numpy()[links] - first, -1)
    return balance.unreturned(seen, back, one_by_one=True) > balance.UNRETURNED


def _links_are_joined_seldom(shown: ShownSteps, each: Floats) -> bool:
    """Say whether only links of pipelines show the steps, and what joins them all to one job is sent in few of these.

    Replicas exchange gradients once in a step, whatever else they do: links that repeat in between carry micro-batches.
    """
    pairs = shown.pairs.with_columns(bytes=each.sum(axis=1), there=(each > 0).mean(axis=1))
    main = balance.main_pairs(nic_pairs.named(pairs), "group")
    links, others = main.filter("shows"), main.filter(~pl.col("shows"))
    if links.is_empty() or (links["back"] < 0).any() or (others["there"] >= MAJORITY).any():
        return False
    apart, joined = (connected_nics(main, some)["cluster"].n_unique() for some in (links, main))
    return bool(joined == 1 < apart)


def _is_sent_alike(shown: ShownSteps, each: Floats, settings: RhythmSettings) -> bool:
    """Say whether senders send alike in most steps; where just a few of them show these, the same in nearly all."""
    sent = shown.by_sender(each)
    showing = shown.pairs.filter("shows")["sender"].n_unique()
    if showing >= settings.least_support * len(sent):
        # Of captured steps 0.9 to 1 of the bytes are alike, of layers that were taken for steps 0.37. Layers of the
        # backward pass may have most bytes: of the steps themselves 0.75 to 1 are alike, of such layers 0.53.
        # The data may begin in the middle of the first step, and end in that of the last.
        inner = sent[:, 1:-1] if sent.shape[1] > 2 else sent[:, :1]
        return bool(balance.alike_bytes_ratio(sent) >= MAJORITY and balance.is_alike(inner).mean() >= NEARLY_ALL)
    return balance.alike_bytes_ratio(sent, settings.byte_tolerance) >= NEARLY_ALL
