"""Roles: what the pairs of a job are together, by the likelihood of the layout that they make.

A layout gives each pair a role, and pairs of one role carry equal bytes in a step: the hops of a ring, the links of two
stages, an exchange of tokens. What a pair does in its steps says what it is, now and then wrongly. So each way to call
a job's roles is tried. It is as likely as its pairs' steps say, times the odds of each misfit: a pair or a NIC that is
not as any layout would have it. The likeliest way is told, and how likely each pair's kind is over all ways.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, THOUSANDFOLD_NATS, Floats, Integers
from llmprism_tasks.stages.parallelism.pair_graph import ENDS
from llmprism_tasks.stages.parallelism.pair_kinds.misfits import (
    CP,
    DP,
    EP,
    KINDS,
    OTHER,
    PP,
    Job,
    Labels,
    closed_ways,
    misfits,
)

MISREAD_ODDS = 0.05
"""Odds that the steps of a pair look like those of another kind, for each kind."""

TOLD_APART = 0.25
"""Likelihood that what goes on through the step is blocks of a ring, over that of what the job as a whole makes it; and
that what does so both ways at the same time is parameters of sharded layers, over that of blocks."""

MISFIT_NATS = 4.0
"""Nats that a pair or a NIC costs which does not fit the layout: one in fifty is lost, relayed or disturbed."""

UNLIKE_ROLE_NATS = 1.5
"""Nats that a pair costs which is called otherwise than most of its role: roles may carry equal bytes by chance, so it
is half of what strong evidence weighs."""

EQUAL_BYTES_NATS = 7.0
"""Nats that it costs to call a role's pairs otherwise between other hosts: tokens and activations were seen to be as
many bytes by chance, but that is as seldom as once in a thousand."""

SAME_ROLE = math.log(1.1)
"""How far apart, as a logarithm, bytes of pairs that are next to each other in size may be within one role."""

MOST_ASSIGNMENTS = 512
"""Ways that are tried of a job at most."""


def likeliest(pairs: pl.DataFrame, job_members: pl.DataFrame, least_presence: float) -> pl.DataFrame:
    """Return pairs with the `kind` that they have in the likeliest layout of their job, and its `posterior`.

    Parameters
    ----------
    pairs : `pair`, `job_id`, `src_addr`, `dst_addr`, what they seem to be by themselves (`kind`), and what their steps
        say, as `classifier.votes` returns it; those present in fewer steps stay what they are, with `posterior` NULL
    job_members : `job_id`, `addr`, `host`
    """
    placed, nics = _number_nics(pairs.filter(pl.col("presence") >= least_presence), job_members)
    told = [
        _kinds_of_job(rows, nics.filter(job_id=job_id))
        for (job_id,), rows in placed.partition_by("job_id", as_dict=True).items()
    ]
    columns = {"likeliest": pl.String, "posterior": pl.Float64}
    nothing = pairs.select("pair", *(pl.lit(None, kind).alias(name) for name, kind in columns.items())).clear()
    found = pl.concat([nothing, *told], how="vertical_relaxed")
    joined = pairs.join(found, on="pair", how="left", maintain_order="left")
    return joined.with_columns(kind=pl.coalesce("likeliest", "kind")).drop("likeliest")


def _number_nics(pairs: pl.DataFrame, job_members: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return pairs with the numbers of their NICs (`src`, `dst`) and their kind's (`voted`), and the NICs in the order
    of their numbers: `job_id`, `host`, `rail`."""
    ends = pl.concat([pairs.select("job_id", addr=end) for end in ENDS]).unique()
    nics = (
        ends.join(job_members.select("job_id", "addr", "host").unique(["job_id", "addr"]), on=["job_id", "addr"])
        .sort("job_id", "host", "addr")
        .with_columns(
            nic=pl.int_range(pl.len()).over("job_id"),
            rail=pl.int_range(pl.len()).over("job_id", "host"),
            host=pl.col("host").rank("dense").over("job_id").cast(pl.Int64) - 1,
        )
    )
    numbered = pairs
    for end, name in zip(ENDS, ("src", "dst"), strict=True):
        numbered = numbered.join(
            nics.select("job_id", pl.col("addr").alias(end), pl.col("nic").alias(name)), on=["job_id", end]
        )
    voted = pl.col("kind").replace_strict(list(KINDS), range(len(KINDS)), return_dtype=pl.Int64)
    return numbered.with_columns(voted=voted), nics


def _kinds_of_job(rows: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    src, dst, voted, bytes_ = (rows[name].to_numpy() for name in ("src", "dst", "voted", "bytes_per_step"))
    host, rail = nics["host"].to_numpy(), nics["rail"].to_numpy()
    hosts = int(host.max(initial=0)) + 1
    link, back = host[src] * hosts + host[dst], host[dst] * hosts + host[src]
    fills, gathers = (some.to_numpy() >= MAJORITY for some in (rows["filling"], rows["filling"] * rows["together"]))
    evidence = _kind_log_likelihoods(rows, voted)
    label, sure = _likeliest_labels(
        Job(src, dst, link, back, evidence, voted, fills, gathers, bytes_, _role_numbers(bytes_), host, rail)
    )
    return rows.select("pair").with_columns(likeliest=pl.Series(np.array(KINDS)[label]), posterior=pl.Series(sure))


def _kind_log_likelihoods(rows: pl.DataFrame, told: Labels) -> Floats:
    """Return the likelihood of each kind by what a pair does in its steps, as logarithms.

    Parameters
    ----------
    told : what each pair is by itself, and by what the job as a whole makes of what goes on through the step
    """
    pipeline, expert, filling, together = (
        rows[name].to_numpy() for name in ("pipeline", "expert", "filling", "together")
    )
    periodic = rows["periodic"].to_numpy()
    weight = np.zeros((rows.height, len(KINDS)))
    weight[:, PP] = pipeline
    left = (1 - pipeline) * (1 - expert)
    weight[:, EP] = expert * (1 - pipeline)
    weight[:, CP] = left * TOLD_APART * filling
    burst = left * (1 - filling)
    # Two hosts that share parameters gather them from each other at the same time; stages take turns.
    weight[:, DP] = np.where(periodic, burst, 0.0) + TOLD_APART * together * weight[:, CP]
    weight[:, OTHER] = np.where(periodic, 0.0, burst)
    # What has nothing to do with a job keeps its period by chance alone.
    weight[:, OTHER] += MISREAD_ODDS * np.where(periodic, MISREAD_ODDS, 1.0)
    weight[:, DP:] += MISREAD_ODDS
    # What the job as a whole makes of a pair is as likely as what its steps say.
    each = np.arange(rows.height)
    weight[each, told] = weight.max(axis=1)
    found: Floats = np.log(weight / weight.sum(axis=1, keepdims=True))
    return found


def _role_numbers(bytes_: Floats) -> Integers:
    order = np.argsort(bytes_, kind="stable")
    steps = np.diff(np.log(bytes_[order])) > SAME_ROLE
    role = np.empty(bytes_.size, np.int64)
    role[order] = np.r_[0, np.cumsum(steps)]
    return role


def _likeliest_labels(job: Job) -> tuple[Labels, Floats]:
    """Return what each pair is in the likeliest way, and how likely that is over all ways.

    Ways are looked at in the order of what the steps say. Misfits only lower that, so those that come after a much
    better one need no look.
    """
    choices = _choices(job)
    found: list[tuple[float, Labels]] = []
    best = -math.inf
    for said, labels in _assignments_by_likelihood(choices):
        if said < best - THOUSANDFOLD_NATS:
            break
        label = np.empty_like(job.voted)
        for (of_role, _), one in zip(choices, labels, strict=True):
            label[of_role] = one
        score = said - MISFIT_NATS * sum(misfits(job, label).values())
        found.append((score, label))
        best = max(best, score)
    odds = np.exp([score - best for score, _ in found])
    odds /= odds.sum()
    likeliest = found[int(odds.argmax())][1]
    sure = sum((odd * (label == likeliest) for odd, (_, label) in zip(odds, found, strict=True)), np.zeros(1))
    return likeliest, np.minimum(sure, 1.0)  # a sum of odds may be rounded up


def _choices(job: Job) -> list[tuple[Integers, list[tuple[float, Labels]]]]:
    """Return each role's pairs, and what they can be, each with what the steps say of that: as its pairs are by
    themselves, as most are that fill the step and as most that do not, as most between the same two hosts are, or all
    alike what any of them may be."""
    choices = []
    for role in np.unique(job.role):
        of_role = np.flatnonzero(job.role == role)
        evidence, voted = job.evidence[of_role], job.voted[of_role]
        each = np.arange(of_role.size)
        # Stages answer each other, whether their micro-batches were seen to take turns or not; so does who exchanges.
        answered = [PP, EP] if np.isin(job.back[of_role], job.link[of_role]).all() else []
        gathered = [DP] if job.gathers[of_role].all() else []
        around = [DP] if closed_ways(job, of_role).any() else []
        kinds = np.unique(np.r_[voted, evidence.argmax(axis=1), OTHER, answered, gathered, around].astype(np.int64))
        linked = _kinds_of_parts(job, of_role, np.minimum(job.link[of_role], job.back[of_role]))
        own = [
            voted,
            _kinds_of_parts(job, of_role, job.fills[of_role]),
            *(np.full(of_role.size, kind) for kind in kinds),
        ]
        by_host = [linked, *(np.where(linked == one, kind, linked) for one in np.unique(linked) for kind in kinds)]
        costs: dict[bytes, tuple[Labels, float]] = {}
        for cost, ways in ((0.0, own), (EQUAL_BYTES_NATS, by_host)):
            for way in ways:
                costs.setdefault(way.tobytes(), (way, cost))
        options = [
            (float(evidence[each, way].sum() - UNLIKE_ROLE_NATS * _count_odd_pairs(job, of_role, way) - cost), way)
            for way, cost in costs.values()
        ]
        choices.append((of_role, sorted(options, key=lambda one: -one[0])))
    return choices


def _kinds_of_parts(job: Job, of_role: Integers, part: Integers | npt.NDArray[np.bool_]) -> Labels:
    """Return what the pairs of a role are if those of the same part are all of one kind.

    Parameters
    ----------
    part : shape (pairs of the role,)
    """
    _, place = np.unique(part, return_inverse=True)
    evidence = np.zeros((int(place.max()) + 1, len(KINDS)))
    np.add.at(evidence, place, job.evidence[of_role])
    kinds: Labels = evidence.argmax(axis=1)[place]
    return kinds


def _count_odd_pairs(job: Job, of_role: Integers, voted: Labels) -> int:
    """Count the pairs of a role that are called otherwise than most of it, but for those that are another ring.

    Two rings may carry equal bytes. Where they part each NIC sends once in the one and once in the other, and it
    receives so.
    """
    counts = np.bincount(voted, minlength=len(KINDS))
    most = counts.argmax()
    ends = job.src[of_role], job.dst[of_role]
    senders, receivers = (np.unique(end[voted == most]) for end in ends)
    odd = 0
    for kind in np.flatnonzero(counts):
        sending, receiving = (np.sort(end[voted == kind]) for end in ends)
        ring = np.array_equal(sending, senders) and np.array_equal(receiving, receivers)
        odd += 0 if kind == most or ring else int(counts[kind])
    return odd


def _assignments_by_likelihood(
    choices: list[tuple[Integers, list[tuple[float, Labels]]]],
) -> Iterator[tuple[float, tuple[Labels, ...]]]:
    """Yield at most MOST_ASSIGNMENTS ways to call all roles, the likeliest by the steps first: best-first search."""
    options = [some for _, some in choices]
    first = (0,) * len(options)
    waiting = [(-sum(some[0][0] for some in options), first)]
    met = {first}
    for _ in range(MOST_ASSIGNMENTS):
        if not waiting:
            return
        cost, way = heapq.heappop(waiting)
        yield -cost, tuple(some[at][1] for some, at in zip(options, way, strict=True))
        for role, at in enumerate(way):
            following = (*way[:role], at + 1, *way[role + 1 :])
            if at + 1 < len(options[role]) and following not in met:
                met.add(following)
                heapq.heappush(waiting, (cost + options[role][at][0] - options[role][at + 1][0], following))
