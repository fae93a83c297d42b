"""The course of a job's steps: how long each took, what it moved, and when it was silent, as its flows show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Flags, Floats, Integers
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.step_times.duration_model import DurationModel, fitted
from llmprism_tasks.stages.diagnosis.step_times.longer_throughout import longer_throughout
from llmprism_tasks.stages.traffic import nic_pairs

FOREIGN_BYTES_RATIO = 2.0
"""Times its usual bytes of a step from which what a pair moves in one step is no training: no pair of a job in lock
step is a whole step ahead of the others."""


@dataclass(frozen=True)
class Steps:
    """The steps of one job, in order; all arrays have the shape (steps,).

    Attributes
    ----------
    job_id : the job
    numbers : of the steps, ascending
    starts, ends : ns; a step begins where the one before it ended
    current : whether the step ended in the window
    model : the distribution of their lengths
    """

    job_id: str
    numbers: Integers
    starts: Integers
    ends: Integers
    current: Flags
    model: DurationModel

    @property
    def lengths(self) -> Integers:
        """How long each step took, in ns."""
        return self.ends - self.starts

    @property
    def excess(self) -> Floats:
        """By how much each step exceeded the job's usual step, in ns; negative if it was quicker."""
        return np.asarray(self.lengths - self.model.usual_ns, dtype=np.float64)

    def since(self, first: int) -> Steps:
        """Return the steps from a place on."""
        kept = slice(first, None)
        starts, ends, current = self.starts[kept], self.ends[kept], self.current[kept]
        return Steps(self.job_id, self.numbers[kept], starts, ends, current, self.model)


def steps_of(job_id: str, history: pl.DataFrame) -> Steps | None:
    """Return the steps of a job; None if they are too few to know how long they take.

    Parameters
    ----------
    history : `step_index`, `start_ns`, `end_ns`, `current` of its steps, in order
    """
    names = ("step_index", "start_ns", "end_ns", "current")
    numbers, starts, ends, current = (history[name].to_numpy() for name in names)
    model = fitted(ends - starts)
    return None if model is None else Steps(job_id, numbers, starts, ends, current, model)


@dataclass(frozen=True)
class Course:
    """What the flows of a job show of each of its steps, arrays of shape (steps,).

    Attributes
    ----------
    moved : bytes of the typical pair, as a ratio of its usual bytes; a copy of files beside the job does not change it
    busier : share of the senders that sent to some other one more than `FOREIGN_BYTES_RATIO` times their usual bytes
        of a step
    throughout : whether it was longer than usual in all its parts, as if it held longer samples
    silent : time in which no flow of the job's training was under way, ns
    longest, since : the longest of these silences, and when it began, ns
    written : bytes that members wrote to addresses outside the topology
    """

    moved: Floats
    busier: Floats
    throughout: Flags
    silent: Integers
    longest: Integers
    since: Integers
    written: Integers


def course_of(steps: Steps, quick: Flags, evidence: Evidence) -> Course:
    """Return the course of a job's steps; `quick` says which of them show what is usual."""
    flows = evidence.flows.filter(pl.col("job_id") == steps.job_id)
    number, of_sender = (
        pl.struct(ends).rank("dense").cast(pl.Int64) - 1 for ends in (nic_pairs.PAIR, nic_pairs.PAIR[:1])
    )
    flows = flows.select("flow_start_ns", "flow_end_ns", "bytes", pair=number, sender=of_sender)
    senders = flows.group_by("pair").agg(pl.col("sender").first()).sort("pair")["sender"].to_numpy()
    flows = flows.drop("sender")
    begins, ends, sizes, pair = (column.to_numpy() for column in flows.sort("flow_start_ns").get_columns())
    count = steps.starts.size
    silent, longest, since, written = np.zeros((4, count), np.int64)
    step, inside = step_of_times(begins, steps)
    each = np.zeros((int(pair.max(initial=-1)) + 1, count))
    np.add.at(each, (pair[inside], step[inside]), sizes[inside])
    usual = np.median(each[:, quick], axis=1)
    trains = usual > 0
    moved = np.median(each[trains] / usual[trains, None], axis=0) if trains.any() else np.zeros(count)
    more = np.zeros((int(senders.max(initial=-1)) + 1, count), np.bool_)
    np.logical_or.at(more, senders, trains[:, None] & (each > FOREIGN_BYTES_RATIO * usual[:, None]))
    busier = more.mean(axis=0) if more.size else np.zeros(count)
    foreign = inside & (each > FOREIGN_BYTES_RATIO * usual[:, None])[pair, step]
    # Activations are few bytes, and show as much of a step's course as gradients do.
    shares = sizes / np.maximum(usual, 1)[pair]
    begins, ends, shares, step, inside = (values[~foreign] for values in (begins, ends, shares, step, inside))
    latest = np.maximum.accumulate(ends)
    throughout = longer_throughout(begins, latest, shares, steps.starts, steps.ends, quick)
    until = latest[:-1]
    gaps = np.maximum(begins[1:] - until, 0)
    at, inside = step[1:], inside[1:]
    np.add.at(silent, at[inside], gaps[inside])
    np.maximum.at(longest, at[inside], gaps[inside])
    is_longest = inside & (gaps == longest[np.minimum(at, count - 1)]) & (gaps > 0)
    since[at[is_longest]] = until[is_longest]
    stored = evidence.storage.filter(pl.col("job_id") == steps.job_id)
    step, inside = step_of_times(stored["flow_start_ns"].to_numpy(), steps)
    np.add.at(written, step[inside], stored["bytes"].to_numpy()[inside])
    return Course(moved, busier, throughout, silent, longest, since, written)


def step_of_times(times: Integers, steps: Steps) -> tuple[Integers, Flags]:
    """Return the step in which each time lies, and whether it lies in any."""
    step = np.searchsorted(steps.starts, times, side="right") - 1
    return np.maximum(step, 0), (step >= 0) & (times <= steps.ends[step])
