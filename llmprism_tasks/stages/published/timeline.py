"""Timeline reconstruction as published: a burst of a NIC's data-parallel flows ends its step.

LLMPrism (arXiv 2505.00342), stage 4: change points of the intervals between a NIC's data-parallel flows separate the
bursts. Pipeline and data-parallel flows are placed in the steps; the remaining time is computing or waiting.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.settings import PublishedSettings, Settings
from llmprism_tasks.stages.published.kernels.turn_taking import rounds
from llmprism_tasks.stages.published.step_division import JOB_PAIR, steps_until
from llmprism_tasks.stages.step_division import completion
from llmprism_tasks.stages.timeline import phase as joint
from llmprism_tasks.stages.timeline.placement import placed
from llmprism_tasks.stages.traffic import nic_pairs

NIC = ["job_id", "addr"]
STEP = ["job_id", "step"]


def timeline(
    *,
    flows: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    pairs: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Reconstruct the steps that ended in the window; parameters and results as of the joint method's phase."""
    inside = nic_pairs.named(nic_pairs.inside_jobs(flows, job_members))
    kinds = pairs.select(*JOB_PAIR, "kind").filter(pl.col("kind") != "other")
    synchronising = nic_pairs.by_endpoint(inside.join(kinds.filter(pl.col("kind") == "dp"), on=JOB_PAIR))
    if synchronising.is_empty():
        return frames.empty("steps"), frames.empty("timeline"), frames.empty("step_breakdown")
    endpoints = member_steps(synchronising, window, settings.published)
    job_steps = endpoints.group_by(STEP).agg(
        pl.col("first_ns").min(), pl.col("end_ns").max(), pl.col("ended", "ended_before").first()
    )
    together = (endpoints, _drop_contained_steps(job_steps, ["job_id"], "step"), inside)
    endpoints, job_steps, of_run = (frame.with_columns(run=pl.lit(0)) for frame in together)
    first_steps = completion.first_indices(endpoints, job_steps)
    first = joint.first_flows(of_run, of_run, of_run)
    own, common = joint.step_spans(endpoints, job_steps, first_steps, first)
    return joint.tables(common, placed(inside, own, kinds), jobs, job_members, window)


def member_steps(synchronising: pl.DataFrame, window: Window, settings: PublishedSettings) -> pl.DataFrame:
    """Return the steps of each NIC whose job step is over, look-back included.

    Parameters
    ----------
    synchronising : data-parallel flows with `job_id`, one row per end of the flow (`addr`)

    Returns
    -------
    sorted: `job_id`, `addr`, `step` (counted in the job), `first_ns`, `end_ns`, `ended`, `ended_before` (the window).
    A job step that was not seen to be over at the window's start ends at that start or later: the window before has not
    reported it, and this window must not report an earlier time.
    """
    before, by_now = (_finished_steps(synchronising, edge_ns, settings) for edge_ns in (window.start_ns, window.end_ns))
    told = before.select(STEP).unique().with_columns(ended_before=True)
    last = pl.col("end_ns").max().over(STEP)
    late = ~pl.col("ended_before") & (last < window.start_ns) & (pl.col("end_ns") == last)
    return (
        by_now.join(told, on=STEP, how="left")
        .with_columns(pl.col("ended_before").fill_null(value=False), ended=True)
        .with_columns(end_ns=pl.when(late).then(window.start_ns).otherwise("end_ns"))
        .select(*NIC, "step", "end_ns", "ended", "ended_before", first_ns="start_ns")
        .sort(*NIC, "step")
    )


def _finished_steps(synchronising: pl.DataFrame, edge_ns: int, settings: PublishedSettings) -> pl.DataFrame:
    """Align the bursts of a job's NICs to steps, and keep the steps that were over at the edge.

    Bursts are aligned by their ends: the last member ends a job's step, and a burst that was not cut where it should be
    still ends with a step. A step is over when each NIC's burst is, or when a next step has begun.
    """
    bursts = _drop_contained_steps(steps_until(synchronising, NIC, edge_ns, settings), NIC, "step")
    ordered = bursts.sort("job_id", ~pl.col("ended"), "end_ns", "start_ns", "addr")
    counts = ordered.group_by("job_id", maintain_order=True).len()["len"].to_numpy()
    numbers = rounds(
        ordered["addr"].rank("dense").cast(pl.Int64).to_numpy(),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
    )
    complete = pl.col("ended").all().over(STEP) & (pl.len().over(STEP) == pl.col("addr").n_unique().over("job_id"))
    followed = pl.col("step") < pl.col("step").max().over("job_id")
    return ordered.with_columns(step=pl.Series(numbers)).filter(
        complete | followed, pl.col("end_ns").max().over(STEP) < edge_ns
    )


def _drop_contained_steps(steps: pl.DataFrame, by: list[str], order: str) -> pl.DataFrame:
    """Drop steps that end no later than a step before them: they are part of that step."""
    latest = end_of_earlier("end_ns").over(by)
    return steps.sort(*by, order).filter((pl.col("end_ns") > latest).fill_null(value=True))
