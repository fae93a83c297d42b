"""Truth tables: bring the truth to one form, whether a simulator or the ranks of a real run recorded it."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.reports.evaluation.jobs import Tables

FAULT: dict[str, pl.DataType | type[pl.DataType]] = {
    "kind": pl.String,
    "job": pl.String,
    "subject_type": pl.String,
    "subject": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "accept": pl.List(pl.String),
}
FAULT_ORDER = ("start_ns", "kind", "subject_type", "subject", "job")
PAUSE: dict[str, type[pl.DataType]] = {"job": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
RANK: dict[str, type[pl.DataType]] = {"job": pl.String, "addr": pl.String, "pp_index": pl.Int64}
LAYOUT: dict[str, type[pl.DataType]] = {"job": pl.String, "tp": pl.Int64, "pp": pl.Int64, "dp": pl.Int64}


def normal(truth: Tables) -> dict[str, pl.DataFrame]:
    """Complete the truth with what its writer may leave out.

    Returns
    -------
    `truth_jobs` with `kind` and `visible` (real runs: training, all visible); `truth_steps`, which end with the
    gradient synchronisation (`grad_end_ns`) if that is recorded, because no flow shows when an optimizer has finished,
    and with `optimized` if not; `truth_pairs`; `truth_faults` with `accept` (if not recorded: the subject itself, and a
    NIC's host); `truth_pauses` (of jobs that stood still on purpose, as to evaluate); `truth_ranks`; `layouts`,
    computed from the ranks if not recorded, with `sharded` as a boolean
    """
    members, steps = truth["truth_jobs"], truth["truth_steps"]
    defaults = {"kind": pl.lit("training"), "visible": pl.lit(value=True)}
    members = members.with_columns(**{name: one for name, one in defaults.items() if name not in members.columns})
    reduced = pl.col("grad_end_ns") if "grad_end_ns" in steps.columns else pl.lit(None, pl.Int64)
    steps = steps.with_columns(end_ns=pl.coalesce(reduced, "end_ns"), optimized=reduced.is_null())
    ranks = truth.get("truth_ranks", pl.DataFrame(schema=RANK))
    return {
        "truth_jobs": members,
        "truth_steps": steps,
        "truth_pairs": truth["truth_pairs"],
        "truth_faults": _faults(truth, members),
        "truth_pauses": truth.get("truth_pauses", pl.DataFrame(schema=PAUSE)).select(*PAUSE),
        "truth_ranks": ranks,
        "layouts": _layouts(truth["layouts"]) if "layouts" in truth else _counted(ranks),
    }


def _faults(truth: Tables, members: pl.DataFrame) -> pl.DataFrame:
    faults = truth.get("truth_faults", pl.DataFrame(schema=FAULT))
    faults = faults.with_columns(itself=pl.concat_list(pl.concat_str("subject_type", pl.lit(":"), "subject")))
    alone = pl.col("itself")
    if "host" in members.columns:
        hosts = members.select(subject="addr", at=pl.concat_list(pl.format("host:{}", "host"))).unique("subject")
        faults = faults.join(hosts, on="subject", how="left", maintain_order="left")
        alone = pl.coalesce(pl.col("itself").list.concat("at"), "itself")
    accept = pl.coalesce("accept", alone) if "accept" in faults.columns else alone
    return (
        faults.cast({name: FAULT[name] for name in faults.columns if name in FAULT})
        .with_columns(accept=accept)
        .select(*FAULT, *(name for name in faults.columns if name not in (*FAULT, "itself", "at")))
        .sort(*FAULT_ORDER)
    )


def _layouts(layouts: pl.DataFrame) -> pl.DataFrame:
    if layouts.schema.get("sharded") != pl.String:
        return layouts
    return layouts.with_columns(sharded=pl.col("sharded").str.to_lowercase().is_in(["yes", "true", "1"]))


def _counted(ranks: pl.DataFrame) -> pl.DataFrame:
    """Compute the degrees of jobs from the indices of their ranks."""
    degrees = [name.removesuffix("_index") for name in ranks.columns if name.endswith("_index")]
    if ranks.is_empty():
        return pl.DataFrame(schema=LAYOUT)
    return ranks.group_by("job").agg(pl.col(f"{one}_index").n_unique().cast(pl.Int64).alias(one) for one in degrees)
