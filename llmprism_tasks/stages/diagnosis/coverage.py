"""Coverage: how far NICs that the topology lacks make a diagnosis uncertain.

A culprit is whoever is late without waiting for another. Of a NIC that the topology lacks nobody knows when it was
late, or on which host it is, so whoever waits for it looks like a culprit. Nothing tells these suspects apart: among a
subject and `n` such NICs next to it, each is as likely as the other, and the subject's confidence is divided by 1 + n.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from llmprism_tasks.stages.step_division.periodicity import PAIR

LOCAL_SUBJECTS = ("addr", "host")
"""Types of subjects of which only the surroundings count; all else is compared within its whole job."""


def with_coverage(
    diagnoses: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    topology: pl.DataFrame,
    pairs: pl.DataFrame,
) -> pl.DataFrame:
    """Lower the confidence of diagnoses of jobs that train with NICs which the topology lacks, and say so.

    Parameters
    ----------
    diagnoses : with `job_id`, `subject_type`, `subject`, `confidence` (NULL stays NULL) and `explanation`
    jobs : `job_id`, `unlisted` (their addresses that the topology lacks, NULL for none)
    job_members : `job_id`, `addr`, `host`
    topology : `addr`, `host`
    pairs : `src_addr`, `dst_addr` of all flows, those from and to unlisted addresses among them

    Returns
    -------
    the diagnoses in the same order
    """
    unlisted = dict(jobs.select("job_id", "unlisted").drop_nulls().iter_rows())
    if not unlisted or diagnoses.is_empty():
        return diagnoses
    per_host = dict(topology.group_by("host").len().iter_rows())
    rows = diagnoses.to_dicts()
    for row in rows:
        missing = unlisted.get(row["job_id"])
        if missing:
            members = job_members.filter(job_id=row["job_id"])
            suspects = _count_suspects(row, missing, members, pairs, per_host)
            if row["confidence"] is not None:
                row["confidence"] /= 1 + suspects
            row["explanation"] += _sentence(len(missing), suspects)
    return pl.DataFrame(rows, schema=diagnoses.schema)


def _count_suspects(
    row: Mapping[str, str],
    missing: list[str],
    members: pl.DataFrame,
    pairs: pl.DataFrame,
    per_host: Mapping[str, int],
) -> int:
    """Count the missing NICs that may be at fault in a subject's place: those that its host sends to or receives from,
    and as many as the host has fewer NICs than others, for they may be the missing ones."""
    near, absent = members, 0
    if row["subject_type"] in LOCAL_SUBJECTS:
        of_subject = (pl.col("addr") == row["subject"]) | (pl.col("host") == row["subject"])
        hosts = members.filter(of_subject)["host"].unique()
        near = members.filter(pl.col("host").is_in(hosts.implode()))
        absent = sum(max(per_host.values()) - per_host.get(host, 0) for host in hosts)
    sent, received = (
        pairs.filter(pl.col(own).is_in(near["addr"].implode()) & pl.col(other).is_in(missing))[other]
        for own, other in (PAIR, PAIR[::-1])
    )
    met = pl.concat([sent.rename("addr"), received.rename("addr")]).n_unique()
    return min(met + absent, len(missing))


def _sentence(missing: int, suspects: int) -> str:
    of_job = f" The topology lacks {missing} {'NIC' if missing == 1 else 'NICs'} of this job;"
    if not suspects:
        return f"{of_job} none of them is next to this subject."
    return f"{of_job} culprits among them cannot be named, and {suspects} of them may be at fault in its place."
