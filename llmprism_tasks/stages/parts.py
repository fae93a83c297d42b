"""Parts: flows of hosts that exchange no data with others can be looked at by themselves, in a process each.

Jobs share nothing but the fabric, unless they share hosts. So a platform falls into as many parts as it has tenants
that keep to themselves, and what the stages find in one part is what they find in it among all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.contract.frames import Part
from llmprism_tasks.methods.elsewhere import Latest, latest_of_two
from llmprism_tasks.numerics import grouped_sort
from llmprism_tasks.numerics.graphs import connected_components
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.settings import TrafficSettings
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.kernels import pair_sums

RESOLUTION_NS = 1_000_000
"""What others send is known by the last start in each millisecond: silences are compared with steps, a thousand times
as long."""

NOWHERE = -1
"""In the place of the site of what is in no part."""

Numbers = npt.NDArray[np.int32]


class Parts(NamedTuple):
    """A platform in parts, the one with most flows first.

    Attributes
    ----------
    flows : all
    outside : of these, those with an end that is not in the topology
    number : how many parts there are
    places, offsets : the rows of part i are `places[offsets[i] : offsets[i + 1]]`
    latest : when each part, and what is in none, was last seen
    nics : `addr` and `part` of those in the topology
    tables : rows of tables that know jobs, `job_members` among them; none, or those to be dealt to the parts
    """

    flows: pl.DataFrame
    outside: pl.DataFrame
    number: int
    places: Numbers
    offsets: Integers
    latest: Latest
    nics: pl.DataFrame
    tables: Mapping[str, pl.DataFrame] = MappingProxyType({})

    def part(self, number: int) -> Part:
        """Return one of the parts, with what tables say of its jobs."""
        rows = self.places[self.offsets[number] : self.offsets[number + 1]]
        elsewhere = pl.DataFrame({"flow_start_ns": self.latest.of_others(number)})
        if not self.tables:
            return Part(self.flows[rows], elsewhere)
        mine = self.tables["job_members"].join(self.nics.filter(part=number), on="addr", how="semi")
        of_mine = pl.col("job_id").is_in(mine["job_id"].unique().implode())
        return Part(self.flows[rows], elsewhere, {name: table.filter(of_mine) for name, table in self.tables.items()})


def parts(flows: pl.DataFrame, topology: pl.DataFrame, settings: TrafficSettings, *, most: int) -> Parts:
    """Divide flows into parts with about as many flows each.

    Parameters
    ----------
    flows : the window's flows and those of its look-back
    topology : `addr`, `host`; flows with neither end in it are in no part, only elsewhere
    most : parts at most; fewer where hosts cannot be parted
    """
    pair, pairs = nic_pairs.pairs_met(flows)
    source, target, hosts = _hosts(pairs, topology)
    sent, largest = pair_sums.of_groups(pair, pairs.height, flows["bytes"].to_numpy())
    site = _sites(source, target, hosts, largest > settings.control_bytes)
    part_of_pair, number = _dealt(site, sent, most)
    part = grouped_sort.taken(part_of_pair, pair)
    places, offsets = grouped_sort.collected_narrow(part, number + 1)
    outside = np.flatnonzero(grouped_sort.taken((source < 0) | (target < 0), pair))
    latest = latest_of_two(flows["flow_start_ns"].to_numpy(), part, RESOLUTION_NS)
    ends = pl.concat([pairs.select(addr=end, part=pl.Series(part_of_pair)) for end in nic_pairs.PAIR])
    nics = ends.filter(pl.col("part") < number).unique("addr")
    return Parts(flows, flows[outside], number, places, offsets, latest, nics.join(topology, on="addr", how="semi"))


def batches(jobs: pl.DataFrame, job_members: pl.DataFrame, most: int) -> list[list[str]]:
    """Deal jobs into so many batches at most, none of them empty, with about as many endpoints in each.

    Jobs that share hosts stay together: what a host's silent NICs are to one depends on whose the others are. The
    largest are dealt first, each to the batch with the fewest endpoints, for a job's share of the flows is taken to be
    its share of the endpoints.

    Parameters
    ----------
    jobs, job_members : `job_id`, `endpoints`; `job_id`, `host`
    """
    numbered = job_members.select(pl.col("job_id", "host").rank("dense").cast(pl.Int64) - 1, name="job_id").unique()
    job, host = numbered["job_id"].to_numpy(), numbered["host"].to_numpy()
    count = job.max(initial=-1) + 1
    labels = connected_components(job, count + host, count + host.max(initial=-1) + 1)
    together = numbered.select(job_id="name", group=pl.Series(labels[job])).unique()
    groups = (
        jobs.sort("endpoints", "job_id", descending=[True, False])
        .join(together, on="job_id", maintain_order="left")
        .group_by("group", maintain_order=True)
        .agg("job_id", pl.col("endpoints").sum())
        .sort("endpoints", descending=True, maintain_order=True)
    )
    dealt: list[list[str]] = [[] for _ in range(min(most, groups.height))]
    endpoints = [0] * len(dealt)
    for job_ids, members in groups.select("job_id", "endpoints").iter_rows():
        lightest = endpoints.index(min(endpoints))
        dealt[lightest] += job_ids
        endpoints[lightest] += members
    return dealt


def _hosts(pairs: pl.DataFrame, topology: pl.DataFrame) -> tuple[Integers, Integers, int]:
    """Return the number of the host at each end of pairs, `NOWHERE` for none, and how many hosts there are."""
    hosts = topology.select("addr", host=pl.col("host").rank("dense").cast(pl.Int64) - 1)
    source, target = (
        pairs.join(hosts, left_on=end, right_on="addr", how="left", maintain_order="left")["host"]
        .fill_null(NOWHERE)
        .to_numpy()
        for end in nic_pairs.PAIR
    )
    return source, target, topology["host"].n_unique()


def _sites(source: Integers, target: Integers, hosts: int, data: npt.NDArray[np.bool_]) -> Integers:
    """Return a number for each pair, the same for those of hosts that exchange data; `NOWHERE` for what is in no part.

    Small messages between hosts that exchange nothing else are chatter, of which no stage makes anything.
    """
    linked = data & (source >= 0) & (target >= 0)
    labels = np.append(connected_components(source[linked], target[linked], hosts), NOWHERE)  # the last is no host's
    apart = (source >= 0) & (target >= 0) & (labels[source] != labels[target])
    return np.where(apart, NOWHERE, np.maximum(labels[source], labels[target]))


def _dealt(site: Integers, flows: Integers, most: int) -> tuple[Numbers, int]:
    """Deal sites to parts, the largest first, each to the part with the fewest flows.

    Parameters
    ----------
    site, flows : of each pair

    Returns
    -------
    the part of each pair, and how many parts there are; what has no site has that number
    """
    sites, at = np.unique(site, return_inverse=True)
    counts = np.bincount(at, weights=flows).astype(np.int64)
    known = np.flatnonzero(sites != NOWHERE)
    number = min(most, known.size)
    held, dealt = np.zeros(number, np.int64), np.full(sites.size, number)
    for one in known[np.argsort(-counts[known], kind="stable")]:
        dealt[one] = held.argmin()
        held[dealt[one]] += counts[one]
    rank = np.empty(number + 1, np.int32)
    rank[np.append(np.argsort(-held, kind="stable"), number)] = np.arange(number + 1)
    return rank[dealt][at], number
