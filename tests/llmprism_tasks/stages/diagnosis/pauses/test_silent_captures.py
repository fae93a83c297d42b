"""Captured training: a rank that is stopped, one that is killed, checkpoints that stall, and runs that end in order."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest
from handmade import settings, taken
from places import REAL

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.stages.diagnosis.evidence import gather
from llmprism_tasks.stages.diagnosis.pauses import checkpoints
from llmprism_tasks.stages.diagnosis.pauses.silence import hang
from llmprism_tasks.stages.recognition.phase import recognition

MINUTE_NS = 60 * 10**9

Told = tuple[int, str, str, str]
"""Window, kind, subject type, subject."""

both_records = pytest.mark.parametrize("records", ["flows", "flows_coarse"])


def told(capture: str, records: str) -> list[Told]:
    """Return what is told of a capture; a job is called `job`, whatever its name."""
    found = [(row["window"], row["kind"], row["subject_type"], row["subject"]) for row in rows(capture, records)]
    return [(*row[:3], "job" if row[2] == "job" else row[3]) for row in found]  # type: ignore[misc]


def rows(capture: str, records: str) -> Iterator[dict[str, object]]:
    """Yield what is told of a capture, window by window, where the kinds of pairs are known."""
    flows = pl.read_parquet(REAL / capture / f"{records}.parquet")
    flows = frames.conform(
        flows.with_columns(window_start_ns=pl.col("flow_start_ns") // MINUTE_NS * MINUTE_NS), "flows"
    )
    topology = read_topology(str(REAL / capture / "topology.csv"))
    pairs = pl.read_parquet(REAL / capture / "truth" / "truth_pairs.parquet").unique(["src_addr", "dst_addr"])
    for number, start_ns in enumerate(flows["window_start_ns"].unique().sort()):
        window = Window(start_ns, MINUTE_NS)
        seen = flows.filter(pl.col("window_start_ns").is_between(window.lookback(5).start_ns, start_ns))
        _, members = recognition(
            **taken("recognition", seen, window, topology=topology),
            topology=topology,
            window=window,
            settings=settings(),
        )
        kinds = _of_jobs(pairs, members)
        known = gather(
            **taken("diagnosis", seen, window, job_members=members, pairs=kinds),
            topology=topology,
            job_members=members,
            pairs=kinds,
            steps=pl.DataFrame({"addr": ["any"]}),
            window=window,
            settings=settings(),
        )
        if known is not None:
            for find in (hang.find, checkpoints.find):
                yield from ({"window": number} | row for row in find(known, settings().diagnosis).to_dicts())


def _of_jobs(pairs: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    numbers = {name: pl.lit(0) for name in ("flows", "bytes", "distinct_sizes", "confidence")}
    jobs = members.select("window_start_ns", "job_id", src_addr="addr")
    return frames.conform(pairs.join(jobs, on="src_addr").with_columns(**numbers), "pairs")


@both_records
def test_a_rank_that_is_stopped_for_a_while_is_named(records: str) -> None:
    assert told("stopped_rank", records) == [(1, "hang", "addr", "10.0.2.1")]


@both_records
def test_a_rank_that_is_killed_is_named_once_its_job_begins_anew_without_it(records: str) -> None:
    """Two of the four had not come to the next exchange: the killed one, and one that heard of it."""
    assert told("restart", records) == [(1, "hang", "job", "job"), (2, "stopped", "addr", "10.0.4.1")]


@both_records
def test_checkpoints_that_a_job_has_always_waited_for_are_its_habit(records: str) -> None:
    """A fifth of its time, but as long each time: that is how its users chose to save."""
    assert told("checkpoint_stall", records) == []


@pytest.mark.parametrize("capture", ["ddp4_healthy", "dp2pp4_healthy", "dp4pp2_slow_rank", "two_jobs", "fsdp4"])
def test_who_works_throughout_and_ends_in_order_is_not_told_of(capture: str) -> None:
    assert told(capture, "flows_coarse") == []
