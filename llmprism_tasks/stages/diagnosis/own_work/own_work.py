"""Own work: how long a NIC's host takes when it has nobody to wait for, against its peers.

In synchronous training everybody waits for the slow one: steps, groups and most messages of a job are late together.
Where pipelines meet collectives rarely, their entries show what is a stage's own (`entries`); elsewhere the silences
between collectives do (`silences`). The replicas of a stage do the same work there and show what is usual.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.stages.diagnosis.own_work.compute_gaps import EARLY, silent_work
from llmprism_tasks.stages.diagnosis.own_work.first_forward import entry_work
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import carried
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import Arranged, arranged
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.timeline.placement import NIC, STEP

EXCHANGING = ("ep", "cp")
"""Kinds of traffic in every layer, by which ranks wait for each other between the messages of a pipeline."""

SAME = ["job_id", "component", "step_index", "last_stage"]
"""Columns alike among peers of a step: who ends a pipeline also works backward in the time that is measured."""

OUTVOTING = 3
"""Members from which on the others outvote one."""


def own_work(flows: pl.DataFrame, steps: pl.DataFrame, groups: pl.DataFrame, *, early: float = EARLY) -> pl.DataFrame:
    """Compare each NIC's own work in a step with that of its peers.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`, `current`
    groups : `job_id`, `addr`, `component`: data-parallel groups, whose members are each other's peers
    early : as for `silent_work`

    Returns
    -------
    sorted: the columns of `steps`, what `silent_work` or `entry_work` measure (NULL what the other one does),
    `component` (of peers; NULL where there are no replicas), `members` (peers in it, with the NIC itself), `excess` (of
    the pace over the peers', as a ratio; NULL without peers)
    """
    seen = arranged(flows, steps)
    jobs = seen.pairs["job_id"].unique()
    entering = _entering(seen)
    others = jobs.filter(~jobs.is_in(entering.implode()))
    work = pl.concat(
        [entry_work(seen, entering), _relieved(silent_work(seen, others, early=early), seen)], how="diagonal"
    )
    members = pl.when(pl.col("component").is_not_null()).then(pl.len().over(SAME)).otherwise(1)
    grouped = work.join(_peers(seen.pairs, groups), on=NIC, how="left").with_columns(members=members)
    return grouped.with_columns(excess=pl.col("pace") / usual("pace") - 1).sort(STEP)


def _entering(seen: Arranged) -> pl.Series:
    """Return the jobs that send more down a pipeline than they exchange.

    What is exchanged in every layer outweighs what is sent once a stage; less are pairs taken for what they are not.
    """
    jobs = seen.steps["job_id"].unique().sort()
    job = seen.steps.select(pl.col("job_id").rank("dense") - 1).to_series().to_numpy()
    transfers = seen.transfers
    ends = transfers.senders, transfers.receivers
    exchanged, piped = (
        np.sum([np.bincount(job, carried(transfers, seen.numbers, chosen, end), jobs.len()) for end in ends], axis=0)
        for chosen in (
            np.isin(transfers.kinds, [seen.number(kind) for kind in kinds]) for kinds in (EXCHANGING, ["pp"])
        )
    )
    return jobs.filter(pl.Series(piped > exchanged))


def usual(column: str) -> pl.Expr:
    """Return what is usual among the peers of a step; NULL without any."""
    # Two peers cannot outvote each other: the quicker shows what is usual.
    return (
        pl.when(pl.col("members") >= OUTVOTING)
        .then(pl.col(column).median().over(SAME))
        .when(pl.col("members") > 1)
        .then(pl.col(column).min().over(SAME))
    )


def _peers(pairs: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Split data-parallel groups by who exchanges blocks or tokens with whom, and so waits for whom, within the step.

    Not where few would be left: rings that pass through hosts unseen fall apart.
    """
    hops = pairs.filter(pl.col("kind").is_in(EXCHANGING)).select("job_id", "src_addr", "dst_addr").unique()
    within = pair_graph.components(hops).rename({"component": "circle"})
    both = groups.join(within, on=NIC, how="left")
    circle = ["job_id", "component", "circle"]
    large = (pl.len().over(circle) >= OUTVOTING) & pl.col("circle").is_not_null()
    numbered = both.with_columns(circle=pl.when(large).then("circle"))
    return numbered.select(*NIC, component=pl.struct("component", "circle").rank("dense").over("job_id").cast(pl.Int64))


def _relieved(work: pl.DataFrame, seen: Arranged) -> pl.DataFrame:
    """Excuse whose experts are asked for more than others': it computes longer for having more to do.

    A rank's computing grows at most as the tokens that it is sent, so by that much it may be longer.
    """
    expert = seen.number("ep")
    if expert < 0:
        return work
    received = carried(seen.transfers, seen.numbers, seen.transfers.kinds == expert, seen.transfers.receivers)
    load = (
        seen.steps.select(*STEP, received=received)
        .filter(pl.col("received") > 0)
        .select(*STEP, load=pl.col("received") / pl.col("received").mean().over("job_id", "step_index"))
    )
    relief = pl.max_horizontal(pl.col("load").fill_null(1.0), 1.0)
    return work.join(load, on=STEP, how="left").with_columns(pace=pl.col("pace") / relief).drop("load")
