"""Who goes on while a job stands still is foreign to it; who carries the job is not."""

from __future__ import annotations

from itertools import permutations

import polars as pl
import pytest
from handmade import MB, WINDOW, every, flows, ring, settings

from llmprism_tasks.stages.liveness.foreign import foreign_pairs
from llmprism_tasks.stages.traffic import nic_pairs

NICS = "abcdef"
RING = ring(NICS, every(2000, count=29))
SECOND_NS = 10**9


@pytest.mark.parametrize(("size", "foreign"), [(MB // 10, 0), (400 * MB, len(NICS))])
def test_what_chatters_is_not_asked_whether_the_job_stands_still(size: int, foreign: int) -> None:
    """A ring of six NICs goes on while all other pairs are silent for most of the minute. If these carry as much as the
    ring, it is the ring that has nothing to do with the job."""
    apart = [link for link in permutations(NICS, 2) if link not in {(src, dst) for _, _, src, dst, _ in RING}]
    rest = [(at, at + 50, src, dst, size) for src, dst in apart for at in (100, 200, 300, 50_000)]
    inside = nic_pairs.inside_jobs(flows(RING, rest), pl.DataFrame({"addr": list(NICS), "job_id": "j"}))
    bulk = nic_pairs.in_order(nic_pairs.bulk(inside, settings().traffic))
    assert foreign_pairs(bulk, WINDOW, least_ns=10 * SECOND_NS, more=1.0).height == foreign
