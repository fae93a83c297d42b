"""Kept leads: whether a rank that comes early to one exchange is still early at the next one.

A rank that waits for the end of each exchange loses its lead there: all go on together. Where exchanges run beside
computing, it goes on at once and keeps its lead: DDP reduces the gradients of one bucket while it computes those of the
next (Li and others, "PyTorch Distributed", VLDB 2020, section 3.2.3); FSDP gathers the parameters of a layer while it
computes the one before (Zhao and others, "PyTorch FSDP", VLDB 2023, section 3.3). All its waits of a step are then the
same lead, which must not be added up.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.robust import MAJORITY, THOUSANDFOLD_NATS, Integers
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_gaps import Exchanges
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import NicArrays


def jobs_that_keep_leads(found: Exchanges, flows: NicArrays) -> pl.Series:
    """Return the jobs whose ranks keep their leads from one exchange to the next.

    An exchange is compared with that of the same place in the step before. If a rank waited longer at the exchange
    before it, and so had a longer lead, it has computed for less than before it came, by as much, where leads are kept.
    Where they are not, neither has to do with the other. In most comparisons most of the change must come back, more
    often than by chance. A wait that is too short to part a record is not seen, so both must be seen.

    Returns
    -------
    `job_id`
    """
    job = flows.steps["job_id"]
    now, before = _same_place(found.step, flows.numbers.endpoints, job.len())
    longer = found.waited[now - 1] - found.waited[before - 1]
    less = found.computed[before] - found.computed[now]
    seen = (found.waited[now - 1] > 0) & (found.waited[before - 1] > 0) & (longer != 0)
    ratio = less[seen] / longer[seen]
    kept = pl.DataFrame({"job_id": job.gather(found.step[now[seen]]), "kept": ratio > MAJORITY})
    by_chance = binomial.tail_bound(pl.col("kept"), pl.col("compared"), pl.lit(MAJORITY))
    counted = kept.group_by("job_id").agg(pl.col("kept").sum().cast(pl.Int64), compared=pl.len().cast(pl.Int64))
    return counted.filter(by_chance <= math.exp(-THOUSANDFOLD_NATS))["job_id"]


def _same_place(step: Integers, endpoints: Integers, steps: int) -> tuple[Integers, Integers]:
    """Return the exchanges that follow another one in their step, and those of the same place in the step before.

    Steps of one NIC with equally many exchanges are compared.
    """
    many = np.bincount(step, minlength=steps)
    alike = np.zeros(steps, np.bool_)
    alike[1:] = (many[1:] == many[:-1]) & (endpoints[1:] == endpoints[:-1])
    follows = np.zeros(step.size, np.bool_)
    follows[1:] = step[1:] == step[:-1]
    now = np.flatnonzero(follows & alike[step])
    return now, now - many[step[now]]
