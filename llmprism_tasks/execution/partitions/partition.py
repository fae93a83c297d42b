"""Divide a platform into partitions: groups of hosts that exchange no data with the hosts of any other group, and do
not work in unison with them either.

Jobs share nothing but the fabric, unless they share hosts. So a platform has as many independent groups as it has
tenants that keep to themselves, and the stages find the same in a partition alone as in the whole platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.numerics import grouped_sort
from llmprism_tasks.numerics.asof import BEFORE_ALL
from llmprism_tasks.numerics.graphs import connected_components
from llmprism_tasks.numerics.grouped_sort import Groups
from llmprism_tasks.numerics.jit import INT32S, INT64, INT64S, kernel
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.recognition.islands import NO_ISLAND, in_unison, islands
from llmprism_tasks.stages.traffic import nic_pairs

RESOLUTION_NS = 1_000_000
"""Of other partitions' flows, a partition knows the last start in each millisecond: they are compared with silences of
whole training steps, which are a thousand times as long."""

Numbers = npt.NDArray[np.int32]


class Partition(NamedTuple):
    """The flows of some of a platform's hosts, and what is known of their jobs.

    Attributes
    ----------
    flows : those from or to a NIC of these hosts, in the order of the flows table
    other_starts : `flow_start_ns` of flows outside the partition, the last of each millisecond, ascending; None if this
        is the whole platform
    tables : rows of contract tables, of the partition's jobs
    """

    flows: pl.DataFrame
    other_starts: pl.DataFrame | None = None
    tables: Mapping[str, pl.DataFrame] = MappingProxyType({})


class LatestStarts(NamedTuple):
    """The latest time in each slot of time, and the latest there of any other group; `BEFORE_ALL` if there is none.

    Attributes
    ----------
    times, second : shape (slots,), of the group that was last, and of all other groups
    group : shape (slots,), the group that was last
    """

    times: Integers
    second: Integers
    group: Integers

    def of_others(self, group: int) -> Integers:
        """Return the latest time of all other groups in each slot in which there is one, ascending."""
        times: Integers = np.where(self.group == group, self.second, self.times)
        seen: Integers = times[times != BEFORE_ALL]
        return seen


class Partitions(NamedTuple):
    """A platform divided into partitions, the one with most flows first.

    Attributes
    ----------
    flows : all flows
    outside : those of them with an end that is not in the topology
    n_partitions : how many partitions there are
    rows, offsets : the flows of partition i are the rows `rows[offsets[i] : offsets[i + 1]]`
    latest : the last starts in each millisecond, of each partition and of what is in none
    nics : `addr` and `partition` of the NICs in the topology
    """

    flows: pl.DataFrame
    outside: pl.DataFrame
    n_partitions: int
    rows: Numbers
    offsets: Integers
    latest: LatestStarts
    nics: pl.DataFrame

    def partition(self, number: int) -> Partition:
        """Return a partition."""
        rows = self.rows[self.offsets[number] : self.offsets[number + 1]]
        other_starts = pl.DataFrame({"flow_start_ns": self.latest.of_others(number)})
        return Partition(self.flows[rows], other_starts)


def tables_of(nics: pl.DataFrame, number: int, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Return the rows of tables that belong to the jobs of a partition.

    Parameters
    ----------
    nics : `addr` and `partition`, as `Partitions` has them
    tables : tables with a column `job_id`, `job_members` among them
    """
    jobs = tables["job_members"].join(nics.filter(partition=number), on="addr", how="semi")["job_id"].unique()
    return {name: table.filter(pl.col("job_id").is_in(jobs.implode())) for name, table in tables.items()}


def divide_platform(flows: pl.DataFrame, topology: pl.DataFrame, settings: Settings, *, most: int) -> Partitions:
    """Divide flows into partitions with about as many flows each.

    Parameters
    ----------
    flows : the window's flows and those of its look-back
    topology : `addr`, `host`; flows with neither end in it are in no partition
    most : partitions at most; fewer where the hosts cannot be separated
    """
    pair, pairs = nic_pairs.pairs_met(flows)
    alone = islands(pairs, pair, flows["bytes"].to_numpy(), topology, settings.traffic)
    sent = np.bincount(pair, minlength=pairs.height)
    partition_of_pair, count = _packed(in_unison(alone, pair, flows, settings), sent, most)
    partition = grouped_sort.taken(partition_of_pair, pair)
    rows, offsets = grouped_sort.collected_narrow(partition, count + 1)
    outside = np.flatnonzero(grouped_sort.taken(~alone.inside, pair))
    latest = latest_starts(flows["flow_start_ns"].to_numpy(), partition, RESOLUTION_NS)
    ends = pl.concat([pairs.select(addr=end, partition=pl.Series(partition_of_pair)) for end in nic_pairs.PAIR])
    nics = ends.filter(pl.col("partition") < count).unique("addr").join(topology, on="addr", how="semi")
    return Partitions(flows, flows[outside], count, rows, offsets, latest, nics)


def job_batches(jobs: pl.DataFrame, job_members: pl.DataFrame, most: int) -> list[list[str]]:
    """Pack jobs into at most `most` batches, none of them empty, with about as many endpoints in each.

    Jobs that share hosts stay together: how a host's silent NICs are counted for one job depends on which job the
    others belong to. The largest are packed first, each into the batch with the fewest endpoints so far, for a job's
    share of the flows is taken to be its share of the endpoints.

    Parameters
    ----------
    jobs, job_members : `job_id`, `endpoints`; `job_id`, `host`

    Returns
    -------
    the `job_id`s of each batch
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


def _packed(group: Integers, flows: Integers, most: int) -> tuple[Numbers, int]:
    """Pack groups into partitions, the largest group first, each into the partition with the fewest flows so far.

    Parameters
    ----------
    group, flows : of each pair

    Returns
    -------
    the partition of each pair, and how many partitions there are; that number also stands for "in none"
    """
    groups, at = np.unique(group, return_inverse=True)
    counts = np.bincount(at, weights=flows).astype(np.int64)
    known = np.flatnonzero(groups != NO_ISLAND)
    number = min(most, known.size)
    size, packed = np.zeros(number, np.int64), np.full(groups.size, number)
    for one in known[np.argsort(-counts[known], kind="stable")]:
        packed[one] = size.argmin()
        size[packed[one]] += counts[one]
    rank = np.empty(number + 1, np.int32)
    rank[np.append(np.argsort(-size, kind="stable"), number)] = np.arange(number + 1)
    return rank[packed][at], number


def latest_starts(times: Integers, groups: Groups, slot: int) -> LatestStarts:
    """Find the latest times of each slot, of two different groups.

    Parameters
    ----------
    times : shape (n,), any unit
    groups : shape (n,), 0 or more
    slot : length of a slot in the same unit; slots begin at its multiples
    """
    if not times.size:
        return LatestStarts(*(np.empty(0, np.int64) for _ in range(3)))
    first = int(times.min()) // slot
    return LatestStarts(*_latest_starts(times, groups, first * slot, slot, int(times.max()) // slot - first + 1))


@kernel(INT64S, INT32S, INT64, INT64, INT64)
def _latest_starts(
    times: Integers, groups: Groups, begin: int, slot: int, slots: int
) -> tuple[Integers, Integers, Integers]:
    latest, second, group = np.full(slots, BEFORE_ALL), np.full(slots, BEFORE_ALL), np.full(slots, -1)
    place, next_slot = 0, begin  # of the previous time, as most are in the same slot
    for i in range(times.size):
        if not next_slot - slot <= times[i] < next_slot:
            place = (times[i] - begin) // slot
            next_slot = begin + (place + 1) * slot
        if groups[i] == group[place]:
            latest[place] = max(latest[place], times[i])
        elif times[i] > latest[place]:
            latest[place], second[place], group[place] = times[i], latest[place], groups[i]
        else:
            second[place] = max(second[place], times[i])
    return latest, second, group
