"""Evidence about jobs whose slow steps move some of their data more slowly: hops, their paths, and by how much."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import polars as pl
from handmade import MS, WINDOW, flows, members
from job_evidence import STEP, coded, groups, history
from job_evidence import steps as nic_steps

from llmprism_tasks.stages.diagnosis.evidence import Evidence

MESSAGE_MS = 50
"""How long a message lasts in a healthy step; each hop has two in a step, one after the other."""

PUSH = 4_000_000
"""Bytes that an early sender pushes before its ring is complete."""

HEALTHY, SLOW = 8, 4
"""Steps of a job, the slow ones last, all in the window."""

COSTS = 2 * MESSAGE_MS
"""How much longer a slow step takes, in ms: what a hop at half of its pace makes up for."""


@dataclass(frozen=True)
class Hop:
    """A hop of a ring or a pair: its path, its rate in healthy steps, and how many times longer it takes in slow ones.

    Where `factors` is given, it has one for each step instead. Where `pushes` is, the sender comes early in slow steps,
    and pushes 4 MB by itself that take as many times longer.
    """

    src: str
    dst: str
    path: tuple[str, ...] | None = None
    factor: float = 1
    gbps: float = 100
    kind: str = "pp"
    factors: tuple[float, ...] = ()
    pushes: float | None = None


def ring(addrs: Sequence[str], factor: float = 1, *paths: str, gbps: float = 100) -> list[Hop]:
    """Return the hops of a ring of NICs, a letter each, all at the pace of its slowest; a path for each, or for all."""
    closed = [*pairwise(addrs), (addrs[-1], addrs[0])]
    each = paths if len(paths) > 1 else [*paths, ""][:1] * len(closed)
    crossed = [tuple(path.split()) or None for path in each]
    return [Hop(src, dst, path, factor, gbps, "dp") for (src, dst), path in zip(closed, crossed, strict=True)]


def both(src: str, dst: str, factor: float = 1, path: str = "", back: float | None = None) -> list[Hop]:
    """Return a pipeline pair, activations there and gradients `back`, which take the same path the other way."""
    there = tuple(path.split()) or None
    return [
        Hop(src, dst, there, factor),
        Hop(dst, src, there and there[::-1], factor if back is None else back),
    ]


def job(*parts: Iterable[Hop], lost: float = COSTS, slow: Sequence[bool] = (), name: str = "j") -> Evidence:
    """Return the evidence about a job.

    Parameters
    ----------
    lost : how much longer a slow step takes than a healthy one of a second, ms
    slow : which steps are slow, all of them in the window
    """
    hops = [hop for part in parts for hop in part]
    slow = slow or [False] * HEALTHY + [True] * SLOW
    lengths = [STEP + lost * is_slow for is_slow in slow]
    begins = [sum(lengths[:step]) for step in range(len(lengths))]
    records = [_records(hop, list(slow), begins) for hop in hops]
    addrs = sorted({addr for hop in hops for addr in (hop.src, hop.dst)})
    return Evidence(
        flows=coded(pl.concat(records).with_columns(job_id=pl.lit(name)).sort("flow_start_ns", "src_addr", "dst_addr")),
        steps=nic_steps(addrs, len(lengths), name, lengths),
        history=history(lengths, job=name),
        groups=groups(*_rings(hops), job=name),
        members=members({name: {addr: f"host-{addr}" for addr in addrs}}).drop("window_start_ns"),
        window=WINDOW,
    )


def late(evidence: Evidence, since: int) -> Evidence:
    """Return the evidence as if only the steps from `since` on had ended in the window."""
    current = pl.int_range(pl.len()) >= since
    return dataclasses.replace(evidence, history=evidence.history.with_columns(current=current))


def _records(hop: Hop, slow: list[bool], begins: list[float]) -> pl.DataFrame:
    factors = hop.factors or [hop.factor if is_slow else 1 for is_slow in slow]
    size = round(hop.gbps * MESSAGE_MS * MS / 8)
    rows = [
        (begin + 10 + i * MESSAGE_MS * factor, begin + 10 + (i + 1) * MESSAGE_MS * factor, hop.src, hop.dst, size)
        for begin, factor in zip(begins, factors, strict=True)
        for i in range(2)
    ]
    if hop.pushes:
        took = hop.pushes * 8 * PUSH / hop.gbps / MS
        rows += [
            (begin, begin + took, hop.src, hop.dst, PUSH)
            for begin, is_slow in zip(begins, slow, strict=True)
            if is_slow
        ]
    frame: pl.DataFrame = flows(rows)
    return frame.with_columns(kind=pl.lit(hop.kind), switch_path=pl.lit(hop.path, dtype=pl.List(pl.String)))


def _rings(hops: Iterable[Hop]) -> list[list[str]]:
    """Return the NICs of each ring, which are given one after the other."""
    found: list[list[str]] = []
    for hop in hops:
        if hop.kind == "dp":
            if found and hop.src in found[-1]:
                found[-1].append(hop.dst)
            else:
                found.append([hop.src, hop.dst])
    return [sorted(set(addrs)) for addrs in found]
