"""Signatures: what a pair's traffic looks like within a step, by itself and beside the traffic that comes back.

The published method counts a pair's distinct sizes. Sizes say little where headers, retransmission, tied embeddings or
context-parallel blocks change or share them. Timing says more. Both directions of a collective start together, since
all members have to come to it; in a pipeline the gradient comes back only after the activation went there and was
worked on. Gradient synchronisation is one burst of the step, all else goes on through it.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import RhythmSettings, Settings
from llmprism_tasks.stages import rhythm, sizes

PAIR = ["job_id", *rhythm.PAIR]
STREAM = ["job_id", *rhythm.STREAM]


def stream_steps(flows: pl.DataFrame, periods: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Describe what each stream does in each step.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `step`
    periods : `job_id`, `period_ns`

    Returns
    -------
    a row per pair and step (`size_class` -1), and one per size that recurs in most of the pair's steps: `records`,
    `stream_bytes`, `size` (median, bytes), `first_ns`, `spread` (from first to last start, a ratio of the period),
    `fresh` (ratio of records whose size is not met in most other steps), `distinct` (sizes), `share` (of the pair's
    bytes in the step), `answer` (how long after this stream's first record the other direction's first one comes, or
    before it, a ratio of the period; NULL without an answer of like size and bytes), `job_steps` (the job's steps)
    """
    classed = sizes.with_class(flows, settings.rhythm.same_size).with_columns(
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
    rows = [
        frame.group_by(*STREAM, "step").agg(
            records=pl.len(),
            stream_bytes=pl.col("bytes").sum(),
            size=pl.col("bytes").median(),
            first_ns=pl.col("flow_start_ns").min(),
            spread=(pl.col("flow_start_ns").max() - pl.col("flow_start_ns").min()) / pl.col("period_ns").first(),
            fresh=pl.col("fresh").mean(),
            distinct=distinct,
            share=pl.col("bytes").sum() / pl.col("pair_bytes").first(),
            period_ns=pl.col("period_ns").first(),
            job_steps=pl.col("job_steps").first(),
        )
        for frame, distinct in (
            (classed.with_columns(size_class=pl.lit(rhythm.WHOLE, pl.Int64)), pl.col("size_class").n_unique()),
            (classed.filter("recurs"), pl.lit(1, pl.UInt32)),
        )
    ]
    return _answered(pl.concat(rows), settings.rhythm)


def _answered(steps: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Add `answer`: how far apart in time a stream and the one that comes back begin."""
    whole = pl.col("size_class") == rhythm.WHOLE
    back = steps.select(
        "job_id",
        "step",
        src_addr="dst_addr",
        dst_addr="src_addr",
        back_class="size_class",
        back_size="size",
        back_bytes="stream_bytes",
        back_ns="first_ns",
    )
    same_kind = whole == (pl.col("back_class") == rhythm.WHOLE)
    same_size = (pl.col("size") / pl.col("back_size") - 1).abs() <= settings.same_size
    same_bytes = (pl.col("stream_bytes") / pl.col("back_bytes")).log().abs() <= settings.answer_bytes
    answers = (
        steps.join(back, on=[*PAIR, "step"])
        .filter(same_kind, same_size, same_bytes)
        .group_by(*STREAM, "step")
        .agg(answer=((pl.col("first_ns") - pl.col("back_ns")).abs() / pl.col("period_ns")).min())
    )
    return steps.join(answers, on=[*STREAM, "step"], how="left")


def votes(steps: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Judge each pair by itself, by the vote of its steps.

    Parameters
    ----------
    steps : as `stream_steps` returns

    Returns
    -------
    `job_id`, `src_addr`, `dst_addr`, and as ratios of its steps: `pipeline` (a stream repeats through the step and is
    answered later), `expert` (goes on through the step in sizes that never repeat), `filling` (goes on through the step
    in sizes that do); `distinct_sizes` (most frequent count), `bytes_per_step`, `common_size` (bytes, of
    the size that carries most; NULL where none recurs), `presence` (ratio of the job's steps)
    """
    interval = pl.when(pl.col("records") > 1).then(pl.col("spread") / (pl.col("records") - 1)).otherwise(0.0)
    whole = pl.col("size_class") == rhythm.WHOLE
    later = (pl.col("answer") >= settings.parallelism.answer_interval * interval) & (
        pl.col("answer") * pl.col("period_ns") >= settings.parallelism.answer_ms * 1e6
    )
    fills = pl.col("spread") >= settings.parallelism.pipeline_spread
    pipeline = later & (fills | (pl.col("answer") >= settings.parallelism.pipeline_spread / 2))
    expert = (
        whole
        & ~pipeline.fill_null(value=False)
        & (pl.col("spread") >= settings.parallelism.expert_spread)
        & (pl.col("records") >= settings.parallelism.expert_records)
        & (pl.col("fresh") >= settings.parallelism.expert_sizes)
    )
    filling = ~whole & fills & ~pipeline.fill_null(value=False)
    by_step = (
        steps.with_columns(pipeline=pipeline.fill_null(value=False), expert=expert, filling=filling)
        .group_by(*PAIR, "step")
        .agg(
            pl.col("pipeline").any(),
            pl.col("expert").any(),
            filling=pl.col("share").filter("filling").sum() >= settings.rhythm.one_size_share,
            distinct=pl.col("distinct").filter(whole).first(),
            step_bytes=pl.col("stream_bytes").filter(whole).first(),
            size=pl.col("size").sort_by("share").filter(~whole.sort_by("share")).last(),
            job_steps=pl.col("job_steps").first(),
        )
    )
    return by_step.group_by(PAIR).agg(
        pl.col("pipeline", "expert", "filling").mean(),
        distinct_sizes=pl.col("distinct").mode().min(),
        bytes_per_step=pl.col("step_bytes").median(),
        common_size=pl.col("size").median(),
        presence=pl.len() / pl.col("job_steps").first(),
    )
