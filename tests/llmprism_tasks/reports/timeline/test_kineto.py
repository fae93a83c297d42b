"""Kineto files hold what the lanes hold: times to the nanosecond, and no two slices of a thread that overlap."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from llmprism_tasks.contract.windows import ALL_TIME
from llmprism_tasks.reports.timeline import kineto
from llmprism_tasks.reports.timeline.files import lanes_to_show
from llmprism_tasks.reports.timeline.lanes import Lanes
from llmprism_tasks.warehouse.connect import Warehouse

HOSTILE = '"><script>alert(1)</script>\x1b[31m\u202e' + "x" * 10_000


@pytest.fixture(scope="module")
def some(captured: Warehouse, job: str) -> Lanes:
    """Return the last five steps."""
    return lanes_to_show(captured, job)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    return trace, [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_one_file_has_every_slice_with_its_times_to_the_nanosecond(some: Lanes, tmp_path: Path) -> None:
    kineto.write_all(some, tmp_path / "t.json.gz")
    trace, slices = read(tmp_path / "t.json.gz")
    base_ns = trace["baseTimeNanoseconds"]
    told = [one for one in slices if one["cat"] != "user_annotation"]
    times = sorted((base_ns + round(one["ts"] * 1000), round(one["dur"] * 1000)) for one in told)
    assert times == sorted(some.slices.select("start_ns", pl.col("end_ns") - pl.col("start_ns")).iter_rows())
    assert any(one["ts"] % 1 for one in told)
    steps = [one["name"] for one in slices if one["cat"] == "user_annotation"]
    assert steps.count("ProfilerStep#3") == some.nics.height


def test_slices_of_a_thread_do_not_overlap(some: Lanes, tmp_path: Path) -> None:
    kineto.write_all(some, tmp_path / "all.json.gz")
    kineto.write_each(some, tmp_path)
    for path in tmp_path.iterdir():
        threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for one in read(path)[1]:
            if one["cat"] != "kernel":  # a kernel of communication may run behind one of computing
                begin = round(one["ts"] * 1000)
                threads[one["pid"], one["tid"]].append((begin, begin + round(one["dur"] * 1000)))
        for spans in threads.values():
            spans.sort()
            assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_computing_is_called_inferred_and_messages_are_not(some: Lanes, tmp_path: Path) -> None:
    kineto.write_all(some, tmp_path / "t.json.gz")
    names = {one["name"] for one in read(tmp_path / "t.json.gz")[1]}
    assert {"compute (inferred)", "idle (inferred)", "pp_send forward 0", "pp_recv backward 7", "dp_sync"} <= names


def test_each_file_of_a_rank_says_which_and_each_kernel_was_launched(some: Lanes, tmp_path: Path) -> None:
    kineto.write_each(some, tmp_path)
    for rank in range(8):
        path = tmp_path / f"rank_{rank:04d}.json.gz"
        trace, slices = read(path)
        assert trace["distributedInfo"] == {"rank": rank, "world_size": 8, "backend": "nccl"}
        assert '"rank": ' in gzip.decompress(path.read_bytes()).decode().splitlines()[0]
        kernels, launches = (
            {one["args"]["correlation"] for one in slices if one["cat"] == category}
            for category in ("kernel", "cuda_runtime")
        )
        assert kernels == launches == set(range(1, len(kernels) + 1))


def test_what_was_diagnosed_is_marked_and_hostile_names_stay_text(some: Lanes, tmp_path: Path) -> None:
    nics = some.nics.with_columns(host=pl.lit(HOSTILE))
    start_ns, end_ns = some.steps["start_ns"][0], some.steps["end_ns"][0]
    row = ("slow_compute", "host", HOSTILE, start_ns, end_ns, 0.4, None, HOSTILE)
    faults = pl.DataFrame([row], schema=some.faults.schema, orient="row")
    kineto.write_all(dataclasses.replace(some, nics=nics, faults=faults), tmp_path / "t.json.gz")
    trace, slices = read(tmp_path / "t.json.gz")
    (mark,) = [one for one in slices if one["cat"] == "diagnosis"]
    assert mark["name"] == f"slow_compute host {HOSTILE}"
    assert mark["args"]["severity"] == 0.4
    named = [one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "process_name"]
    assert sum(HOSTILE in name for name in named) == 8


def test_the_same_lanes_give_the_same_file(captured: Warehouse, job: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        kineto.write_all(lanes_to_show(captured, job, end_ns=ALL_TIME.end_ns), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
