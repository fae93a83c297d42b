"""What comes back within a step: how parts of a pipeline's steps are told from the steps.

In a step every activation that goes over a link of a pipeline comes back as its gradient. Micro-batches are cut while
others are under way: the first ones of a step fill the pipeline, and go one way; the last ones drain it, and come back.
So where bytes come back later than in the step that they were sent in, these are parts of steps; and where nothing is
under way on any link, a step ends.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import robust
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, Integers

UNRETURNED = 0.015
"""Ratio of the bytes of a group's links in both directions that may come back later than in their step. Of steps of
simulated and captured training it is 0.008 at most, lost and merged records included; of micro-batches that were taken
for steps 0.024 to 0.39, less the more of them a step has."""

OUT_OF_BALANCE = 0.4
"""Ratio of what a link typically moves in a step by which its directions differ where something has not come back: a
message of two. Of a step with more messages one may be lost."""

MAIN_LINK_BYTES = 0.1
"""Ratio of the bytes of the largest link, or pair, around that one must move to count: what is small beside the others,
as chatter and micro-batches beside gradients, ends and pauses when it will."""

STRAY_PART = 100
"""Part of what NICs move that may be missing, go one way, or come before they begin, whatever they do: lost records,
control messages."""

ANSWERED_BYTES = 0.2
"""Ratio of a link's bytes in all that its directions may differ by: of a copy and of a ring that goes around one way
all is one-sided."""

NEARLY_EMPTY = 0.9
"""Ratio of what is missing on all links where a pipeline is empty from which on it is, but for messages that the cuts
are next to. From half of it on, it is being drained or filled."""


ALIKE_BYTES = 0.5
"""Ratio by which what a NIC sends in a step may differ from what it typically does: records are lost, and foreign
traffic is counted with the rest."""


def answers(pairs: pl.DataFrame) -> Integers:
    """Return for each pair the row of the one of its group that goes the other way, counted from the first row of the
    group; -1 without one.

    Parameters
    ----------
    pairs : `group`, `src_addr`, `dst_addr`, those of a group together
    """
    rows = pairs.select("group", "src_addr", "dst_addr", row=pl.int_range(pl.len()).over("group"))
    back = rows.select("group", src_addr="dst_addr", dst_addr="src_addr", back="row")
    found = rows.join(back, on=["group", "src_addr", "dst_addr"], how="left", maintain_order="left")
    return found["back"].fill_null(-1).to_numpy()


def main_pairs(pairs: pl.DataFrame, group: str) -> pl.DataFrame:
    """Return the pairs that send about as much as the largest of their group.

    Parameters
    ----------
    pairs : `bytes`, and a column that names the groups
    group : that column
    """
    return pairs.filter(pl.col("bytes") >= MAIN_LINK_BYTES * pl.col("bytes").max().over(group))


def unreturned(each: Floats, back: Integers, *, one_by_one: bool = False) -> float:
    """Return the ratio of the bytes of links that come back later than in the step that they were sent in.

    What does not come back at all counts, too: of a step that the data hold a part of, nothing does that fills its
    pipeline. But what a pair moves beyond a step's worth, and nobody ever answers, is a copy of files. And where each
    link shows the steps by itself, most of them are out of balance at once in a part of a step, while a collector loses
    or joins a record of one of them.

    Parameters
    ----------
    each : shape (pairs, steps), bytes
    back : as `answers` returns
    one_by_one : whether each link shows the steps by itself, not all of them together
    """
    net, both, typical, beyond = _link_balance(each, back)
    if not both.size:
        return 0.0
    out = np.abs(net) > OUT_OF_BALANCE * typical
    if one_by_one:
        out &= out.sum(axis=0) >= MAJORITY * (both > 0).sum(axis=0)
    late, copied = (np.where(out, one, 0.0).sum(axis=1) for one in (net, beyond))
    copied = np.clip(np.sign(late) * copied, 0.0, np.abs(late))
    return float((np.abs(net)[out].sum() - copied.sum()) / both.sum())


def alike_bytes_ratio(sent: Floats, tolerance: float = ALIKE_BYTES) -> float:
    """Return the ratio of the bytes of senders that are in steps in which they send about what they typically do, all
    senders alike.

    Parameters
    ----------
    sent : shape (senders, steps), bytes
    tolerance : ratio by which these may differ
    """
    alike, in_all = is_alike(sent, tolerance), sent.sum(axis=1)
    return float((np.where(alike, sent, 0.0).sum(axis=1) / np.maximum(in_all, 1.0)).mean())


def is_alike(sent: Floats, tolerance: float = ALIKE_BYTES) -> Flags:
    """Say of each sender in which steps it sends about what it typically does: arguments as of `alike_bytes_ratio`."""
    typical = np.median(sent, axis=1, keepdims=True)
    alike: Flags = np.abs(sent - typical) <= tolerance * typical
    return alike


def ends_of_steps(each: Floats, back: Integers) -> Integers:
    """Return after which parts of steps the pipelines of a group are empty: where most has come back on all links, and
    if it has after several parts, the last of them. Where the data end while a pipeline is drained, it is not empty.

    Parameters
    ----------
    each : shape (pairs, parts), bytes
    back : as `answers` returns
    """
    net, both, typical, _ = _link_balance(each, back)
    if not both.size:
        return np.zeros(0, np.int64)
    under_way = np.cumsum(net, axis=1)
    under_way -= np.median(under_way, axis=1, keepdims=True)
    # Which way is forward nobody knows. But where gradients go over other pairs, the pipeline is emptied before them;
    # and in 1F1B, though not in GPipe, it is full for longer than it is empty.
    others = each[back < 0].sum(axis=0)
    weights = others if others.sum() >= MAIN_LINK_BYTES * both.sum(axis=1).max() else np.ones(each.shape[1])
    missing = np.sign((weights * under_way).sum(axis=1, keepdims=True)) * under_way / typical
    missing = np.maximum(missing, 0.0).sum(axis=0)
    emptying = missing >= MAJORITY * missing.max(initial=0.0)
    begins = np.flatnonzero(np.diff(np.concatenate([[False], emptying, [False]]).astype(np.int8)))
    phases = [(low, missing[low:high]) for low, high in begins.reshape(-1, 2)]
    empty = NEARLY_EMPTY * float(np.median([phase.max() for _, phase in phases]))
    return np.array(
        [
            low + np.flatnonzero(phase >= NEARLY_EMPTY * phase.max())[-1]
            for low, phase in phases
            if phase.max() >= empty
        ],
        np.int64,
    )


def _link_balance(each: Floats, back: Integers) -> tuple[Floats, Floats, Floats, Floats]:
    """Return what goes one way more than the other, and both ways, over each main link whose bytes come back in all;
    what each typically moves where it moves anything, shape (links, 1); and of the first what is beyond a step's worth.
    """
    usual = _typical(each)
    beyond = np.where(each > (1 + ALIKE_BYTES) * usual, each - usual, 0.0)
    one = np.flatnonzero(back > np.arange(back.size))
    net, both, beyond = each[one] - each[back[one]], each[one] + each[back[one]], beyond[one] - beyond[back[one]]
    in_all = both.sum(axis=1)
    kept: Flags = (in_all > 0) & (in_all >= MAIN_LINK_BYTES * in_all.max(initial=0.0))
    kept &= np.abs(net.sum(axis=1)) <= ANSWERED_BYTES * in_all
    return net[kept], both[kept], _typical(both[kept]), beyond[kept]


def _typical(each: Floats) -> Floats:
    """Return what each row typically has where it has anything, shape (rows, 1); NaN where it never has."""
    moved = each > 0
    return robust.medians(each[moved], np.append(0, np.cumsum(moved.sum(axis=1))))[:, np.newaxis]
