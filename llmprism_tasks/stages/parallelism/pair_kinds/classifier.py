"""Signatures: what a pair's traffic looks like within a step, by itself and beside the traffic that comes back.

The published method counts a pair's distinct sizes. Sizes say little where headers, retransmission, tied embeddings or
context-parallel blocks change or share them. Timing says more. Both directions of a collective start together, since
all members have to come to it; in a pipeline the gradient comes back only after the activation went there and was
worked on. Gradient synchronisation is one burst of the step, all else goes on through it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import ragged, robust
from llmprism_tasks.numerics.robust import EVEN_ODDS, MAJORITY, Floats
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.kernels import ranked_shares
from llmprism_tasks.stages.parallelism.pair_kinds.features import stream_steps, with_back
from llmprism_tasks.stages.step_division import periodicity
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.opposite import same_size

STREAM = ["pair", "size_class"]


def votes(steps: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Judge each pair by itself, by the vote of its steps.

    Parameters
    ----------
    steps : as `stream_steps` returns

    Returns
    -------
    `pair`, and as ratios of its steps: `pipeline` (a stream repeats through the step and is answered later), `together`
    (a stream begins and ends with the one that comes back), `expert`
    (comes more than once, in sizes that never repeat, and other bytes in each step), `filling` (goes on through the
    step in sizes that do);
    `distinct_sizes` (most frequent count), `bytes_per_step`, `common_size` (bytes, of the size that carries most; NULL
    where none recurs), of those in one burst `burst_size`; `presence`
    (ratio of the job's steps); `alike` (whether it moves about as many bytes in each step); `steady` (whether it, or
    one of its sizes, comes alike in about all of several steps); `reduces` (whether one of its sizes does so in one
    burst, and carries much)
    """
    edges = _lone_record_ratios(steps, settings)
    piped = _pipeline_streams(edges, settings)
    by_step = _votes_by_step(steps, piped, settings)
    offsets = ragged.bounds(by_step["pair"].to_numpy())
    counts = np.diff(offsets)
    bytes_ = by_step["step_bytes"].to_numpy().astype(np.float64)
    typical = robust.medians(bytes_, offsets)
    # Records that the collector splits have new sizes, too, but in all the same bytes.
    deviations = robust.sigmas(bytes_, offsets, typical)
    # Less is little evidence of either, not much of gradients: many messages vary less in all than each does.
    least = settings.parallelism.expert_variation * typical
    varies = np.where(deviations >= least, 1.0, EVEN_ODDS * (deviations / np.maximum(least, 1.0)) ** 2)
    expert, filling = (ragged.sums(by_step[kind].to_numpy(), offsets) / counts for kind in ("expert", "filling"))
    common, burst = (by_step[name].to_numpy() for name in ("size", "burst_size"))
    sent = steps.select(*STREAM, "stream_bytes", "spread", "share", "job_steps")
    in_parts, at_once = (
        pl.col("size_class") != periodicity.WHOLE_PAIR,
        pl.col("spread") <= settings.parallelism.pipeline_spread,
    )
    return (
        by_step.select("pair")[offsets[:-1]]
        .with_columns(
            alike=deviations <= settings.rhythm.byte_tolerance * typical,
            expert=varies * expert,
            filling=filling,
            distinct_sizes=ragged.commonest(by_step["distinct"].to_numpy(), offsets),
            bytes_per_step=typical,
            common_size=_series_with_nulls(robust.medians(common, offsets)),
            burst_size=_series_with_nulls(robust.medians(burst, offsets)),
            presence=counts / by_step["job_steps"].to_numpy()[offsets[:-1]],
        )
        .join(piped.group_by("pair").agg(pl.col("pipeline").max()), on="pair", how="left")
        .join(edges.group_by("pair").agg(together=1 - pl.max_horizontal("first", "last").min()), on="pair", how="left")
        .with_columns(
            pl.col("pipeline", "together").fill_null(0.0),
            steady=pl.col("pair").is_in(_steady_pairs(sent, settings.rhythm.least_share, settings).implode()),
            reduces=pl.col("pair").is_in(
                _steady_pairs(sent.filter(in_parts, at_once), settings.parallelism.gradient_share, settings).implode()
            ),
        )
    )


def _votes_by_step(steps: pl.DataFrame, piped: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Judge each pair in each of its steps: `pair`, `expert`, `filling`, `distinct`, `step_bytes`, `job_steps`, and of
    the size that carries most `size`, of those in a burst `burst_size` (NaN where there is none)."""
    whole = steps.head(int((steps["size_class"] == periodicity.WHOLE_PAIR).sum()))
    starts = ragged.bounds(*(steps[key].to_numpy() for key in STREAM))
    told = steps.select(STREAM)[starts[:-1]].join(piped, on=STREAM, how="left", maintain_order="left")["pipeline"]
    other = np.repeat(told.is_null().to_numpy(), np.diff(starts))
    spread = steps["spread"].to_numpy()
    fills = spread >= settings.parallelism.filling_spread
    # A model may have few layers with experts, and those not at its ends: how often and how long they are called in a
    # step says nothing. That it is no single burst is enough, for no gradients have other sizes and bytes each time.
    not_at_once = other & (spread >= settings.parallelism.pipeline_spread)
    expert = pl.Series(not_at_once[: whole.height]) & (whole["fresh"] >= settings.parallelism.expert_sizes)
    goes_on, in_burst = ((other & how)[whole.height :] for how in (fills, ~fills))
    within, share, size = (steps[name].to_numpy()[whole.height :] for name in ("within", "share", "size"))
    ranks = ranked_shares.ranked(within, whole.height, share)
    return whole.select("pair", "distinct", "job_steps", step_bytes="stream_bytes").with_columns(
        expert=expert,
        filling=ranked_shares.sums(np.where(goes_on, share, 0.0), *ranks) >= MAJORITY,
        size=ranked_shares.of_largest(size, *ranks),
        burst_size=ranked_shares.of_largest(np.where(in_burst, size, np.nan), *ranks),
    )


def _series_with_nulls(values: Floats) -> pl.Series:
    return pl.Series(values, nan_to_null=True)


def _steady_pairs(steps: pl.DataFrame, least_share: float, settings: Settings) -> pl.Series:
    """Return the pairs of which a stream comes in about all of several steps, in as many bytes in most of them.

    What comes as often by chance comes in differing numbers. Of what is lost, other sizes tell.
    """
    offsets = ragged.bounds(*(steps[key].to_numpy() for key in STREAM))
    counts, bytes_ = np.diff(offsets), steps["stream_bytes"].to_numpy().astype(np.float64)
    typical = robust.medians(bytes_, offsets)
    alike = robust.sigmas(bytes_, offsets, typical) <= settings.rhythm.byte_tolerance * typical
    of_all = settings.parallelism.steady_presence * steps["job_steps"].to_numpy()[offsets[:-1]]
    often = (counts >= settings.recognition.regular_bursts) & (counts >= of_all)
    carries = robust.medians(steps["share"].to_numpy(), offsets) >= least_share
    return steps["pair"].gather(offsets[:-1][alike & often & carries]).unique()


def relayed(
    flows: pl.DataFrame,
    pairs: pl.DataFrame,
    silent: pl.DataFrame,
    job_members: pl.DataFrame,
    periods: pl.DataFrame,
    settings: Settings,
) -> pl.DataFrame:
    """Find pipelines whose activations and gradients go through different NICs: `pair`, `relayed` (ratio of steps).

    A message to a GPU on another rail may leave through the NIC of the neighbour that is on it (NCCL's PXN), so what
    comes back does so between the same hosts, on another pair of NICs.

    Parameters
    ----------
    flows : bulk flows with `pair` and `step`, in the order of `nic_pairs.numbered`
    pairs : `pair`, `job_id`, `src_addr`, `dst_addr`, of all pairs
    silent : `pair`: those that fill the step and that nothing answers
    """
    hosts = job_members.select("job_id", "addr", "host")
    between = pairs.join(pairs.join(silent, on="pair", how="semi"), on="job_id", how="semi")
    for end in nic_pairs.PAIR:
        between = between.join(hosts.rename({"addr": end, "host": f"{end}_host"}), on=["job_id", end])
    between = between.select(
        "pair",
        "job_id",
        src_addr="src_addr_host",
        dst_addr="dst_addr_host",
        among=pl.struct("job_id", "^.*_host$").rank("dense").cast(pl.Int32),
    )
    together = nic_pairs.flows_of_pairs(flows, between.select("pair", "among")).drop("pair").rename({"among": "pair"})
    host_pairs = between.select("job_id", *nic_pairs.PAIR, pair="among").unique("pair")
    steps = stream_steps(nic_pairs.in_order(together), with_back(host_pairs), periods, settings)
    found = (
        _pipeline_streams(_lone_record_ratios(steps, settings), settings)
        .group_by(among="pair")
        .agg(relayed=pl.col("pipeline").max())
    )
    return silent.select("pair").join(between, on="pair").join(found, on="among").select("pair", "relayed")


def _lone_record_ratios(steps: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Say how often the first and the last record of a stream go alone in a step: STREAM, `back`, `size`, and as ratios
    of its steps `first`, `last`, and `alone`: what a pipeline's do.

    A pipeline warms up and cools down: the first activation of a step goes before any gradient has come back, the last
    gradient comes when no activation is left, and in between they may well go together. A rank that comes early to a
    collective is early, too, but its first record and the one that answers it have no nearer ones; only with a single
    micro-batch is that so in a pipeline. Where the steps of neighbouring stages overlap, a step's last record may be
    counted as the next one's first, or its first as the last one's; so may one direction alone of a collective, which
    then goes at once with what is counted to the step beside.
    """
    ratios = settings.parallelism
    gap = pl.when(pl.col("records") > 1).then(pl.col("spread") / (pl.col("records") - 1)).otherwise(0.0)
    ends = [f"{end}_{how}" for end in ("first", "last") for how in ("missed", "around", "mutual")]
    answered = (
        steps.select("back", *STREAM, "size", "records", "spread", "period_ns", *ends)
        .filter(pl.col("first_missed") >= 0)
        .with_columns(pl.col("^.*_(missed|around)$") / pl.col("period_ns"), gap=gap)
    )
    offsets = ragged.bounds(*(answered[key].to_numpy() for key in STREAM))
    size, interval, lasts = (robust.medians(answered[name].to_numpy(), offsets) for name in ("size", "gap", "spread"))
    by_stream = answered.select("back", *STREAM)[offsets[:-1]].with_columns(size=size, interval=interval, lasts=lasts)
    # What is counted to the wrong step stretches the time between records in one direction only. And where all forward
    # passes of a step come before its backward passes, each direction has a part of the step to itself.
    both_ways = (
        _with_answering_stream(by_stream, name, settings).select(*STREAM, name, back=f"back_{name}")
        for name in ("interval", "lasts")
    )
    intervals, filled = both_ways
    intervals = intervals.select(*STREAM, interval=pl.min_horizontal("interval", "back"))
    filled = filled.select(*STREAM, fills=pl.max_horizontal("lasts", "back") >= ratios.pipeline_spread)
    least = pl.max_horizontal(ratios.answer_interval * pl.col("interval"), ratios.answer_ms * 1e6 / pl.col("period_ns"))

    def alone(end: str) -> pl.Expr:
        missed, around, mutual = (pl.col(f"{end}_{how}") for how in ("missed", "around", "mutual"))
        far = (around >= least) & (~mutual | (missed >= ratios.lag_interval * pl.col("interval")))
        return pl.when("fills").then(far).otherwise(around >= ratios.pipeline_spread / 2)

    known = (
        by_stream.drop("interval", "lasts")
        .join(intervals, on=STREAM, how="left", maintain_order="left")
        .join(filled, on=STREAM, how="left", maintain_order="left")
    )
    of_step = np.repeat(np.arange(known.height), np.diff(offsets))
    marks = answered.with_columns(known.select("interval", "fills")[of_step]).select(
        first=alone("first"), last=alone("last")
    )
    marked = {mark.name: ragged.sums(mark.to_numpy(), offsets) / np.diff(offsets) for mark in marks}
    return (
        known.with_columns(**marked)
        .drop_nulls("interval")
        .with_columns(
            alone=pl.when("fills")
            .then(pl.max_horizontal("first", "last"))
            .otherwise(pl.min_horizontal("first", "last"))
        )
    )


def _pipeline_streams(edges: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Find the streams that are a pipeline's: STREAM, `pipeline` (ratio of the steps that say so).

    Parameters
    ----------
    edges : as `_lone_record_ratios` returns
    """
    return (
        _with_answering_stream(edges, "alone", settings)
        .select(*STREAM, pipeline=pl.min_horizontal("alone", "back_alone"))
        .filter(pl.col("pipeline") >= MAJORITY)
    )


def _with_answering_stream(by_stream: pl.DataFrame, column: str, settings: Settings) -> pl.DataFrame:
    """Add a column of the stream of like size that comes back, as `back_…`; where several do, the largest value.

    A pair as a whole has other sizes in each step, whose median depends on which records are counted to it: only over
    all steps are those that go like those that come back.
    """
    whole = pl.col("size_class") == periodicity.WHOLE_PAIR
    sent = by_stream.with_columns(whole=whole)
    back = sent.select(pl.col(column).alias(f"back_{column}"), "whole", back="pair", back_size="size")
    alike = same_size("size", "back_size", settings.rhythm.same_size)
    return (
        sent.join(back, on=["back", "whole"])
        .filter(pl.col("whole") | alike)
        .group_by(STREAM)
        .agg(pl.col(column).first(), pl.col(f"back_{column}").max())
    )
