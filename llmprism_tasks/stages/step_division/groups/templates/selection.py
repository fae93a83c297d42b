"""The steps of a group: the template that comes again on all of its streams at once, whatever time it takes.

In every training step each NIC sends the same bytes, even where its peers' shares differ, as those of experts do. Here
all pairs of a group are cut together, at moments when none of them sends: a template says how many bytes each NIC sends
in a step, and the best cuts make most segments like it (`kernels/template_cuts.py`). Templates are proposed by cutting
at silences of different lengths, and each is made better by the segments that it finds. Parts of a step (buckets,
micro-batches) and several steps together come again as well: the template of the steps is the smallest one between
whose segments the silences stand out from those inside. Where none does, the pairs are asked one by one; what these
tell are layers or micro-batches where a template explains all bytes by several of them. Where they do not answer
either, the byte clock says how many bytes a step is (`byte_clock.py`), or such a template does. Where parameters are
gathered layer by layer no silence need stand out: there the step, or a micro-batch of it, is what comes between
silences that are as long again (`silence_clock.py`), or else the smallest template that shows a forward and a backward
pass (`passes.py`), and longer silences are pauses between several steps. Where bytes
come back later than in the segment that they were sent in, segments are parts of steps, and the steps of a
pipeline are what lies between the silences at which nothing is under way (`balance.py`).
"""

from __future__ import annotations

from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.robust import MAJORITY, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic
from llmprism_tasks.stages.step_division.groups.templates import byte_clock, passes, silence_clock, step_ends
from llmprism_tasks.stages.step_division.groups.templates.accumulation import MOST_BATCHES
from llmprism_tasks.stages.step_division.groups.templates.fit import (
    CLOCKED_SILENCES_PER_STEP,
    Fitting,
)
from llmprism_tasks.stages.step_division.groups.templates.levels import (
    CLEAR_SIGMAS,
    CLOCKED_CLEAR_SIGMAS,
    EXPLAINED_BYTES,
    NEARLY_ALL,
    SAME_TEMPLATE,
    Steps,
    bytes_of_pairs,
    clarity_of,
    explained_between,
    has_more,
    has_same_pairs,
    is_between_longer,
    is_scatter_and_gather,
    is_several,
    leaves_out,
    takes_part,
    times_of,
)
from llmprism_tasks.stages.step_division.groups.templates.steps_of_passes import (
    cut_near_places,
    end_of_backward,
    has_passes_of_one,
    has_visible_passes,
    steps_by_passes,
    steps_of_micro_batches,
)
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS, MANY_BURSTS


class Signs(NamedTuple):
    """What may tell the steps of a group besides the silences between them.

    Attributes
    ----------
    by_bytes : whether the byte clock may tell the steps where silences do not
    by_passes : whether a forward and a backward pass may; those of pipelines are no two lengths of silence
    by_pauses : whether a silence longer than a step may be a pause; where only links of a pipeline are seen, these are
        silent while other stages work
    by_turns : whether links have to turn once in what the byte clock tells
    by_whole : whether the byte clock tells steps if these are many and nothing is sent between them
    turn_ns : how long most links of a pipeline take from one turn to the next, which is a step; NaN if none turns
    """

    by_bytes: bool
    by_passes: bool
    by_pauses: bool = True
    by_turns: bool = False
    by_whole: bool = False
    turn_ns: float = np.nan


def repeated(traffic: Traffic, settings: RhythmSettings, signs: Signs) -> Steps | None:
    """Return the steps of a group: what the smallest template between whose segments the silences stand out makes of
    it; where none does, what the template makes of it that comes again by the byte clock, or the clearest one if it
    explains all. None without any of these.

    Foreign traffic fills the silences. So pairs that have no part in the likeliest steps are left out once, and so are
    records that last longer than these; and the others are asked again.
    """
    find = partial(_find_steps, settings=settings, signs=signs)
    best = find(traffic)
    if best is None:
        return None
    segment = np.searchsorted(best.until_ns, traffic.starts)
    steady = takes_part(bytes_of_pairs(traffic, best.until_ns)[best.whole])
    kept = steady[traffic.pair] & (best.whole[segment] | (traffic.ends - traffic.starts <= best.period_ns))
    again = best if kept.all() else find(traffic.of(kept))
    return again if again is not None and (again.told or again.ended or again.is_clear()) else None


def repeated_at(
    traffic: Traffic, ends: Integers, settings: RhythmSettings, *, by_passes: bool, gradients: Traffic | None = None
) -> Steps | None:
    """Return the steps of a group, cut where steps end; None where those found end there, or others are not as many.

    That is where the backward pass ends, if silences show the passes (`passes.py`), or else what `step_ends.py` says of
    reductions, or bursts of the passes, or else what it says of bytes.

    Parameters
    ----------
    ends : when the steps ended that were found, ns
    by_passes : whether silences may tell; where blocks of context or tokens are sent, gradients follow the backward
        pass, and it does not end with its last long silence
    gradients : of pairs that send nothing else, where others send throughout the step: their bytes alone tell
    """
    fitting = Fitting.of(traffic, settings)
    moved = traffic.moved(np.searchsorted(traffic.starts, ends, side="right"))[1:-1]
    if fitting.silences.at.size < FEW_BURSTS or len(moved) < FEW_BURSTS:
        return None
    found = fitting.fit(np.median(np.diff(moved, axis=0), axis=0), clocked=True)
    if found is None or found.explained < NEARLY_ALL or found.whole.sum() < NEARLY_ALL * ends.size:
        return None
    longest = fitting.longest(CLOCKED_SILENCES_PER_STEP, found.template)
    passed = end_of_backward(ends, fitting) if by_passes else None
    reduced = step_ends.after_reductions(traffic, longest, ends) if by_passes and passed is None else None
    if reduced is not None:
        return _cut_after_reductions(reduced, ends, fitting, longest, found)
    if by_passes and passed is None:
        passed = end_of_backward(ends, fitting, by_bursts=True)
    if passed is not None:
        return cut_near_places(passed.places, fitting, longest, found) if passed.moved else None
    waited = traffic if gradients is None else gradients
    steps = traffic.sizes.sum() / found.template.sum()

    def waits(since_ns: Integers) -> Floats:
        at = np.searchsorted(waited.starts, since_ns, side="right")
        return step_ends.waits((waited.pair, waited.starts, waited.sizes), waited.senders, at, since_ns, steps)

    worth = waits(traffic.latest[longest.at - 1])
    ended = fitting.cut(longest, worth - np.median(worth), found.template)
    if ended is None:
        return None
    # Nearly all have to end right: of those that were found only some may end elsewhere, as after a lost record.
    each = (waits(ended.ends_ns[ended.whole][:-1]), waits(ends[:-1]))
    moved_to, found_at = (np.quantile(lateness, 1 - NEARLY_ALL) for lateness in each)
    return ended if moved_to - found_at > step_ends.MOVED_ENDS_LATENESS else None


def _cut_after_reductions(
    reduced: Integers, ends: Integers, fitting: Fitting, longest: Silences, found: Steps
) -> Steps | None:
    """Return the steps of a group, cut after reductions; None where they end there.

    Parameters
    ----------
    reduced : the silences after the reductions of each step, of `longest`
    ends : when the steps ended that were found, ns
    """
    ended = np.searchsorted(longest.at, np.searchsorted(fitting.traffic.starts, ends, side="right"))
    if np.isin(ended, reduced).mean() >= MAJORITY:
        return None
    return cut_near_places(fitting.traffic.sent[longest.at[reduced]], fitting, longest, found)


def _find_steps(traffic: Traffic, settings: RhythmSettings, signs: Signs) -> Steps | None:
    """Return what the smallest template with passes, or with clear silences between its segments, makes of a group;
    where there is none, what comes again by the byte clock; where this tells no steps either, the best template."""
    fitting = Fitting.of(traffic, settings)
    if fitting.silences.at.size < FEW_BURSTS:
        return None
    tried = [fitting.fit(template) for template in fitting.proposed()]
    fitted = [one for one in tried if one is not None and has_same_pairs(one, traffic)]
    likely = [one for one in fitted if one.is_likely()]
    best = _choose_clear_template(fitted, fitting, signs)
    cycled = None
    if signs.by_passes:
        cycled = _steps_by_silence_clock(likely, fitting)
        # By chance the longest silences come again after several steps of any kind, too.
        if cycled is not None and not all(has_visible_passes(cycled, fitting, n) for n in times_of(cycled, fitted)):
            cycled = None
        best = _steps_with_passes(likely, best, fitting)
        best = best if cycled is None else _likelier(cycled, best, fitting)
    by_silence = cycled is not None and best is cycled
    if best is not None:
        smaller = (one for one in fitted if one.template.sum() < best.template.sum())
        parts = [one.clarity for one in smaller if explained_between(one, traffic) >= EXPLAINED_BYTES]
        best = best._replace(clarity_of_parts=float(np.nanmax([-np.inf, *parts])))
        # Between pauses they are steps: what comes once after each pause is no optimizer.
        if not (best.told or best.ended) and (by_silence or explained_between(best, traffic) >= EXPLAINED_BYTES):
            # Links of a pipeline turn once in a step: several of these are no step, but lie between pauses.
            made_of = None if best.turns_once(signs.turn_ns) else steps_of_micro_batches(best, fitting)
            shown = steps_by_passes(best, fitting) if signs.by_passes else None
            # Where passes are seen, single pairs are asked as well: they tell the ends more exactly.
            best = made_of or shown or best._replace(told=by_silence)
    if not signs.by_bytes or by_silence or (best is not None and best.told):
        return best
    found = _steps_by_byte_clock(fitting)
    if (
        found is not None
        and (
            (found.clarity >= CLOCKED_CLEAR_SIGMAS and not signs.by_turns)
            or found.turns_once(signs.turn_ns)
            or (signs.by_whole and _leaves_nothing(found, traffic))
        )
        and not any(has_more(larger, found, traffic) for larger in likely)
    ):
        several = best is not None and best.explained >= EXPLAINED_BYTES and is_several(found, best, traffic)
        return best if several else found._replace(told=True)
    return best


def _leaves_nothing(steps: Steps, traffic: Traffic) -> bool:
    """Say whether there are many steps, with silences inside them, and nothing between them.

    Layers leave something. Equal buckets of one burst do not, but have no silence inside. Nor do micro-batches of a
    pipeline, but their links are seen.
    """
    many = steps.whole.sum() >= MANY_BURSTS and not np.isnan(steps.clarity)
    return bool(many and explained_between(steps, traffic) == 1.0)


def _steps_by_byte_clock(fitting: Fitting) -> Steps | None:
    """Return what the template makes of a group that comes again by the byte clock; None without any.

    It is the smallest one if it is likely. Else that is a layer, and the smallest of the others that explains all, if
    silences between its segments are longer: among many, some explain all by chance.
    """
    traffic = fitting.traffic
    again = byte_clock.step_bytes(traffic.starts, int(traffic.latest[-1]), traffic.sizes, traffic.pair)
    found = (fitting.fit(fitting.template_of(step), clocked=True) for step in again)
    smallest = next(found, None)
    if smallest is not None and smallest.is_likely():
        return smallest
    clear = (one for one in found if one is not None and one.clarity >= CLOCKED_CLEAR_SIGMAS)
    return next((one for one in clear if _explains_all(one, fitting)), None)


def _steps_by_silence_clock(tried: list[Steps], fitting: Fitting) -> Steps | None:
    """Return what the template makes of a group that comes again by the silence clock; None if it does not explain
    all, or if silences are only a little alike and show no passes.

    Where single bursts explain all, the silences of most of them have to come again, and not the longest alone: after
    some steps there may be pauses.
    """
    again = silence_clock.step_bytes(fitting.traffic, fitting.silences)
    if again is None:
        return None
    same = (one for one in tried if abs(np.log(one.template.sum() / again.step)) <= SAME_TEMPLATE)
    found = next((one for one in same if _explains_all(one, fitting)), None)
    if found is None:
        even = fitting._replace(silences=silence_clock.without_pauses(fitting.silences))
        found = even.fit(fitting.template_of(again.step), clocked=True)
        found = found if found is not None and _explains_all(found, fitting) else None
    if found is None:
        return None
    single = any(np.isnan(one.clarity) and one.explained >= EXPLAINED_BYTES for one in tried)
    if single and not _comes_again_without_pauses(again.step, fitting):
        return None
    sure = again.correlation >= MAJORITY or (not single and has_visible_passes(found, fitting))
    return found if sure and not (single and found.clarity >= CLEAR_SIGMAS) else None


def _comes_again_without_pauses(step: float, fitting: Fitting) -> bool:
    """Say whether silences are as long again after so many bytes also if the longest ones, two for each step, are no
    longer than the others: the pause, and the longest by chance."""
    traffic, silences = fitting.traffic, fitting.silences
    pauses = 2 * traffic.sent[-1] / step / silences.at.size
    rest = silence_clock.step_bytes(traffic, silence_clock.without_pauses(silences, min(pauses, 1.0)))
    return rest is not None and abs(np.log(rest.step / step)) <= SAME_TEMPLATE


def _explains_all(steps: Steps, fitting: Fitting) -> bool:
    """Say whether steps are likely, and all between the first and the last is in some."""
    likely = steps.is_likely() and has_same_pairs(steps, fitting.traffic)
    return likely and explained_between(steps, fitting.traffic) >= EXPLAINED_BYTES


def _likelier(cycled: Steps, best: Steps | None, fitting: Fitting) -> Steps:
    """Return the likelier of what the silence clock says and what long silences tell: if these end smaller steps, the
    former needs passes, and if they are longer than its steps, they are pauses after several of them."""
    if best is None or not best.told:
        return cycled
    times_larger = float(np.log(best.template.sum() / cycled.template.sum()))
    if times_larger > SAME_TEMPLATE:
        return cycled if _silence_between(best, fitting) >= cycled.period_ns else best
    parts = round(float(np.exp(-times_larger)))
    several = parts < 2 or is_several(cycled, best, fitting.traffic)  # by chance, silences are longer again
    return cycled if not several and has_visible_passes(cycled, fitting, parts) else best


def _silence_between(steps: Steps, fitting: Fitting) -> float:
    """Return how long the silence between two steps typically is, ns."""
    ends, starts = steps.ends_ns[:-1], fitting.traffic.starts
    return float(np.median(starts[np.searchsorted(starts, ends, side="right")] - ends))


def _choose_clear_template(fitted: list[Steps], fitting: Fitting, signs: Signs) -> Steps | None:
    """Return what the smallest clear template makes of a group that is no part of a larger one; None without any.

    If none is clear, it is the smallest one such that the silences between several of it are no longer.

    Bursts that have no silence inside may be steps, or parts of steps: nobody can tell what several of them are, unless
    these explain more, as they do where something comes once in them. Where they show a forward and a backward pass,
    single pairs have to say that these are several of their steps. In a ring alone they may be buckets of gradients,
    with the forward pass after several of them (`_steps_of_buckets`).
    """
    tried = sorted((one for one in fitted if one.is_likely()), key=lambda one: one.template.sum())
    single = max((one.explained for one in tried if np.isnan(one.clarity)), default=0.0)
    more = single * (1 + SAME_TEMPLATE)
    known = [
        one
        for one in tried
        if one.clarity >= 0
        and (one.explained > more or has_passes_of_one(one, tried, fitting))
        and not leaves_out(one, fitted, fitting.traffic)
    ]
    clear = next((one for one in known if one.clarity >= CLEAR_SIGMAS and one.explained > more), None)
    paused = None
    if clear is not None and signs.by_pauses:
        paused = _steps_between_pauses(clear, tried, fitting, signs.turn_ns)
    if paused is not None:
        return paused
    buckets = _steps_of_buckets(clear, known, fitting) if clear is not None and signs.by_passes else None
    if buckets is not None:
        return buckets._replace(told=True)
    if clear is not None:
        twice = (one for one in known if one.clarity >= CLEAR_SIGMAS and is_scatter_and_gather(one, clear))
        return next(twice, clear)._replace(told=True)
    if not known:
        return None
    return _between_longest(known)


def _between_longest(ascending: list[Steps]) -> Steps:
    """Return the smallest of some templates such that the silences between several of it are no longer."""
    return reduce(lambda best, larger: larger if is_between_longer(larger, best) else best, ascending)


def _steps_of_buckets(buckets: Steps, tried: list[Steps], fitting: Fitting) -> Steps | None:
    """Return the smallest larger template between whose segments silences are longest, if nobody sends there for as
    long as a forward pass takes; None if they are no longer. A longer or a shorter one may be a pause after several
    steps."""
    larger = [one for one in tried if one.template.sum() > buckets.template.sum()]
    best = _between_longest([buckets, *larger])
    if best is buckets:
        return None
    silent = _silence_between(best, fitting) / best.period_ns
    return best if passes.SHORTEST_PASS <= silent <= MAJORITY else None


def _steps_between_pauses(several: Steps, tried: list[Steps], fitting: Fitting, turn_ns: float) -> Steps | None:
    """Return the steps in each of which links turn once, or else those of the byte clock, if some are as many bytes as
    several of them, and the silences after these are longer than one takes, or links turn no more than once in each:
    they are pauses, such as checkpoints. The optimizer takes less. But a forward pass may take longer than half of the
    buckets of gradients: the silences between steps that are no pauses must be longer than those inside, too.
    """
    pause = _silence_between(several, fitting)
    if several.period_ns - pause <= MAJORITY * several.period_ns:
        return None
    fewest = max(2, int(several.period_ns / np.fmax(pause, turn_ns)))  # all of one is no longer than these
    if not _has_equal_parts(several, fewest, fitting):
        return None
    turning = (one for one in tried if one.turns_once(turn_ns) and _explains_all(one, fitting))
    found = next(turning, None) or _steps_by_byte_clock(fitting)
    if found is None:
        return None
    times = several.template.sum() / found.template.sum()
    pauses = (
        abs(times - max(round(times), 2)) <= SAME_TEMPLATE
        and not has_more(several, found, fitting.traffic)
        and (
            (pause >= found.period_ns and _clarity_without_pauses(found, several, fitting) >= CLOCKED_CLEAR_SIGMAS)
            or found.period_ns >= NEARLY_ALL * turn_ns
        )
    )
    return found._replace(ended=True) if pauses else None


def _clarity_without_pauses(steps: Steps, several: Steps, fitting: Fitting) -> float:
    """Return how clear steps are (`Steps.clarity`) where the silences after several of them, the pauses, do not count;
    NaN where no others are seen."""
    starts, latest = fitting.traffic.starts, fitting.traffic.latest
    begins = fitting.silences.at
    middle = (latest[begins - 1] + starts[begins]) // 2
    ends = np.isin(middle, steps.until_ns)
    between = fitting.silences.length[ends & ~np.isin(middle, several.until_ns)]
    inside = fitting.silences.length[~ends]
    return clarity_of(between, inside) if min(between.size, inside.size) else np.nan


def _has_equal_parts(steps: Steps, fewest: int, fitting: Fitting) -> bool:
    """Say whether silences cut most steps into so many parts, or more, in which most streams move the same."""
    traffic, silences = fitting.traffic, fitting.silences
    moved, there = traffic.moved(silences.at), steps.template > 0
    sent = moved.sum(axis=1)
    bounds = traffic.sent[np.append(0, np.searchsorted(traffic.starts, steps.until_ns))]
    low, high = (side[steps.whole, np.newaxis] for side in (bounds[:-1], bounds[1:]))
    for parts in range(fewest, min(silences.at.size // low.size, MOST_BATCHES) + 1):
        edges = low + (high - low) * np.arange(parts + 1) / parts
        after = np.clip(np.searchsorted(sent, edges), 1, sent.size - 1)
        near = after - (edges - sent[after - 1] < sent[after] - edges)
        each, part = np.diff(moved[near], axis=1)[:, :, there], steps.template[there] / parts
        alike = (np.abs(each - part) <= fitting.byte_tolerance * part).mean(axis=2) >= NEARLY_ALL
        if alike.mean() >= NEARLY_ALL:
            return True
    return False


def _steps_with_passes(tried: list[Steps], best: Steps | None, fitting: Fitting) -> Steps | None:
    """Return what the smallest template makes of a group that explains all and shows a forward and a backward pass; the
    best one found so far where there is none, or this is smaller and clear.

    What is smaller is layers. What is larger is told by its silences, unless these are longer than it takes for a
    forward and a backward pass: then they are pauses after several steps, such as evaluations. The optimizer, which
    comes after the micro-batches of a step, takes less.
    """
    explaining = [one for one in tried if explained_between(one, fitting.traffic) >= EXPLAINED_BYTES]
    explaining.sort(key=lambda one: one.template.sum())
    most = best.template.sum() if best is not None and best.told else np.inf
    asked = (one for one in explaining if one.template.sum() < most)
    smallest = next((one for one in asked if has_passes_of_one(one, explaining, fitting)), None)
    if smallest is None:
        return best
    larger = (one for one in explaining if one.template.sum() >= smallest.template.sum())
    clear = (one for one in larger if one.clarity >= CLEAR_SIGMAS)
    told = next((one for one in clear if _silence_between(one, fitting) < smallest.period_ns), None)
    return smallest if told is None else told._replace(told=True)
