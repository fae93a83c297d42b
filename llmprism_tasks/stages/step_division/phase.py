"""Step division: flows and members -> each pair's flows, divided into training steps.

LLMPrism (arXiv 2505.00342), stage 2, finds each pair's steps on its own from the intervals between its flows. Beyond
the paper, a job's steps come from all of its periodic pairs together (`rhythm`), and every pair is divided at the
steps of its sender.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics import asof, ragged
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division import completion
from llmprism_tasks.stages.step_division.division import Division
from llmprism_tasks.stages.traffic import nic_pairs, size_classes
from llmprism_tasks.stages.traffic.index import JobTraffic
from llmprism_tasks.stages.traffic.kernels import pair_sums


def step_division(
    *,
    job_traffic: JobTraffic,
    division: Division | None,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame]:
    """Divide the flows of each pair of a job into the steps that ended in the window.

    Parameters
    ----------
    job_traffic, division : the flows of jobs and their steps, in the window and its look-back
    jobs, job_members : the window's jobs, which the other two know

    Returns
    -------
    pair_steps : `start_ns` and `end_ns` are those of the pair's first and last flow in the step (a record that a
        collector kept open for longer ends with the window); sizes that differ by
        headers only count once, and control messages not at all. Empty for jobs that do not train.
    """
    del jobs, job_members
    if division is None:
        return (frames.empty("pair_steps"),)
    inside, endpoints, job_steps = job_traffic.flows, division.endpoints, division.job_steps
    ended = endpoints.filter(completion.IN_WINDOW).select("job_id", "step", src_addr="addr")
    wanted = (
        nic_pairs.pairs_of(inside, ["job_id", *nic_pairs.PAIR])
        .with_columns(series=pl.int_range(pl.len()))
        .join(division.first_steps, on="job_id")
        .sort("job_id", "pair")
        .join(ended, on=["job_id", "src_addr"], maintain_order="left_right")
    )
    sent = _step_sums(inside, completion.numbers_of_steps(inside, endpoints, job_steps), settings)
    pair_steps = _with_step_sums(wanted, sent).with_columns(
        window_start_ns=pl.lit(window.start_ns),
        step_index=pl.col("step") - pl.col("base"),
        end_ns=pl.min_horizontal("end_ns", window.end_ns - 1),
    )
    return (frames.conform(pair_steps, "pair_steps", ordered=True),)


def _with_step_sums(wanted: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Add what pairs sent, as `_step_sums` returns, to those of some steps (`series`, `step`) in which they did."""
    series, step = (wanted[name].to_numpy() for name in ("series", "step"))
    offsets = ragged.bounds(series)
    of_series = sent["series"].to_numpy()
    low, high = (np.searchsorted(of_series, series[offsets[:-1]], side) for side in ("left", "right"))
    row = asof.first_from(step, offsets, sent["step"].to_numpy(), low, high)
    met = (row >= 0) & (sent["step"].to_numpy()[row] == step)
    return wanted.filter(pl.Series(met)).with_columns(sent.drop("series", "step")[row[met]])


def _step_sums(flows: pl.DataFrame, steps: Integers, settings: Settings) -> pl.DataFrame:
    """Return what each pair sends in each step: `series` (the place of the pair), `step`, `start_ns`, `end_ns`,
    `flows`, `bytes`, `distinct_sizes`.

    Parameters
    ----------
    flows : in the order of `nic_pairs.numbered`
    steps : of each flow, as `completion.numbers_of_steps` returns
    """
    ordered = nic_pairs.step_by_step(flows.select("pair", *nic_pairs.TIMES, step=steps))
    start, end, bytes_, step = (ordered[column].to_numpy() for column in ordered.columns[1:])
    offsets = nic_pairs.starts_of_pairs(flows)
    kinds = size_classes.classes(ordered, settings.rhythm.same_size)
    kinds[bytes_ <= settings.traffic.control_bytes] = -1
    return pl.DataFrame(
        pair_sums.step_sums(offsets, step, start, end, bytes_, kinds),
        schema=["series", "step", "start_ns", "end_ns", "flows", "bytes", "distinct_sizes"],
    )
