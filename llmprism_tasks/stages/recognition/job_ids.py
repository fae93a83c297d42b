"""Identity: what a job is called, so that it keeps its name while its members change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic.clusters import connected_nics


def names(jobs: Mapping[object, set[str]], linking: pl.DataFrame, window: Window) -> dict[object, str]:
    """Name each job after one of its members as far back as the look-back follows it, the largest job first.

    Jobs that were one (halves of a job) cannot both have its name: the smaller is named after a member it has now.

    Parameters
    ----------
    jobs : the NICs of each
    linking : `src_addr`, `dst_addr`, `window_start_ns` of the pairs that link NICs, for each window in which they sent
    """
    past = _past_clusters(linking.select("window_start_ns", *PAIR).unique(), window)
    chosen: dict[object, str] = {}
    anchors = {job: _names_from_addresses(addrs) for job, addrs in jobs.items()}
    for job, addrs in sorted(jobs.items(), key=lambda item: (-len(item[1]), anchors[item[0]])):
        origin, together = _original_members(addrs, past), ",".join(sorted(addrs))
        first = anchors[job][0] if origin == addrs else _names_from_addresses(origin)[0]
        candidates = [first, *anchors[job], *_names_from_addresses([together])]
        chosen[job] = next(name for name in candidates if name not in chosen.values())
    return chosen


def _names_from_addresses(addrs: Iterable[str]) -> list[str]:
    return sorted(f"job-{hashlib.sha256(addr.encode()).hexdigest()[:8]}" for addr in addrs)


def _past_clusters(links: pl.DataFrame, window: Window) -> list[pl.DataFrame]:
    """Return the clusters of each window before this one, the latest first: `addr`, `cluster`."""
    before = links.filter(pl.col("window_start_ns") < window.start_ns).sort("window_start_ns", descending=True)
    return [connected_nics(part, part) for _, part in before.group_by("window_start_ns", maintain_order=True)]


def _original_members(members: set[str], past: list[pl.DataFrame]) -> set[str]:
    """Return who a job's members were, as far back as the look-back follows it.

    Going back a window at a time, the job is what its members were linked to, as long as at least half of the members
    stay. Its name comes from the earliest members, so it outlives the replacement of others. It is a function of flows
    alone: whoever runs which window first, the name is the same.
    """
    for clusters in past:
        touched = clusters.filter(pl.col("addr").is_in(list(members)))["cluster"].unique()
        before = set(clusters.filter(pl.col("cluster").is_in(touched.implode()))["addr"])
        if not before:
            continue
        if 2 * len(before & members) < max(len(before), len(members)):
            break
        members = before
    return members
