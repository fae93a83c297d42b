"""Steps of a group whose silences show forward and backward passes: cut where these end, or after several of them."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences
from llmprism_tasks.stages.step_division.groups.templates import passes
from llmprism_tasks.stages.step_division.groups.templates.accumulation import accumulated
from llmprism_tasks.stages.step_division.groups.templates.fit import CLOCKED_SILENCES_PER_STEP, Fitting
from llmprism_tasks.stages.step_division.groups.templates.levels import (
    CLEAR_SIGMAS,
    LEAST_VARIANCE,
    Steps,
    is_several,
    times_of,
)


def cut_near_places(places: Floats, fitting: Fitting, silences: Silences, found: Steps) -> Steps | None:
    """Return the steps of a group, cut at silences near a place of each of the steps that were found; None where hardly
    any is like others then.

    How long silences are does not count: a cut that is a burst off is worth as much less as an e-fold of a silence is
    elsewhere.

    Parameters
    ----------
    places : bytes that the group had sent until then
    """
    sent, step = fitting.traffic.sent, found.template.sum()
    # A step before each, too, for some have more between them: an evaluation. And one after, for of the last step there
    # may be too little to find it, and still all of its backward pass.
    places = np.concatenate([places, places - step, places + step])
    off = np.abs(sent[silences.at][:, np.newaxis] - places).min(axis=1) / step
    bursts = silences.at.size / (sent[-1] / step)
    return fitting.cut(silences, -off * bursts, found.template)


def steps_of_micro_batches(micro: Steps, fitting: Fitting) -> Steps | None:
    """Return the steps of a group, given the micro-batches that they are made of; None where these are steps, as far
    as anybody can tell.

    What is not seen to have a forward and a backward pass may be a part of a micro-batch, as layers are, and the
    silence any that comes once: then others say where steps end. Where both are seen, the optimizer works when the
    backward pass has ended. What is silent once elsewhere waits for something else, such as a checkpoint.
    """
    traffic, known = fitting.traffic, {"clear": CLEAR_SIGMAS, "jitter": LEAST_VARIANCE}
    told = accumulated(traffic, fitting.silences, micro.until_ns, micro.whole, **known)
    backward = None if told is None else end_of_backward(micro.ends_ns[micro.whole], fitting)
    if told is None or (backward is not None and not backward.is_near(told.place)):
        return None
    begins = np.append(traffic.starts[0] - 1, micro.ends_ns[:-1])[told.first]
    places = traffic.sent[np.searchsorted(traffic.starts, begins, "right")] + told.place * micro.template.sum()
    step = micro._replace(template=told.batches * micro.template)
    ended = cut_near_places(places, fitting, fitting.silences, step)
    return None if ended is None else ended._replace(told=True, ended=backward is not None)


def steps_by_passes(found: Steps, fitting: Fitting) -> Steps | None:
    """Return the steps of a group, cut where the backward pass ends; None where silences show no passes.

    Where it is not clear that what was found are steps, the cuts must make some: passes seem to end in several, too.
    """
    backward = end_of_backward(found.ends_ns[found.whole], fitting)
    if backward is None:
        return None
    longest = fitting.longest(CLOCKED_SILENCES_PER_STEP, found.template)
    steps = cut_near_places(backward.places, fitting, longest, found)
    if steps is None or not (found.is_clear() or steps.is_likely()):
        return None
    return steps._replace(ended=True)


def has_visible_passes(steps: Steps, fitting: Fitting, parts: int = 1) -> bool:
    """Say whether silences show a forward and a backward pass in steps, or in what was taken for them.

    Parameters
    ----------
    parts : into how many segments a smaller template cuts each
    """
    return end_of_backward(steps.ends_ns[steps.whole], fitting, parts) is not None


def has_passes_of_one(steps: Steps, tried: list[Steps], fitting: Fitting) -> bool:
    """Say whether silences show one forward and one backward pass in all of a step, and not in several of a smaller
    template.

    Nor may it be just several of what is clear: silences differ, and some of those between steps are longer by chance.
    """
    clear = (one for one in tried if one.clarity >= CLEAR_SIGMAS)
    if any(is_several(steps, one, fitting.traffic) for one in clear):
        return False
    return all(has_visible_passes(steps, fitting, parts) for parts in [1, *times_of(steps, tried)])


def end_of_backward(
    ends: Integers, fitting: Fitting, parts: int = 1, *, by_bursts: bool = False
) -> passes.Backward | None:
    """Return where the backward pass of each step ends; None where silences show no passes in so many `parts`.

    Parameters
    ----------
    ends : when the steps end, ns
    by_bursts : as for `passes.end_of_backward`
    """
    known = {"same_bytes": fitting.byte_tolerance, "jitter": LEAST_VARIANCE}
    return passes.end_of_backward(fitting.traffic, fitting.silences, ends, parts=parts, by_bursts=by_bursts, **known)
