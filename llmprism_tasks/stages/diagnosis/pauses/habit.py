"""Habit: whether a job pauses as it has paused before.

How often a job saves or evaluates, and how long that takes, is its users' choice. Nobody knows it before the first
pause. From then on a pause is news if it takes far longer than those before it, whatever run of the job they were in.
Silences that most steps have are parts of steps, and no pauses.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import LEAST_RECURRENCES, Flags, Floats, Integers
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.step_times.course import Steps
from llmprism_tasks.stages.liveness.foreign import BIN_NS, LONGER_BY_STEPS
from llmprism_tasks.stages.liveness.quiet_times import SAME_PLACE

SLOW_STORAGE_RATIO = 2.0
"""Ratio of a pause to the usual one from which storage has become slow: at half its rate. The longest of a healthy
job's checkpoints took 1.6 times the shortest."""

SAME_WORK_RATIO = 0.1
"""Ratio by which two pauses may differ in length, or two pairs in their bytes of a step, to be the same work."""

USUAL_QUANTILE = 0.75
"""Quantile of a job's pauses up to which they are usual: a job may pause for several reasons, for a different time
each, and one pause in four may be a fault's."""

REPEATED_WORK = 2
"""Slow steps that are one work done twice if they are alike; more of them also come after equal numbers of steps."""

CHECKPOINT_BYTES = 1_000_000
"""Bytes above which a write is no log file or heartbeat."""

TWO_HABITS = 4
"""Pauses that two habits explain at whatever distance: two evaluations and two checkpoints. What is shorter than the
setting `least_single_s` is neither."""

FIRST_SAVE = "; it was not seen to save before, so it may take as long each time"
"""What is said of the first checkpoint that is seen of a job. Nobody knows then whether it is its habit: the odds are
even."""

FIRST_PAUSE = ". It was not seen to pause before, so it may do so each time, as to evaluate"
"""What is said of the first pause of a whole job in which nothing is written and nobody was first to stop. The odds are
even that it is a habit, as for `FIRST_SAVE`."""


def is_habit(
    job_id: str, since_ns: int, silent_ns: float, period_ns: float, evidence: Evidence, *, saves: bool = False
) -> bool:
    """Return whether a job has paused before for more than half as long as in a silence.

    A silence in which it saves is held against those in which it saved before, if there are any: it may pause more
    often, and for less, for other reasons.

    Parameters
    ----------
    since_ns, silent_ns : when the silence, or the step that it is part of, began, and how long it lasts
    period_ns : usual length of a step
    saves : whether members write a checkpoint in the silence
    """
    mine = evidence.pauses.filter(pl.col("job_id") == job_id, pl.col("back_ns") <= since_ns)
    if mine.is_empty():
        return False
    since, back = mine["since_ns"].to_numpy(), mine["back_ns"].to_numpy()
    lengths = back - since
    in_step_ns = _silence_of_steps(lengths, int((back.max() - since.min()) / period_ns))
    # Silences below a second were not kept. If fewer than half of the steps have a longer one, theirs are about that.
    longer = lengths > (1 + LONGER_BY_STEPS) * (in_step_ns or min(BIN_NS, period_ns))
    saving = longer & writes_in(job_id, since - int(period_ns), back, evidence) if saves else np.zeros_like(longer)
    pauses = lengths[saving if saving.any() else longer] - in_step_ns
    if not in_step_ns and not pauses.size:
        pauses = lengths
    if not pauses.size:
        return False
    return bool(silent_ns - in_step_ns < SLOW_STORAGE_RATIO * np.quantile(pauses, USUAL_QUANTILE))


def writes_in(job_id: str, since: Integers, until: Integers, evidence: Evidence) -> Flags:
    """Return in which spans, shape (spans,), ns, members of a job begin to write a checkpoint."""
    written = evidence.storage.filter(pl.col("job_id") == job_id).sort("flow_start_ns")
    sums = np.append(0, written["bytes"].cum_sum().to_numpy())
    first, last = (np.searchsorted(written["flow_start_ns"].to_numpy(), ends) for ends in (since, until))
    enough: Flags = sums[last] - sums[first] >= CHECKPOINT_BYTES
    return enough


def is_slow_to_save(excess: Floats, written: Integers, saving: Flags, first: Flags) -> Flags:
    """Return which steps lose far more time to each byte of a checkpoint than most of those before them did.

    Parameters
    ----------
    excess, written : shape (steps,): what each step lost, ns, and what its members wrote to storage, bytes
    saving, first : whether a checkpoint was written, and whether it is to be told if there was none before it
    """
    found = np.zeros_like(saving)
    per_byte = excess / np.maximum(written, 1)
    for step in np.flatnonzero(saving):
        before = per_byte[:step][saving[:step]]
        if before.size:
            found[step] = per_byte[step] >= SLOW_STORAGE_RATIO * np.quantile(before, USUAL_QUANTILE)
        else:
            found[step] = first[step]
    return found


def is_on_schedule(steps: Steps, slow: Flags, together: Flags) -> Flags:
    """Return which slow steps come after equal numbers of steps, or are as long as another one, or as all others.

    Evaluations and checkpoints are, whatever else makes other steps slow. Of two distances nobody can tell that they
    are equal, but work that is done again takes as long again, and at the same place in the step. What comes on
    schedule and takes `SLOW_STORAGE_RATIO` times as long as the others is none of them.

    Parameters
    ----------
    together : as `are_at_same_place` returns
    """
    at = np.flatnonzero(slow)
    excess, together = steps.excess[at], together[np.ix_(at, at)]
    alike = are_alike(excess) & together
    scheduled = np.zeros_like(slow)
    scheduled[at] = [mine.sum() == REPEATED_WORK or is_equally_spaced(at[mine], at) for mine in alike]
    if (is_equally_spaced(at, at) and bool(together.all())) or (at.size > 1 and bool(alike.all())):
        scheduled[at] |= excess < SLOW_STORAGE_RATIO * np.median(excess)
    return scheduled


def are_at_same_place(steps: Steps, since: Integers, silent: Flags) -> Flags:
    """Return whether the silences of two steps begin at the same place in the step, shape (steps, steps).

    A job evaluates and saves at one place of its step, between two of them. What fails does so anywhere. Steps that
    lost their time otherwise have no place, and may be at any.

    Parameters
    ----------
    since : when the first member fell silent, shape (steps,), ns
    silent : which steps lost most of their time to a silence
    """
    place = np.where(silent, (since - steps.starts) / steps.model.usual_ns, np.nan)
    apart = np.abs(place[:, np.newaxis] - place) % 1  # a pause between two steps may count to the one or the other
    return np.asarray(~(np.minimum(apart, 1 - apart) > SAME_PLACE))


def are_alike(excess: Floats) -> Flags:
    """Return whether two steps each lost as much time as work that is done again, shape (steps, steps)."""
    most = np.maximum(excess[:, np.newaxis], excess)
    return np.asarray(np.abs(excess[:, np.newaxis] - excess) <= SAME_WORK_RATIO * most)


def is_equally_spaced(at: Integers, slow: Integers) -> bool:
    """Return whether steps come after equal numbers of steps, of which there are two at least.

    Where one is missing, the step there is slow for another reason, too: who evaluates may save then.

    Parameters
    ----------
    at, slow : shape (some,) and (more,): the places of some slow steps and of all, ascending
    """
    if at.size < LEAST_RECURRENCES:
        return False
    every = int(np.diff(at).min())
    due = np.arange(at[0], at[-1] + 1, max(every, 1))
    off = np.abs(due[:, np.newaxis] - slow).min(axis=1)
    return bool(every > 1 and np.isin(at, due[:, np.newaxis] + [-1, 0, 1]).all() and (off <= 1).all())


def pauses_of_steps(job_id: str, starts: Integers, ends: Integers, evidence: Evidence) -> pl.DataFrame:
    """Return the pauses of a job, as `Evidence.pauses`, the silences of one step as one: a copy beside the job, or
    members that try again, break the pause of a rank that has stopped into pieces.

    Parameters
    ----------
    starts, ends : shape (steps,): of the job's steps, ns, in order

    Returns
    -------
    as `Evidence.pauses`, with `step`, the place of the step in `starts`; negative where a silence is in none
    """
    silences = evidence.pauses.filter(pl.col("job_id") == job_id)
    since = silences["since_ns"].to_numpy()
    step = np.searchsorted(starts, since, side="right") - 1
    outside = (step < 0) | (since > ends[np.maximum(step, 0)])
    lasted = (pl.col("back_ns") - pl.col("since_ns")).sum()
    return silences.group_by("job_id", step=pl.Series(np.where(outside, -1 - np.arange(step.size), step))).agg(
        pl.col("since_ns").min(), back_ns=pl.col("since_ns").min() + lasted
    )


def _silence_of_steps(lengths: Integers, steps: int) -> float:
    """Return how long a silence half of the steps have; 0 if there are fewer silences."""
    half = max(steps // 2, 1)
    return float(np.sort(lengths)[-half - 1]) if half < lengths.size else 0.0
