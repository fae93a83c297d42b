"""Hops: at what pace each pair of NICs moves its data, in slow steps and in healthy ones.

A pair of pipeline stages has its own pace; a ring has that of its slowest hop. A record's duration may hold waiting,
for its peer or its ring, but in healthy steps it holds as much; so each path is compared with itself.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence

KINDS = ("dp", "pp", "ep", "cp")
HOP = ["job_id", "kind", "unit", "src_addr", "dst_addr"]
"""A hop belongs to a unit: a ring, named by its lowest address, or the pair itself."""

PLACE = [*HOP, "path"]
"""Queue pairs of a hop are hashed to different spines, and each path has its own pace."""


def placed(evidence: Evidence, steps: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Place the records that are long enough to time in the steps of their ends.

    Parameters
    ----------
    steps : of the jobs to look at, as `slow_steps.in_trouble` returns

    Returns
    -------
    the columns of `PLACE`, `flow_start_ns`, `flow_end_ns`, `bytes`, `switch_path`, `step_ns` (the end of the step),
    `slow`
    """
    spans = steps.select("job_id", "slow", begin_ns="start_ns", step_ns="end_ns").sort("step_ns")
    rings = evidence.groups.select("job_id", src_addr="addr", ring=pl.col("addr").min().over("job_id", "component"))
    timed = (pl.col("bytes") >= settings.least_bytes) & (pl.col("flow_end_ns") > pl.col("flow_start_ns"))
    pair = pl.concat_str("src_addr", "dst_addr", separator=" to ")
    of_jobs = evidence.flows.filter(pl.col("job_id").is_in(spans["job_id"].unique().implode()))
    return (
        evidence.with_paths(of_jobs.filter(pl.col("kind").is_in(KINDS), timed))
        .sort("flow_end_ns")
        .join_asof(
            spans,
            left_on="flow_end_ns",
            right_on="step_ns",
            by="job_id",
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("flow_end_ns") > pl.col("begin_ns"))
        .join(rings, on=["job_id", "src_addr"], how="left")
        .with_columns(
            unit=pl.when(pl.col("kind") == "dp").then(pl.coalesce("ring", pair)).otherwise(pair),
            path=pl.col("switch_path").list.join(" "),
        )
        .select(*PLACE, "flow_start_ns", "flow_end_ns", "bytes", "switch_path", "step_ns", "slow")
    )


def paces(records: pl.DataFrame) -> pl.DataFrame:
    """Return the pace of each path of each hop in each step: `PLACE`, `switch_path`, `step_ns`, `slow`, `pace` (ns per
    byte)."""
    pace = (pl.col("flow_end_ns") - pl.col("flow_start_ns")) / pl.col("bytes")
    return records.group_by(*PLACE, "step_ns").agg(pl.col("switch_path", "slow").first(), pace=pace.median())


def compared(by_step: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Compare the pace of each path of each hop in slow steps with that in healthy ones.

    Parameters
    ----------
    by_step : as `paces` returns

    Returns
    -------
    sorted by `PLACE`, with `switch_path`, `now` and `usual` (ns per byte in slow steps and in healthy ones), `ratio`,
    and `slow`. A ring's hops all wait for its slowest one; where some of them are slower than others, they alone are
    `slow`. Paths that were too seldom seen, in slow steps or in healthy ones, are absent.
    """
    seen = [pl.col("slow").sum() >= settings.least_steps, (~pl.col("slow")).sum() >= settings.least_steps]
    ratio = pl.col("now") / pl.col("usual")
    ring = pl.col("kind") == "dp"
    worst = pl.when(ring).then(pl.col("ratio").max().over("job_id", "kind", "unit")).otherwise("ratio")
    return (
        by_step.group_by(PLACE)
        .agg(
            pl.col("switch_path").first(),
            now=pl.col("pace").filter("slow").median(),
            usual=pl.col("pace").filter(~pl.col("slow")).median(),
            enough=pl.all_horizontal(seen),
        )
        .filter("enough")
        .with_columns(ratio=ratio)
        .with_columns(slow=(pl.col("ratio") >= settings.slow_rate) & (pl.col("ratio") * settings.slow_rate >= worst))
        .select(*PLACE, "switch_path", "now", "usual", "ratio", "slow")
        .sort(PLACE)
    )


def extra(records: pl.DataFrame) -> pl.DataFrame:
    """Return how much longer each hop is busy in a slow step than in a healthy one: `HOP`, `extra_ns`.

    A hop is busy while any of its queue pairs has a record; the middle one of the steps counts.
    """
    step = [*HOP, "step_ns"]
    before = pl.col("flow_end_ns").cum_max().shift().over(step)
    busy = (pl.col("flow_end_ns") - pl.max_horizontal("flow_start_ns", before)).clip(0)
    by_step = (
        records.sort("flow_start_ns", "flow_end_ns")
        .with_columns(busy_ns=busy)
        .group_by(step)
        .agg(pl.col("slow").first(), pl.col("busy_ns").sum())
    )
    middle = [pl.col("busy_ns").filter(which).median() for which in (pl.col("slow"), ~pl.col("slow"))]
    return by_step.group_by(HOP).agg(extra_ns=(middle[0] - middle[1]).clip(0)).drop_nulls().sort(HOP)
