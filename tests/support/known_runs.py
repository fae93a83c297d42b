"""A run made by hand: two jobs in two windows of 1,000 ns, the truth about them, and what a perfect method finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from llmprism_tasks.reports.evaluation.truth_tables import normal

Tables = dict[str, pl.DataFrame]
Rows = list[tuple[Any, ...]]

ENDS = {"a": [100 * (i + 1) for i in range(18)], "b": [120 * (i + 1) + 7 for i in range(15)]}
NICS = {"a": ["1", "2", "3", "4"], "b": ["5", "6"]}
JOB_IDS = {"a": "x", "b": "y"}
STARTS = (0, 1000)

WINDOWS = pl.DataFrame({"window_start_ns": STARTS, "window_end_ns": [1000, 2000], "status": "done"})
DIAGNOSIS = {
    "window_start_ns": pl.Int64,
    "job_id": pl.String,
    "kind": pl.String,
    "subject_type": pl.String,
    "subject": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "score": pl.Float64,
    "severity": pl.Float64,
    "steps": pl.Int32,
}
FAULT = ("kind", "job", "subject_type", "subject", "start_ns", "end_ns", "accept")
PAIRS: dict[str, Rows] = {
    "a": [("1", "2", "dp"), ("2", "1", "dp"), ("3", "4", "dp"), ("4", "3", "dp"), ("1", "3", "pp"), ("3", "1", "pp")],
    "b": [("5", "6", "dp"), ("6", "5", "dp")],
}


def frame(rows: Rows, *columns: str) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(columns), orient="row")


def truth(**other: pl.DataFrame) -> Tables:
    """Return the truth about the run, with some tables replaced."""
    members = [(job, addr, 0, 1900) for job, addrs in NICS.items() for addr in addrs]
    starts = {job: [0, *ends[:-1]] for job, ends in ENDS.items()}
    steps = [
        (job, step, start, end)
        for job in NICS
        for step, (start, end) in enumerate(zip(starts[job], ENDS[job], strict=True))
    ]
    tables = {
        "truth_jobs": frame(members, "job", "addr", "start_ns", "end_ns"),
        "truth_steps": frame(steps, "job", "step", "start_ns", "end_ns"),
        "truth_pairs": frame(
            [(job, *pair) for job, pairs in PAIRS.items() for pair in pairs], "job", "src_addr", "dst_addr", "kind"
        ),
        "truth_ranks": frame(
            [("a", "1", 0), ("a", "2", 0), ("a", "3", 1), ("a", "4", 1), ("b", "5", 0), ("b", "6", 0)],
            "job",
            "addr",
            "pp_index",
        ),
        "layouts": frame([("a", 1, 2, 2, "no"), ("b", 1, 1, 2, "yes")], "job", "tp", "pp", "dp", "sharded"),
    }
    return tables | other


def normal_truth(**other: pl.DataFrame) -> Tables:
    return normal(truth(**other))


def found(**other: pl.DataFrame) -> Tables:
    """Return what a perfect method finds, with some tables replaced."""
    layouts = {"a": (1, 2, 2, False), "b": (1, 1, 2, True)}
    stage = {"3": 1, "4": 1}
    members = [(w, JOB_IDS[job], addr, stage.get(addr, 0)) for w in STARTS for job in NICS for addr in NICS[job]]
    ends = [(end // 1000 * 1000, JOB_IDS[job], None, end) for job in NICS for end in ENDS[job]]
    pairs = [(w, JOB_IDS[job], *pair, 0.95) for w in STARTS for job in NICS for pair in PAIRS[job]]
    tables = {
        "windows": WINDOWS,
        "jobs": frame(
            [(w, JOB_IDS[job], "training", *layouts[job], 0.99) for w in STARTS for job in NICS],
            "window_start_ns",
            "job_id",
            "kind",
            "tp",
            "pp",
            "dp",
            "sharded",
            "confidence",
        ),
        "job_members": frame(members, "window_start_ns", "job_id", "addr", "pp_stage"),
        "pairs": frame(pairs, "window_start_ns", "job_id", "src_addr", "dst_addr", "kind", "confidence"),
        "steps": pl.DataFrame(
            ends,
            schema={"window_start_ns": pl.Int64, "job_id": pl.String, "addr": pl.String, "end_ns": pl.Int64},
            orient="row",
        ),
        "diagnoses": pl.DataFrame(schema=DIAGNOSIS),
    }
    return tables | other


def members(*by_window: Mapping[str, str]) -> Tables:
    """Return `job_members` and `jobs` from the job of each address, window by window."""
    rows = [(1000 * number, job, addr) for number, window in enumerate(by_window) for addr, job in window.items()]
    table = pl.DataFrame(
        rows, schema={"window_start_ns": pl.Int64, "job_id": pl.String, "addr": pl.String}, orient="row"
    )
    jobs = table.select("window_start_ns", "job_id").unique().with_columns(kind=pl.lit("training"), confidence=0.9)
    return {"job_members": table, "jobs": jobs}


def faults(*rows: tuple[Any, ...]) -> dict[str, pl.DataFrame]:
    return {"truth_faults": frame(list(rows), *FAULT)}


def diagnoses(*rows: tuple[Any, ...]) -> dict[str, pl.DataFrame]:
    """Return `diagnoses` from `(window, job_id, subject_type, subject, severity)`, each of its whole window."""
    full = [(w, job, "straggler", kind, who, w, w + 999, 9.0, severity, None) for w, job, kind, who, severity in rows]
    return {"diagnoses": pl.DataFrame(full, schema=DIAGNOSIS, orient="row")}
