"""Which steps are over, and in which window each of them ended.

A step belongs to the window in which it ends, but a window's run does not see what comes after it. A burst that is
under way at a window's edge is left to the next window; it is over when its bytes are complete, or when it has lasted
as long as usual without some of them, or longer without most. Where all members together lack next to nothing, what one
of them lacks is lost. The next window applies the same rule to what was visible at the edge, so both agree on every
step without knowing of each other. A member whose part was over when too little of the job's step was there to be one
has its step in the next window, with the rest of the job.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics import asof, encoding, grouped_sort, ragged
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps
from llmprism_tasks.stages.step_division.kernels import burst_totals
from llmprism_tasks.stages.step_division.kernels.burst_totals import Totals
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.nic_pairs import PAIR

AFTER_LAST_STEP = 2**62
"""Stands for the step of what was sent after the last one."""


def endpoint_steps(joint: JointSteps, window: Window, settings: Settings) -> pl.DataFrame:
    """Return the steps of each NIC, those of the look-back included.

    Parameters
    ----------
    joint : as `job_steps.steps_of_jobs` returns, with what was sent before the window

    Returns
    -------
    sorted: `job_id`, `addr`, `step`, `first_ns` (first flow of its synchronisation), `end_ns`, `bytes`,
    `ended_before` (over before the window began) and `ended` (over before the window's end)
    """
    nics, owners = _number_nics(nic_pairs.pairs_of(joint.flows, ["job_id", *PAIR]))
    found = burst_totals.totals_by_owner(joint.sent, owners, nics.height)
    steps = (
        nics[found.series]
        .with_columns(step=found.number, **_total_columns(found))
        .with_columns(
            pl.col("bytes", "bytes_before").sum().over("job", "step").name.prefix("step_"),
            typical_bytes=pl.col("bytes").median().over("nic"),
            typical_step_bytes=pl.col("bytes").sum().over("job", "step").median().over("job"),
            typical_ns=(pl.col("end_ns") - pl.col("first_ns")).median().over("nic"),
        )
    )
    least = settings.rhythm.least_step * pl.col("typical_step_bytes")
    became_one_since = (pl.col("step_bytes_before") < least) & (pl.col("step_bytes") >= least)
    before = _is_over("end_before_ns", "bytes_before", window.start_ns, settings) & ~became_one_since
    return (
        steps.with_columns(ended_before=before.fill_null(value=False))
        .with_columns(
            ended=pl.col("ended_before") | _is_over("end_ns", "bytes", window.end_ns, settings),
            end_ns=pl.when("ended_before").then("end_before_ns").otherwise("end_ns"),
        )
        .select("job_id", "addr", "step", "first_ns", "end_ns", "bytes", "ended_before", "ended")
    )


def _number_nics(pairs: pl.DataFrame) -> tuple[pl.DataFrame, Integers]:
    """Return the NICs of pairs, in order: `job_id`, `addr`, `job` and `nic` (their numbers); and those of each pair."""
    nics = pl.concat([pairs.select("job_id", addr=end) for end in PAIR]).unique().sort("job_id", "addr")
    nics = nics.with_columns(job=pl.col("job_id").rle_id(), nic=pl.int_range(pl.len()))
    numbers = [
        pairs.join(nics, left_on=["job_id", end], right_on=["job_id", "addr"], how="left", maintain_order="left")["nic"]
        for end in PAIR
    ]
    return nics, np.column_stack([one.to_numpy() for one in numbers])


def _total_columns(found: Totals) -> dict[str, pl.Series]:
    return {
        "first_ns": pl.Series(found.first),
        "end_ns": pl.Series(found.last),
        "bytes": pl.Series(found.total),
        "end_before_ns": pl.Series(found.last_before).replace(0, None),
        "bytes_before": pl.Series(found.total_before),
    }


def job_steps(endpoints: pl.DataFrame, window: Window, settings: Settings) -> pl.DataFrame:
    """Return the steps of each job: a step ends with its last member, and is over when it is over for all.

    Members that took part in fewer than half of the steps are not waited for.
    """
    regular = endpoints.filter(
        pl.len().over("job_id", "addr") * 2 >= pl.col("step").n_unique().over("job_id")
    ).with_columns(expected=pl.col("addr").n_unique().over("job_id"))
    steps = (
        regular.group_by("job_id", "step")
        .agg(
            pl.col("first_ns").min(),
            pl.col("end_ns").max(),
            first_before_ns=pl.col("first_ns").filter(pl.col("first_ns") < window.start_ns).min(),
            all_before=pl.col("ended_before").sum() >= pl.col("expected").first(),
            all_now=pl.col("ended").sum() >= pl.col("expected").first(),
            latest_over_ns=pl.col("end_ns").filter("ended").max(),
        )
        .with_columns(typical_ns=(pl.col("end_ns") - pl.col("first_ns")).median().over("job_id"))
    )
    patience = pl.col("typical_ns") * settings.timeline.overdue
    late_before = (pl.lit(window.start_ns) - pl.col("first_before_ns") > patience) & (
        pl.col("end_ns") < window.start_ns
    )
    late_now = (pl.lit(window.end_ns) - pl.col("first_ns") > patience) & (pl.col("end_ns") < window.end_ns)
    # A step that is over although some NICs are missing ends with the NICs seen so far: a later NIC does not move it.
    told_ns = pl.when(~pl.col("all_now"), pl.col("ended")).then(pl.coalesce("latest_over_ns", "end_ns"))
    return (
        steps.with_columns(ended_before=pl.col("all_before") | late_before.fill_null(value=False))
        .with_columns(ended=pl.col("ended_before") | pl.col("all_now") | late_now)
        .with_columns(end_ns=pl.coalesce(told_ns, "end_ns"))
        .select("job_id", "step", "first_ns", "end_ns", "ended_before", "ended")
        .sort("job_id", "step")
    )


IN_WINDOW = pl.col("ended") & ~pl.col("ended_before")
"""Selects the steps that ended in the window."""


def previous_end(*key: str) -> pl.Expr:
    """Return where the step before each one of the same `run` ended, NULL for the first.

    Parameters
    ----------
    key : whose steps they are, which lie together run by run, each in order of `step`
    """
    run = pl.struct(*key, "run").rle_id()
    return pl.when(run == run.shift()).then(pl.col("end_ns").shift())


def step_of_flows(flows: pl.DataFrame, endpoints: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Say to which step each flow belongs: the first that its sender has not ended before the flow starts.

    Parameters
    ----------
    flows : with `job_id`
    endpoints, jobs : as `endpoint_steps` and `job_steps` return; a sender without steps of its own goes by its job's

    Returns
    -------
    flows with `step`, NULL for those after the last step
    """
    flows = nic_pairs.in_order(flows)
    steps = flows.select(step=numbers_of_steps(flows, endpoints, jobs))
    return flows.with_columns(steps.select(pl.when(pl.col("step") != AFTER_LAST_STEP).then("step")))


def numbers_of_steps(flows: pl.DataFrame, endpoints: pl.DataFrame, jobs: pl.DataFrame) -> Integers:
    """Return the step of each flow, or AFTER_LAST_STEP; flows as `nic_pairs.in_order` returns."""
    offsets = nic_pairs.starts_of_pairs(flows)
    common = jobs.select("job_id", pl.lit(None, pl.String).alias("addr"), "end_ns", "step")
    steps = pl.concat([endpoints.select(common.columns), common])
    hashes = (steps.select(pl.col("job_id").hash(seed) + pl.col("addr").hash(seed + 2)) for seed in (0, 1))
    owner, first = encoding.numbered(*(one.to_series().to_numpy() for one in hashes))
    ends, step = (steps[name].to_numpy() for name in ("end_ns", "step"))
    order = grouped_sort.grouped(owner, first.size, ends, step, step)
    bounds = ragged.bounds(owner[order])
    spans = steps.select("job_id", "addr")[first].with_columns(low=bounds[:-1], high=bounds[1:])
    shows = pl.col("src_addr").is_in(endpoints["addr"].unique().implode())
    low, high = (
        nic_pairs.named(flows.select("job_id", "src_addr")[offsets[:-1]])
        .with_columns(addr=pl.when(shows).then("src_addr"))
        .join(spans, on=["job_id", "addr"], how="left", maintain_order="left", nulls_equal=True)
        .select(pl.col("low", "high").fill_null(0))
    )
    starts = flows["flow_start_ns"].to_numpy()
    return asof.values_from(
        starts, offsets, ends[order], step[order], low.to_numpy(), high.to_numpy(), otherwise=AFTER_LAST_STEP
    )


def first_indices(endpoints: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the step of each job that its window counts as 0: `job_id`, `base`."""
    ended = pl.concat([frame.filter(IN_WINDOW).select("job_id", "step") for frame in (endpoints, jobs)])
    return ended.group_by("job_id").agg(base=pl.col("step").min())


def _is_over(end: str, bytes_: str, edge_ns: int, settings: Settings) -> pl.Expr:
    """Tell which steps are over at an edge: what lacks a few bytes has lost them only if it lasted as long as usual, or
    if all members together lack next to nothing. A single member lacks as much with each record that is lost."""
    share, lasted = pl.col(bytes_) / pl.col("typical_bytes"), pl.lit(edge_ns) - pl.col("first_ns")
    of_all = pl.col(f"step_{bytes_}") / pl.col("typical_step_bytes")
    complete, all_complete = (each >= 1 - settings.rhythm.same_size for each in (share, of_all))
    whole = (share >= settings.rhythm.least_whole) & (all_complete | (lasted >= pl.col("typical_ns")))
    overdue = lasted > settings.timeline.overdue * pl.col("typical_ns")
    return (pl.col(end) < edge_ns) & (complete | whole | overdue)
