"""The order of a pipeline's stages, by which direction is ahead, or else by who sends first in a step.

The first micro-batch goes down the pipeline before anything comes up, so each stage's first message leaves after that
of the stage before it; the last stage's is a gradient, the latest of all. So it is in 1F1B and GPipe, and interleaved,
where the last stage hands on to the first. Between the last gradient and the first activation of the next step the
first stage computes backward, synchronises, and computes forward: never is a pipeline silent for longer.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import asof, grouped_sort, ragged
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.kernels import longest_pause
from llmprism_tasks.stages.parallelism.layout import degrees
from llmprism_tasks.stages.parallelism.layout.chain_order import NODE, in_lead
from llmprism_tasks.stages.parallelism.layout.dp_groups import nodes
from llmprism_tasks.stages.parallelism.layout.job_profile import LIKE_ONE
from llmprism_tasks.stages.parallelism.pair_graph import ENDS
from llmprism_tasks.stages.traffic import nic_pairs

BESIDE = 0.25
"""Ratio of the period within which a pipeline falls silent before or after the moment at which it typically does."""


def pp_stages(
    flows: pl.DataFrame,
    job_steps: pl.DataFrame,
    pairs: pl.DataFrame,
    laid: pl.DataFrame,
    groups: pl.DataFrame,
    job_members: pl.DataFrame,
) -> pl.DataFrame:
    """Return the stage of each member: `job_id`, `addr`, `pp_stage`.

    NULL for all of a job whose replicas and rails do not agree: where messages go past a neighbour, stages are not
    equally large, or tensor-parallel peers, which share a host, are in several.

    Parameters
    ----------
    flows : bulk flows of pipelines, with `pair`, in the order of `nic_pairs.numbered`
    job_steps : `job_id`, `end_ns`
    pairs : `pair`, `job_id`, `src_addr`, `dst_addr`, `kind`
    laid : `job_id`, `tp`, `pp` (NULL when unknown)
    groups : gradient groups, as `gradient_groups` returns; a group is in one stage
    """
    links = degrees.pipeline_links(pairs, groups)
    messages = _messages(flows, job_steps, links)
    told = in_lead(*messages, links)
    untold = links.join(told, left_on=["job_id", ENDS[0]], right_on=NODE, how="anti")
    silent = _in_order(_first_sends(_first(*messages), links, untold))
    order = pl.concat([told, silent.select(told.columns)])
    order = order.join(laid.select("job_id", "pp"), on="job_id")
    sound = order.join(_unsound(order, links), on=["job_id", "pipeline"], how="anti")
    placed = (
        nodes(job_members.select("job_id", "addr"), groups)
        .join(job_members.select("job_id", "addr", "host"), on=["job_id", "addr"])
        .join(laid.select("job_id", "tp", "pp"), on="job_id", how="left")
        .join(sound.select(*NODE, "place"), on=NODE, how="left")
        .with_columns(pp_stage=pl.when(pl.col("pp") == 1).then(0).otherwise("place"))
    )
    even = pl.len().over("job_id", "pp_stage") * pl.col("pp") == pl.len().over("job_id")
    peers = pl.len().over("job_id", "host", "pp_stage") % pl.col("tp") == 0
    agree = (even & peers & pl.col("pp_stage").is_not_null()).fill_null(value=False).all().over("job_id")
    return placed.select("job_id", "addr", pp_stage=pl.when(agree).then("pp_stage").cast(pl.Int32))


def _messages(flows: pl.DataFrame, job_steps: pl.DataFrame, links: pl.DataFrame) -> tuple[Integers, Integers, Integers]:
    """Return the pair, step and start of each message, by pair and time.

    A pipeline's step begins after the longest silence of a period.
    """
    jobs = (
        links.select("job_id").unique().sort("job_id").with_row_index("job").with_columns(pl.col("job").cast(pl.Int64))
    )
    known = links.select("pair", "job_id").join(jobs, on="job_id")
    every, bytes_ = (flows[name].to_numpy() for name in ("pair", "bytes"))
    runs = nic_pairs.starts_of_pairs(flows)
    of_run = pl.DataFrame({"pair": every[runs[:-1]]}).join(known, on="pair", how="left", maintain_order="left")
    most = LIKE_ONE[1] * ragged.medians(bytes_, runs)
    rows = np.flatnonzero(bytes_ <= ragged.spread(np.where(of_run["job"].is_null(), 0, most), runs))
    pair, start = every[rows], flows["flow_start_ns"].to_numpy()[rows]
    job = np.repeat(of_run["job"].fill_null(-1).to_numpy(), np.diff(runs))[rows]
    begins = _begins(job, start, job_steps.join(jobs, on="job_id"))
    marks = _offsets(begins["job"].to_numpy(), jobs.height)
    step = asof.last_until(start, job, begins["begin_ns"].to_numpy(), marks)
    within = np.flatnonzero(step >= 0)
    return pair[within], step[within], start[within]


def _first(pair: Integers, step: Integers, start: Integers) -> pl.DataFrame:
    """Return when each link's first message of a step starts: `pair`, `step`, `start_ns`."""
    first = ragged.bounds(pair, step)[:-1]
    return pl.DataFrame({"pair": pair[first], "step": step[first], "start_ns": start[first]})


def _begins(job: Integers, start: Integers, job_steps: pl.DataFrame) -> pl.DataFrame:
    """Return when a pipeline's steps begin: `job`, `begin_ns`, in this order.

    Parameters
    ----------
    job, start : of each message
    job_steps : `job`, `end_ns`
    """
    period = pl.col("end_ns").diff().median().over("job")
    ends = job_steps.sort("job", "end_ns").select("job", "end_ns", period_ns=period).drop_nulls()
    jobs = int(job.max(initial=-1)) + 1
    moments = grouped_sort.ascending_times(job, jobs, start)
    after = (pl.col("begin_ns") - pl.col("end_ns")) / pl.col("period_ns")

    def silences(ends: pl.DataFrame, *, nearest: bool) -> pl.DataFrame:
        marks = ends["end_ns"].to_numpy(), _offsets(ends["job"].to_numpy(), jobs)
        found = longest_pause.longest(*moments, *marks, nearest=nearest)
        return ends.with_columns(begin_ns=found).filter(pl.col("begin_ns") >= 0).with_columns(after=after)

    # A job's steps may be cut anywhere in the pipeline's, but always there: all silences have one typical phase.
    turn = 2 * np.pi * pl.col("after")
    phase = pl.arctan2(turn.sin().mean(), turn.cos().mean()) / (2 * np.pi)
    phases = silences(ends, nearest=False).group_by("job").agg(phase=phase)
    shifted = ends.join(phases, on="job", maintain_order="left").with_columns(
        end_ns=pl.col("end_ns") + (pl.col("phase") * pl.col("period_ns")).cast(pl.Int64)
    )
    typical = silences(shifted, nearest=True).filter(pl.col("after").abs() <= BESIDE)
    return typical.select("job", "begin_ns").sort("job", "begin_ns")


def _offsets(series: Integers, count: int) -> Integers:
    """Return where each of the series, numbered in order, begins."""
    return np.searchsorted(series, np.arange(count + 1))


def _first_sends(messages: pl.DataFrame, links: pl.DataFrame, untold: pl.DataFrame) -> pl.DataFrame:
    """Return when each node typically sends its first pipeline message, in ns after the first of its pipeline: NODE,
    `pipeline`, `after_ns`.

    Parameters
    ----------
    links : of all pipelines, for their numbers
    untold : of those that are asked about
    """
    joined = pair_graph.components(links.select("job_id", *ENDS).unique()).rename(
        {"addr": "node", "component": "pipeline"}
    )
    sending = untold.select("pair", "job_id", "sender", node="src_addr")
    pipeline = ["job_id", "pipeline", "step"]
    # The median over a stage's replicas is not moved by one that is slow.
    return (
        messages.join(sending, on="pair")
        .group_by(*NODE, "sender", "step")
        .agg(pl.col("start_ns").min())
        .group_by(*NODE, "step")
        .agg(pl.col("start_ns").median())
        .join(joined, on=NODE)
        .with_columns(after_ns=pl.col("start_ns") - pl.col("start_ns").min().over(pipeline))
        .group_by(*NODE, "pipeline")
        .agg(pl.col("after_ns").median())
    )


def _in_order(sends: pl.DataFrame) -> pl.DataFrame:
    """Number the nodes of each pipeline by their first message: NODE, `pipeline`, `place`, `size` (of the pipeline).

    Nodes that send theirs together have one place, so their pipeline is not sound: nobody can say which is first.
    """
    pipeline = ["job_id", "pipeline"]
    return sends.with_columns(
        place=pl.col("after_ns").rank("min").over(pipeline).cast(pl.Int64) - 1,
        size=pl.len().over(pipeline).cast(pl.Int64),
    )


def _unsound(order: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return the pipelines whose messages do not go from neighbour to neighbour, all the way: `job_id`, `pipeline`.

    Interleaved, the last stage is the first one's neighbour.
    """
    places = order.select(*NODE, "pipeline", "place", "size", "pp")
    hops = links.select("job_id", *ENDS).unique()
    for end in ENDS:
        hops = hops.join(
            places.rename({"node": end, "place": f"{end}_place"}).select(
                "job_id", end, f"{end}_place", *(["pipeline", "size"] if end == "src_addr" else [])
            ),
            on=["job_id", end],
        )
    apart = (pl.col("dst_addr_place") - pl.col("src_addr_place")).abs()
    verdicts = hops.group_by("job_id", "pipeline").agg(
        leaps=((apart != 1) & (apart != pl.col("size") - 1)).any(),
        linked=pl.col("src_addr_place").filter(pl.col("dst_addr_place") - pl.col("src_addr_place") == 1).n_unique(),
    )
    wrong = pl.col("leaps") | (pl.col("linked") != pl.col("size") - 1) | (pl.col("size") != pl.col("pp"))
    return (
        places.select("job_id", "pipeline", "size", "pp")
        .unique()
        .join(verdicts, on=["job_id", "pipeline"], how="left")
        .filter(wrong.fill_null(value=True))
        .select("job_id", "pipeline")
    )
