"""Kineto files: lanes in the form of PyTorch's profiler, for Perfetto, and for HTA (Holistic Trace Analysis).

A NIC is a process, its rank is its place among the lanes, and each row of a lane is a thread. Times are microseconds
since `baseTimeNanoseconds`, as a double holds nanoseconds only in small numbers.

HTA knows kernels that computing and communication launched, and nothing else. So in the file of one rank computing is
a kernel, and so is all in flight that is not merely waited behind (a `tile`): these two and what is left between them
are the parts of `step_breakdown`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from llmprism_tasks.reports.timeline.lanes import Lanes

Event = dict[str, Any]

STEPS, LAUNCHES, KERNELS, FIRST_LANE = 1, 2, 3, 4
"""Numbers of threads."""

ARGUMENTS = ("step", "peer", "bytes", "direction", "micro_batch")
"""Columns of a slice that are shown with it."""

LABELS = {"compute": "compute (inferred)", "idle": "idle (inferred)"}


def write_all(lanes: Lanes, path: Path) -> None:
    """Write one file with all NICs, as Perfetto reads it."""
    base_ns = _base_ns(lanes)
    events = _marks(lanes, base_ns)
    for rank, nic in enumerate(lanes.nics.iter_rows(named=True)):
        events += _lanes_of(lanes, nic, rank, base_ns)
    _write(path, {"displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns}, events)


def write_each(lanes: Lanes, folder: Path) -> None:
    """Write a file for each NIC, `rank_<number>.json.gz`, as HTA reads them."""
    base_ns = _base_ns(lanes)
    for rank, nic in enumerate(lanes.nics.iter_rows(named=True)):
        head = {
            "distributedInfo": {"rank": rank, "world_size": lanes.nics.height, "backend": "nccl"},
            "schemaVersion": 1,
            "deviceProperties": [],
            "baseTimeNanoseconds": base_ns,
        }
        events = _lanes_of(lanes, nic, rank, base_ns) + _kernels_of(lanes, nic["addr"], rank, base_ns)
        _write(folder / f"rank_{rank:04d}.json.gz", head, events)


def _write(path: Path, head: Event, events: list[Event]) -> None:
    """Write an event a line; HTA reads lines until it knows the rank."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:  # the same lanes give the same file
        for line in _lines(head, events):
            file.write(line.encode())


def _lines(head: Event, events: list[Event]) -> Iterator[str]:
    yield json.dumps(head)[:-1] + ', "traceEvents": [\n'
    for number, event in enumerate(events):
        yield ("" if number == 0 else ",\n") + json.dumps(event)
    yield "\n]}\n"


def _base_ns(lanes: Lanes) -> int:
    return int(lanes.slices.select(pl.col("start_ns").min().fill_null(0)).item())


def _lanes_of(lanes: Lanes, nic: Event, rank: int, base_ns: int) -> list[Event]:
    """Return a NIC's steps and slices."""
    mine, steps = (rows.filter(pl.col("addr") == nic["addr"]) for rows in (lanes.slices, lanes.steps))
    rows = mine.select("kind", "row").unique(maintain_order=True).rows()
    threads = {row: FIRST_LANE + number for number, row in enumerate(rows)}
    place = "" if nic["pp_stage"] is None else f" pp_stage {nic['pp_stage']}"
    events = [
        *_name("process", rank, 0, f"{nic['addr']} {nic['host']}{place}", rank),
        *_name("thread", rank, STEPS, "steps", STEPS),
    ]
    for (kind, row), thread in threads.items():
        events += _name("thread", rank, thread, LABELS.get(kind, kind) + (f" {row + 1}" if row else ""), thread)
    for step, start_ns, end_ns in steps.select("step", "start_ns", "end_ns").iter_rows():
        begin, end = start_ns - base_ns, end_ns - base_ns
        events.append(_slice(f"ProfilerStep#{step}", "user_annotation", rank, STEPS, begin, end))
    for one in mine.iter_rows(named=True):
        start_ns, end_ns = one["start_ns"] - base_ns, one["end_ns"] - base_ns
        told = {name: one[name] for name in ARGUMENTS if one[name] is not None}
        name = LABELS.get(one["kind"]) or _message(one)
        events.append(_slice(name, one["kind"], rank, threads[one["kind"], one["row"]], start_ns, end_ns, told))
    return events


def _message(one: Event) -> str:
    number = "" if one["micro_batch"] is None else f" {one['micro_batch']}"
    return f"{one['kind']} {one['direction'] or ''}{number}".rstrip()


def _kernels_of(lanes: Lanes, addr: str, rank: int, base_ns: int) -> list[Event]:
    """Return a NIC's kernels, and their launches, by which HTA knows their steps."""
    events = [
        *_name("thread", rank, LAUNCHES, "launches, for HTA", LAUNCHES),
        *_name("thread", rank, KERNELS, "kernels, for HTA", KERNELS),
    ]
    tiles = lanes.tiles.filter(pl.col("addr") == addr)
    found = pl.concat(
        [
            tiles.filter(pl.col("part") == "compute").with_columns(kernel=pl.lit(LABELS["compute"]), stream=1),
            tiles.filter(pl.col("in_flight") != "", pl.col("part") != "idle").with_columns(
                kernel=pl.lit("ncclKernel ") + pl.col("in_flight"), stream=2
            ),
        ]
    )
    for number, (name, stream, start_ns, end_ns) in enumerate(
        found.select("kernel", "stream", "start_ns", "end_ns").iter_rows(), 1
    ):
        told = {"stream": stream, "device": rank, "correlation": number}
        begin, end = start_ns - base_ns, end_ns - base_ns
        events.append(_slice(name, "kernel", rank, KERNELS, begin, end, told))
        events.append(_slice("cudaLaunchKernel", "cuda_runtime", rank, LAUNCHES, begin, begin, {"correlation": number}))
    return events


def _marks(lanes: Lanes, base_ns: int) -> list[Event]:
    """Return the faults that were diagnosed, each on a thread of its own, in a process above all NICs."""
    process = lanes.nics.height
    events = [*_name("process", process, 0, "diagnoses", -1)] if lanes.faults.height else []
    for thread, one in enumerate(lanes.faults.iter_rows(named=True), 1):
        subject = f"{one['subject_type']} {one['subject']}"
        told = {name: one[name] for name in ("severity", "confidence", "explanation") if one[name] is not None}
        start_ns, end_ns = one["start_ns"] - base_ns, one["end_ns"] - base_ns
        events += _name("thread", process, thread, subject, thread)
        events.append(_slice(f"{one['kind']} {subject}", "diagnosis", process, thread, start_ns, end_ns, told))
    return events


def _name(what: str, process: int, thread: int, name: str, place: int) -> list[Event]:
    """Return the name of a process or thread, and where it stands."""
    common = {"ph": "M", "pid": process, "tid": thread}
    return [
        common | {"name": f"{what}_name", "args": {"name": name}},
        common | {"name": f"{what}_sort_index", "args": {"sort_index": place}},
    ]


def _slice(
    name: str, category: str, process: int, thread: int, start_ns: int, end_ns: int, told: Event | None = None
) -> Event:
    times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread} | times | {"args": told or {}}
