"""Jobs and members with what their pairs tell: layout, figures, and how sure all of it is."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import EVEN_ODDS, MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.layout import degrees, job_profile, lock_step, own_rings, rails
from llmprism_tasks.stages.parallelism.layout.dp_groups import NIC, Rings, rings
from llmprism_tasks.stages.parallelism.layout.job_profile import JOB_PAIR
from llmprism_tasks.stages.parallelism.layout.stage_order import pp_stages
from llmprism_tasks.stages.parallelism.pair_kinds.typical_steps import in_these, undisturbed
from llmprism_tasks.stages.step_division.division import Division
from llmprism_tasks.stages.traffic import nic_pairs

HIDDEN_CONTEXT = 0.85
"""What is left of it where context parallelism may stay inside hosts: its traffic is that of as many replicas. Of drawn
jobs of which this is not seen, one in ten has it. Where nobody saw who is in lock-step, replicas may as well, which
costs as much again."""

DEGREES = ("tp", "pp", "dp", "cp", "ep")


def job_layouts(
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    topology: pl.DataFrame,
    kinds: pl.DataFrame,
    sent: pl.DataFrame,
    division: Division | None,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `jobs` and `job_members` with all columns that the layout gives them.

    Parameters
    ----------
    kinds : `job_id`, `src_addr`, `dst_addr`, `kind`, `confidence`; with a division also `pair`, `bytes_per_step`
    sent : as `nic_pairs.sent_in_window` returns
    division : the flows in steps; without it there are no figures and no stages
    """
    told = [job_profile.explained(sent, kinds), _sureness(kinds, sent)]
    if division is None:
        seen = rings(kinds, job_members, topology)
        told.append(degrees.degrees(kinds, seen))
        members = _number_dp_groups(job_members, seen.groups)
    else:
        laid, seen, measured, stages = _layout_from_steps(division, kinds, job_members, topology, settings)
        told += [laid, *measured]
        members = (
            _number_dp_groups(job_members, seen.groups).drop("pp_stage", strict=False).join(stages, on=NIC, how="left")
        )
    told.append(_crossing_rails(kinds, seen.nics))
    known = jobs.with_columns(pl.coalesce("recognition_confidence", "confidence").alias("recognition_confidence"))
    columns = {name for frame in told for name in frame.columns} - {"job_id"}
    known = known.drop(columns, strict=False)
    for frame in told:
        known = known.join(frame, on="job_id", how="left")
    known = if_most_is_explained(known)
    return known.with_columns(confidence=confidence(known.columns)), stages_of_known_pipelines(members, known)


def if_most_is_explained(jobs: pl.DataFrame) -> pl.DataFrame:
    """Keep the degrees of jobs most of whose bytes have a place in their layout; where they have not, it is another.

    Parameters
    ----------
    jobs : the degrees, and `explained_bytes` (NULL in a window in which nothing is sent)
    """
    read = (pl.col("explained_bytes") >= MAJORITY).fill_null(value=True)
    return jobs.with_columns(pl.when(read).then(degree) for degree in DEGREES)


def stages_of_known_pipelines(members: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Keep the `pp_stage` of members of jobs whose `pp` is known; where it is not, nobody knows of stages."""
    if "pp_stage" not in members.columns:
        return members
    known = jobs.filter(pl.col("pp").is_not_null())["job_id"].implode()
    return members.with_columns(pp_stage=pl.when(pl.col("job_id").is_in(known)).then("pp_stage"))


def _layout_from_steps(
    division: Division, kinds: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame, settings: Settings
) -> tuple[pl.DataFrame, Rings, list[pl.DataFrame], pl.DataFrame]:
    """Return the degrees of jobs, the groups that they have, tables by `job_id` of what is measured of them, and the
    stages of their members."""
    flows = division.in_steps
    by_step = job_profile.by_step(nic_pairs.step_by_step(flows))
    piped = nic_pairs.flows_of_pairs(flows.drop("flow_end_ns"), kinds.filter(pl.col("kind") == "pp").select("pair"))
    told, periods = undisturbed(division)
    in_step = lock_step.peers(by_step, piped, kinds, job_members)
    peers = own_rings.peers_by_rings(in_step, by_step, kinds, job_members, topology)
    laid, seen = degrees.likeliest(kinds, job_members, topology, peers)
    sharded = job_profile.sharded(in_these(by_step, told, kinds), kinds, periods, laid, settings.parallelism)
    measured = [
        job_profile.durations(division.job_steps),
        job_profile.messages(nic_pairs.step_by_step(piped), kinds, settings.parallelism),
        sharded,
        job_profile.stepping(division.endpoints, job_members),
        job_profile.evenness(by_step, kinds),
        job_profile.brevity(flows, kinds, periods),
        job_profile.gradients(kinds, seen.groups, seen.nics, sharded),
    ]
    laid = degrees.unless_sharded(
        laid,
        sharded,
        kinds,
        same_bytes=settings.rhythm.byte_tolerance,
        every_step=settings.parallelism.steady_presence,
    )
    throughout = (pl.col("kind") == "dp") & pl.col("job_id").is_in(sharded.filter("sharded")["job_id"].implode())
    return laid, seen, measured, pp_stages(by_step, piped, kinds.filter(~throughout), laid, seen.groups, job_members)


def _number_dp_groups(job_members: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Number the gradient groups of each job by their first members: `dp_group`."""
    first = pl.col("addr").min().over("job_id", "group")
    labels = groups.with_columns(first=first).select(
        *NIC, dp_group=(pl.col("first").rank("dense").over("job_id") - 1).cast(pl.Int32)
    )
    return job_members.drop("dp_group", strict=False).join(labels, on=NIC, how="left")


def _sureness(kinds: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `sureness`: the confidence of its pairs' kinds, each weighing as much as it sent."""
    weighed = kinds.filter(pl.col("kind") != "other").join(sent.filter(pl.col("bulk_flows") > 0), on=JOB_PAIR)
    weight = pl.col("bulk_bytes")
    return weighed.group_by("job_id").agg(sureness=(pl.col("confidence") * weight).sum() / weight.sum())


def _crossing_rails(kinds: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs whose tokens go from one rail to another: `job_id`, `crosses_rails`."""
    hops = rails.hops(kinds.filter(pl.col("kind") == "ep"), nics)
    crossing = hops.filter(pl.col("src_rank") != pl.col("dst_rank")).select("job_id").unique()
    return crossing.with_columns(crosses_rails=pl.lit(value=True))


def one_ring_or_several() -> pl.Expr:
    """Return what is left of the confidence in a layout where one group or several may be meant.

    Where hosts have several NICs and only gradients cross the network, a ring for each place in the hosts (tensor
    parallelism) and one ring through all GPUs with a channel at each NIC (NCCL_CROSS_NIC=0, NCCL user guide) look the
    same. So do, for experts, groups on a rail each and one group through all GPUs whose tokens leave their host on the
    receiver's rail (NCCL's PXN, DeepEP). Nobody knows which of the two is more usual on a platform. Where there are
    stages or blocks of context, who is in lock-step tells, but not beside experts: in every layer all wait for them.
    """
    untold = (pl.max_horizontal(pl.col("pp", "cp").fill_null(1)) == 1) | (pl.col("ep").fill_null(1) > 1)
    left: pl.Expr = pl.when((pl.col("tp") > 1) & untold).then(EVEN_ODDS).otherwise(1.0)
    return left


def confidence(columns: list[str]) -> pl.Expr:
    """Return how sure a job's row is: recognition's confidence, and for a training job times that of its layout."""
    seen = [pl.col(name).fill_null(1.0) for name in ("evenness", "brevity") if name in columns]
    apart = (pl.col("tp") > 1) & pl.col("peers").is_null() if "peers" in columns else pl.lit(value=False)
    several = pl.when("crosses_rails").then(1.0).otherwise(one_ring_or_several())
    laid = pl.col("agreement") * pl.col("sureness").fill_null(1.0) * several
    for may_hide in (apart, apart | pl.col("cp").is_null()):  # replicas, and context parallelism among those that share
        laid = laid * pl.when(may_hide).then(HIDDEN_CONTEXT).otherwise(1.0)
    for factor in seen:
        laid = laid * factor
    sure = pl.when(pl.col("dp").is_not_null()).then(laid).otherwise(EVEN_ODDS)
    return (
        pl.when(pl.col("kind") == "training")
        .then(pl.col("recognition_confidence") * sure)
        .otherwise("recognition_confidence")
    )
