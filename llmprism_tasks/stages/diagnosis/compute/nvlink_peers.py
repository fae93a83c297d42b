"""NVLink peers: slow hosts that wait for each other over links that the network does not show."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import graphs
from llmprism_tasks.numerics.robust import MAJORITY, Floats
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.timeline.placement import NIC
from llmprism_tasks.stages.traffic import nic_pairs


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
    islands = _islands(members, evidence.flows.filter(of_job))
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
    known = [host for host in hosts if host in work.columns]
    more = work.select(known).to_numpy()
    alike = _vary_alike(more) & np.array([[islands[one] != islands[other] for other in known] for one in known])
    left, right = np.nonzero(alike)
    labels = dict(zip(known, graphs.connected_components(left, right, len(known)).tolist(), strict=True))
    groups: dict[str | int, list[str]] = {}
    for host in hosts:
        groups.setdefault(labels.get(host, host), []).append(host)
    return list(groups.values())


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


def _islands(members: pl.DataFrame, flows: pl.DataFrame) -> dict[str, int]:
    """Return the island of each host: those between which a job's flows go have the same."""
    pairs = nic_pairs.pairs_of(nic_pairs.in_order(flows), nic_pairs.PAIR)
    hosts = members["host"].unique().sort()
    code = pl.Enum(hosts.cast(pl.String))
    places = members.select("addr", place=pl.col("host").cast(pl.String).cast(code).to_physical().cast(pl.Int64))
    for end in nic_pairs.PAIR:
        pairs = pairs.join(places.rename({"addr": end, "place": f"{end}_place"}), on=end)
    source, target = (pairs[f"{end}_place"].to_numpy() for end in nic_pairs.PAIR)
    return dict(zip(hosts, graphs.connected_components(source, target, hosts.len()).tolist(), strict=True))
