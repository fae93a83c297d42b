"""First stop: when the first of a job's members stopped for most of what made a step long.

Where replicas wait for each other once a step, the others go on while one stands still, so the job as a whole is never
silent for long. Its members are, one after the other.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, Flags, Integers
from llmprism_tasks.stages.diagnosis.step_times.course import Steps, step_of_times


def first_stops(steps: Steps, slow: Flags, quick: Flags, flows: pl.DataFrame) -> tuple[Integers, Integers]:
    """Return when the first member fell silent in each slow step, and when it went on; shape (steps,), ns.

    Both are the end of the step if nobody was silent for longer than in quick steps by most of the step's excess.

    Parameters
    ----------
    slow, quick : which steps are asked for, and which show what is usual
    flows : those of the job's training: `src_addr`, `flow_start_ns`, `flow_end_ns`
    """
    since, until = steps.ends.copy(), steps.ends.copy()
    sender, silences = _silences_of_senders(flows)
    step, inside = step_of_times(silences[:, 0], steps)
    longest = np.zeros((int(sender.max(initial=-1)) + 1, steps.ends.size), np.int64)
    np.maximum.at(longest, (sender[inside], step[inside]), np.diff(silences[inside])[:, 0])
    usual = np.median(longest[:, quick], axis=1)[sender]
    for one in np.flatnonzero(slow):
        held = np.minimum(silences[:, 1], steps.ends[one]) - np.maximum(silences[:, 0], steps.starts[one]) - usual
        stopped = silences[held >= MAJORITY * steps.excess[one]]
        if stopped.size:
            since[one], until[one] = stopped[stopped[:, 0].argmin()]
    return since, until


def _silences_of_senders(flows: pl.DataFrame) -> tuple[Integers, Integers]:
    """Return the senders' numbers and the times between two of their flows, shape (silences,) and (silences, 2), ns."""
    sender = flows["src_addr"].rank("dense").cast(pl.Int64).to_numpy() - 1
    starts, ends = (flows[name].to_numpy() for name in ("flow_start_ns", "flow_end_ns"))
    order = np.lexsort((starts, sender))
    sender, starts, ends = sender[order], starts[order], ends[order]
    span = np.ptp(np.append(starts, ends)) + 1 if starts.size else 1
    first = starts.min(initial=0)
    latest = np.maximum.accumulate(ends - first + sender * span) - sender * span + first
    same = sender[1:] == sender[:-1]
    return sender[1:][same], np.column_stack([latest[:-1], starts[1:]])[same]
