"""Which clusters of NICs on the same hosts are rails of one job."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from handmade import MB, MS, WINDOW, every, flows, ring, settings

from llmprism_tasks.stages.recognition.tenancy import joined_in_step, tenants
from llmprism_tasks.stages.traffic import nic_pairs

NO_UNISON = pl.DataFrame(schema={"host": pl.String, "unison": pl.Int64})


def _members(nics: dict[int, list[str]]) -> pl.DataFrame:
    """Return the members of clusters; the first letter of an address is its host."""
    rows = [(addr, addr[0], cluster) for cluster, addrs in nics.items() for addr in addrs]
    return pl.DataFrame(rows, schema=["addr", "host", "cluster"], orient="row")


def test_any_cluster_of_a_job_may_say_that_it_is_part_of_a_wider_one() -> None:
    """Two clusters send together, and the steps of the first end anywhere; the second keeps its distance."""
    draw = np.random.default_rng(1)
    wide = np.cumsum(draw.normal(2000, 60, 20))
    ends = {0: wide, 1: wide + draw.uniform(-900, 900, 20), 2: wide + 300 + draw.normal(0, 5, 20)}
    nics = {0: ["a0", "b0", "c0", "d0"], 1: ["a1", "b1"], 2: ["a2", "b2"]}
    members = _members(nics)
    steps = pl.DataFrame(
        [(cluster, WINDOW.start_ns + round(end * MS), 2000.0 * MS) for cluster, some in ends.items() for end in some],
        schema=["cluster", "end_ns", "period_ns"],
        orient="row",
    ).sort("cluster", "end_ns")
    small = [at + draw.uniform(0, 500) for at in every(2000, count=20)]
    sent = nic_pairs.in_order(flows(ring(nics[0], every(2000, count=20)), ring(nics[1], small), ring(nics[2], small)))
    found = tenants(members, steps, sent, NO_UNISON, (WINDOW.start_ns, WINDOW.end_ns), settings().recognition)
    assert found["job"].n_unique() == 1


@pytest.mark.parametrize(("late", "clusters"), [(0, 1), (500, 2)])
def test_clusters_in_step_are_one_and_others_stay_as_they_are(late: float, clusters: int) -> None:
    """Tokens go by both rails, gradients by one of them: both are that one, which sends more often."""
    nics = {3: ["a0", "b0", "c0"], 7: ["a1", "b1", "c1"], 9: ["d0", "e0"]}
    members = _members(nics)
    tokens, gradients = every(2000, count=20), every(2000, count=20, start=900)
    rows = [*ring(nics[3], [at + late for at in tokens]), *ring(nics[7], sorted([*tokens, *gradients]))]
    sent = nic_pairs.in_order(flows(rows, ring(nics[9], tokens)))
    joined = joined_in_step(members, sent, NO_UNISON, settings().recognition)
    assert joined.drop("cluster").equals(members.drop("cluster"))
    assert joined.filter(pl.col("host") < "d")["cluster"].unique().sort().to_list() == [3, 7][-clusters:]
    assert joined.filter(pl.col("host") >= "d")["cluster"].unique().to_list() == [9]


@pytest.mark.parametrize(("start", "clusters"), [(0, 2), (7, 1)])
def test_on_a_clock_of_whole_seconds_all_begin_together(start: float, clusters: int) -> None:
    """One sends every second, the other every third; that the clock is finer is seen in what others send."""
    nics = {3: ["a0", "b0"], 7: ["a1", "b1"], 9: ["d0", "e0"]}
    often, now_and_then = every(1000, count=40), every(3000, count=13)
    rows = [
        (begin, begin, src, dst, MB)
        for cluster, begins in ((3, often), (7, now_and_then), (9, every(1000, count=40, start=start)))
        for src, dst in (nics[cluster], nics[cluster][::-1])
        for begin in begins
    ]
    joined = joined_in_step(_members(nics), nic_pairs.in_order(flows(rows)), NO_UNISON, settings().recognition)
    assert joined.filter(pl.col("host") < "d")["cluster"].n_unique() == clusters
