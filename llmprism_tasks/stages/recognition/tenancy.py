"""Tenants: which clusters of NICs on the same hosts are rails of one job, and which are jobs side by side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS
from llmprism_tasks.numerics import graphs, grouped_sort, ragged
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.settings import RecognitionSettings
from llmprism_tasks.stages.recognition.kernels import coincidence
from llmprism_tasks.stages.traffic import nic_pairs

LEAST_STEPS = 4
"""Steps below which a series says nothing about a drift: three have two differences."""

NEAR = 0.02
"""Ratio of the period within which replicas that meet after every step end it: sums of some twenty passes, each of
which varies by 3 %. Two jobs are as near by chance one time in twenty-five, and do not return."""

RETURNS = 1.0
"""Mean square of the changes of a distance, over its variance (von Neumann 1941), from which it returns to its middle:
it is 2 where each step's distance is chance, and falls towards 0 the further distances walk."""

MOSTLY = 0.9
"""Ratio of the steps that stands for all of them."""

UNUSUAL = 5.0
"""Typical deviations beyond which a distance counts as just so far: one step that a pause made long says nothing."""


LEAST_TRANSFERS = 10
"""Transfers of each side from which chance rarely lets most begin together."""

ROOM = 0.5
"""Share of time within reach of some transfer above which beginning together says nothing."""


def tenants(
    members: pl.DataFrame, steps: pl.DataFrame, flows: pl.DataFrame, settings: RecognitionSettings
) -> pl.DataFrame:
    """Merge clusters on similar hosts into jobs, unless their steps say they are different tenants.

    A ring that goes through a host once leaves some of its NICs to the pipelines alone: clusters on a few of a job's
    hosts are part of it, too, if what they send or the steps that they show say so.

    Parameters
    ----------
    members : `addr`, `host`, `cluster`, `bytes` (that the NIC moves)
    steps : `cluster`, `start_ns`, `end_ns`, `period_ns`, a row per step
    flows : of the pairs that link the members

    Returns
    -------
    `cluster`, `job` (the number of one of its clusters)
    """
    hosts = members["host"].cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()
    labels, rows = np.unique(members["cluster"].to_numpy(), return_inverse=True)
    neighbours = graphs.merge_by_jaccard(rows, hosts, settings.host_similarity)
    ended = steps.sort("cluster", "end_ns")
    starts, ends = (ended[name].to_numpy() for name in ("start_ns", "end_ns"))
    offsets = ragged.bounds(ended["cluster"].to_numpy())
    spans = zip(ended[offsets[:-1]].select("cluster", "period_ns").rows(), offsets[:-1], offsets[1:], strict=True)
    series = {cluster: (starts[low:high], ends[low:high], period_ns) for (cluster, period_ns), low, high in spans}
    none = np.empty(0, dtype=np.int64)
    at = np.unique(np.column_stack([rows, hosts]), axis=0)
    around = _around(at[:, 0], at[:, 1])
    within = pl.DataFrame({"cluster": rows, "neighbours": neighbours[rows]}).with_columns(
        several=pl.col("cluster").n_unique().over("neighbours") > 1
    )["several"].to_numpy() | np.isin(rows, around)
    sent = _transfers(members.filter(pl.Series(within)), flows, settings)
    rails = members.group_by("cluster").agg(pl.col("bytes").median()).sort("cluster")
    known = [
        _Rail(*series.get(label, (none, none, 0.0)), typical, sent.get(label, _Sent(none, none, 1.0)))
        for label, typical in rails.iter_rows()
    ]
    jobs = np.empty(len(labels), dtype=np.int64)
    first: dict[int, list[int]] = {}
    for cluster in sorted(range(len(labels)), key=lambda i: (-known[i].ends.size, i)):
        others = first.setdefault(int(neighbours[cluster]), [])
        match = next((one for one in others if _of_one_job(known[cluster], known[one], settings)), None)
        if match is None:
            others.append(cluster)
        jobs[cluster] = cluster if match is None else match
    for cluster, wider in around:
        own, other = jobs[cluster], jobs[wider]
        if own == cluster and other != own and _takes_part(known[cluster], known[other], settings):
            jobs[jobs == own] = other
    return pl.DataFrame({"cluster": labels, "job": labels[jobs]})


class _Sent(NamedTuple):
    """What a cluster sends.

    Attributes
    ----------
    starts, sizes : of the transfers, ns and bytes, sorted by starts
    reach : share of the time that is near one of the starts
    """

    starts: Integers
    sizes: Integers
    reach: float


def _around(clusters: Integers, hosts: Integers) -> Integers:
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


def _transfers(compared: pl.DataFrame, flows: pl.DataFrame, settings: RecognitionSettings) -> dict[int, _Sent]:
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
    found = {}
    for cluster, chosen in pairs.with_columns(at=at).group_by("cluster", maintain_order=True).agg("at").iter_rows():
        rows, _ = grouped_sort.spread(offsets, np.array(chosen))
        mine = starts[rows]
        order = grouped_sort.time_order(mine)
        mine = mine[order]
        reach = coincidence.reach(mine, tolerance=settings.phase_tolerance_ms * NANOSECONDS_PER_MS)
        found[cluster] = _Sent(mine, sizes[rows[order]], reach)
    return found


class _Rail(NamedTuple):
    """A cluster of NICs.

    Attributes
    ----------
    starts, ends, period_ns : of its steps, in order of their ends; none and 0 without steps
    bytes : that its typical NIC moves
    sent : the transfers that it sends, if it has neighbours
    """

    starts: Integers
    ends: Integers
    period_ns: float
    bytes: float
    sent: _Sent


def _of_one_job(rail: _Rail, other: _Rail, settings: RecognitionSettings) -> bool:
    """Whether clusters on the same hosts may be rails of one job.

    They are if they begin together what they send. If not (they may be of different stages of a pipeline), their steps
    must keep their distance; where steps don't say, rails move equal bytes.
    """
    if in_step(rail.sent, other.sent, settings):
        return True
    if min(rail.ends.size, other.ends.size) >= LEAST_STEPS:
        return not drift_apart(rail.ends, rail.period_ns, other.ends, settings)
    return min(rail.bytes, other.bytes) >= settings.rail_likeness * max(rail.bytes, other.bytes)


def _takes_part(rail: _Rail, other: _Rail, settings: RecognitionSettings) -> bool:
    """Whether a cluster on some of another's hosts is part of its job: it begins together what it sends, or begins its
    steps when the other has ended its own, or begins them, as all do that wait for the gradients of all."""
    if in_step(rail.sent, other.sent, settings):
        return True
    if min(rail.ends.size, other.ends.size) < LEAST_STEPS:
        return False
    return any(_follows(rail.starts, moments, other.period_ns) for moments in (other.ends, other.starts))


def _follows(begins: Integers, moments: Integers, period_ns: float) -> bool:
    """Whether what begins is always about as far from the nearest of some moments; before the first nothing waits."""
    begins = begins[begins >= moments[0] - NEAR * period_ns]
    if begins.size < LEAST_STEPS - 1:
        return False
    apart = (begins - _nearest(begins, moments)).astype(np.float64)
    off = np.abs(apart - np.median(apart))
    return float(np.quantile(off, MOSTLY)) <= NEAR * period_ns


def _nearest(times: Integers, others: Integers) -> Integers:
    """Return for each time the nearest of others, which are sorted; two at least."""
    after = np.clip(np.searchsorted(others, times), 1, others.size - 1)
    early = np.abs(others[after - 1] - times) < np.abs(others[after] - times)
    return np.where(early, others[after - 1], others[after])


def in_step(rail: _Sent, other: _Sent, settings: RecognitionSettings) -> bool:
    """Whether two rails begin most of what they send together, far more than chance explains.

    Layers, buckets and micro-batches of one job come up on all of its rails at the same moments, whether a step has a
    quiet gap or not. Two jobs', even twins', do so by chance only.
    """
    if min(rail.starts.size, other.starts.size) < LEAST_TRANSFERS or max(rail.reach, other.reach) > ROOM:
        return False
    tolerance = settings.phase_tolerance_ms * NANOSECONDS_PER_MS
    met = coincidence.together(*rail[:2], *other[:2], tolerance=tolerance)
    return met >= settings.least_together


def drift_apart(ends: Integers, period_ns: float, others: Integers, settings: RecognitionSettings) -> bool:
    """Whether two series of steps are of two jobs: their distance is neither kept nor small beside their jitter.

    Ends of one job's steps keep their distance, whatever the steps' jitter; if a fault makes a ring slow, the distance
    changes once and is kept again. Ends of two jobs walk away from each other: by the difference of their periods, if
    it is ever so small, or else by jitter that is not shared. Jobs on the same busy hosts share some. Replicas whose
    pipelines are each by themselves share none within a step, but end all steps near each other, and return.

    Parameters
    ----------
    ends, others : ns, sorted, at least `LEAST_STEPS` each
    period_ns : of the first series
    """
    near = _nearest(ends, others)
    # Distances are phases: just under half a period ahead and just over it are neighbours.
    phase: Floats = 2 * np.pi * (near - ends).astype(np.float64) / period_ns
    tolerance = max(settings.phase_tolerance, settings.phase_tolerance_ms * NANOSECONDS_PER_MS / period_ns)
    if _spread(phase) / (2 * np.pi) <= tolerance:
        return False
    off, returns = np.abs(np.angle(np.exp(1j * phase))) / (2 * np.pi), _returns(np.unwrap(phase))
    if returns and np.quantile(off, MOSTLY) <= NEAR:
        return False
    if not returns and np.quantile(off, 1 - MOSTLY) > NEAR:
        return True
    distance = np.unwrap(phase) / (2 * np.pi) * period_ns
    apart = max(1, ends.size // settings.walk_parts)
    walked = float(np.median(np.abs(distance[apart:] - distance[:-apart])))
    jitter = sum(_deviation(np.diff(side).astype(np.float64)) for side in (ends, others))
    return walked > settings.own_jitter * jitter


def _returns(distances: Floats) -> bool:
    """Whether distances return to their middle, rather than walk from one to the next."""
    middle, reach = float(np.median(distances)), UNUSUAL * _deviation(distances)
    usual = np.clip(distances, middle - reach, middle + reach)
    return float(np.mean(np.diff(usual) ** 2)) >= RETURNS * float(np.var(usual))


def _spread(angles: Floats) -> float:
    """Return the median distance of angles from their middle."""
    off = np.angle(np.exp(1j * (angles - np.angle(np.exp(1j * angles).mean()))))
    return _deviation(off)


def _deviation(values: Floats) -> float:
    return float(np.median(np.abs(values - np.median(values))))
