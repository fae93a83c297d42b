"""Assembly: what the finders found -> diagnoses: what explains what, who is worst, what it costs and what proves it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.diagnosis import evidence_sql
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence

Row = dict[str, Any]

DEVICES = ("addr", "host", "link", "switch")
"""Subjects that can be at fault; jobs, data-parallel groups and pipeline stages only show what a device does."""

CAUSE_UNKNOWN = ("straggler", "switch_level")
"""Kinds that say who is slow, not why."""

EFFECTS = ("cross_step", "cross_group")
"""Kinds that say what a job suffers."""

MOST = 0.5
"""Share of its job's loss above which a cause leaves less to all others together than it takes itself."""

AMONG_ALIKE = ("slow_compute", "pipeline_imbalance")
"""Kinds that are told by comparing members that do the same work, which only the layout says."""

LIKELY = 0.5
"""Confidence in a layout below which it is more likely wrong than right."""

ONCE = ["job_id", "kind", "subject_type", "subject"]
"""What a window says once."""


def said_once(found: pl.DataFrame) -> pl.DataFrame:
    """Keep of rows that say the same of the same subject the first: who comes first knows most of it."""
    return found.unique(ONCE, keep="first", maintain_order=True)


def of_likely_layouts(found: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Leave out what is told by comparing members where it is not likely that they do the same work.

    Parameters
    ----------
    jobs : the window's: `job_id`, `confidence` (of the layout; NULL without one)
    """
    unlikely = jobs.filter(pl.col("confidence") < LIKELY)["job_id"]
    return found.filter(~(pl.col("kind").is_in(AMONG_ALIKE) & pl.col("job_id").is_in(unlikely.implode())))


def assembled(found: pl.DataFrame, evidence: Evidence, settings: Settings) -> pl.DataFrame:
    """Make diagnoses of what the finders found.

    Parameters
    ----------
    found : rows of `evidence.ROW`, in any order

    Returns
    -------
    those that no other explains, with `rank` and `evidence_sql`, the worst first
    """
    nothing = pl.DataFrame(schema=ROW | {"rank": pl.Int32, "evidence_sql": pl.String})
    if found.is_empty():
        return nothing
    hosts = {(job_id, addr): host for job_id, addr, host in evidence.members.select("job_id", "addr", "host").rows()}
    rows = ranked(unexplained(one_cause_each(found.to_dicts(), hosts)))
    begins = dict(evidence.of_jobs(found["job_id"]).group_by("job_id").agg(pl.col("flow_start_ns").min()).iter_rows())
    for row in rows:
        window, since_ns = evidence.window, begins.get(row["job_id"])
        if since_ns is None:  # a job that is silent has its pairs in the window in which it still sent
            window = Window.containing(row["start_ns"], window.length_ns)
            since_ns = window.lookback(settings.window.lookback_windows).start_ns
        row["evidence_sql"] = evidence_sql.query(row, since_ns, window, settings)
    return pl.DataFrame(rows, schema=nothing.schema)


def one_cause_each(found: list[Row], hosts: dict[tuple[str, str], str]) -> list[Row]:
    """Of what is found of one device at one time, keep the worst; a host and a NIC in it are one device.

    Parameters
    ----------
    hosts : job and NIC to host
    """
    kept: list[Row] = []
    for row in sorted(found, key=_worst_first):
        if row["subject_type"] not in DEVICES or not any(_one_trouble(row, worse, hosts) for worse in kept):
            kept.append(row)
    return kept


def unexplained(found: list[Row]) -> list[Row]:
    """Leave out who is slow without a known cause while a known one takes most of what their job loses.

    A switch that all that is slow has in common is no cause, but more than to say that somebody holds the job up.
    """
    surely = [row for row in found if row["kind"] not in EFFECTS and (row["confidence"] or 0) >= MOST]

    def explains(cause: Row, row: Row) -> bool:
        more = cause["kind"] == "switch_level" and row["kind"] == "straggler"
        known = cause["kind"] not in CAUSE_UNKNOWN  # unknown is no explanation
        return row["job_id"] == cause["job_id"] and _together(row, cause) and (known or more)

    return [
        row for row in found if row["kind"] not in CAUSE_UNKNOWN or not any(explains(cause, row) for cause in surely)
    ]


def ranked(found: list[Row]) -> list[Row]:
    """Number the suspects of each job from the worst, which is 1; what is no device has no `rank`."""
    places: dict[str, int] = defaultdict(int)
    ordered = []
    for row in sorted(found, key=_worst_first):
        suspect = row["subject_type"] in DEVICES
        places[row["job_id"]] += suspect
        ordered.append(row | {"rank": places[row["job_id"]] if suspect else None})
    return ordered


def _one_trouble(row: Row, other: Row, hosts: dict[tuple[str, str], str]) -> bool:
    if row["job_id"] != other["job_id"] or not _together(row, other):
        return False
    one, two = ((row["subject_type"], row["subject"]), (other["subject_type"], other["subject"]))
    within = {("host", hosts.get((row["job_id"], name))) for kind, name in (one, two) if kind == "addr"}
    return one == two or bool({one, two} & within)


def _together(row: Row, other: Row) -> bool:
    return bool(row["start_ns"] < other["end_ns"] and other["start_ns"] < row["end_ns"])


def _worst_first(row: Row) -> tuple[Any, ...]:
    """Order by the share of time that the subject is known to cost; what is not known to cost any comes last."""
    names = (row["job_id"], row["kind"], row["subject_type"], row["subject"])
    return (-row["severity"] * (row["confidence"] or 0), -row["score"], *names)
