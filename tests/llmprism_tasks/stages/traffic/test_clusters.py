"""Hosts that a job's pairs join are one island."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.traffic.clusters import islands_of_jobs


def test_hosts_joined_by_pairs_are_one_island_in_their_job() -> None:
    """`e` exchanges nothing, `x` is no member, and a host may have two jobs."""
    placed = [("j", addr, addr[0]) for addr in ("a0", "a1", "b0", "c0", "d0", "e0")] + [
        ("k", "a2", "a"),
        ("k", "c1", "c"),
    ]
    members = pl.DataFrame(placed, schema=["job_id", "addr", "host"], orient="row")
    sent = [("j", "a0", "b0"), ("j", "c0", "d0"), ("j", "b0", "x"), ("j", "x", "d0"), ("k", "a2", "c1")]
    pairs = pl.DataFrame(sent, schema=["job_id", "src_addr", "dst_addr"], orient="row")
    found = islands_of_jobs(pairs, members).group_by("job_id", "island").agg(pl.col("host").sort())
    assert sorted(found.select("job_id", "host").rows()) == [
        ("j", ["a", "b"]),
        ("j", ["c", "d"]),
        ("k", ["a", "c"]),
    ]
