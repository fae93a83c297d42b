"""NVLink peers: slow hosts that wait for each other over links that the network does not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.numerics import graphs
from llmprism_tasks.numerics.robust import MAJORITY, Floats
from llmprism_tasks.stages.diagnosis.evidence import Evidence, candidate_columns, shares
from llmprism_tasks.stages.timeline.placement import NIC
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.clusters import islands_of_jobs


def joined_unseen(hosts: list[str], job_id: str, since_ns: int, evidence: Evidence) -> list[list[str]]:
    """Group slow hosts of a job by who waits for whom over NVLink: one of each group is slow, and nobody sees which.

    Such hosts exchange nothing over the network, and their work is longer and shorter in the same steps: the difference
    of two varies by less than half of what each does. That of hosts that are slow for themselves varies by more.

    Parameters
    ----------
    hosts : in order
    since_ns : since when they have been slow

    Returns
    -------
    the hosts, each in one group, in order
    """
    of_job = pl.col("job_id") == job_id
    members = evidence.members.filter(of_job)
    pairs = nic_pairs.pairs_of(nic_pairs.in_order(evidence.flows.filter(of_job)), ["job_id", *nic_pairs.PAIR])
    islands = dict(islands_of_jobs(pairs, members).select("host", "island").rows())
    if len({islands.get(host) for host in hosts}) == 1:
        return [[host] for host in hosts]
    work = (
        evidence.work.filter(of_job, pl.col("start_ns") >= since_ns)
        .with_columns(more=pl.col("own_ns") / pl.col("own_ns").median().over("step_index"))
        .join(members, on=NIC)
        .filter(pl.col("host").is_in(hosts))
        .group_by("step_index", "host")
        .agg(pl.col("more").median())
        .pivot("host", index="step_index", values="more")
        .drop_nulls()
    )
    known = [host for host in hosts if host in work.columns and host in islands]
    more = work.select(known).to_numpy()
    alike = _vary_alike(more) & np.array([[islands[one] != islands[other] for other in known] for one in known])
    left, right = np.nonzero(alike)
    labels = dict(zip(known, graphs.connected_components(left, right, len(known)).tolist(), strict=True))
    groups: dict[str | int, list[str]] = {}
    for host in hosts:
        groups.setdefault(labels.get(host, host), []).append(host)
    return list(groups.values())


def one_of(hosts: list[str], row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a job one of whose hosts is slow, and keeps others waiting over NVLink.

    Parameters
    ----------
    row : that of one of the hosts
    """
    who = f"One of {', '.join(hosts)} is slow, and the others wait for it, though not over the network. "
    return (
        row
        | candidate_columns(shares(dict.fromkeys(hosts, 1.0)))
        | {"subject_type": "job", "subject": row["job_id"], "explanation": who + row["explanation"]}
    )


def _vary_alike(values: Floats) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return which columns vary together, shape (columns, columns).

    Parameters
    ----------
    values : shape (steps, columns)
    """
    own = values.std(axis=0) if values.size else np.zeros(values.shape[1])
    apart = (values[:, :, None] - values[:, None, :]).std(axis=0) if values.size else np.ones((own.size, own.size))
    alike: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = apart < MAJORITY * np.minimum(own[:, None], own)
    return alike
