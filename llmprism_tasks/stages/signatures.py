"""Signatures: what a pair's traffic looks like within a step, by itself and beside the traffic that comes back.

The published method counts a pair's distinct sizes. Sizes say little where headers, retransmission, tied embeddings or
context-parallel blocks change or share them. Timing says more. Both directions of a collective start together, since
all members have to come to it; in a pipeline the gradient comes back only after the activation went there and was
worked on. Gradient synchronisation is one burst of the step, all else goes on through it.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.methods.series import SIGMA_PER_MAD
from llmprism_tasks.settings import RhythmSettings, Settings
from llmprism_tasks.stages import sizes, streams

PAIR = ["job_id", *streams.PAIR]
STREAM = ["job_id", *streams.STREAM]
MAJORITY = 0.5
"""Ratio of its steps that decides what a pair is."""


def stream_steps(flows: pl.DataFrame, periods: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Describe what each stream does in each step.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `step`
    periods : `job_id`, `period_ns`

    Returns
    -------
    a row per pair and step (`size_class` -1), and one per size that recurs in most of the pair's steps: `records`,
    `stream_bytes`, `size` (median, bytes), `spread` (from first to last start, a ratio of the period), `fresh`
    (ratio of records whose size is not met in most other steps), `distinct` (sizes), `share` (of the pair's bytes),
    `job_steps` (the job's steps), and `first_missed`, `last_missed`: by how much the step's first and last record miss
    those that come back, a ratio of the period (NULL where nothing alike does), and `first_mutual`, `last_mutual`:
    whether each of them is also the nearest to the one that is nearest to it
    """
    same_size = settings.rhythm.same_size
    classed = sizes.with_class(sizes.in_one_piece(flows, same_size), same_size).with_columns(
        pair_steps=pl.col("step").n_unique().over(PAIR), job_steps=pl.col("step").n_unique().over("job_id")
    )
    present = pl.col("step").n_unique().over(STREAM) >= settings.parallelism.least_presence * pl.col("pair_steps")
    classed = (
        classed.join(periods, on="job_id")
        .with_columns(
            fresh=pl.col("step").n_unique().over(*PAIR, "bytes") * 2 < pl.col("pair_steps"),
            pair_bytes=pl.col("bytes").sum().over(*PAIR, "step"),
        )
        .with_columns(recurs=present & (pl.col("fresh").mean().over(STREAM) < settings.parallelism.expert_sizes))
    )
    recurring = classed.with_columns(distinct="size_class").filter("recurs")
    whole = classed.with_columns(distinct="size_class", size_class=pl.lit(streams.WHOLE, pl.Int64))
    # Where sizes recur, the pair as a whole answers nothing: what goes and what comes may be different tensors.
    varying = whole.filter(pl.col("fresh").mean().over(PAIR) >= settings.parallelism.expert_sizes)
    rows = []
    for frame, answering in ((whole, varying), (recurring, recurring)):
        missed = frame.join(_missed(answering, settings.rhythm), on=[*STREAM, "step", "flow_start_ns"], how="left")
        rows.append(
            missed.sort("flow_start_ns")
            .group_by(*STREAM, "step")
            .agg(
                records=pl.len(),
                stream_bytes=pl.col("bytes").sum(),
                size=pl.col("bytes").median(),
                spread=(pl.col("flow_start_ns").max() - pl.col("flow_start_ns").min()) / pl.col("period_ns").first(),
                fresh=pl.col("fresh").mean(),
                distinct=pl.col("distinct").n_unique(),
                share=pl.col("bytes").sum() / pl.col("pair_bytes").first(),
                first_missed=pl.col("missed_ns").first() / pl.col("period_ns").first(),
                last_missed=pl.col("missed_ns").last() / pl.col("period_ns").first(),
                first_mutual=pl.col("mutual").first(),
                last_mutual=pl.col("mutual").last(),
                period_ns=pl.col("period_ns").first(),
                job_steps=pl.col("job_steps").first(),
            )
        )
    return pl.concat(rows)


def _missed(flows: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return how far each record's start is from the nearest that comes back in its step (`missed_ns`, for each start
    of a stream), and whether neither has a nearer one (`mutual`).

    What comes back has the same size and altogether about as many bytes; streams without such an answer are absent.
    """
    sent = flows.group_by(STREAM).agg(size=pl.col("bytes").median(), total=pl.col("bytes").sum())
    back = sent.select(
        "job_id",
        src_addr="dst_addr",
        dst_addr="src_addr",
        back_class="size_class",
        back_size="size",
        back_total="total",
    )
    same_size = (pl.col("size") / pl.col("back_size") - 1).abs() <= settings.same_size
    same_bytes = (pl.col("total") / pl.col("back_total")).log().abs() <= settings.answer_bytes
    off = (pl.col("total") / pl.col("back_total")).log().abs()
    answered = (
        sent.join(back, on=PAIR)
        .filter(same_size, same_bytes)
        .sort(*STREAM, off)
        .group_by(STREAM, maintain_order=True)
        .agg(pl.col("back_class").first())
    )
    starts = flows.select(*STREAM, "step", "flow_start_ns").unique().sort("flow_start_ns")
    back_stream = {"src_addr": "dst_addr", "dst_addr": "src_addr", "back_class": "size_class"}
    comes_back = starts.select("job_id", "step", "flow_start_ns", **back_stream, back_ns="flow_start_ns")
    nearest = (
        starts.join(answered, on=STREAM)
        .sort("flow_start_ns")
        .join_asof(
            comes_back, on="flow_start_ns", by=[*PAIR, "step", "back_class"], strategy="nearest", check_sortedness=False
        )
    )
    partners = nearest.select("job_id", "step", **back_stream, back_ns="flow_start_ns", partner_ns="back_ns")
    return nearest.join(partners, on=[*PAIR, "step", "back_class", "back_ns"], how="left").select(
        *STREAM,
        "step",
        "flow_start_ns",
        missed_ns=(pl.col("flow_start_ns") - pl.col("back_ns")).abs(),
        mutual=(pl.col("partner_ns") == pl.col("flow_start_ns")).fill_null(value=False),
    )


def votes(steps: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Judge each pair by itself, by the vote of its steps.

    Parameters
    ----------
    steps : as `stream_steps` returns

    Returns
    -------
    `job_id`, `src_addr`, `dst_addr`, and as ratios of its steps: `pipeline` (a stream repeats through the step and is
    answered later), `expert` (goes on through the step in sizes that never repeat), `filling` (goes on through the step
    in sizes that do); `distinct_sizes` (most frequent count), `bytes_per_step`, `common_size` (bytes, of the size that
    carries most; NULL where none recurs), of those that go on through the step `filling_size`, of the others
    `burst_size`; `presence` (ratio of the job's steps)
    """
    whole = pl.col("size_class") == streams.WHOLE
    piped = _piped(steps, settings).with_columns(piped=True)
    judged = steps.join(piped, on=STREAM, how="left").with_columns(pl.col("piped").fill_null(value=False))
    fills = pl.col("spread") >= settings.parallelism.filling_spread
    expert = (
        whole
        & ~pl.col("piped")
        & fills
        & (pl.col("records") >= settings.parallelism.expert_records)
        & (pl.col("fresh") >= settings.parallelism.expert_sizes)
    )
    by_step = (
        judged.with_columns(expert=expert, filling=~whole & fills & ~pl.col("piped"))
        .group_by(*PAIR, "step")
        .agg(
            pl.col("expert").any(),
            filling=pl.col("share").filter("filling").sum() >= MAJORITY,
            distinct=pl.col("distinct").filter(whole).first(),
            step_bytes=pl.col("stream_bytes").filter(whole).first(),
            size=_largest("size", ~whole),
            burst_size=_largest("size", ~whole & ~fills & ~pl.col("piped")),
            filling_size=_largest("size", pl.col("filling")),
            job_steps=pl.col("job_steps").first(),
        )
    )
    # Records that the collector splits have new sizes, too, but in all the same bytes.
    varies = _deviation("step_bytes") >= settings.parallelism.expert_variation * pl.col("step_bytes").median()
    sure = piped.group_by(PAIR).agg(pl.col("pipeline").max())
    return (
        by_step.group_by(PAIR)
        .agg(
            expert=pl.when(varies).then(pl.col("expert").mean()).otherwise(0.0),
            filling=pl.col("filling").mean(),
            distinct_sizes=pl.col("distinct").mode().min(),
            bytes_per_step=pl.col("step_bytes").median(),
            common_size=pl.col("size").median(),
            burst_size=pl.col("burst_size").median(),
            filling_size=pl.when(pl.col("filling_size").count() >= MAJORITY * pl.len()).then(
                pl.col("filling_size").median()
            ),
            presence=pl.len() / pl.col("job_steps").first(),
        )
        .join(sure, on=PAIR, how="left")
        .with_columns(pl.col("pipeline").fill_null(0.0))
    )


def relayed(
    flows: pl.DataFrame, pairs: pl.DataFrame, job_members: pl.DataFrame, periods: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Find pipelines whose activations and gradients go through different NICs: `job_id`, `src_addr`, `dst_addr`,
    `pipeline`.

    A message to a GPU on another rail may leave through the NIC of the neighbour that is on it (NCCL's PXN), so what
    comes back does so between the same hosts, on another pair of NICs.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `step`
    pairs : `job_id`, `src_addr`, `dst_addr`: those that fill the step and that nothing answers
    """
    hosts = job_members.select("job_id", "addr", "host")
    between, pairs = flows.join(pairs, on="job_id", how="semi"), pairs.select(PAIR)
    host_pair = {end: f"{end}_host" for end in streams.PAIR}
    for end, place in host_pair.items():
        host = hosts.rename({"addr": end, "host": place})
        between, pairs = between.join(host, on=["job_id", end]), pairs.join(host, on=["job_id", end])
    piped = _piped(stream_steps(between.with_columns(**host_pair), periods, settings), settings)
    found = piped.group_by(PAIR).agg(pl.col("pipeline").max()).rename(host_pair)
    return pairs.join(found, on=["job_id", *host_pair.values()]).select(*PAIR, "pipeline")


def _largest(column: str, chosen: pl.Expr) -> pl.Expr:
    """Return a column's value where the chosen stream carries most; NULL if none is chosen."""
    return pl.col(column).sort_by("share").filter(chosen.sort_by("share")).last()


def _deviation(column: str) -> pl.Expr:
    return SIGMA_PER_MAD * (pl.col(column) - pl.col(column).median()).abs().median()


def _piped(steps: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Find the streams that are a pipeline's: STREAM, `pipeline` (ratio of the steps that say so).

    A pipeline warms up and cools down: the first activation of a step goes before any gradient has come back, the last
    gradient comes when no activation is left, and in between they may well go together. A rank that comes early to a
    collective is early, too, but its first record and the one that answers it have no nearer ones; only with a single
    micro-batch is that so in a pipeline. Where the steps of neighbouring stages overlap, a step's last record may be
    counted as the next one's first, or its first as the last one's.
    """
    ratios = settings.parallelism
    answered = steps.drop_nulls("first_missed")
    gap = pl.when(pl.col("records") > 1).then(pl.col("spread") / (pl.col("records") - 1)).otherwise(0.0)
    both_ways = _with_answer(
        answered.group_by(STREAM).agg(pl.col("size").median(), interval=gap.median()), "interval", settings
    )
    # What is counted to the wrong step stretches the time between records in one direction only.
    intervals = both_ways.select(*STREAM, interval=pl.min_horizontal("interval", "back_interval"))
    fills = pl.col("spread") >= ratios.pipeline_spread
    least = pl.max_horizontal(ratios.answer_interval * pl.col("interval"), ratios.answer_ms * 1e6 / pl.col("period_ns"))

    def alone(end: str) -> pl.Expr:
        missed, mutual = pl.col(f"{end}_missed"), pl.col(f"{end}_mutual")
        far = (missed >= least) & (~mutual | (missed >= ratios.lag_interval * pl.col("interval")))
        return pl.when(fills).then(far).otherwise(missed >= ratios.pipeline_spread / 2).mean()

    either, both = pl.max_horizontal(alone("first"), alone("last")), pl.min_horizontal(alone("first"), alone("last"))
    edges = (
        answered.join(intervals, on=STREAM)
        .group_by(STREAM)
        .agg(pl.col("size").median(), alone=pl.when(fills.mean() >= MAJORITY).then(either).otherwise(both))
    )
    return (
        _with_answer(edges, "alone", settings)
        .select(*STREAM, pipeline=pl.min_horizontal("alone", "back_alone"))
        .filter(pl.col("pipeline") >= MAJORITY)
    )


def _with_answer(streams: pl.DataFrame, column: str, settings: Settings) -> pl.DataFrame:
    """Add a column of the stream of like size that comes back, as `back_…`; where several do, the largest value."""
    back = streams.select(
        "job_id", pl.col(column).alias(f"back_{column}"), src_addr="dst_addr", dst_addr="src_addr", back_size="size"
    )
    return (
        streams.join(back, on=PAIR)
        .filter((pl.col("size") / pl.col("back_size") - 1).abs() <= settings.rhythm.same_size)
        .group_by(STREAM)
        .agg(pl.col(column).first(), pl.col(f"back_{column}").max())
    )
