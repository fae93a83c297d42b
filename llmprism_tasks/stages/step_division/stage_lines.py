"""Main pairs, and the lines of a pipeline's stages that they make.

The last links of a pipeline are silent while it is drained and filled, in steps of a minute for longer than a restart
takes. Where replicas exchange gradients nothing is; without them only all links together tell pauses from silences of
a pipeline that goes on.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import graphs, ragged
from llmprism_tasks.numerics.robust import Flags, Integers
from llmprism_tasks.stages.step_division.groups.balance import MAIN_LINK_BYTES, STRAY_PART
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.both_ways import both_ways
from llmprism_tasks.stages.traffic.clusters import addresses, numbered_ends


def ends_of_pairs(bulk: pl.DataFrame) -> tuple[Integers, Integers, int]:
    """Return the numbers of each pair's NICs, and how many NICs there are."""
    pairs = nic_pairs.pairs_of(bulk, [*nic_pairs.PAIR])
    nics = addresses(pairs)
    return *numbered_ends(pairs, nics), nics.len()


def main_pairs(bulk: pl.DataFrame) -> Flags:
    """Say which pairs move much of what either of their NICs moves both ways.

    Parameters
    ----------
    bulk : in the order of `nic_pairs.numbered`

    Returns
    -------
    a flag for each pair, in its order
    """
    source, target, _ = ends_of_pairs(bulk)
    moved = ragged.sums(bulk["bytes"].to_numpy(), nic_pairs.starts_of_pairs(bulk))
    much: Flags = moved >= MAIN_LINK_BYTES * both_ways(source, target, moved)
    return much


def silent_together(bulk: pl.DataFrame, since_ns: int) -> Integers:
    """Number the pairs: those of lines alike that sent since a time have one number, each other pair has its own.

    Over the links of a line activations go one way and gradients the other: NICs that merely send to one and the same
    are no line. A pair that has not come back may be another job's, that ended. Where rings join stages, be it one way,
    replicas exchange gradients.

    Ranks of tensor parallelism, and replicas on the same hosts, have a line each. All of these stop in one moment, for
    their optimizers wait for each other, and move the same bytes. Lines of which one restarts, and another goes on, do
    not: one was silent.

    Parameters
    ----------
    bulk : in the order of `nic_pairs.numbered`
    """
    source, target, count = ends_of_pairs(bulk)
    offsets = nic_pairs.starts_of_pairs(bulk)
    main = main_pairs(bulk) & (np.maximum.reduceat(bulk["flow_end_ns"].to_numpy(), offsets[:-1]) >= since_ns)
    jobs, replicated = _with_circles(source[main], target[main], count)
    main[main] = np.isin(source[main] * count + target[main], target[main] * count + source[main])
    groups, _ = _with_circles(source[main], target[main], count)
    apart = int(groups.max(initial=-1)) + 1
    lines = main & ~replicated[jobs[source]]
    moved = np.bincount(groups[source], np.where(lines, ragged.sums(bulk["bytes"].to_numpy(), offsets), 0), apart)
    alike = _alike(np.bincount(groups, minlength=apart), moved)
    _, numbers = np.unique(np.where(lines, alike[groups[source]], apart + np.arange(source.size)), return_inverse=True)
    return numbers


def _with_circles(source: Integers, target: Integers, nics: int) -> tuple[Integers, Flags]:
    """Number the groups that some pairs make of NICs, shape (nics,), and say which of them have circles."""
    _, groups = np.unique(graphs.connected_components(source, target, nics), return_inverse=True)
    return groups, have_circles(source, target, groups, int(groups.max(initial=-1)) + 1)


def have_circles(source: Integers, target: Integers, groups: Integers, count: int) -> Flags:
    """Say which groups have as many links as NICs, or more."""
    links = np.unique(np.stack([np.minimum(source, target), np.maximum(source, target)]), axis=1)[0]
    joined: Flags = np.bincount(groups[links], minlength=count) >= np.bincount(groups, minlength=count)
    return joined


def _alike(nics: Integers, moved: Integers) -> Integers:
    """Number groups by how many NICs they have and what they move: alike are those with as many, next to each other in
    bytes, that differ by no more than what may be missing."""
    order = np.lexsort((moved, nics))
    other = (np.diff(nics[order]) > 0) | (STRAY_PART * np.diff(moved[order]) > moved[order][1:])
    numbers = np.zeros(order.size, np.int64)
    numbers[order[1:]] = np.cumsum(other)
    return numbers
