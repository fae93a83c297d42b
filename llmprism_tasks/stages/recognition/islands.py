"""Islands: groups of hosts that exchange no data with other hosts, and which of them work in unison.

A job's network traffic joins all its hosts, unless some of what it exchanges stays inside racks, over NVLink: then each
place of the racks is an island of its own in the network. As the GPUs of a rack wait for each other many times in a
step, all islands of the job begin to send at the same moments, within milliseconds. Jobs that share nothing do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS
from llmprism_tasks.numerics import graphs
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Integers
from llmprism_tasks.settings import Settings, TrafficSettings
from llmprism_tasks.stages.recognition.kernels import coincidence
from llmprism_tasks.stages.recognition.one_job import LEAST_MOMENTS
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.index import TrafficIndex
from llmprism_tasks.stages.traffic.kernels import pair_sums

Numbers = npt.NDArray[np.int32]

NO_ISLAND = -1
"""In the place of an island's number, for pairs that are in none."""


class Islands(NamedTuple):
    """Islands, by pairs of NICs.

    Attributes
    ----------
    of_pairs : the number of each pair's island; `NO_ISLAND` for pairs in none
    inside : whether both ends of each pair are known NICs
    """

    of_pairs: Integers
    inside: Flags


def hosts_in_unison(traffic: TrafficIndex, topology: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return the hosts of islands that work in unison with other islands: `host`, `unison` (a number).

    Parameters
    ----------
    traffic : all flows, look-back included
    topology : `addr`, `host`
    """
    number = traffic.flows["pair"].to_numpy()
    alone = islands(traffic.pairs, number, traffic.flows["bytes"].to_numpy(), topology, settings.traffic)
    joined = in_unison(alone, number, traffic.flows, settings)
    both = traffic.pairs.select(*nic_pairs.PAIR, alone=pl.Series(alone.of_pairs), unison=pl.Series(joined))
    return (
        pl.concat([both.select("alone", "unison", addr=end) for end in nic_pairs.PAIR])
        .filter(pl.col("alone") != NO_ISLAND, pl.col("alone").n_unique().over("unison") > 1)
        .join(topology, on="addr")
        .select("host", "unison")
        .unique()
        .sort("host")
    )


def islands(
    pairs: pl.DataFrame, number: Numbers, sizes: Integers, topology: pl.DataFrame, settings: TrafficSettings
) -> Islands:
    """Group hosts that exchange data.

    Small messages between hosts that exchange nothing else are control traffic, which no stage uses.

    Parameters
    ----------
    pairs : `src_addr`, `dst_addr`
    number, sizes : of each flow, the place of its pair and its bytes
    topology : `addr`, `host`
    """
    _, largest = pair_sums.of_groups(number, pairs.height, sizes)
    source, target, hosts = _hosts(pairs, topology)
    inside = (source >= 0) & (target >= 0)
    linked = (largest > settings.control_bytes) & inside
    # The last label is found at index -1, which stands for no host.
    labels = np.append(graphs.connected_components(source[linked], target[linked], hosts), NO_ISLAND)
    apart = inside & (labels[source] != labels[target])
    return Islands(np.where(apart, NO_ISLAND, np.maximum(labels[source], labels[target])), inside)


def in_unison(alone: Islands, number: Numbers, flows: pl.DataFrame, settings: Settings) -> Integers:
    """Return the islands of pairs anew: those that work in unison have the number of one of them.

    Of each of two islands, most of the moments at which it begins to send are moments of the other's, far more than
    chance explains. What follows a pair's transfer at once begins nothing: collectors cut records at the same times
    for all.

    Parameters
    ----------
    alone : as `islands` returns
    number : of each flow, the place of its pair
    flows : `flow_start_ns`, `flow_end_ns`, `bytes`; starts ascend in each pair
    """
    island = alone.of_pairs
    numbers, place = np.unique(island[island != NO_ISLAND], return_inverse=True)
    if numbers.size < 2:
        return island
    places = np.full(island.size, NO_ISLAND)
    places[island != NO_ISLAND] = place
    of_job = np.where(alone.inside, places, NO_ISLAND)
    slot_ns = max(1, int(settings.recognition.phase_tolerance_ms * NANOSECONDS_PER_MS))
    starts, ends, sizes = (flows[name].to_numpy() for name in nic_pairs.TIMES)
    begun = coincidence.begins(of_job, number, starts, ends, sizes, settings.traffic.control_bytes, slot_ns)
    if not begun.any():
        return island
    slots = starts[begun] // slot_ns
    together = _coincide(places[number[begun]], slots - slots.min(), settings.recognition.least_together)
    left, right = np.nonzero(together)
    joined = np.append(numbers[graphs.connected_components(left, right, numbers.size)], NO_ISLAND)
    found: Integers = joined[places]
    return found


def _coincide(island: Integers, slot: Integers, least_together: float) -> Flags:
    """Return which islands coincide with which others, shape (islands, islands).

    Parameters
    ----------
    island, slot : of each of their moments; slots are counted from the first
    least_together : of the moments that do not coincide by chance
    """
    moments = np.zeros((island.max() + 1, slot.max() + 3), bool)
    moments[island, slot + 1] = True
    near = moments.copy()
    near[:, 1:] |= moments[:, :-1]
    near[:, :-1] |= moments[:, 1:]
    total, spans = moments.sum(axis=1), near.shape[1] - near.argmax(axis=1) - near[:, ::-1].argmax(axis=1)
    chance = near.sum(axis=1) / spans
    bits, near_bits = np.packbits(moments, axis=1), np.packbits(near, axis=1)
    coincide = np.zeros((total.size, total.size), bool)
    for one in np.flatnonzero((total >= LEAST_MOMENTS) & (chance <= MAJORITY)):
        met = np.bitwise_count(bits & near_bits[one]).sum(axis=1, dtype=np.int64)
        coincide[:, one] = met >= (chance[one] + least_together * (1 - chance[one])) * total
    return coincide & coincide.T


def _hosts(pairs: pl.DataFrame, topology: pl.DataFrame) -> tuple[Integers, Integers, int]:
    """Return the number of the host at each end of pairs, negative if there is none, and how many hosts there are."""
    hosts = topology.select("addr", host=pl.col("host").rank("dense").cast(pl.Int64) - 1)
    source, target = (
        pairs.join(hosts, left_on=end, right_on="addr", how="left", maintain_order="left")["host"]
        .fill_null(NO_ISLAND)
        .to_numpy()
        for end in nic_pairs.PAIR
    )
    return source, target, topology["host"].n_unique()
