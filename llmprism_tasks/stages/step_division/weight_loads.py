"""What goes one way among NICs: in a step of training all that one sends comes back, round rings and along pipelines.

Weights do not: they go from those who have them to those who start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics import graphs
from llmprism_tasks.numerics.robust import Flags, Integers
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.clusters import addresses, numbered_ends

BOTH_WAYS = 100
"""Part of what NICs move that may go one way whatever they do: control messages, or records that were lost."""


@dataclass(frozen=True)
class OneWay:
    """What goes one way in groups of NICs.

    Attributes
    ----------
    bytes : shape (groups, parts): by how much the NICs of a group send more than they get, or less, in each part of
        time; a hundredth of all that they move at least
    groups : shape (rows,): the group of each row that was asked about
    replicated : shape (groups,): whether some of its NICs are joined in a circle: it is no line of stages, but has
        replicas, which weights go to
    """

    bytes: Integers
    groups: Integers
    replicated: Flags


def one_way(bulk: pl.DataFrame, rows: Integers, wanted: Integers, parts: Integers, count: int) -> OneWay:
    """Measure what goes one way among the NICs of some rows, in groups of those that pairs of these rows join.

    Parameters
    ----------
    bulk : bulk flows, as `nic_pairs.in_order` returns
    rows, wanted : the row that each pair counts for, and those that are asked about, in order
    parts, count : the part of time in which each flow begins, and how many there are
    """
    source, target, nics = ends_of_pairs(bulk)
    chosen = np.isin(rows, wanted)
    groups = _groups(source[chosen], target[chosen], np.searchsorted(wanted, rows[chosen]), nics, wanted.size)
    theirs = np.zeros(nics, np.bool_)
    theirs[source[chosen]] = theirs[target[chosen]] = True
    counts = np.diff(nic_pairs.starts_of_pairs(bulk))
    flows = np.repeat(theirs[source] & theirs[target], counts)
    sizes = bulk["bytes"].to_numpy()[flows]
    sent, got = np.zeros((2, nics, count), np.int64)
    for moved, ends in ((sent, source), (got, target)):
        np.add.at(moved, (np.repeat(ends, counts)[flows], parts[flows]), sizes)
    apart, in_all = np.zeros((2, int(groups.max()) + 1, count), np.int64)
    for moved, whole in ((np.abs(sent - got), apart), (sent + got, in_all)):
        np.add.at(whole, groups[:nics], moved)
    replicated = _in_circles(source[chosen], target[chosen], groups[:nics], len(apart))
    return OneWay(np.maximum(apart, in_all // BOTH_WAYS), groups[nics:], replicated)


def ends_of_pairs(bulk: pl.DataFrame) -> tuple[Integers, Integers, int]:
    """Return the numbers of each pair's NICs, and how many NICs there are."""
    pairs = nic_pairs.pairs_of(bulk, [*nic_pairs.PAIR])
    nics = addresses(pairs)
    return *numbered_ends(pairs, nics), nics.len()


def _groups(source: Integers, target: Integers, rows: Integers, nics: int, count: int) -> Integers:
    """Return the group of each NIC, and after them of each row: those that pairs join, and that a row's pairs do."""
    left, right = np.concatenate([source] * 2), np.concatenate([target, nics + rows])
    _, groups = np.unique(graphs.connected_components(left, right, nics + count), return_inverse=True)
    return groups


def _in_circles(source: Integers, target: Integers, groups: Integers, count: int) -> Flags:
    """Say which groups have as many links as NICs, or more."""
    links = np.unique(np.stack([np.minimum(source, target), np.maximum(source, target)]), axis=1)[0]
    joined: Flags = np.bincount(groups[links], minlength=count) >= np.bincount(groups, minlength=count)
    return joined
