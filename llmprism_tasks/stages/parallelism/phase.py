"""Parallelism identification: flows and members -> the kind of each pair, and the layout of each job.

LLMPrism (arXiv 2505.00342), stage 3, counts distinct sizes per step: one for a pipeline pair, several for a
data-parallel one, and lets data-parallel components overrule single votes. Beyond the paper, sizes that differ by
headers are one, and a pair is judged by what it does in the step as well: micro-batches fill it, gradient
synchronisation is one burst of it, experts are called throughout with sizes that never repeat.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics.robust import MAJORITY, SURE
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.layout.job_layout import DEGREES, job_layouts
from llmprism_tasks.stages.parallelism.pair_kinds import (
    classifier,
    dispatched,
    joined_messages,
    roles,
    step_filling,
    taking_turns,
)
from llmprism_tasks.stages.parallelism.pair_kinds.features import stream_steps, with_back
from llmprism_tasks.stages.parallelism.pair_kinds.typical_steps import in_these, undisturbed
from llmprism_tasks.stages.step_division import periodicity
from llmprism_tasks.stages.step_division.division import Division, divide
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.index import JobTraffic, TrafficIndex

JOB_PAIR = ["job_id", *periodicity.PAIR]
RATIO_DIGITS = 6
"""Digits of a ratio that say something."""

LAYOUT = (*DEGREES, "sharded", "micro_batches", "gradient_bytes", "activation_bytes", "confidence")
KIND = ("kind", "distinct_sizes", "confidence")
"""Columns of jobs, and of pairs, that a job keeps for as long as it runs."""

Tables = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]

UNJUDGED_CONFIDENCE = 0.0
"""Confidence in the kind of a pair that could not be judged, for its job shows no steps (yet)."""


def parallelism(
    *,
    job_traffic: JobTraffic,
    division: Division | None,
    topology: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Identify what each pair is to its job, and how the job is laid out.

    Parameters
    ----------
    job_traffic, division : the flows of jobs and their steps, in the window and its look-back
    topology : `addr`, `host`, `gpu`
    jobs, job_members : the window's jobs

    Returns
    -------
    jobs : the same jobs with their layout and figures, where the data say
    job_members : the same members with their `pp_stage` and `dp_group`
    pairs : pairs that sent in the window, and those of the layout whose next turn is still to come; `flows` and
        `bytes` count what they sent in it, `kind` is judged over the look-back

    A job keeps its layout for as long as it runs. Where a window shows it poorly, for something is slow, it is that of
    the window before, if that was surer.
    """
    found = _of_window(job_traffic, division, topology, jobs, job_members, window, settings)
    unsure = found[0].filter(pl.col("kind") == "training", pl.col("confidence") < SURE)["job_id"].implode()
    of_unsure = pl.col("job_id").is_in(unsure)
    bulk = job_traffic.bulk.filter(of_unsure, pl.col("flow_start_ns") < window.start_ns)
    if bulk.is_empty():
        return found
    moment = window.shifted(-1)
    members = job_members.filter(of_unsure)
    past = TrafficIndex.of(bulk, settings.traffic).inside(members)
    known = divide(past.bulk, moment, settings)
    before = _of_window(past, known, topology, jobs.filter(of_unsure), members, moment, settings)
    return _surer(found, before)


def _of_window(
    job_traffic: JobTraffic,
    division: Division | None,
    topology: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> Tables:
    """Return what `parallelism` does, as the window shows it."""
    inside, bulk = job_traffic.flows, job_traffic.bulk
    main, other = (None, None) if division is None else division.by_run()
    kinds = pair_kinds(bulk, job_members, main, settings)
    others = None if other is None else pair_kinds(bulk, job_members, other, settings)
    return tables(inside, kinds, main, jobs, job_members, topology, window, settings, other_kinds=others)


def _surer(found: Tables, before: Tables) -> Tables:
    """Return the tables of a window with the layouts of the one before, of jobs of which it was surer and saw all.

    That a job had not begun, or showed no steps, is sure and says nothing of its layout.
    """
    jobs, members, pairs = found
    seen = pl.concat([before[2].select("job_id", addr=end) for end in periodicity.PAIR])
    joined = members.join(seen, on=["job_id", "addr"], how="anti")
    said = pl.any_horizontal(pl.col(name).is_not_null() for name in LAYOUT if name != "confidence")
    was_surer = (
        jobs.join(before[0].filter(said).select("job_id", was="confidence"), on="job_id")
        .filter(pl.col("was") > pl.col("confidence"))
        .join(joined, on="job_id", how="anti")
    )
    held = pl.col("job_id").is_in(was_surer["job_id"].implode())
    laid = before[0].filter(held).select("job_id", *LAYOUT)
    kinds = before[2].filter(held).select(*JOB_PAIR, *KIND)
    silent = before[2].filter(held, pl.col("kind") != "other").join(pairs, on=JOB_PAIR, how="anti")
    silent = silent.with_columns(flows=0, bytes=0, window_start_ns=members["window_start_ns"].first())
    return (
        frames.conform(jobs.update(laid, on="job_id", include_nulls=True), "jobs"),
        frames.conform(pl.concat([members.filter(~held), before[1].filter(held)]), "job_members"),
        frames.conform(pl.concat([pairs.update(kinds, on=JOB_PAIR), silent], how="vertical_relaxed"), "pairs"),
    )


def tables(
    inside: pl.DataFrame,
    kinds: pl.DataFrame,
    division: Division | None,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
    *,
    other_kinds: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return `jobs` and `job_members` with the layout that the kinds of pairs make, and `pairs`.

    Parameters
    ----------
    inside : flows with `job_id`, those of the look-back among them
    kinds : `job_id`, `src_addr`, `dst_addr`, `kind`, `distinct_sizes`, `confidence`; pairs that are absent are `other`
    division : bulk flows in steps; without it jobs have no figures
    other_kinds : the same as `kinds`, of another run that the job had in the window
    """
    laid = kinds.filter(pl.col("kind") != "other").select(JOB_PAIR)
    known = kinds if other_kinds is None else _kinds_of_either_run(kinds, other_kinds)
    judged = known.select("job_id", judged=pl.lit(1.0)).unique()
    sent = nic_pairs.sent_in_window(inside, window, settings.traffic)
    pairs = (
        sent.select(*JOB_PAIR, "flows", "bytes")
        .join(laid, on=JOB_PAIR, how="full", coalesce=True)
        .join(known, on=JOB_PAIR, how="left")
        .join(judged, on="job_id", how="left")
        .with_columns(
            pl.col("flows", "bytes").fill_null(0),
            window_start_ns=pl.lit(window.start_ns),
            kind=pl.col("kind").fill_null("other"),
            distinct_sizes=pl.col("distinct_sizes").fill_null(0),
            confidence=pl.coalesce("confidence", "judged", pl.lit(UNJUDGED_CONFIDENCE)),
        )
    )
    laid_jobs, members = job_layouts(jobs, job_members, topology, kinds, sent, division, settings)
    # Sums of fractions depend on their order in the last digits, and a window run again must end the same.
    laid_jobs = laid_jobs.with_columns(pl.col(pl.Float64).round(RATIO_DIGITS))
    return frames.conform(laid_jobs, "jobs"), frames.conform(members, "job_members"), frames.conform(pairs, "pairs")


def _kinds_of_either_run(kinds: pl.DataFrame, other_kinds: pl.DataFrame) -> pl.DataFrame:
    """Return what each pair is in the one run or, if it is nothing there, in the other."""
    is_something = pl.col("kind") != "other"
    either = pl.concat([kinds.filter(is_something), other_kinds.filter(is_something), kinds, other_kinds])
    return either.unique(JOB_PAIR, keep="first", maintain_order=True)


def pair_kinds(
    bulk: pl.DataFrame, job_members: pl.DataFrame, division: Division | None, settings: Settings
) -> pl.DataFrame:
    """Judge each pair that sends bulk data: `pair`, `job_id`, `src_addr`, `dst_addr`, `kind`, `distinct_sizes`,
    `confidence`, `bytes_per_step`, `filling` (as `classifier.votes` returns it)."""
    if division is None:
        return _with_confidence(nic_pairs.named(bulk.select("pair", *JOB_PAIR).head(0)))
    told, periods = undisturbed(division)
    every = division.pairs
    flows = in_these(division.in_steps, told, every)
    pairs = with_back(every.join(nic_pairs.pairs_of(flows, []), on="pair", how="semi", maintain_order="left"))
    steps = stream_steps(flows, pairs, periods, settings)
    judged = classifier.votes(steps, settings)
    judged = _with_turns(judged, flows, pairs, division.job_steps, periods, settings)
    judged = _with_returned(judged, flows, pairs, settings)
    judged = _with_joined(judged, flows, pairs, periods, settings)
    judged = _without_backward_passes(judged, steps, pairs)
    judged = _with_relayed(judged, flows, pairs, job_members, periods, settings)
    # Where a pair sends all the time, or much of it is lost, its gaps may not tell the period that it keeps. Gradients
    # are the same bytes in every step: what keeps the period with other bytes each time is nothing by that alone.
    stepping = pl.col("pair").is_in(division.periodic.implode()) & pl.col("alike")
    return _settle_kinds(
        judged.with_columns(periodic=stepping | pl.col("steady")).join(pairs.drop("back"), on="pair"),
        job_members,
        settings,
    )


def _with_turns(
    judged: pl.DataFrame,
    flows: pl.DataFrame,
    pairs: pl.DataFrame,
    job_steps: pl.DataFrame,
    periods: pl.DataFrame,
    settings: Settings,
) -> pl.DataFrame:
    """Add the votes of links whose directions take turns, whatever became of their messages' sizes."""
    lasting = judged.filter(
        pl.col("pipeline") < MAJORITY, pl.col("presence") >= settings.parallelism.least_presence
    ).select("pair", "bytes_per_step")
    silent = pairs.join(lasting, on="pair").drop_nulls("back")
    found = taking_turns.turns(flows, silent, job_steps, periods, settings)
    return (
        judged.join(found, on="pair", how="left")
        .with_columns(pipeline=pl.max_horizontal("pipeline", "turns"))
        .drop("turns")
    )


def _with_returned(judged: pl.DataFrame, flows: pl.DataFrame, pairs: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Add the votes of tokens that are as many bytes in every step."""
    asked = judged.filter(
        pl.max_horizontal("pipeline", "expert", "filling") < MAJORITY,
        pl.col("presence") >= settings.parallelism.least_presence,
    )
    found = dispatched.returned(flows, pairs.join(asked, on="pair", how="semi"), settings)
    return (
        judged.join(found, on="pair", how="left")
        .with_columns(expert=pl.max_horizontal("expert", "returned"))
        .drop("returned")
    )


def _with_joined(
    judged: pl.DataFrame, flows: pl.DataFrame, pairs: pl.DataFrame, periods: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Add the votes of pairs whose messages the collector joined, and `recurring`: what `filling` is without them.

    The sizes of what fills the step by joined messages alone are chance, so it has a `message` instead.
    """
    lasting = judged.filter(pl.col("presence") >= settings.parallelism.least_presence)
    found = joined_messages.joined(flows, pairs.join(lasting, on="pair", how="semi"), periods, settings)
    both = judged.join(found, on="pair", how="left", suffix="_joined")
    alone = ((pl.col("filling") < MAJORITY) & (pl.col("filling_joined") >= MAJORITY)).fill_null(value=False)
    return both.with_columns(
        *(pl.max_horizontal(vote, f"{vote}_joined") for vote in ("pipeline", "filling")),
        pl.when(~alone).then(pl.col("common_size", "burst_size")),
        message=pl.when(alone).then("message"),
        recurring="filling",
    ).drop("pipeline_joined", "filling_joined")


def _without_backward_passes(judged: pl.DataFrame, steps: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Take the votes from pairs that fill the step by its backward pass alone, as tokens show: these are gradients."""
    later = dispatched.begun_a_pass_later(steps, pairs.join(judged.select("pair", "expert"), on="pair"))
    in_both = ~pl.col("pair").is_in(later.implode())
    return judged.with_columns(pl.col("filling", "recurring") * in_both)


def _with_relayed(
    judged: pl.DataFrame,
    flows: pl.DataFrame,
    pairs: pl.DataFrame,
    job_members: pl.DataFrame,
    periods: pl.DataFrame,
    settings: Settings,
) -> pl.DataFrame:
    """Add the votes of pipelines that are answered on another pair of NICs.

    That other pipelines between the same hosts are answered says nothing of what goes on beside them, such as a copy.
    """
    answered = judged.filter(pl.col("pipeline") >= MAJORITY)
    silent = judged.filter(pl.col("filling") >= MAJORITY, pl.col("pipeline") < MAJORITY)
    if silent.is_empty():
        return judged
    pairs = pairs.join(answered, on="pair", how="anti", maintain_order="left")
    relayed = classifier.relayed(flows, pairs, silent.select("pair"), job_members, periods, settings)
    return judged.join(relayed, on="pair", how="left").with_columns(pipeline=pl.max_horizontal("pipeline", "relayed"))


def _settle_kinds(judged: pl.DataFrame, job_members: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Settle what pairs cannot settle alone.

    Traffic of recurring sizes that fills the step is a context-parallel ring where the job's gradients go elsewhere,
    and the gradients of fully sharded data parallelism where they do not. Rings of the gradients move most, and what
    joins two of them is something else. Pairs of experts are gradients' as well where about all NICs that exchange
    tokens reduce something: what a few seem to reduce repeats by chance. What each pair is in the end, and how sure
    that is, the likeliest layout of the whole job says.
    """
    # What goes on through the step both ways at the same time takes no turns; that some of it is answered is chance.
    judged = judged.with_columns(pipeline=pl.col("pipeline") * (1 - pl.col("filling") * pl.col("together")))
    middle = pl.col("pair").is_in(taking_turns.in_the_middle(judged, settings).implode())
    judged = judged.with_columns(
        pipeline=pl.when(middle).then(pl.max_horizontal("pipeline", "filling")).otherwise("pipeline")
    )
    expert, reduces = pl.col("expert") >= MAJORITY, pl.col("reduces") & pl.col("periodic")
    nics = [pl.col("src_addr").filter(some).n_unique().over("job_id") for some in (reduces, expert)]
    judged = judged.with_columns(reduces=reduces & (nics[0] >= pair_graph.AGREEING_NICS * nics[1]))
    judged = judged.with_columns(
        kind=pl.when(pl.col("presence") < settings.parallelism.least_presence)
        .then(pl.lit("other"))
        .when(pl.col("pipeline") >= MAJORITY)
        .then(pl.lit("pp"))
        .when(expert & ~pl.col("reduces"))
        .then(pl.lit("ep"))
        .when(pl.col("filling") >= MAJORITY)
        .then(pl.lit("filling"))
        .when(pl.col("periodic"))
        .then(pl.lit("dp"))
        .otherwise(pl.lit("other"))
    )
    told = step_filling.settle_filling_pairs(judged, settings.rhythm.same_size, settings.rhythm.byte_tolerance)
    told = pair_graph.gradients_apart(told, settings.parallelism.ring_share, settings.rhythm.same_size)
    return _with_confidence(roles.likeliest(told, job_members, settings.parallelism.least_presence))


def _with_confidence(pairs: pl.DataFrame) -> pl.DataFrame:
    if pairs.is_empty():
        columns = {
            "kind": pl.String,
            "distinct_sizes": pl.Int64,
            "confidence": pl.Float64,
            "bytes_per_step": pl.Float64,
            "filling": pl.Float64,
        }
        return pairs.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in columns.items())
    agreement = (
        pl.when(pl.col("kind") == "pp")
        .then("pipeline")
        .when(pl.col("kind") == "ep")
        .then("expert")
        .when(pl.col("kind") == "cp")
        .then("filling")
        .otherwise(1 - pl.max_horizontal("pipeline", "expert"))
    )
    known = "pair", *JOB_PAIR, "kind", "distinct_sizes", "bytes_per_step"
    return pairs.select(*known, filling="recurring", confidence=pl.coalesce("posterior", agreement)).sort(JOB_PAIR)
