"""Recognition: flows and topology -> jobs and their members.

LLMPrism (arXiv 2505.00342), stage 1: disjoint sets over all pairs give clusters; clusters on similar sets of hosts
are one job, since tensor parallelism stays inside hosts and leaves each rail a cluster of its own. Beyond the paper:
only bulk data links NICs, only pairs that are still at work count, and clusters on the same hosts whose steps drift
apart are two tenants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from llmprism_tasks import frames
from llmprism_tasks.methods import grouping
from llmprism_tasks.settings import RecognitionSettings, Settings
from llmprism_tasks.stages import rhythm, traffic
from llmprism_tasks.windows import Window

UNSURE = 0.5
"""Confidence in a group of NICs that exchange bulk data without a common period (yet): a job, but of what kind?"""


def recognition(
    *, flows: pl.DataFrame, topology: pl.DataFrame, window: Window, settings: Settings
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Recognise the jobs at work in a window.

    Parameters
    ----------
    flows : the window's flows and those of its look-back
    topology : `addr`, `host`, one row per GPU NIC; flows with other ends make no job

    Returns
    -------
    jobs : layout NULL, it is for `parallelism` to say; `training` if the NICs share a period, else `other`
    job_members : NICs of each job
    """
    bulk = traffic.bulk(traffic.between_gpus(flows, topology.select("addr", "host")), settings.traffic)
    if bulk.is_empty():
        return frames.empty("jobs"), frames.empty("job_members")
    working = working_pairs(rhythm.stream_rhythms(bulk, settings.rhythm), window, settings.recognition)
    if working.is_empty():
        return frames.empty("jobs"), frames.empty("job_members")
    members = clusters(working, topology)
    steps = _step_ends(bulk, working, members, settings)
    members = members.join(_tenants(members, steps, settings.recognition), on="cluster")
    rhythmic = members.join(steps, on="cluster", how="semi")["job"]
    return tables(members, rhythmic, bulk, window)


def working_pairs(rhythms: pl.DataFrame, window: Window, settings: RecognitionSettings) -> pl.DataFrame:
    """Keep the streams of pairs that sent in the window, or are silent for no longer than their period explains."""
    patience = (pl.col("period_ns") * settings.silent_periods).fill_null(0).cast(pl.Int64)
    since = pl.min_horizontal(pl.lit(window.start_ns), window.end_ns - patience)
    return rhythms.filter((pl.col("last_ns") >= since).any().over(rhythm.PAIR))


def clusters(pairs: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Join NICs that are linked by pairs: `addr`, `host`, `cluster`, the paper's cross-machine clusters."""
    addrs = pl.concat([pairs["src_addr"], pairs["dst_addr"].alias("src_addr")]).unique().sort()
    code = pl.Enum(addrs)
    left, right = (pairs[end].cast(code).to_physical().cast(pl.Int64).to_numpy() for end in rhythm.PAIR)
    cluster = grouping.connected_components(left, right, addrs.len())
    return (
        pl.DataFrame({"addr": addrs, "cluster": cluster}).join(topology.select("addr", "host"), on="addr").sort("addr")
    )


def _step_ends(bulk: pl.DataFrame, pairs: pl.DataFrame, members: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return each cluster's steps: `cluster`, `step`, `end_ns`, `period_ns`."""
    grouped = pairs.join(members.select(src_addr="addr", group="cluster"), on="src_addr")
    linked = bulk.join(grouped.select(*rhythm.PAIR, "group").unique(), on=rhythm.PAIR)
    numbered = rhythm.steps_of_groups(linked, grouped, settings.rhythm)
    return (
        numbered.group_by(cluster="group", step="step")
        .agg(end_ns=pl.col("flow_end_ns").max(), period_ns=pl.col("group_period_ns").first())
        .sort("cluster", "step")
    )


def _tenants(members: pl.DataFrame, steps: pl.DataFrame, settings: RecognitionSettings) -> pl.DataFrame:
    """Merge clusters on similar hosts into jobs, unless their steps say they are different tenants: `cluster`,
    `job`."""
    hosts = members["host"].cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()
    labels, rows = np.unique(members["cluster"].to_numpy(), return_inverse=True)
    neighbours = grouping.merge_by_jaccard(rows, hosts, settings.host_similarity)
    ends = {cluster: group for (cluster,), group in steps.group_by("cluster", maintain_order=True)}
    jobs = np.empty(len(labels), dtype=np.int64)
    tenants: dict[int, list[int]] = {}
    by_evidence = sorted(range(len(labels)), key=lambda i: (-len(ends.get(labels[i], ())), i))
    for cluster in by_evidence:
        known = tenants.setdefault(int(neighbours[cluster]), [])
        own = ends.get(labels[cluster])
        match = next((t for t in known if not _drift_apart(own, ends.get(labels[t]), settings)), None)
        if match is None:
            known.append(cluster)
        jobs[cluster] = cluster if match is None else match
    return pl.DataFrame({"cluster": labels, "job": labels[jobs]})


def _drift_apart(left: pl.DataFrame | None, right: pl.DataFrame | None, settings: RecognitionSettings) -> bool:
    """Whether two series of steps are of two jobs: their ends do not keep their distance, nor do they share their
    jitter.

    Both must be so. A ring that a fault makes slow changes its distance once, but goes on waiting for the same slow
    steps.
    """
    if left is None or right is None or min(left.height, right.height) < 4:  # two differences say nothing about a drift
        return False
    a, b = (np.sort(side["end_ns"].to_numpy()) for side in (left, right))
    after = np.clip(np.searchsorted(b, a), 1, b.size - 1)
    near = np.where(np.abs(b[after] - a) <= np.abs(b[after - 1] - a), b[after], b[after - 1])
    # Distances are phases: just under half a period ahead and just over it are neighbours.
    turn = np.exp(2j * np.pi * (near - a) / float(left["period_ns"][0]))
    spread = np.abs(np.angle(turn * np.exp(-1j * np.angle(turn.mean())))) / (2 * np.pi)
    own, other = np.diff(a).astype(np.float64), np.diff(near).astype(np.float64)
    jitter = _deviation(own) + _deviation(other)
    apart = float(np.median(np.abs(own - other)))  # from 0, not from its own middle: one job's steps last equally long
    return bool(np.median(spread) > settings.phase_tolerance and apart > settings.own_jitter * jitter)


def _deviation(values: np.ndarray) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def tables(
    members: pl.DataFrame, training: pl.Series, linking: pl.DataFrame, window: Window
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Name the jobs and return `jobs` and `job_members`.

    Parameters
    ----------
    members : `addr`, `host`, `job` (a number)
    training : the jobs that train; all others are `other`
    linking : the flows, look-back included, by which a job is followed into the past
    """
    names = _names({job: set(part["addr"]) for (job,), part in members.group_by("job")}, linking, window)
    named = members.with_columns(
        window_start_ns=pl.lit(window.start_ns),
        job_id=pl.col("job").replace_strict(names, return_dtype=pl.String),
        training=pl.col("job").is_in(training.unique().implode()),
    )
    jobs = named.group_by("window_start_ns", "job_id").agg(
        kind=pl.when(pl.col("training").first()).then(pl.lit("training")).otherwise(pl.lit("other")),
        endpoints=pl.len(),
        hosts=pl.col("host").n_unique(),
        tp=pl.lit(None),
        pp=pl.lit(None),
        dp=pl.lit(None),
        confidence=pl.when(pl.col("training").first()).then(1.0).otherwise(UNSURE),
    )
    return frames.conform(jobs, "jobs"), frames.conform(named, "job_members")


def _names(jobs: Mapping[object, set[str]], linking: pl.DataFrame, window: Window) -> dict[object, str]:
    """Name each job after one of its members as far back as the look-back follows it, the largest job first.

    Jobs that were one (halves of a job, or two that once exchanged bulk data) cannot both have its name: the smaller is
    named after a member it has now.
    """
    names: dict[object, str] = {}
    for job, addrs in sorted(jobs.items(), key=lambda item: (-len(item[1]), _anchors(item[1]))):
        origin, together = _origin(addrs, linking, window), ",".join(sorted(addrs))
        candidates = [_anchors(origin)[0], *_anchors(addrs), *_anchors([together])]
        names[job] = next(name for name in candidates if name not in names.values())
    return names


def _anchors(addrs: Iterable[str]) -> list[str]:
    return sorted(f"job-{hashlib.sha256(addr.encode()).hexdigest()[:8]}" for addr in addrs)


def _origin(members: set[str], bulk: pl.DataFrame, window: Window) -> set[str]:
    """Return who a job's members were, as far back as the look-back follows it.

    Going back a window at a time, the job is what its members were linked to, as long as at least half of the members
    stay. Its name comes from the earliest members, so it outlives the replacement of others. It is a
    function of flows alone: whoever runs which window first, the name is the same.
    """
    start = window.start_ns
    earliest = int(bulk["window_start_ns"].min())  # type: ignore[arg-type]
    while start > earliest:
        start -= window.length_ns
        links = bulk.filter(pl.col("window_start_ns") == start).select(rhythm.PAIR).unique()
        before = _linked(links, members)
        if not before:
            continue
        if 2 * len(before & members) < max(len(before), len(members)):
            break
        members = before
    return members


def _linked(links: pl.DataFrame, members: set[str]) -> set[str]:
    """Return the NICs that are linked with any of the members, these included."""
    addrs = pl.concat([links["src_addr"], links["dst_addr"].alias("src_addr")]).unique().sort()
    if addrs.is_empty():
        return set()
    code = pl.Enum(addrs)
    left, right = (links[end].cast(code).to_physical().cast(pl.Int64).to_numpy() for end in rhythm.PAIR)
    table = pl.DataFrame({"addr": addrs, "label": grouping.connected_components(left, right, addrs.len())})
    touched = table.filter(pl.col("addr").is_in(list(members)))["label"].unique()
    return set(table.filter(pl.col("label").is_in(touched.implode()))["addr"].to_list())
