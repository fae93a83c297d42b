"""Timeline reconstruction: flows and pairs -> each NIC's steps, what it did in them, and what they went to.

LLMPrism (arXiv 2505.00342), stage 4: the end of a burst of data-parallel flows ends a step; pipeline and
data-parallel flows are placed in it, and what is left is computing or waiting.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics.intervals import GAP, MARKED_GAP, Numbers, Unions, unions_and_gaps
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division import completion, periodicity
from llmprism_tasks.stages.step_division.division import Division
from llmprism_tasks.stages.timeline.breakdown import breakdown
from llmprism_tasks.stages.timeline.placement import NIC, Placed, placed
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.gathered import gathered
from llmprism_tasks.stages.traffic.index import JobTraffic

QUIET_PHASES = {GAP: "idle", MARKED_GAP: "compute"}
"""What a NIC does while nothing moves: it waits, or works until it sends."""


def timeline(
    *,
    job_traffic: JobTraffic,
    step_ends: Division | None,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    pairs: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Reconstruct the steps that ended in the window.

    Parameters
    ----------
    job_traffic : the flows of jobs, in the window and its look-back
    step_ends : their steps, ended by the pairs that `pair_graph.ending` returns
    jobs, job_members, pairs : the window's

    Returns
    -------
    steps : of each NIC with data-parallel traffic, and of each job (`addr` NULL)
    timeline : of the same NICs and steps, without gaps: messages of one pair that overlap are one row, gradient
        synchronisation with one peer is one row, and between them it is `compute` before the NIC sends and `idle`
        before it receives
    step_breakdown : what each of the NICs' steps went to
    """
    del settings
    if step_ends is None:
        return frames.empty("steps"), frames.empty("timeline"), frames.empty("step_breakdown")
    first = first_flows(job_traffic.flows, job_traffic.bulk, step_ends.flows)
    own, common = step_spans(step_ends.endpoints, step_ends.job_steps, step_ends.first_steps, first)
    return tables(common, placed(step_ends.flows, own, pairs), jobs, job_members, window)


def tables(
    common: pl.DataFrame,
    found: Placed,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    window: Window,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return `steps`, `timeline` and `step_breakdown`.

    Parameters
    ----------
    common : the steps of jobs, as `step_spans` returns them
    found : the flows to be told of, placed in the NICs' steps
    """
    own = found.parts.select(*NIC, "step_index", start_ns="step_start_ns", end_ns="step_end_ns")
    common = common.sort("job_id", "step_index").with_columns(addr=pl.lit(None, dtype=pl.String))
    steps = pl.concat([common.select(own.columns), own]).sort("job_id", maintain_order=True)  # jobs' before NICs'
    start = pl.lit(window.start_ns)
    went = breakdown(found, jobs, job_members, window)  # what it takes is free again before the largest table is made
    return (
        frames.conform(steps.with_columns(window_start_ns=start), "steps", ordered=True),
        frames.conform(phases(found).with_columns(window_start_ns=start), "timeline", ordered=True, compact=True),
        went,
    )


def first_flows(inside: pl.DataFrame, every: pl.DataFrame, bulk: pl.DataFrame) -> pl.DataFrame:
    """Say when each NIC was first heard of in each run; in a job that came back only bulk flows tell.

    Parameters
    ----------
    inside : all flows between members of jobs, with `job_id`, pair by pair in order of their starts
    every, bulk : the bulk flows of all, and those of the runs, with `run`

    Returns
    -------
    `job_id`, `addr`, `run`, `first_ns`
    """
    columns = ["job_id", *periodicity.PAIR, "flow_start_ns"]
    first = nic_pairs.pairs_of(inside, columns).with_columns(run=pl.lit(0, pl.Int32))
    if bulk.height < every.height or bulk["run"].max() != 0:
        runs = bulk.group_by("job_id").agg(pl.len(), runs=pl.col("run").max())
        counts = every.group_by("job_id").agg(all=pl.len()).join(runs, on="job_id", how="left")
        returned = counts.filter((pl.col("len").fill_null(0) < pl.col("all")) | (pl.col("runs") > 0))
        again = [
            nic_pairs.pairs_of(flows.join(returned, on="job_id", how="semi"), columns).with_columns(run=run)
            for (run,), flows in bulk.group_by("run")
        ]
        first = pl.concat([first.join(nic_pairs.named(returned), on="job_id", how="anti"), *again])
    return nic_pairs.by_endpoint(first).group_by(*NIC, "run").agg(first_ns=pl.col("flow_start_ns").min())


def step_spans(
    endpoints: pl.DataFrame, job_steps: pl.DataFrame, first_steps: pl.DataFrame, first: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give the steps that ended in the window a start and an index.

    A step of a NIC that ended before the one before it is none of its steps: what it moved belongs to that. Nor is one
    that it ended after its job had, which does not wait for NICs that rarely take part.

    Parameters
    ----------
    endpoints, job_steps, first_steps : as `Division` has them
    first : as `first_flows` returns it, for the start of a run's first step

    Returns
    -------
    steps of NICs (`job_id`, `addr`, `step_index`, `start_ns`, `end_ns`) and of jobs (without `addr`)
    """
    spans = []
    told = job_steps.filter(completion.IN_WINDOW).select("job_id", "step", told_ns="end_ns")
    late = completion.IN_WINDOW & (pl.col("end_ns") > pl.col("told_ns")).fill_null(value=False)
    waited_for = endpoints.join(told, on=["job_id", "step"], how="left", maintain_order="left").filter(~late)
    for steps, key, earliest in (
        (waited_for, NIC, first),
        (job_steps, ["job_id"], first.group_by("job_id", "run").agg(pl.col("first_ns").min())),
    ):
        spans.append(
            steps.drop("first_ns")
            .with_columns(start_ns=completion.previous_end(*key))
            .with_columns(pl.col("start_ns").cum_max().over(*key, "run"))
            .filter(completion.IN_WINDOW, pl.col("start_ns").is_null() | (pl.col("start_ns") <= pl.col("end_ns")))
            .join(earliest, on=[*key, "run"])
            .join(first_steps, on="job_id")
            .select(
                *key,
                step_index=pl.col("step") - pl.col("base"),
                start_ns=pl.col("start_ns").fill_null(pl.min_horizontal("first_ns", pl.col("end_ns") - 1)),
                end_ns="end_ns",
            )
        )
    return spans[0], spans[1]


def phases(found: Placed) -> pl.DataFrame:
    """Return the rows of the timeline, in their order: what moved, and what the NIC did in between.

    Texts are categories: there are thousands of them, and millions of rows.
    """
    told, channels = _unions_and_channels(found)
    did = pl.concat([pl.DataFrame({"phase": QUIET_PHASES.values()}), channels], how="diagonal", rechunk=True)
    what = told.kinds - min(QUIET_PHASES)
    step = found.parts.select(pl.col(NIC).cast(pl.Categorical), pl.col("step_index").cast(pl.Int32))
    times = pl.DataFrame({"start_ns": told.starts, "end_ns": told.ends, "bytes": told.sizes})
    acts = did.select(pl.col("phase", "peer").cast(pl.Categorical))
    rows = pl.concat([gathered(step, told.segments), times, gathered(acts, what)], how="horizontal")
    rank = did.select(pl.struct("phase", "peer").rank("dense").cast(pl.Int64)).to_series().to_numpy()
    order = _row_order(told, found.parts["nic"].to_numpy(), what, rank)
    return rows if order is None else rows[order]


def _row_order(told: Unions, nics: Integers, what: Numbers, ranks: Integers) -> Integers | None:
    """Return the order of rows by NIC, start, rank and end; None if they are in it.

    Those of a step are, but a message of no length may end where the next step begins.

    Parameters
    ----------
    nics : shape (parts,)
    what : shape (rows,), what each is of those that have `ranks`
    """
    close = np.flatnonzero(told.starts[1:] <= told.starts[:-1])
    both = np.array([close, close + 1])
    nic, start, rank, end = nics[told.segments[both]], told.starts[both], ranks[what[both]], told.ends[both]
    falling = (start[0] > start[1]) | (rank[0] > rank[1]) | ((rank[0] == rank[1]) & (end[0] > end[1]))
    if not (falling & (nic[0] == nic[1])).any():
        return None
    return np.lexsort((told.ends, ranks[what], told.starts, nics[told.segments]))


def _unions_and_channels(found: Placed) -> tuple[Unions, pl.DataFrame]:
    """Make one row of messages that overlap, and of a step's whole synchronisation with one peer; and of gaps.

    Returns
    -------
    rows, part by part, gaps marked where it is the NIC's own work that ends them; and what the kinds of the others are:
    `phase`, `peer`
    """
    named = found.sides.select("phase", "peer", kind=pl.struct("nic", "phase", "peer").rle_id().cast(pl.Int64))
    channels = named.filter(pl.col("kind").is_first_distinct()).drop("kind")
    rows = unions_and_gaps(
        found.rows,
        named["kind"].to_numpy(),
        found.sides.select(pl.col("sends") | (pl.col("kind") == "dp")).to_series().to_numpy(),
        found.flows["bytes"].to_numpy(),
        (channels["phase"] == "dp_sync").to_numpy(),
    )
    return rows, channels
