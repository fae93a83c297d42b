"""Templates: the steps of a group as what comes again on all of its streams at once, whatever time it takes.

In every training step each NIC sends the same bytes, even where its peers' shares differ, as those of experts do. Here
all pairs of a group are cut together, at moments when none of them sends: a template says how many bytes each NIC sends
in a step, and the best cuts make most segments like it (`kernels/template_cuts.py`). Templates are proposed by cutting
at silences of different lengths, and each is made better by the segments that it finds. Parts of a step (buckets,
micro-batches) and several steps together come again as well: the template of the steps is the smallest one between
whose segments the silences stand out from those inside. Where none does, the pairs are asked one by one; what these
tell are layers or micro-batches where a template explains all bytes by several of them. Where they do not answer
either, the byte clock says how many bytes a step is (`byte_clock.py`), or such a template does. Where parameters are
gathered layer by layer no silence need stand out: there the smallest template that shows a forward and a backward pass
is the step, or a micro-batch of it (`passes.py`), and longer silences are pauses between several steps. Where bytes
come back later than in the segment that they were sent in, segments are parts of steps, and the steps of a
pipeline are what lies between the silences at which nothing is under way (`balance.py`).
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS
from llmprism_tasks.numerics.robust import Flags, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups import byte_clock, passes, step_ends
from llmprism_tasks.stages.step_division.groups.accumulation import accumulated
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic
from llmprism_tasks.stages.step_division.groups.template_levels import (
    CLEAR_SIGMAS,
    CLOCKED_CLEAR_SIGMAS,
    EXPLAINED_BYTES,
    LEAST_VARIANCE,
    NEARLY_ALL,
    PRESENT,
    SAME_TEMPLATE,
    Steps,
    bytes_of_pairs,
    has_more,
    has_same_pairs,
    is_between_longer,
    is_scatter_and_gather,
    is_several,
    takes_part,
)
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS
from llmprism_tasks.stages.step_division.kernels.template_cuts import best_cuts

SILENCES_PER_STEP = 8
"""Silences for each step that cuts are chosen from, the longest ones."""

CLOCKED_SILENCES_PER_STEP = 32
"""The same where the byte clock tells the steps: a step has fewer layers or micro-batches, and it may begin after none
of its longest silences."""

SILENCE_LEVELS = 24
"""Lengths of silences at which segments are looked at for templates, each a few less than the one before."""

MOST_TEMPLATES = 12
"""Templates that are tried, those that explain most first."""

MOST_STRETCHES = 1024
"""Stretches of a group's traffic that are asked what is moved in a step."""

REFINEMENTS = 2
"""Times that a template is made better."""

FOREVER = np.iinfo(np.int64).max
"""Up to when the last segment goes."""


def repeated(traffic: Traffic, settings: RhythmSettings, *, by_bytes: bool, by_passes: bool) -> Steps | None:
    """Return the steps of a group: what the smallest template between whose segments the silences stand out makes of
    it; where none does, what the template makes of it that comes again by the byte clock, or the clearest one if it
    explains all. None without any of these.

    Foreign traffic fills the silences. So pairs that have no part in the likeliest steps are left out once, and so are
    records that last longer than these; and the others are asked again.

    Parameters
    ----------
    by_bytes : whether the byte clock may tell the steps where silences do not
    by_passes : whether a forward and a backward pass may; those of pipelines are no two lengths of silence
    """
    best = _find_steps(traffic, settings, by_bytes=by_bytes, by_passes=by_passes)
    if best is None:
        return None
    segment = np.searchsorted(best.until_ns, traffic.starts)
    steady = takes_part(bytes_of_pairs(traffic, best.until_ns)[best.whole])
    kept = steady[traffic.pair] & (best.whole[segment] | (traffic.ends - traffic.starts <= best.period_ns))
    again = best if kept.all() else _find_steps(traffic.of(kept), settings, by_bytes=by_bytes, by_passes=by_passes)
    return again if again is not None and (again.told or again.ended or again.is_clear()) else None


def repeated_at(traffic: Traffic, ends: Integers, settings: RhythmSettings, *, by_passes: bool) -> Steps | None:
    """Return the steps of a group, cut where steps end; None where those found end there, or others are not as many.

    That is where the backward pass ends, if silences show the passes (`passes.py`), or else what `step_ends.py` says.

    Parameters
    ----------
    ends : when the steps ended that were found, ns
    by_passes : whether silences may tell; where blocks of context or tokens are sent, gradients follow the backward
        pass, and it does not end with its last long silence
    """
    silences = traffic.silences(settings.shortest_quiet_ms * NANOSECONDS_PER_MS)
    moved = traffic.moved(np.searchsorted(traffic.starts, ends, side="right"))[1:-1]
    if silences.at.size < FEW_BURSTS or len(moved) < FEW_BURSTS:
        return None
    total = traffic.moved(silences.at[:0])[-1]
    found = _fit_template(
        traffic, silences, total, np.median(np.diff(moved, axis=0), axis=0), settings, CLOCKED_SILENCES_PER_STEP
    )
    if found is None or found.explained < NEARLY_ALL or found.whole.sum() < NEARLY_ALL * ends.size:
        return None
    longest = silences.longest(_silence_count(CLOCKED_SILENCES_PER_STEP, total, found.template))
    sender = np.zeros(int(traffic.pair.max()) + 1, np.int64)
    sender[traffic.pair] = traffic.stream
    passed = _end_of_backward(ends, traffic, silences, settings) if by_passes else None
    if passed is not None:
        return _cut_near_places(passed.places, traffic, longest, found, settings) if passed.moved else None
    records = traffic.pair, traffic.starts, traffic.sizes
    steps = total.sum() / found.template.sum()
    waits = step_ends.waits(records, sender, longest.at, traffic.latest[longest.at - 1], steps)
    cuts, segments = _cut_at_silences(traffic, longest, waits - np.median(waits), found.template, settings)
    ended = _describe_steps(traffic, longest, cuts, total, found.template, segments, settings)
    if ended.whole.sum() < FEW_BURSTS:
        return None

    def waited(moments: Integers) -> float:
        at = np.searchsorted(traffic.starts, moments, side="right")
        return float(np.median(step_ends.waits(records, sender, at, moments, steps)))

    return (
        ended if waited(ended.ends_ns[ended.whole][:-1]) > waited(ends[:-1]) + step_ends.MOVED_ENDS_LATENESS else None
    )


def _cut_near_places(
    places: Floats, traffic: Traffic, silences: Silences, found: Steps, settings: RhythmSettings
) -> Steps | None:
    """Return the steps of a group, cut at silences near a place of each of the steps that were found; None where hardly
    any is like others then.

    How long silences are does not count: a cut that is a burst off is worth as much less as an e-fold of a silence is
    elsewhere.

    Parameters
    ----------
    places : bytes that the group had sent until then
    """
    at, total = silences.at, traffic.moved(silences.at[:0])[-1]
    sent = traffic.sent
    step = found.template.sum()
    # A step before each, too, for some have more between them: an evaluation.
    off = np.abs(sent[at][:, np.newaxis] - np.concatenate([places, places - step])).min(axis=1) / step
    bursts = at.size / (sent[-1] / step)
    cuts, segments = _cut_at_silences(traffic, silences, -off * bursts, found.template, settings)
    ended = _describe_steps(traffic, silences, cuts, total, found.template, segments, settings)
    return ended if ended.whole.sum() >= FEW_BURSTS else None


def _find_steps(traffic: Traffic, settings: RhythmSettings, *, by_bytes: bool, by_passes: bool) -> Steps | None:
    """Return what the smallest template with passes, or with clear silences between its segments, makes of a group;
    where there is none, what comes again by the byte clock; where this tells no steps either, the best template."""
    silences = traffic.silences(settings.shortest_quiet_ms * NANOSECONDS_PER_MS)
    if silences.at.size < FEW_BURSTS:
        return None
    total = traffic.moved(silences.at[:0])[-1]
    tried = [
        _fit_template(traffic, silences, total, template, settings, SILENCES_PER_STEP)
        for template in _distinct_templates(_propose_templates(traffic, silences))
    ]
    fitted = [one for one in tried if one is not None and has_same_pairs(one, traffic)]
    likely = [one for one in fitted if one.is_likely()]
    best = _choose_clear_template(likely, traffic, silences, settings)
    clocked = None
    if by_passes:
        best = _steps_with_passes(likely, best, traffic, silences, settings)
        if best is None or not best.told:
            clocked = _steps_by_byte_clock(np.zeros_like(traffic.pair), traffic, silences, total, settings)
            if clocked is not None and clocked.is_likely() and has_same_pairs(clocked, traffic):
                best = _steps_with_passes([*likely, clocked], best, traffic, silences, settings)
    by_clock = clocked is not None and best is clocked
    if best is not None:
        parts = [
            one.clarity
            for one in fitted
            if one.explained >= EXPLAINED_BYTES and one.template.sum() < best.template.sum()
        ]
        best = best._replace(clarity_of_parts=float(np.nanmax([-np.inf, *parts])))
        if not best.told and best.explained >= EXPLAINED_BYTES:
            made_of = None if by_clock else _steps_of_micro_batches(best, traffic, silences, settings)
            shown = _steps_by_passes(best, traffic, silences, settings) if by_passes else None
            best = made_of or shown or best
    if not by_bytes or (best is not None and best.told):
        return best
    found = _steps_by_byte_clock(traffic.pair, traffic, silences, total, settings)
    if (
        found is not None
        and found.explained >= settings.least_explained
        and found.clarity >= CLOCKED_CLEAR_SIGMAS
        and not any(has_more(larger, found, traffic) for larger in likely)
    ):
        several = best is not None and best.explained >= EXPLAINED_BYTES and is_several(found, best, traffic)
        return best if several else found._replace(told=True)
    return best


def _steps_by_byte_clock(
    pair: Integers, traffic: Traffic, silences: Silences, total: Floats, settings: RhythmSettings
) -> Steps | None:
    """Return what the template makes of a group that comes again by the byte clock; None without any.

    Parameters
    ----------
    pair : of each record, as the clock tells them apart
    """
    step = byte_clock.step_bytes(traffic.starts, int(traffic.latest[-1]), traffic.sizes, pair)
    if step is None:
        return None
    template = _template_from_step_bytes(step, traffic.moved(np.arange(1, traffic.stream.size)))
    return _fit_template(traffic, silences, total, template, settings, CLOCKED_SILENCES_PER_STEP)


def _steps_of_micro_batches(
    micro: Steps, traffic: Traffic, silences: Silences, settings: RhythmSettings
) -> Steps | None:
    """Return the steps of a group, given the micro-batches that they are made of; None where these are steps, as far
    as anybody can tell.

    What is not seen to have a forward and a backward pass may be a part of a micro-batch, as layers are, and the
    silence any that comes once: then others say where steps end.
    """
    told = accumulated(traffic, silences, micro.until_ns, micro.whole, clear=CLEAR_SIGMAS, jitter=LEAST_VARIANCE)
    if told is None:
        return None
    begins = np.append(traffic.starts[0] - 1, micro.ends_ns[:-1])[told.first]
    template = micro._replace(template=told.batches * micro.template)
    sent = traffic.sent[np.searchsorted(traffic.starts, begins, "right")]
    places = sent + told.place * micro.template.sum()
    ended = _cut_near_places(places, traffic, silences, template, settings)
    passed = _has_visible_passes(micro, traffic, silences, settings)
    return None if ended is None else ended._replace(told=True, ended=passed)


def _steps_by_passes(found: Steps, traffic: Traffic, silences: Silences, settings: RhythmSettings) -> Steps | None:
    """Return the steps of a group, cut where the backward pass ends; None where silences show no passes."""
    backward = _end_of_backward(found.ends_ns[found.whole], traffic, silences, settings)
    if backward is None:
        return None
    total = traffic.moved(silences.at[:0])[-1]
    longest = silences.longest(_silence_count(CLOCKED_SILENCES_PER_STEP, total, found.template))
    steps = _cut_near_places(backward.places, traffic, longest, found, settings)
    return None if steps is None else steps._replace(ended=True)


def _template_from_step_bytes(step: float, moved: Floats) -> Floats:
    """Return what each sender typically moves while all of them move the bytes of a step.

    Parameters
    ----------
    moved : shape (records, senders), what each moved before a record
    """
    sent = moved.sum(axis=1)
    begins = np.flatnonzero(sent <= sent[-1] - step)
    begins = begins[np.linspace(0, begins.size - 1, min(begins.size, MOST_STRETCHES)).astype(np.int64)]
    typical: Floats = np.median(moved[np.searchsorted(sent, sent[begins] + step)] - moved[begins], axis=0)
    return typical


def _has_visible_passes(steps: Steps, traffic: Traffic, silences: Silences, settings: RhythmSettings) -> bool:
    """Say whether silences show a forward and a backward pass in steps, or in what was taken for them."""
    return _end_of_backward(steps.ends_ns[steps.whole], traffic, silences, settings) is not None


def _end_of_backward(
    ends: Integers, traffic: Traffic, silences: Silences, settings: RhythmSettings
) -> passes.Backward | None:
    known = {"same_bytes": settings.byte_tolerance, "jitter": LEAST_VARIANCE}
    return passes.end_of_backward(traffic, silences, ends, **known)


def _choose_clear_template(
    tried: list[Steps], traffic: Traffic, silences: Silences, settings: RhythmSettings
) -> Steps | None:
    """Return what the smallest clear template makes of a group that is no part of a larger one; None without any.

    If none is clear, it is the smallest one such that the silences between several of it are no longer.

    Bursts that have no silence inside may be steps, or parts of steps: nobody can tell what several of them are, unless
    these explain more, as they do where something comes once in them. Where they show a forward and a backward pass,
    single pairs have to say that these are several of their steps.
    """

    tried = sorted(tried, key=lambda one: one.template.sum())
    single = max((one.explained for one in tried if np.isnan(one.clarity)), default=0.0)
    more = single * (1 + SAME_TEMPLATE)
    known = [
        one
        for place, one in enumerate(tried)
        if one.clarity >= 0
        and (one.explained > more or _has_visible_passes(one, traffic, silences, settings))
        and not any(has_more(larger, one, traffic) for larger in tried[place + 1 :])
    ]
    clear = next((one for one in known if one.clarity >= CLEAR_SIGMAS and one.explained > more), None)
    if clear is not None:
        twice = (one for one in known if one.clarity >= CLEAR_SIGMAS and is_scatter_and_gather(one, clear))
        return next(twice, clear)._replace(told=True)
    if not known:
        return None
    return reduce(lambda best, larger: larger if is_between_longer(larger, best) else best, known)


def _steps_with_passes(
    tried: list[Steps], best: Steps | None, traffic: Traffic, silences: Silences, settings: RhythmSettings
) -> Steps | None:
    """Return what the smallest template makes of a group that explains all and shows a forward and a backward pass; the
    best one found so far where there is none, or this is smaller and clear.

    What is smaller is layers. What is larger is told by its silences, unless these are longer than it takes for a
    forward and a backward pass: then they are pauses after several steps, such as evaluations. The optimizer, which
    comes after the micro-batches of a step, takes less.
    """
    explaining = [one for one in tried if one.explained >= EXPLAINED_BYTES]
    explaining.sort(key=lambda one: one.template.sum())
    most = best.template.sum() if best is not None and best.told else np.inf
    asked = (one for one in explaining if one.template.sum() < most)
    smallest = next((one for one in asked if _has_visible_passes(one, traffic, silences, settings)), None)
    if smallest is None:
        return best
    for one in explaining:
        if one.clarity >= CLEAR_SIGMAS and one.template.sum() >= smallest.template.sum():
            begins = np.searchsorted(traffic.starts, one.ends_ns[:-1], side="right")
            if np.median(traffic.starts[begins] - one.ends_ns[:-1]) < smallest.period_ns:
                return one._replace(told=True)
    return smallest


def _propose_templates(traffic: Traffic, silences: Silences) -> list[Floats]:
    """Return the bytes of each stream in segments that come again between silences of some length, those first that
    make up most of all bytes."""
    moved = traffic.moved(silences.at)
    longest, found = np.argsort(-silences.length, kind="stable"), []
    for count in np.unique(np.geomspace(FEW_BURSTS, silences.at.size, SILENCE_LEVELS).astype(np.int64)):
        cuts = np.concatenate([[0], np.sort(longest[:count]) + 1, [len(moved) - 1]])
        segments = np.diff(moved[cuts], axis=0)
        in_all = segments.sum(axis=1)
        size = np.floor(np.log(in_all) / SAME_TEMPLATE)
        carried = {one: in_all[np.abs(size - one) <= 1].sum() for one in np.unique(size)}
        one = max(carried, key=lambda one: carried[one])
        if np.count_nonzero(alike := np.abs(size - one) <= 1) >= 2:
            found.append((carried[one], np.median(segments[alike], axis=0)))
    return [template for _, template in sorted(found, key=lambda one: -one[0])]


def _distinct_templates(templates: list[Floats]) -> list[Floats]:
    """Return the first of templates that are the same, and no more than are tried."""
    kept: list[Floats] = []
    for template in templates:
        if template.any() and all(abs(np.log(template.sum() / other.sum())) > SAME_TEMPLATE for other in kept):
            kept.append(template)
    return kept[:MOST_TEMPLATES]


def _fit_template(
    traffic: Traffic, silences: Silences, total: Floats, template: Floats, settings: RhythmSettings, per_step: int
) -> Steps | None:
    """Return what a template makes of a group, the segments of which have made it better; None where there are none."""
    for _ in range(REFINEMENTS):
        if not template.any():
            return None
        longest = silences.longest(_silence_count(per_step, total, template))
        # Else cuts at long silences would be worth more than the segments unlike the template that they make cost.
        cuts, segments = _cut_at_silences(traffic, longest, longest.length, template, settings)
        whole = _is_like_template(segments, template, settings)[:, template > 0].mean(axis=1) >= NEARLY_ALL
        if whole.sum() < FEW_BURSTS:
            return None
        template = np.median(segments[whole], axis=0)
    return _describe_steps(traffic, longest, cuts, total, template, segments, settings)


def _silence_count(per_step: int, total: Floats, template: Floats) -> int:
    """Return how many silences cuts are chosen from."""
    return per_step * max(int(total.sum() / template.sum()), SILENCES_PER_STEP)


def _cut_at_silences(
    traffic: Traffic, silences: Silences, worth: Floats, template: Floats, settings: RhythmSettings
) -> tuple[Integers, Floats]:
    """Return the best cuts at silences, and what each stream moves between them, shape (segments, streams).

    Parameters
    ----------
    worth : shape (silences,), of a cut at each, the logarithm of some time
    """
    moved, there = traffic.moved(silences.at), template > 0
    cuts = best_cuts(
        *(moved[:, there] / template[there], np.concatenate([[0.0], worth, [0.0]])),
        tolerance=settings.byte_tolerance,
        most=1 - NEARLY_ALL,
    )
    segments: Floats = np.diff(moved[cuts], axis=0)
    return cuts, segments


def _is_like_template(segments: Floats, template: Floats, settings: RhythmSettings) -> Flags:
    """Say whether each stream moves in each segment what it does in the template, shape (segments, streams)."""
    like: Flags = (np.abs(segments - template) <= settings.byte_tolerance * template) & (template > 0)
    return like


def _describe_steps(
    traffic: Traffic,
    silences: Silences,
    cuts: Integers,
    total: Floats,
    template: Floats,
    segments: Floats,
    settings: RhythmSettings,
) -> Steps:
    """Return what a template makes of a group, given what each stream moves in each segment."""
    there, like = template > 0, _is_like_template(segments, template, settings)
    share = np.minimum(segments[:, there] / template[there], 1.0).mean(axis=1)
    at, inner = cuts[1:-1] - 1, np.ones(silences.at.size, np.bool_)
    inner[at] = False
    between, inside = silences.length[at], silences.length[inner]
    clarity = np.nan
    if inside.size >= PRESENT * between.size > 0:
        clarity = float((between.mean() - inside.mean()) / np.sqrt(between.var() + inside.var() + LEAST_VARIANCE))
    begins = silences.at[at]
    ends = np.append(traffic.latest[begins - 1], traffic.latest[-1])
    until = np.append((ends[:-1] + traffic.starts[begins]) // 2, FOREVER)
    whole = (like.mean(axis=1) >= NEARLY_ALL).sum()
    explained = float((np.minimum(whole * template, total) / total).mean())
    return Steps(template, until, ends, like, share, clarity, explained)
