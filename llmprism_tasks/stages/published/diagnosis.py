"""Diagnosis as published: a value k standard deviations above its peers within the window is a fault.

LLMPrism (arXiv 2505.00342), stage 5, has three comparisons. *Cross-step*: a step with its job's other steps.
*Cross-group*: a data-parallel group with the other groups of the step. *Switch-level*: a switch with the other
switches, by time per byte of data-parallel flows and by the number of concurrent flows.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import PublishedSettings, Settings
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.published.kernels import k_sigma
from llmprism_tasks.stages.published.step_division import JOB_PAIR
from llmprism_tasks.stages.traffic import nic_pairs

FINDING_COLUMNS = ["job_id", "subject", "start_ns", "end_ns", "excess", "score"]
"""Columns of a finding: the slow subject, the interval, the ratio above the peers' median, and robust deviations."""


def diagnosis(
    *,
    flows: pl.DataFrame,
    topology: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    pairs: pl.DataFrame,
    steps: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame]:
    """Find slow steps, groups and switches among the steps that ended in the window; results as of the joint phase."""
    del topology, jobs
    rule = settings.published
    synchronising = pairs.filter(pl.col("kind") == "dp").select(JOB_PAIR)
    inside = nic_pairs.named(nic_pairs.inside_jobs(flows, job_members)).join(synchronising, on=JOB_PAIR, how="semi")
    placed = in_steps(inside.with_columns(frames.paths(flows["switch_path"].gather(inside["row"]))), steps)
    findings = [
        _rows(cross_step(steps, rule), "cross_step", "job", "steps took", rule),
        _rows(cross_group(placed, synchronising, rule), "cross_group", "dp_group", "synchronisation took", rule),
        _rows(switch_level(placed, rule), "switch_level", "switch", "load or time per byte was", rule),
    ]
    return (frames.conform(pl.concat(findings).with_columns(window_start_ns=pl.lit(window.start_ns)), "diagnoses"),)


def in_steps(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the flows that start in a step of their sender, with its `step_index`."""
    spans = steps.select("job_id", "step_index", src_addr="addr", since_ns="start_ns", until_ns="end_ns").drop_nulls()
    return (
        flows.sort("flow_start_ns")
        .join_asof(
            spans.sort("until_ns"),
            left_on="flow_start_ns",
            right_on="until_ns",
            by=["job_id", "src_addr"],
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("flow_start_ns") >= pl.col("since_ns"))
    )


def cross_step(steps: pl.DataFrame, settings: PublishedSettings) -> pl.DataFrame:
    """Compare the durations of a job's steps; the subject is the job."""
    own = steps.filter(pl.col("addr").is_null()).with_columns(
        subject=pl.col("job_id"), value=pl.col("end_ns") - pl.col("start_ns")
    )
    return outstanding(own, ["job_id"], settings)


def cross_group(placed: pl.DataFrame, synchronising: pl.DataFrame, settings: PublishedSettings) -> pl.DataFrame:
    """Compare how long the groups synchronise in each step; the subject is a group, named by its first address."""
    group = ["job_id", "component"]
    named = pl.format("{} and {} more", pl.col("addr").min().over(group), pl.len().over(group) - 1)
    groups = pair_graph.components(synchronising).with_columns(subject=named)
    spans = (
        placed.join(groups.rename({"addr": "src_addr"}), on=["job_id", "src_addr"])
        .group_by("job_id", "step_index", "subject")
        .agg(start_ns=pl.col("flow_start_ns").min(), end_ns=pl.col("flow_end_ns").max())
        .with_columns(value=pl.col("end_ns") - pl.col("start_ns"))
    )
    return outstanding(spans, ["job_id", "step_index"], settings)


def switch_level(placed: pl.DataFrame, settings: PublishedSettings) -> pl.DataFrame:
    """Compare the switches that carry a job's synchronisation, by time per byte and by most concurrent flows."""
    crossing = placed.explode("switch_path").drop_nulls("switch_path").rename({"switch_path": "subject"})
    key = ["job_id", "subject"]
    spans = crossing.group_by(key).agg(
        start_ns=pl.col("flow_start_ns").min(),
        end_ns=pl.col("flow_end_ns").max(),
        value=(pl.col("flow_end_ns") - pl.col("flow_start_ns")).sum() / pl.col("bytes").sum(),
    )
    turns = pl.concat(
        [
            crossing.select(*key, time_ns="flow_start_ns", change=pl.lit(1)),
            crossing.select(*key, time_ns="flow_end_ns", change=pl.lit(-1)),
        ]
    ).sort(*key, "time_ns", "change")  # a flow that ends when another starts does not overlap with it
    most = turns.with_columns(load=pl.col("change").cum_sum().over(key)).group_by(key).agg(value=pl.col("load").max())
    loads = spans.drop("value").join(most.with_columns(pl.col("value").cast(pl.Float64)), on=key)
    return pl.concat([outstanding(part, ["job_id"], settings) for part in (spans, loads.select(spans.columns))])


def outstanding(values: pl.DataFrame, peers: list[str], settings: PublishedSettings) -> pl.DataFrame:
    """Return the rows whose value stands k standard deviations above that of their peers.

    Parameters
    ----------
    values : `job_id`, `subject`, `start_ns`, `end_ns`, `value` > 0 in any unit
    peers : columns that are equal among peers

    Returns
    -------
    the columns of FINDING_COLUMNS
    """
    # Ratios to the median have one resolution for all units.
    usual = pl.col("value").median().over(peers)
    ordered = values.sort(*peers, "start_ns", "subject").with_columns(
        excess=pl.when(usual > 0).then(pl.col("value") / usual - 1).otherwise(float("nan"))
    )
    counts = ordered.group_by(peers, maintain_order=True).len()["len"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)])
    excess = ordered["excess"].to_numpy()
    slow = k_sigma.k_sigma(excess, settings.sigmas, floor=settings.resolution, offsets=offsets)
    score = k_sigma.robust_score(excess, floor=settings.resolution, offsets=offsets)
    return ordered.with_columns(score=pl.Series(score)).filter(pl.Series(slow)).select(FINDING_COLUMNS)


def _rows(findings: pl.DataFrame, kind: str, subject_type: str, what: str, settings: PublishedSettings) -> pl.DataFrame:
    """Return one diagnosis per subject, with the worst of its findings."""
    return (
        findings.group_by("job_id", "subject")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("excess", "score").max(), times=pl.len())
        .with_columns(
            kind=pl.lit(kind),
            subject_type=pl.lit(subject_type),
            severity=pl.col("excess"),
            explanation=pl.format(
                "{} {}: {} {} more than usual among its peers, by more than {} standard deviations, {} times.",
                pl.lit(subject_type),
                "subject",
                pl.lit(what),
                pl.format("{}%", (pl.col("excess") * 100).round(1)),
                pl.lit(settings.sigmas),
                "times",
            ),
        )
    )
