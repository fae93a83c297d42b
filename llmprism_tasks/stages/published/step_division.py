"""Step division as published: the intervals between a pair's own flows show where its steps begin.

LLMPrism (arXiv 2505.00342), stage 2: Bayesian online change-point detection over the intervals between a pair's flows;
a posterior above 0.95 begins a new step. Only changes to a longer interval begin one: the return to short intervals
after a gap is a change, too.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import PublishedSettings, Settings
from llmprism_tasks.stages.published.kernels import bocpd
from llmprism_tasks.stages.traffic import nic_pairs

JOB_PAIR = ["job_id", "src_addr", "dst_addr"]


def step_division(
    *, flows: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame, window: Window, settings: Settings
) -> tuple[pl.DataFrame]:
    """Divide the flows of each pair of a job into steps.

    Parameters
    ----------
    flows : the window's flows and those of its look-back
    jobs, job_members : the window's jobs

    Returns
    -------
    pair_steps : steps that a gap ended in the window; `step_index` counts the steps of each pair separately
    """
    del jobs
    inside = nic_pairs.named(nic_pairs.inside_jobs(flows, job_members))
    before, by_now = (
        steps_until(inside, JOB_PAIR, edge_ns, settings.published).filter("ended")
        for edge_ns in (window.start_ns, window.end_ns)
    )
    steps = by_now.join(before, on=[*JOB_PAIR, "start_ns"], how="anti")
    numbered = steps.with_columns(
        window_start_ns=pl.lit(window.start_ns), step_index=pl.col("step").rank("dense").over(JOB_PAIR) - 1
    )
    return (frames.conform(numbered, "pair_steps"),)


def steps_until(flows: pl.DataFrame, by: list[str], edge_ns: int, settings: PublishedSettings) -> pl.DataFrame:
    """Return the steps of each series of flows as they could be seen at a moment.

    To decide whether the gap after the last flow is long enough, a flow is assumed to start at the edge. If that flow
    begins a step, so will the real one, whenever it comes. Detection is online, so later flows change nothing, and two
    windows agree on the steps that were over at the edge between them.

    Parameters
    ----------
    flows : flows that start at the edge or later are ignored
    by : columns that identify a series
    edge_ns : the moment, ns

    Returns
    -------
    sorted: `by`, `step` (counted from 0 in each series), `start_ns`, `end_ns`, `flows`, `bytes`, `distinct_sizes` and
    `ended` (whether a gap ended the step before the edge)
    """
    seen = flows.filter(pl.col("flow_start_ns") < edge_ns).select(*by, "flow_start_ns", "flow_end_ns", "bytes")
    pretended = (
        seen.select(by)
        .unique()
        .with_columns(flow_start_ns=pl.lit(edge_ns), flow_end_ns=pl.lit(None, pl.Int64), bytes=pl.lit(None, pl.Int64))
    )
    ordered = pl.concat([seen, pretended]).sort(*by, "flow_start_ns")
    return (
        ordered.with_columns(begins=_is_step_begin(ordered, by, settings))
        .with_columns(step=pl.col("begins").cast(pl.Int64).cum_sum().over(by))
        .group_by(*by, "step")
        .agg(
            start_ns=pl.col("flow_start_ns").min(),
            end_ns=pl.col("flow_end_ns").max(),
            flows=pl.col("bytes").count(),
            bytes=pl.col("bytes").sum(),
            distinct_sizes=pl.col("bytes").drop_nulls().n_unique(),
            ended=pl.col("bytes").is_not_null().all() & (pl.col("flow_end_ns").max() < edge_ns),
        )
        .filter(pl.col("flows") > 0)
        .sort(*by, "step")
    )


def _is_step_begin(ordered: pl.DataFrame, by: list[str], settings: PublishedSettings) -> pl.Series:
    """Mark the flows before which the interval changed to a longer one; never the first flow of a series."""
    shortest_ns = settings.shortest_interval_ms * 1e6
    interval_ns = pl.col("flow_start_ns").diff().over(by)
    # Logarithms, because intervals vary by factors; 0 is the shortest interval that counts.
    intervals = ordered.select(*by, interval=interval_ns.clip(shortest_ns).truediv(shortest_ns).log())
    counts = intervals.group_by(by, maintain_order=True).agg(pl.len() - 1)["len"].to_numpy()
    series = intervals.filter(pl.col("interval").is_not_null())["interval"]
    changes = bocpd.change_points(
        series.to_numpy(),
        np.concatenate([[0], np.cumsum(counts)]),
        hazard=settings.hazard,
        prior=bocpd.Prior(0.0, settings.interval_scale, settings.mean_weight, settings.scale_weight),
        threshold=settings.posterior,
        max_run_length=settings.run_length,
    )
    longer = (series.diff() > 0).fill_null(value=False).to_numpy()
    begins = np.zeros(ordered.height, dtype=bool)
    begins[intervals["interval"].is_not_null().to_numpy()] = changes & longer
    return pl.Series("begins", begins)
