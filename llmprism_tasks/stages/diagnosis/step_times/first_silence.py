"""First silence: when the first of a job's members fell silent for most of what made a step long.

Where replicas wait for each other once a step, the others go on while one stands still, so the job as a whole is never
silent for long. Its members are, one after the other.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Integers
from llmprism_tasks.stages.diagnosis.step_times.course import Steps, step_of_times


def first_silences(steps: Steps, slow: Flags, quick: Flags, flows: pl.DataFrame) -> Integers:
    """Return when the first member fell silent in each slow step, shape (steps,), ns.

    It is the end of the step if nobody was silent for longer than in quick steps by most of the step's excess.

    Parameters
    ----------
    slow, quick : which steps are asked for, and which show what is usual
    flows : those of the job's training: `src_addr`, `flow_start_ns`, `flow_end_ns`
    """
    silences = (
        flows.sort("src_addr", "flow_start_ns")
        .select("src_addr", since=end_of_earlier("flow_end_ns").over("src_addr"), until="flow_start_ns")
        .drop_nulls()
    )
    since, until = (silences[name].to_numpy() for name in ("since", "until"))
    sender = silences["src_addr"].rank("dense").cast(pl.Int64).to_numpy() - 1
    step, inside = step_of_times(since, steps)
    longest = np.zeros((int(sender.max(initial=-1)) + 1, steps.ends.size), np.int64)
    np.maximum.at(longest, (sender[inside], step[inside]), (until - since)[inside])
    usual = np.median(longest[:, quick], axis=1)[sender]
    first = steps.ends.copy()
    for one in np.flatnonzero(slow):
        held = np.minimum(until, steps.ends[one]) - np.maximum(since, steps.starts[one]) - usual
        first[one] = since[held >= MAJORITY * steps.excess[one]].min(initial=first[one])
    return first
