"""Step division: flows and members -> each pair's flows, divided into training steps.

LLMPrism (arXiv 2505.00342), stage 2, finds each pair's steps on its own from the intervals between its flows. Beyond
the paper, a job's steps come from all of its periodic pairs together (`rhythm`), and every pair is divided at the
steps of its sender.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks import frames
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages import completion, sizes, streams, traffic
from llmprism_tasks.stages.division import divide
from llmprism_tasks.windows import Window


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
    base = completion.first_indices(endpoints, job_steps)
    ended = endpoints.filter(completion.IN_WINDOW).select("job_id", "step", src_addr="addr")
    pair = ["job_id", *streams.PAIR]
    divided = completion.step_of_flows(inside, endpoints, job_steps)
    is_bulk = pl.col("bytes") > settings.traffic.control_bytes
    pair_steps = (
        sizes.with_class(divided, settings.rhythm.same_size)
        .join(ended, on=["job_id", "src_addr", "step"], how="semi")
        .join(base, on="job_id")
        .group_by(*pair, step_index=pl.col("step") - pl.col("base"))
        .agg(
            start_ns=pl.col("flow_start_ns").min(),
            end_ns=pl.min_horizontal(pl.col("flow_end_ns").max(), window.end_ns - 1),
            flows=pl.len(),
            bytes=pl.col("bytes").sum(),
            distinct_sizes=pl.col("size_class").filter(is_bulk).n_unique(),
        )
    )
    return (frames.conform(pair_steps.with_columns(window_start_ns=pl.lit(window.start_ns)), "pair_steps"),)
