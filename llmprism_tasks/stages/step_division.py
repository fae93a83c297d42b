"""Step division: flows and members -> each pair's flows, divided into training steps.

LLMPrism (arXiv 2505.00342), stage 2, finds each pair's steps on its own from the intervals between its flows. Beyond
the paper, a job's steps come from all of its periodic pairs together (`rhythm`), and every pair is divided at the
steps of its sender.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks import frames
from llmprism_tasks.methods import segments
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages import completion, sizes, traffic
from llmprism_tasks.stages.division import divide
from llmprism_tasks.windows import Window

AFTER = 2**62
"""Stands for the step of what was sent after the last one."""


def step_division(
    *, flows: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame, window: Window, settings: Settings
) -> tuple[pl.DataFrame]:
    """Divide the flows of each pair of a job into the steps that ended in the window.

    Parameters
    ----------
    flows : the window's flows and those of its look-back
    jobs, job_members : the window's jobs

    Returns
    -------
    pair_steps : `start_ns` and `end_ns` are those of the pair's first and last flow in the step (a record that a
        collector kept open for longer ends with the window); sizes that differ by
        headers only count once, and control messages not at all. Empty for jobs without a rhythm.
    """
    del jobs
    inside = traffic.inside_jobs(flows, job_members)
    division = divide(traffic.bulk(inside, settings.traffic), window, settings)
    if division is None:
        return (frames.empty("pair_steps"),)
    endpoints, job_steps = division.endpoints, division.job_steps
    ended = endpoints.filter(completion.IN_WINDOW).select("job_id", "step", src_addr="addr")
    pair_steps = (
        _sent(completion.step_of_flows(inside, endpoints, job_steps), settings)
        .join(traffic.pairs_of(inside, ["job_id", *traffic.PAIR]), on="pair")
        .join(ended, on=["job_id", "src_addr", "step"], how="semi")
        .join(completion.first_indices(endpoints, job_steps), on="job_id")
        .with_columns(
            window_start_ns=pl.lit(window.start_ns),
            step_index=pl.col("step") - pl.col("base"),
            end_ns=pl.min_horizontal("end_ns", window.end_ns - 1),
        )
    )
    return (frames.conform(pair_steps, "pair_steps"),)


def _sent(flows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return what each pair sends in each step: `pair`, `step` (AFTER the last one), `start_ns`, `end_ns`, `flows`,
    `bytes`, `distinct_sizes`.

    Parameters
    ----------
    flows : as `completion.step_of_flows` returns
    """
    classed = sizes.with_class(flows.select("pair", "step", *traffic.TIMES), settings.rhythm.same_size)
    ordered = traffic.step_by_step(classed.with_columns(pl.col("step").fill_null(AFTER)))
    pair, step, start, end, bytes_, size_class = (ordered[column].to_numpy() for column in ordered.columns)
    offsets = segments.bounds(pair, step)
    first, control = offsets[:-1], bytes_ <= settings.traffic.control_bytes
    all_of_control = int(size_class.max(initial=0)) + 1
    kinds = segments.distinct(np.where(control, all_of_control, size_class), offsets)
    return pl.DataFrame(
        {
            "pair": pair[first],
            "step": step[first],
            "start_ns": start[first],
            "end_ns": segments.largest(end, offsets),
            "flows": np.diff(offsets),
            "bytes": segments.sums(bytes_, offsets),
            "distinct_sizes": kinds - (segments.sums(control, offsets) > 0),
        }
    )
