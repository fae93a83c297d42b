"""Silence readings: what a silent job may be doing. It ended in order, it hangs, it pauses, or nobody sees it.

The chances of these are weighed against each other:

- a job that ends does so after a whole step, and one in so many steps is the last;
- a job hangs at any moment of a step, and is taken for ended if nothing is due at that moment: for a share of the step;
- a job that has gone on since the step that was seen last may have ended only if steps end elsewhere than they seem to,
  at this one of the pauses that are alike; it hangs at any of them;
- a pause as long as the silence has the chance that the job's own step lengths give it;
- where nothing else is seen since, the collector may have stopped, as seldom as a job hangs, and at any moment.
"""

from __future__ import annotations

from llmprism_tasks.stages.diagnosis.evidence import shares
from llmprism_tasks.stages.diagnosis.step_times import duration_model
from llmprism_tasks.stages.liveness.overdue import Silence

LAST_STEP_CHANCE = 0.001
"""Chance that a step is its job's last, and chance that a job hangs in it: jobs have about a thousand steps. Both are
alike, because nothing but the place in the step speaks for the one or the other."""


def may_have_ended(silence: Silence) -> bool:
    """Return whether a job stood where it ends in order: after a step, or at a pause that may be the one after it."""
    return silence.where.may_end or not silence.in_mid_step


def readings(silence: Silence) -> dict[str, float]:
    """Return what a silent job may be doing, the likeliest first, with probabilities that add up to 1."""
    where = silence.where
    hidden = where.paused if where.midway else min(1.0, silence.gap.longest_ns / where.period_ns)
    model = duration_model.fitted(where.lengths_ns)
    pauses = 0.5 if model is None else model.chance(silence.until_ns - where.ended_ns)
    whole = may_have_ended(silence)
    here = 1 / where.places if where.midway else 1.0
    weights = {"ended": LAST_STEP_CHANCE * whole * here, "hung": LAST_STEP_CHANCE * (hidden if whole else 1)}
    if silence.alone:
        weights["unseen"] = weights["hung"]
    if not silence.over:
        weights["paused"] = pauses
    return shares({name: weight for name, weight in weights.items() if weight})
