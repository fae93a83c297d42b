"""Tenants: which clusters of NICs on the same hosts are rails of one job, and which are jobs side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS
from llmprism_tasks.numerics import graphs, grouped_sort, ragged
from llmprism_tasks.numerics.asof import AFTER_ALL
from llmprism_tasks.numerics.robust import Flags, Floats, Integers
from llmprism_tasks.settings import RecognitionSettings
from llmprism_tasks.stages.recognition.kernels import coincidence
from llmprism_tasks.stages.recognition.one_job import SAME_HOSTS, Rail, Sent, in_step, odds, probability
from llmprism_tasks.stages.traffic import nic_pairs

MAIN_TRANSFER_BYTES = 0.5
"""Ratio of its pair's median transfer from which one counts as the first: a message of chatter does not. The mean would
be that of gradients, which come at the end of a step, where tokens or activations share the pair."""


def joined_in_step(
    members: pl.DataFrame, flows: pl.DataFrame, unison: pl.DataFrame, settings: RecognitionSettings
) -> pl.DataFrame:
    """Join clusters on similar hosts, or on hosts in unison, that are in step: they are of one job, and its steps are
    found from all of them.

    Those of a rail alone may be hard to see: where tokens go by the rail of their receiver, gradients cross hosts at a
    few NICs only.

    Parameters
    ----------
    members : `addr`, `host`, `cluster`
    flows : of the pairs that link the members
    unison : as `islands.hosts_in_unison` returns

    Returns
    -------
    members, with the same `cluster` where clusters are in step: that of the one that sends most often
    """
    placed = _Placed.of(members, unison, settings)
    sent = _cluster_transfers(members.filter(pl.Series(placed.has_neighbours)), flows, settings)
    joined, first = placed.labels.copy(), dict[int, list[int]]()
    for cluster in sorted(sent, key=lambda one: (-sent[one].starts.size, one)):
        at = int(np.searchsorted(placed.labels, cluster))
        others = first.setdefault(int(placed.neighbours[at]), [])
        joined[at] = next((one for one in others if in_step(sent[one], sent[cluster], settings)), cluster)
        if joined[at] == cluster:
            others.append(cluster)
    return members.with_columns(cluster=pl.Series(joined[placed.rows], dtype=members.schema["cluster"]))


def tenants(
    members: pl.DataFrame,
    steps: pl.DataFrame,
    flows: pl.DataFrame,
    unison: pl.DataFrame,
    seen_ns: tuple[int, int],
    settings: RecognitionSettings,
) -> pl.DataFrame:
    """Merge clusters on similar hosts, or on hosts in unison, into jobs, unless what they send says that they are
    different tenants.

    A ring that goes through a host once leaves some of its NICs to the pipelines alone: clusters on a few of a job's
    hosts are part of it, too, if what they send says so.

    Parameters
    ----------
    members : `addr`, `host`, `cluster`
    steps : `cluster`, `end_ns`, `period_ns`, a row per step
    flows : of the pairs that link the members
    unison : as `islands.hosts_in_unison` returns
    seen_ns : from when to when flows were seen

    Returns
    -------
    `cluster`, `job` (the number of one of its clusters), `sure` (the probability that the cluster is where it belongs)
    """
    placed = _Placed.of(members, unison, settings)
    at = np.unique(np.column_stack([placed.rows, placed.hosts]), axis=0)
    around = _nested_clusters(at[:, 0], at[:, 1])
    within = placed.has_neighbours | np.isin(placed.rows, around)
    known = _rails(placed.labels, steps, _cluster_transfers(members.filter(pl.Series(within)), flows, settings))
    said = _Odds(known, seen_ns, settings)
    jobs, sure = _merge_alike(placed.neighbours, said)
    _merge_nested(around, said, jobs, sure)
    return pl.DataFrame({"cluster": placed.labels, "job": placed.labels[jobs], "sure": sure})


@dataclass(frozen=True)
class _Placed:
    """Where clusters are.

    Attributes
    ----------
    labels : of each cluster, in order
    rows, hosts : of each member, the place of its cluster in `labels`, and a number of its host
    neighbours : a number for each cluster; those on similar hosts, or on hosts in unison, have the same
    """

    labels: Integers
    rows: Integers
    hosts: Integers
    neighbours: Integers

    @classmethod
    def of(cls, members: pl.DataFrame, unison: pl.DataFrame, settings: RecognitionSettings) -> _Placed:
        """Return where the clusters of members are: `addr`, `host`, `cluster`; `unison` as for `tenants`."""
        hosts = members["host"].cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()
        labels, rows = np.unique(members["cluster"].to_numpy(), return_inverse=True)
        similar = graphs.merge_by_jaccard(rows, hosts, settings.host_similarity)
        in_unison = members.select("host", row=pl.Series(rows)).join(unison, on="host")
        one = in_unison.with_columns(first=pl.col("row").min().over("unison"))
        return cls(
            labels,
            rows,
            hosts,
            graphs.connected_components(
                np.concatenate([np.arange(labels.size), one["row"].to_numpy()]),
                np.concatenate([similar, one["first"].to_numpy()]),
                labels.size,
            ),
        )

    @property
    def has_neighbours(self) -> Flags:
        """Say of each member whether other clusters are on hosts similar to its own's."""
        several: Flags = (np.bincount(self.neighbours, minlength=self.labels.size) > 1)[self.neighbours[self.rows]]
        return several


@dataclass(frozen=True)
class _Odds:
    """What the traffic of two clusters says of whether they are rails of one job.

    Attributes
    ----------
    known : of each cluster
    seen_ns, settings : as for `tenants`
    """

    known: list[Rail]
    seen_ns: tuple[int, int]
    settings: RecognitionSettings

    def __call__(self, one: int, other: int) -> float:
        """Return the logarithm of the odds."""
        return odds(self.known[one], self.known[other], self.seen_ns, self.settings)


def _merge_alike(neighbours: Integers, said: _Odds) -> tuple[Integers, Floats]:
    """Merge clusters on similar hosts, those with many steps first: return for each cluster the first one of its job,
    and how probably it is where it belongs.

    Parameters
    ----------
    neighbours : a number for each cluster; those on similar hosts have the same
    """
    jobs, sure = np.empty(neighbours.size, dtype=np.int64), np.ones(neighbours.size)
    first: dict[int, list[int]] = {}
    before = math.log(SAME_HOSTS / (1 - SAME_HOSTS))
    for cluster in sorted(range(neighbours.size), key=lambda i: (-said.known[i].ends.size, i)):
        others = first.setdefault(int(neighbours[cluster]), [])
        told = [before + said(cluster, one) for one in others]
        best = max(told, default=-math.inf)
        nearest = others[told.index(best)] if others else cluster
        sure[cluster] = probability(abs(best))
        sure[nearest] = min(sure[nearest], sure[cluster])
        jobs[cluster] = nearest if best > 0 else cluster
        if best <= 0:
            others.append(cluster)
    return jobs, sure


def _merge_nested(around: Integers, said: _Odds, jobs: Integers, sure: Floats) -> None:
    """Merge clusters with the jobs on more hosts than theirs that they are parts of.

    Parameters
    ----------
    around : as `_nested_clusters` returns
    jobs, sure : as `_merge_alike` returns; changed in place
    """
    apart = [(cluster, jobs[wider]) for cluster, wider in around if jobs[cluster] == cluster != jobs[wider]]

    def of_one_job(own: int, other: int) -> float:
        """Return the odds of two jobs; of the own one's clusters, any may be the one whose steps were read rightly."""
        each = [said(int(one), other) for one in np.flatnonzero(jobs == own)]
        return float(np.logaddexp.reduce(each)) - math.log(len(each))

    parts = _with_like_parts({pair: of_one_job(*pair) for pair in apart})
    for cluster, wider in around:
        own, other = jobs[cluster], jobs[wider]
        if own != cluster or other == own:
            continue
        if (cluster, other) not in parts:
            parts[cluster, other] = of_one_job(cluster, other)
        told = parts[cluster, other]
        for one in (cluster, other):
            sure[one] = min(sure[one], probability(abs(told)))
        if told > 0:
            jobs[jobs == own] = other


def _with_like_parts(said: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """Return the odds that clusters are parts of the job around them, given also what the other clusters in it are.

    Where most of the others are parts of it, one more is likely to be; where few are, it is unlikely. How likely, says
    Laplace's rule of succession over the probabilities of the others.

    Parameters
    ----------
    said : logarithm of the odds by what is sent, of a cluster and the job around it
    """
    found = dict(said)
    for job in {job for _, job in said}:
        parts = [key for key in said if key[1] == job]
        own = np.array([said[part] for part in parts])
        likely = np.exp(-np.logaddexp(0.0, -own))
        others = likely.sum() - likely
        told = own + np.log((1 + others) / (len(parts) - others))
        found |= dict(zip(parts, told.tolist(), strict=True))
    return found


def _rails(labels: Integers, steps: pl.DataFrame, sent: dict[int, Sent]) -> list[Rail]:
    """Return what is known of each cluster."""
    ended = steps.sort("cluster", "end_ns")
    ends, offsets = ended["end_ns"].to_numpy(), ragged.bounds(ended["cluster"].to_numpy())
    spans = zip(ended[offsets[:-1]].select("cluster", "period_ns").rows(), offsets[:-1], offsets[1:], strict=True)
    series = {cluster: (ends[low:high], period_ns) for (cluster, period_ns), low, high in spans}
    none = np.empty(0, dtype=np.int64)
    nothing = Sent(none, none, 1.0, -1)
    return [Rail(*series.get(label, (none, 0.0)), sent.get(label, nothing)) for label in labels]


def _nested_clusters(clusters: Integers, hosts: Integers) -> Integers:
    """Return which clusters are on all hosts of which others and on more, shape (rows, 2): the inner and the outer one;
    those on few hosts first, and of each the outer ones on many hosts first.

    Parameters
    ----------
    clusters, hosts : both numbers, a row for each host of each cluster
    """
    placed = pl.DataFrame({"cluster": clusters, "host": hosts}).with_columns(hosts=pl.len().over("cluster"))
    return (
        placed.join(placed, on="host", suffix="_around")
        .filter(pl.col("hosts") < pl.col("hosts_around"))
        .group_by("cluster", "cluster_around", "hosts", "hosts_around")
        .agg(shared=pl.len())
        .filter(pl.col("shared") == pl.col("hosts"))
        .sort("hosts", "cluster", "hosts_around", "cluster_around", descending=[False, False, True, False])
        .select("cluster", "cluster_around")
        .to_numpy()
    )


def _cluster_transfers(compared: pl.DataFrame, flows: pl.DataFrame, settings: RecognitionSettings) -> dict[int, Sent]:
    """Return what some clusters send.

    Parameters
    ----------
    compared : their members: `addr`, `cluster`
    """
    compared = compared.select("cluster", src_addr="addr")
    pairs = nic_pairs.pairs_of(flows, ["src_addr"]).select("pair", "src_addr").join(compared, on="src_addr")
    at = np.searchsorted(nic_pairs.pairs_of(flows, [])["pair"].to_numpy(), pairs["pair"].to_numpy())
    starts, sizes = (flows[name].to_numpy() for name in ("flow_start_ns", "bytes"))
    offsets = nic_pairs.starts_of_pairs(flows)
    # Where a collector's clock is coarse, what begins at other times within a tick begins together by chance, too.
    tick_ns = int(np.gcd.reduce(starts - starts[:1])) if starts.size else 0
    tolerance = max(settings.phase_tolerance_ms * NANOSECONDS_PER_MS, tick_ns / 2)
    begins = _first_transfer_times(starts, sizes, offsets)
    found = {}
    for cluster, chosen in pairs.with_columns(at=at).group_by("cluster", maintain_order=True).agg("at").iter_rows():
        rows, _ = grouped_sort.spread(offsets, np.array(chosen))
        mine = starts[rows]
        order = grouped_sort.time_order(mine)
        mine = mine[order]
        reach = coincidence.reach(mine, tolerance=tolerance)
        found[cluster] = Sent(mine, sizes[rows[order]], reach, int(begins[np.array(chosen)].min()))
    return found


def _first_transfer_times(starts: Integers, sizes: Integers, offsets: Integers) -> Integers:
    """Return when the first transfer of each pair starts that is about as large as its others, ns."""
    main = sizes >= MAIN_TRANSFER_BYTES * ragged.spread(ragged.medians(sizes, offsets), offsets)
    return np.minimum.reduceat(np.where(main, starts, AFTER_ALL), offsets[:-1])
