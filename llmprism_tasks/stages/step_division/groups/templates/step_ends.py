"""Where a step ends: after which silence of a group the bytes of the next step come latest.

Every step moves the same bytes, so whoever knows how many they are may begin to count them anywhere: in the forward
pass, between two layers, or at the optimizer. But what the forward pass sends comes again soon after a step has ended,
while gradients come at the end of the next one: a NIC has just sent what it will send last. So of all silences, the
ones between steps are those after which the bytes of a step come latest, on the mean; on whichever of a sender's pairs
they come latest, for sharded parameters are gathered over other pairs than gradients are reduced over.

Where parameters of few layers are sharded, all gathers of a step may be over before its first reduction begins. Then
both come about as late, wherever one begins to count. But between the gathers and the reductions lie a forward and a
backward pass of the last layers, and between the reductions and the next gathers only the optimizer of a share of the
parameters. So the step ends at the shorter of these two silences. Gathers and reductions are told apart where they go
over different pairs, as those of Gloo go around a ring in opposite directions.

Where parameters are sharded inside groups of hosts (HSDP), gradients have pairs of their own: those among the groups,
which pause once in each step, beside shards that are gathered throughout it. Then the bytes of these alone are waited
for, few as they are.

Pipelines are not asked: their stages end a step one after another, and activations and gradients mirror each other.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, Integers
from llmprism_tasks.stages.step_division.groups.balance import MAIN_LINK_BYTES
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic, moved_before
from llmprism_tasks.stages.step_division.groups.templates.levels import NEARLY_ALL

MOVED_ENDS_LATENESS = 0.05
"""Logarithm of the time by which the bytes of a step must come later after other ends for those that were found to be
moved. In the two captures that were looked at (a ring of context, sharded parameters) silences inside a step are 0.06
to 0.5 below the one between steps, the one beside it 0.03. Where the ends are right, moving them only loses steps where
windows meet."""


def waits(
    records: tuple[Integers, Integers, Integers], sender: Integers, at: Integers, since_ns: Integers, steps: float
) -> Floats:
    """Return how long the bytes of a step are waited for, from some moments on: the mean of the logarithm over senders,
    each by that of its main pairs whose bytes come latest. Where most of them are still to come as the data end, nobody
    knows, and it is the median of the others.

    Parameters
    ----------
    records : the pair of each record, from 0; when it starts, ns, ascending; and its bytes
    sender : shape (pairs,), from 0
    at, since_ns : shape (moments,): the record that begins after each moment, and the moment
    steps : how many steps all records are
    """
    pair, starts, sizes = records
    each = moved_before(pair, sizes, at, sender.size)
    in_all = np.bincount(pair, sizes, sender.size)
    order = np.argsort(pair, kind="stable")
    bytes_, times = sizes[order].astype(np.float64), (starts[order] - starts[0]).astype(np.float64)
    moved, moment = (np.append(0.0, np.cumsum(one)) for one in (bytes_, bytes_ * times))
    first = np.append(0.0, np.cumsum(in_all))[:-1]  # of each pair, among the bytes of all pairs one after another
    step = in_all / steps
    low = first + each
    high = np.minimum(low + step, first + in_all)
    typical = (np.interp(high, moved, moment) - np.interp(low, moved, moment)) / np.maximum(high - low, 1.0)
    wait = typical - (since_ns - starts[0])[:, np.newaxis]
    largest = np.zeros(int(sender.max()) + 1)
    np.maximum.at(largest, sender, in_all)
    told = (in_all >= MAIN_LINK_BYTES * largest[sender]) & (high - low >= MAJORITY * step)
    latest = np.zeros((largest.size, at.size))
    np.maximum.at(latest, sender, np.where(told, np.maximum(wait, 1.0), 0.0).T)
    known = latest > 0
    longest: Floats = np.log(latest, out=np.zeros_like(latest), where=known).sum(axis=0) / np.maximum(
        known.sum(axis=0), 1
    )
    seen = known.mean(axis=0) >= MAJORITY
    longest[~seen] = np.median(longest[seen]) if seen.any() else 0.0
    return longest


def after_reductions(traffic: Traffic, silences: Silences, ends: Integers) -> Integers | None:
    """Return the silences between the reductions of a step and the gathers of the next: shape (changes,), of
    `silences`; None where steps do not send first over some pairs and then over others, where neither of the two is in
    layers or a silence between them takes most of a step, or where neither silence is shorter in nearly all steps.

    Parameters
    ----------
    silences : of the group, at which it may be cut
    ends : when the steps ended that were found, ns
    """
    turned = _over_other_pairs(traffic, silences)
    if turned is None:
        return None
    changes = np.flatnonzero(np.diff(turned.astype(np.int64)))
    if not NEARLY_ALL <= changes.size / (2 * ends.size) <= 1 / NEARLY_ALL:
        return None
    # Else these are parts of one burst, as two rings of gradients are, and both passes lie before it. Of few layers the
    # gathers may have a silence between them, and the reductions none.
    several = np.diff(changes) > 1
    in_layers = max(several[::2].mean(), several[1::2].mean())
    at = silences.at[changes]
    longest_ns = np.maximum(*(traffic.starts[at] - traffic.latest[at - 1])[: changes.size // 2 * 2].reshape(-1, 2).T)
    if in_layers < NEARLY_ALL or np.median(longest_ns) >= MAJORITY * np.median(np.diff(ends)):
        return None
    lengths, forth = silences.length[changes], turned[changes + 1]
    shorter = (lengths[1:] < lengths[:-1]) == forth[1:]
    if shorter.mean() >= NEARLY_ALL:
        return changes[forth]
    return changes[~forth] if shorter.mean() <= 1 - NEARLY_ALL else None


def _over_other_pairs(traffic: Traffic, silences: Silences) -> Flags | None:
    """Return whether what is sent between two silences goes over other pairs than most does: shape (silences + 1,);
    None where no two rings take turns.
    """
    pairs = int(traffic.pair.max()) + 1
    places = np.concatenate([[0], silences.at, [traffic.pair.size]])
    sections = np.diff(moved_before(traffic.pair, traffic.sizes, places, pairs), axis=0)
    direction = _directions(sections)
    like = direction @ direction[np.linalg.norm(sections, axis=1).argmax()] >= MAJORITY
    if like.all():
        return None
    one, other = _directions(np.stack([sections[like].sum(axis=0), sections[~like].sum(axis=0)]))
    if one @ other >= MAJORITY or not (_go_around(one, traffic) and _go_around(other, traffic)):
        return None
    turned: Flags = direction @ other > direction @ one
    return turned


def _go_around(sent: Floats, traffic: Traffic) -> bool:
    """Return whether each sender has one receiver, as in a ring; who exchanges tokens has several.

    Parameters
    ----------
    sent : shape (pairs,)
    """
    sender = traffic.senders
    largest = np.zeros(int(sender.max()) + 1)
    np.maximum.at(largest, sender, sent)
    return bool((largest >= NEARLY_ALL * np.bincount(sender, sent)).all())


def _directions(bytes_: Floats) -> Floats:
    """Return rows of bytes of pairs, each of length 1."""
    directions: Floats = bytes_ / np.linalg.norm(bytes_, axis=1, keepdims=True)
    return directions
