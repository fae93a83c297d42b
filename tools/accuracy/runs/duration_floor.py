"""Floors: what durations err by if each step ends with the last record that its ranks saw before they were done.

In captures the true end is that of the optimizer, which sends nothing: how long it takes, on cores that the ranks
share, no record tells. Whoever ends a step with its last gradient errs about as much, though he knew the truth.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from llmprism_tasks.reports.evaluation.steps import duration_errors, spread
from llmprism_tasks.settings import TrafficSettings

PAIR = ["src_addr", "dst_addr"]
ENDING = ("dp", "pp")
"""Kinds of pairs that a step ends with: of those that a job has, the first."""


def floor(folder: Path, flows: str) -> dict[str, float | None]:
    """Return `median`, 95th percentile (`p95`) and `max` of the errors.

    Parameters
    ----------
    folder : with `truth/`, `truth_rank_steps` among it
    flows : the file of records in it
    """
    pairs, steps, ranks = (
        pl.read_parquet(folder / "truth" / f"truth_{name}.parquet") for name in ("pairs", "steps", "rank_steps")
    )
    bulk = pl.read_parquet(folder / flows).filter(pl.col("bytes") > TrafficSettings().control_bytes)
    ended = ended_by_records(bulk, pairs, ranks.join(steps.select("job", "step"), on=["job", "step"]))
    return spread(duration_errors(ended)["error"])


def ended_by_records(bulk: pl.DataFrame, pairs: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """End each step with the last record that a rank sent or received before it was done.

    Parameters
    ----------
    bulk : `src_addr`, `dst_addr`, `flow_end_ns`
    pairs : `job`, `src_addr`, `dst_addr`, `kind`
    ranks : `job`, `addr`, `step`, `end_ns`

    Returns
    -------
    `job`, `step`, `true_ns`, `found_ns`
    """
    known = pl.col("kind").replace_strict({kind: at for at, kind in enumerate(ENDING)}, default=None)
    ending = pairs.with_columns(rank=known).filter(pl.col("rank") == pl.col("rank").min().over("job"))
    moved = bulk.join(ending.select("job", *PAIR), on=PAIR)
    records = pl.concat([moved.select("job", addr=end, last_ns="flow_end_ns") for end in PAIR])
    last = ranks.sort("end_ns").join_asof(
        records.sort("last_ns"),
        left_on="end_ns",
        right_on="last_ns",
        by=["job", "addr"],
        coalesce=False,
        check_sortedness=False,
    )
    ends = last.group_by("job", "step").agg(true_ns=pl.col("end_ns").max(), found_ns=pl.col("last_ns").max())
    return ends.drop_nulls("found_ns").sort("job", "step")
