"""Parallelism identification: flows and members -> the kind of each pair, and the layout of each job.

LLMPrism (arXiv 2505.00342), stage 3, counts distinct sizes per step: one for a pipeline pair, several for a
data-parallel one, and lets data-parallel components overrule single votes. Beyond the paper, sizes that differ by
headers are one, and a pair is judged by what it does in the step as well: micro-batches fill it, gradient
synchronisation is one burst of it, experts are called throughout with sizes that never repeat.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks import frames
from llmprism_tasks.settings import ParallelismSettings, Settings
from llmprism_tasks.stages import completion, layout, rhythm, sizes, traffic
from llmprism_tasks.windows import Window

PAIR = ["job_id", *rhythm.PAIR]
UNKNOWN = 0.0
"""Confidence in the kind of a pair that could not be judged, for its job shows no steps (yet)."""


def parallelism(
    *,
    flows: pl.DataFrame,
    topology: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Identify what each pair is to its job, and how the job is laid out.

    Parameters
    ----------
    flows : the window's flows and those of its look-back
    topology : `addr`, `host`, `gpu`
    jobs, job_members : the window's jobs

    Returns
    -------
    jobs : the same jobs with `tp`, `pp`, `dp` where the data say
    pairs : pairs that sent in the window, and those of the layout whose next turn is still to come; `flows` and
        `bytes` count what they sent in it, `kind` is judged over the look-back
    """
    inside = traffic.inside_jobs(flows, job_members)
    bulk = traffic.bulk(inside, settings.traffic)
    kinds = pair_kinds(bulk, window, settings)
    return tables(inside, kinds, jobs, job_members, topology, window)


def tables(
    inside: pl.DataFrame,
    kinds: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    topology: pl.DataFrame,
    window: Window,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `jobs` with the layout that the kinds of pairs make, and `pairs`.

    Parameters
    ----------
    inside : flows with `job_id`, those of the look-back among them
    kinds : `job_id`, `src_addr`, `dst_addr`, `kind`, `distinct_sizes`, `confidence`; pairs that are absent are `other`
    """
    present = inside.filter(pl.col("window_start_ns") == window.start_ns)
    laid = kinds.filter(pl.col("kind") != "other").select(PAIR)
    pairs = (
        present.group_by(PAIR)
        .agg(flows=pl.len(), bytes=pl.col("bytes").sum())
        .join(laid, on=PAIR, how="full", coalesce=True)
        .join(kinds, on=PAIR, how="left")
        .with_columns(
            pl.col("flows", "bytes").fill_null(0),
            window_start_ns=pl.lit(window.start_ns),
            kind=pl.col("kind").fill_null("other"),
            distinct_sizes=pl.col("distinct_sizes").fill_null(0),
            confidence=pl.col("confidence").fill_null(1.0 if kinds.height else UNKNOWN),
        )
    )
    degrees = layout.degrees(kinds, job_members, topology)
    laid_out = jobs.drop("tp", "pp", "dp").join(degrees, on="job_id", how="left")
    return frames.conform(laid_out, "jobs"), frames.conform(pairs, "pairs")


def pair_kinds(bulk: pl.DataFrame, window: Window, settings: Settings) -> pl.DataFrame:
    """Judge each pair that sends bulk data: `job_id`, `src_addr`, `dst_addr`, `kind`, `distinct_sizes`, `confidence`,
    `bytes_per_step`."""
    if bulk.is_empty():
        return _judged(bulk.select(PAIR).head(0))
    numbered = rhythm.of_jobs(bulk, settings.rhythm)
    endpoints = completion.endpoint_steps(numbered, window, settings)
    job_steps = completion.job_steps(endpoints, window, settings)
    periods = numbered.group_by("job_id").agg(period_ns=pl.col("group_period_ns").first())
    in_steps = completion.step_of_flows(bulk, endpoints, job_steps).filter(pl.col("step").is_not_null())
    steps = _steps_of_pairs(in_steps, periods, settings.parallelism)
    judged = _votes(steps, settings.parallelism)
    periodic = numbered.select(PAIR).unique().with_columns(periodic=True)
    judged = judged.join(periodic, on=PAIR, how="left").with_columns(pl.col("periodic").fill_null(value=False))
    return _jointly(judged, _turns(steps, settings.parallelism), settings.parallelism)


def _steps_of_pairs(flows: pl.DataFrame, periods: pl.DataFrame, settings: ParallelismSettings) -> pl.DataFrame:
    """Describe what each pair does in each step; the first step, which may be cut off or a warm-up, counts least by
    the medians."""
    classed = sizes.with_class(flows, settings.same_size)
    common = (
        classed.group_by(*PAIR, "size_class")
        .agg(pl.col("bytes").sum())
        .sort(*PAIR, "bytes", "size_class")
        .group_by(PAIR, maintain_order=True)
        .agg(common_class=pl.col("size_class").last())
    )
    recurring = classed.group_by(*PAIR, "bytes").agg(steps_with=pl.col("step").n_unique())
    is_common = pl.col("size_class") == pl.col("common_class")
    return (
        classed.join(common, on=PAIR)
        .join(recurring, on=[*PAIR, "bytes"])
        .join(periods, on="job_id")
        .with_columns(
            pair_steps=pl.col("step").n_unique().over(PAIR), job_steps=pl.col("step").n_unique().over("job_id")
        )
        .group_by(*PAIR, "step")
        .agg(
            records=pl.len(),
            step_bytes=pl.col("bytes").sum(),
            one_size=pl.col("bytes").filter(is_common).sum() / pl.col("bytes").sum(),
            fresh=(pl.col("steps_with") * 2 < pl.col("pair_steps")).mean(),
            distinct=pl.col("size_class").n_unique(),
            first_ns=pl.col("flow_start_ns").min(),
            spread=(pl.col("flow_start_ns").max() - pl.col("flow_start_ns").min()) / pl.col("period_ns").first(),
            period_ns=pl.col("period_ns").first(),
            job_steps=pl.col("job_steps").first(),
        )
    )


def _votes(steps: pl.DataFrame, settings: ParallelismSettings) -> pl.DataFrame:
    """Judge each pair by itself: `pp`, `ep` or neither, by the vote of its steps."""
    pipeline = (
        (pl.col("one_size") >= settings.one_size_share)
        & (pl.col("records") >= 2)
        & (pl.col("spread") >= settings.pipeline_spread)
    )
    expert = (
        ~pipeline
        & (pl.col("spread") >= settings.expert_spread)
        & (pl.col("records") >= settings.expert_records)
        & (pl.col("fresh") >= settings.expert_sizes)
    )
    return (
        steps.with_columns(pipeline=pipeline, expert=expert)
        .group_by(PAIR)
        .agg(
            pipeline=pl.col("pipeline").mean(),
            expert=pl.col("expert").mean(),
            distinct_sizes=pl.col("distinct").mode().min(),
            bytes_per_step=pl.col("step_bytes").median(),
            presence=pl.len() / pl.col("job_steps").first(),
        )
    )


def _turns(steps: pl.DataFrame, settings: ParallelismSettings) -> pl.DataFrame:
    """Find pairs that send one record per step in turns with their reverse: pipelines of one micro-batch.

    Both directions of a collective start together; a gradient comes back only after the activation went.
    """
    single = steps.filter(pl.col("one_size") >= settings.one_size_share)
    back = single.select(
        "job_id", "step", src_addr="dst_addr", dst_addr="src_addr", back_ns="first_ns", back_bytes="step_bytes"
    )
    apart = (pl.col("first_ns") - pl.col("back_ns")).abs() / pl.col("period_ns")
    alike = (pl.col("step_bytes") / pl.col("back_bytes") - 1).abs() <= settings.same_size
    return (
        single.join(back, on=["job_id", "src_addr", "dst_addr", "step"])
        .group_by(PAIR)
        .agg(apart=apart.median(), alike=alike.mean())
        .filter(pl.col("apart") >= settings.pipeline_spread / 2, pl.col("alike") >= 0.5)
        .select(PAIR)
        .with_columns(turns=True)
    )


def _jointly(judged: pl.DataFrame, turns: pl.DataFrame, settings: ParallelismSettings) -> pl.DataFrame:
    """Settle the pairs that synchronise: rings of the gradients move most, and what joins two of them is something
    else."""
    judged = judged.join(turns, on=PAIR, how="left").with_columns(pl.col("turns").fill_null(value=False))
    pipeline = (pl.col("pipeline") >= 0.5) | (pl.col("turns") & pl.col("periodic") & (pl.col("distinct_sizes") == 1))
    judged = judged.with_columns(
        kind=pl.when(pl.col("presence") < settings.least_presence)
        .then(pl.lit("other"))
        .when(pl.col("expert") >= 0.5)
        .then(pl.lit("ep"))
        .when(pipeline)
        .then(pl.lit("pp"))
        .when(pl.col("periodic"))
        .then(pl.lit("dp"))
        .otherwise(pl.lit("other"))
    )
    judged = judged.join(layout.chains(judged), on=PAIR, how="left").with_columns(
        kind=pl.when("chain").then(pl.lit("pp")).otherwise("kind"),
        turns=pl.col("turns") | pl.col("chain").fill_null(value=False),
    )
    return _judged(layout.gradients_apart(judged, settings.ring_share))


def _judged(pairs: pl.DataFrame) -> pl.DataFrame:
    if pairs.is_empty():
        columns = {
            "kind": pl.String,
            "distinct_sizes": pl.Int64,
            "confidence": pl.Float64,
            "bytes_per_step": pl.Float64,
        }
        return pairs.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in columns.items())
    agreement = (
        pl.when(pl.col("kind") == "pp")
        .then(pl.max_horizontal("pipeline", pl.col("turns").cast(pl.Float64)))
        .when(pl.col("kind") == "ep")
        .then("expert")
        .otherwise(1 - pl.max_horizontal("pipeline", "expert"))
    )
    return pairs.select(*PAIR, "kind", "distinct_sizes", "bytes_per_step", confidence=agreement).sort(PAIR)
