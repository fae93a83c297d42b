"""A job's figures: how long its steps take, what its messages and gradients weigh, and how much of it is explained."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import ragged
from llmprism_tasks.numerics.robust import MAJORITY, relative_sigma
from llmprism_tasks.settings import ParallelismSettings
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.kernels import messages_per_step
from llmprism_tasks.stages.parallelism.pair_graph import ENDS
from llmprism_tasks.stages.traffic import nic_pairs

JOB_PAIR = ["job_id", *ENDS]
LEAST_DURATIONS = 3
"""Durations of steps below which a deviation is chance."""

BUSY_QUANTILE = 0.2
"""Quantile of a job's pairs by how much of the step they are busy."""

BACKWARD_SHARE = 2 / 3
"""Ratio of the step up to which gradients are reduced while others are computed: the backward pass of a single
micro-batch takes twice as long as its forward pass."""

FULL_STEP_QUANTILE = 0.9
"""Quantile of a pair's steps by bytes that is taken as full."""

COMPLETE_STEP_QUANTILE = 0.75
"""Quantile of the messages counted in a step: records are lost, none is invented."""

WHOLE_MESSAGE_RATIOS = (0.4, 2.5)
"""Bytes of what counts as a message, over the typical one's: lengths vary; what is smaller was cut off, what is larger
is another tensor (tied embeddings)."""

MERGED_PAIR_TOLERANCE = 0.04
"""How far two messages that a collector merged may be from twice the typical one: sizes recur within 2 %."""


def durations(job_steps: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `period_ns` (median) and `jitter_ratio` (NULL for a few steps), over all steps seen.

    Parameters
    ----------
    job_steps : `job_id`, `step`, `end_ns`, `ended`, as `completion.job_steps` returns
    """
    follows = pl.col("step") - pl.col("step").shift().over("job_id", order_by="step") == 1
    length = pl.col("end_ns") - pl.col("end_ns").shift().over("job_id", order_by="step")
    spans = job_steps.filter("ended").with_columns(follows=follows, length=length).filter("follows")
    middle = pl.col("length").median()
    return spans.group_by("job_id").agg(
        period_ns=middle.round().cast(pl.Int64),
        jitter_ratio=pl.when(pl.len() >= LEAST_DURATIONS).then(relative_sigma(pl.col("length"))),
    )


def by_step(flows: pl.DataFrame) -> pl.DataFrame:
    """Return what each pair sends in each step: `pair`, `step`, `bytes`, `first_ns`, `last_ns` (starts), and of the
    longest silence in between `quiet_ns` (by how much it is longer than any other) and `resumed_ns` (the start after
    it).

    Parameters
    ----------
    flows : bulk flows with `pair` and `step`, in the order of `nic_pairs.step_by_step`
    """
    pair, step, start, end = (flows[name].to_numpy() for name in ("pair", "step", "flow_start_ns", "flow_end_ns"))
    offsets = ragged.bounds(pair, step)
    first, last = offsets[:-1], offsets[1:] - 1
    silence = np.append(0, np.maximum(start[1:] - end[:-1], 0))
    silence[first] = 0
    resumed, others = ragged.first_largest(silence, offsets), silence.copy()
    others[resumed] = 0
    return pl.DataFrame(
        {
            "pair": pair[first],
            "step": step[first],
            "bytes": ragged.sums(flows["bytes"].to_numpy(), offsets),
            "first_ns": start[first],
            "last_ns": start[last],
            "quiet_ns": ragged.largest(silence, offsets) - ragged.largest(others, offsets),
            "resumed_ns": start[resumed],
        }
    )


def brevity(flows: pl.DataFrame, pairs: pl.DataFrame, periods: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `brevity`: the ratio of the bytes in steps that are in records shorter than half of a step.

    Parameters
    ----------
    flows : bulk flows with `pair`
    pairs : `pair`, `job_id`
    periods : `job_id`, `period_ns`
    """
    known = pairs.select("pair", "job_id").join(periods, on="job_id").select("pair", "job_id", "period_ns")
    # A longer record was made of several messages by a collector with a long active timeout: it does not say when.
    brief = pl.col("flow_end_ns") - pl.col("flow_start_ns") < MAJORITY * pl.col("period_ns")
    return (
        flows.join(known, on="pair")
        .group_by("job_id")
        .agg(brevity=(pl.col("bytes") * brief).sum() / pl.col("bytes").sum())
    )


def messages(flows: pl.DataFrame, pairs: pl.DataFrame, settings: ParallelismSettings) -> pl.DataFrame:
    """Return `job_id`, `micro_batches` and `activation_bytes` of each job with a pipeline.

    Records of a pair that start together are one message on several queue pairs.

    Parameters
    ----------
    flows : bulk flows of pipelines, with `pair` and `step`, in the order of `nic_pairs.step_by_step`
    pairs : `pair`, `job_id`
    """
    pair, step, start = (flows[name].to_numpy() for name in ("pair", "step", "flow_start_ns"))
    offsets = nic_pairs.starts_of_pairs(flows)
    found = messages_per_step.in_steps(
        *(offsets, step, start, flows["bytes"].to_numpy()),
        together_ns=settings.message_ms * 1e6,
        like_one=WHOLE_MESSAGE_RATIOS,
        twice=MERGED_PAIR_TOLERANCE,
    )
    of_pair = pair[offsets[:-1]][found.series]
    counted = pl.DataFrame({"pair": of_pair, "count": found.counts, "typical": found.typical})
    return (
        counted.join(pairs.select("pair", "job_id"), on="pair")
        .group_by("job_id")
        .agg(
            micro_batches=pl.col("count").quantile(COMPLETE_STEP_QUANTILE).round().cast(pl.Int32),
            activation_bytes=pl.col("typical").median().round().cast(pl.Int64),
        )
    )


def gradients(
    pairs: pl.DataFrame, groups: pl.DataFrame, job_members: pl.DataFrame, sharded: pl.DataFrame
) -> pl.DataFrame:
    """Return `job_id`, `gradient_bytes`: what each rank reduces in a step.

    A ring of n ranks sends 2 (n - 1) / n times the gradients over each of its hops, and leaves each host once. Where
    parameters are gathered in another precision than gradients are reduced in, it is the mean of both. Jobs whose pairs
    may carry blocks of context or tokens as well are absent; so are those that may shard their parameters, which gather
    them for each pass of each micro-batch.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, `bytes_per_step`
    groups : `job_id`, `addr`, `group`
    sharded : `job_id`, `sharded`, as `sharded` returns
    """
    placed = groups.join(job_members.select("job_id", "addr", "host"), on=["job_id", "addr"])
    sizes = placed.group_by("job_id", "group").agg(ranks=pl.len(), hosts=pl.col("host").n_unique())
    mixed = pairs.filter(pl.col("kind").is_in(["cp", "ep"])).select("job_id").unique()
    return (
        pairs.filter(pl.col("kind") == "dp")
        .join(mixed, on="job_id", how="anti")
        .join(sharded.filter(~pl.col("sharded")), on="job_id", how="semi")
        .join(groups.rename({"addr": "src_addr"}), on=["job_id", "src_addr"])
        .group_by("job_id", "group")
        .agg(pl.col("bytes_per_step").sum())
        .join(sizes, on=["job_id", "group"])
        .filter(pl.col("ranks") > 1)
        .with_columns(
            reduced=pl.col("bytes_per_step") / pl.col("hosts") * pl.col("ranks") / (2 * (pl.col("ranks") - 1))
        )
        .group_by("job_id")
        .agg(gradient_bytes=pl.col("reduced").median().round().cast(pl.Int64))
    )


def sharded(
    sent: pl.DataFrame, pairs: pl.DataFrame, periods: pl.DataFrame, laid: pl.DataFrame, settings: ParallelismSettings
) -> pl.DataFrame:
    """Return `job_id`, `sharded`: parameters are gathered through the whole step, or gradients reduced in one burst.

    NULL in between. Both directions of a link count together, for gathers may go round the other way. Links that carry
    other kinds, too, may be busy for longer, so the less busy ones decide, and those between NICs that exchange tokens
    say nothing. Where there are no other kinds, it is those of the rings that move most: what is sharded in groups of
    hosts is reduced among these in the backward pass alone, in much fewer bytes (HSDP). By how much the longest silence
    of a link is longer than any other is no part of its time, for a step may be told to end between the reduction of
    gradients and the gathers of a sharded optimizer. A single replica shares with nobody.

    Parameters
    ----------
    sent : as `by_step` returns
    pairs : `pair`, `job_id`, `src_addr`, `dst_addr`, `kind`, `bytes_per_step`
    periods : `job_id`, `period_ns`
    laid : `job_id`, `dp`, `cp`
    """
    link = pl.struct("job_id", low=pl.min_horizontal(ENDS), high=pl.max_horizontal(ENDS)).rank("dense")
    alone = pl.col("kind").is_in(["other", "dp"]).all().over("job_id")
    gradients = pairs.with_columns(alone=alone).filter(pl.col("kind") == "dp")
    largest = pl.col("bytes_per_step").max().over("job_id")
    main = ~pl.col("alone") | (pl.col("bytes_per_step") >= settings.ring_share * largest)
    reducing = _outside_of_exchanges(gradients.filter(main), pairs).select("pair", "job_id", link=link)
    spread = (
        sent.join(reducing.select("pair", "link"), on="pair")
        .group_by("link", "step")
        .agg(span_ns=pl.col("last_ns").max() - pl.col("first_ns").min() - pl.col("quiet_ns").min())
        .group_by("link")
        .agg(pl.col("span_ns").median())
        .join(reducing.select("link", "job_id").unique(), on="link")
        .group_by("job_id")
        .agg(pl.col("span_ns").quantile(BUSY_QUANTILE))
        .join(periods, on="job_id")
    )
    ratio = pl.col("span_ns") / pl.col("period_ns")
    told = (
        pl.when(ratio >= settings.sharded_spread)
        .then(pl.lit(value=True))
        .when(ratio < BACKWARD_SHARE)
        .then(pl.lit(value=False))
    )
    single = laid.filter(pl.col("dp") == 1, pl.col("cp") == 1).join(spread, on="job_id", how="anti")
    return pl.concat([spread.select("job_id", sharded=told), single.select("job_id", sharded=pl.lit(value=False))])


def _outside_of_exchanges(gradients: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the pairs of which the NICs are not in one exchange of tokens: these take the hops of gradients, too."""
    groups = pair_graph.components(pairs.filter(pl.col("kind") == "ep").select("job_id", *ENDS))
    placed = gradients
    for end in ENDS:
        placed = placed.join(groups.rename({"addr": end, "component": f"{end}_group"}), on=["job_id", end], how="left")
    both = (pl.col("src_addr_group") == pl.col("dst_addr_group")).fill_null(value=False)
    return placed.filter(~both).select(gradients.columns)


def explained(sent: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `explained_flows`, `explained_bytes`: the share in pairs of a known kind.

    Parameters
    ----------
    sent : `job_id`, `src_addr`, `dst_addr`, `bulk_flows`, `bulk_bytes`, as `nic_pairs.sent_in_window` returns
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`
    """
    columns = ["bulk_flows", "bulk_bytes"]
    known = pairs.filter(pl.col("kind") != "other").select(*JOB_PAIR, known=1)
    shares = (pl.col(columns) * pl.col("known")).sum() / pl.col(columns).sum()
    return (
        sent.filter(pl.col("bulk_flows") > 0)
        .join(known, on=JOB_PAIR, how="left")
        .group_by("job_id")
        .agg(shares.name.replace("bulk", "explained"))
    )


def stepping(endpoints: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `explained_nics`: the share of its NICs with a step.

    Parameters
    ----------
    endpoints : `job_id`, `addr`, `ended`, as `completion.endpoint_steps` returns
    """
    stepping_nics = endpoints.filter("ended").group_by("job_id").agg(nics=pl.col("addr").n_unique())
    members = job_members.group_by("job_id").agg(endpoints=pl.len())
    return members.join(stepping_nics, on="job_id").select(
        "job_id", explained_nics=pl.col("nics") / pl.col("endpoints")
    )


def evenness(sent: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `evenness`: bytes of gradients that a pair sends in a step, over those in its fullest ones.

    They are the same in every step; where records are lost, some are missing. Steps that the data cut are left out,
    and so are jobs whose gradients are not seen.

    Parameters
    ----------
    sent : as `by_step` returns
    pairs : `pair`, `job_id`, `kind`, of all pairs
    """
    step, jobs = pl.col("step"), pairs.select("job_id").unique().with_row_index("job")
    inner = (step > step.min().over("job")) & (step < step.max().over("job"))
    known = pairs.join(jobs, on="job_id").select("pair", "job", reduces=pl.col("kind") == "dp")
    return (
        sent.select("pair", "step", "bytes")
        .join(known, on="pair")
        .filter(inner, "reduces")
        .with_columns(fullest=pl.col("bytes").quantile(FULL_STEP_QUANTILE).over("pair"))
        .group_by("job")
        .agg(evenness=pl.min_horizontal("bytes", "fullest").sum() / pl.col("fullest").sum())
        .join(jobs, on="job")
        .select("job_id", "evenness")
    )
