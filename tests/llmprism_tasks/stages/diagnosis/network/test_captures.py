"""Captured training: a NIC at a third of its rate is named; slow ranks, stalls and busy machines are no network's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from handmade import settings, taken
from places import REAL

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.stages.diagnosis.evidence import Evidence, gather
from llmprism_tasks.stages.diagnosis.network import devices
from llmprism_tasks.stages.recognition.phase import recognition

MINUTE_NS = 60 * 10**9


def captured(capture: str) -> Iterator[Evidence]:
    """Yield the evidence of each window of a capture, where the kinds of pairs are known."""
    flows = pl.read_parquet(REAL / capture / "flows_coarse.parquet")
    minute = pl.col("flow_start_ns") // MINUTE_NS * MINUTE_NS
    flows = frames.conform(flows.with_columns(window_start_ns=minute), "flows")
    topology = read_topology(str(REAL / capture / "topology.csv"))
    known = pl.read_parquet(REAL / capture / "truth" / "truth_pairs.parquet").unique(["src_addr", "dst_addr"])
    counts = {name: pl.lit(1) for name in ("flows", "bytes", "distinct_sizes", "confidence")}
    for start_ns in flows["window_start_ns"].unique().sort():
        window = Window(start_ns, MINUTE_NS)
        seen = flows.filter(pl.col("window_start_ns").is_between(window.lookback(5).start_ns, start_ns))
        _, members = recognition(
            **taken("recognition", seen, window, topology=topology),
            topology=topology,
            window=window,
            settings=settings(),
        )
        jobs = members.select("window_start_ns", "job_id", src_addr="addr")
        pairs = frames.conform(known.join(jobs, on="src_addr").with_columns(**counts), "pairs")
        evidence = gather(
            **taken("diagnosis", seen, window, job_members=members, pairs=pairs),
            topology=topology,
            job_members=members,
            pairs=pairs,
            steps=pl.DataFrame({"addr": ["any"]}),
            window=window,
            settings=settings(),
        )
        if evidence is not None:
            yield evidence


def test_a_nic_at_a_third_of_its_rate_is_named_in_the_minute_in_which_it_is() -> None:
    """Hops that avoid it break into pieces of a better pace, as they wait for those that touch it."""
    rows = [(number, row) for number, evidence in enumerate(captured("limited_nic")) for row in found(evidence)]
    assert [(number, row["kind"], row["subject"]) for number, row in rows] == [(1, "slow_nic", "10.0.3.1")]
    (_, row), *_ = rows
    assert row["score"] == pytest.approx(3, rel=0.05)
    assert row["confidence"] > 0.9


@pytest.mark.parametrize("capture", ["ddp4_healthy", "dp4pp2_slow_rank", "stopped_rank", "two_pipelines", "restart"])
def test_no_network_is_blamed_for_other_troubles(capture: str) -> None:
    assert [row for evidence in captured(capture) for row in found(evidence)] == []


def found(evidence: Evidence) -> list[dict[str, Any]]:
    return devices.find(evidence, settings().diagnosis).to_dicts()
