"""Small traffic made by hand: rings, pipelines and single messages of a few NICs; times in ms after the data begin."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl
from schedule import pass_times

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.plan import stage_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.layout import degrees, dp_groups
from llmprism_tasks.stages.partition_values import PartitionValues

MS = 1_000_000
WINDOW = Window(1_760_000_400_000_000_000, 60_000 * MS)
"""The minute in which all traffic begins at 0 ms."""

MB = 1_000_000

Row = tuple[float, float, str, str, int]
"""A record: start and end in ms, sender, receiver, bytes."""


def settings(section: str | None = None, **values: Any) -> Settings:
    """Return the default settings, with some values of one section changed."""
    default = Settings()
    if section is None:
        return default
    changed = dataclasses.replace(getattr(default, section), **values)
    return dataclasses.replace(default, **{section: changed})


def flows(*parts: Iterable[Row], base: Window = WINDOW) -> pl.DataFrame:
    """Return the flows table of records, with all times after the base window's start."""
    rows = sorted(row for part in parts for row in part)
    columns = {
        "flow_start_ns": [base.start_ns + round(row[0] * MS) for row in rows],
        "flow_end_ns": [base.start_ns + round(row[1] * MS) for row in rows],
        "src_addr": [row[2] for row in rows],
        "dst_addr": [row[3] for row in rows],
        "bytes": [row[4] for row in rows],
    }
    frame = pl.DataFrame(columns, schema={name: frames.empty("flows").schema[name] for name in columns})
    window = pl.col("flow_start_ns") // base.length_ns * base.length_ns
    full = frame.with_columns(window_start_ns=window)
    missing = [
        pl.lit(None, dtype=kind).alias(name)
        for name, kind in frames.empty("flows").schema.items()
        if name not in full.columns
    ]
    return frames.conform(full.with_columns(missing), "flows")


def visible(table: pl.DataFrame, window: Window, lookback: int = 5) -> pl.DataFrame:
    """Keep the flows that a window's run is handed."""
    span = window.lookback(lookback)
    return table.filter(pl.col("window_start_ns").is_between(span.start_ns, span.end_ns, closed="left"))


def burst(src: str, dst: str, begin: float, *, length: float = 100, size: int = 80 * MB, parts: int = 8) -> list[Row]:
    """Return records one after another without a pause, whose sizes are 1, 2, 1, 2 … shares of the burst's."""
    shares = [1 + i % 2 for i in range(parts)]
    ends = [begin + length * sum(shares[: i + 1]) / sum(shares) for i in range(parts)]
    sizes = [size * share // sum(shares) for share in shares]
    return [(start, end, src, dst, n) for start, end, n in zip([begin, *ends], ends, sizes, strict=False)]


def ring(addrs: Sequence[str], begins: Iterable[float], **kwargs: Any) -> list[Row]:
    """Return a burst from each NIC to the next at each of these times: gradients, synchronised once a step."""
    hops = [*pairwise(addrs), (addrs[-1], addrs[0])]
    return [row for begin in begins for src, dst in hops for row in burst(src, dst, begin, **kwargs)]


def pipeline(
    first: str,
    second: str,
    begins: Iterable[float],
    *,
    spread: float = 500,
    count: int = 4,
    back: float = 20,
    size: int = 8 * MB,
) -> list[Row]:
    """Return activations to the second NIC, evenly over `spread` ms of each step, and gradients `back` ms after."""
    rows: list[Row] = []
    for begin in begins:
        for i in range(count):
            at = begin + (spread * i / (count - 1) if count > 1 else 0)
            rows += [(at, at + 2, first, second, size), (at + back, at + back + 2, second, first, size)]
    return rows


def stages(addrs: Sequence[str], begins: Iterable[float], *, micro_batches: int = 8, size: int = 8 * MB) -> list[Row]:
    """Return the activations and gradients of a pipeline of these NICs, 1F1B: passes take 10 and 20 ms."""
    done = pass_times(len(addrs), micro_batches, forward=10, backward=20)
    rows: list[Row] = []
    for (what, stage, _), at in done.items():
        peer = stage + (1 if what == "F" else -1)
        if 0 <= peer < len(addrs):
            rows += [(begin + at, begin + at + 1, addrs[stage], addrs[peer], size) for begin in begins]
    return rows


def messages(src: str, dst: str, begins: Iterable[float], size: int) -> list[Row]:
    """Return a record of this size, 1 ms long, at each of these times."""
    return [(begin, begin + 1, src, dst, size) for begin in begins]


def every(period: float, *, count: int, start: float = 0) -> list[float]:
    return [start + period * i for i in range(count)]


def topology(hosts: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return the NIC table of hosts and their NICs, in the order of their GPUs."""
    rows = [(addr, host, gpu, None, None) for host, addrs in hosts.items() for gpu, addr in enumerate(addrs)]
    return pl.DataFrame(rows, schema=frames.empty("topology").schema, orient="row")


def members(jobs: Mapping[str, Mapping[str, str]], window: Window = WINDOW) -> pl.DataFrame:
    """Return `job_members` from each job's NICs and their hosts."""
    rows = [(window.start_ns, job, addr, host) for job, nics in jobs.items() for addr, host in nics.items()]
    return frames.conform(
        pl.DataFrame(rows, schema=["window_start_ns", "job_id", "addr", "host"], orient="row"), "job_members"
    )


def jobs_of(job_members: pl.DataFrame) -> pl.DataFrame:
    """Return the `jobs` that recognition would have written for these members."""
    jobs = job_members.group_by("window_start_ns", "job_id").agg(
        endpoints=pl.len(), hosts=pl.col("host").n_unique(), confidence=pl.lit(1.0), kind=pl.lit("training")
    )
    return frames.conform(jobs.with_columns(pl.lit(None).alias(degree) for degree in ("tp", "pp", "dp")), "jobs")


def taken(
    phase: str, flows_: pl.DataFrame, window: Window = WINDOW, values: Settings | None = None, **tables: pl.DataFrame
) -> dict[str, Any]:
    """Return what a phase takes in place of flows, when the phases before it wrote these tables. All jobs train."""
    if "job_members" in tables:
        tables = {"jobs": jobs_of(tables["job_members"])} | tables
    return PartitionValues(flows_, window, values or settings()).named(stage_named(phase).takes, tables)


def degrees_of(
    pairs: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame, peers: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return the degrees of jobs with these pairs, and nothing else known of them."""
    return degrees.degrees(pairs, dp_groups.rings(pairs, job_members, topology), peers)


def chatter(src: str, dst: str, *, total: int, count: int = 40, until: float = 20_000, seed: int = 1) -> list[Row]:
    """Return messages at random times, of random sizes that add up to about `total` bytes: no rhythm at all."""
    draw = random.Random(f"{src}{dst}{seed}")
    sizes = [draw.uniform(0.2, 2) for _ in range(count)]
    times = sorted(draw.uniform(0, until) for _ in sizes)
    return [(at, at + 1, src, dst, round(total * size / sum(sizes))) for at, size in zip(times, sizes, strict=True)]
