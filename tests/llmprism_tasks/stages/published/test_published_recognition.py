"""Clusters of linked NICs on the same hosts are one job; what the published method cannot tell apart is shown too."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
from handmade import WINDOW, Row, every, flows, messages, topology
from published_chain import run

MB = 1_000_000
NICS = topology({f"host-{i}": [f"10.0.{i}.1", f"10.0.{i}.2"] for i in range(1, 5)})


def rail(gpu: int, *hosts: int) -> list[Row]:
    """Return records along a chain of hosts, on one GPU each."""
    addrs = [f"10.0.{host}.{gpu}" for host in hosts]
    return [row for a, b in pairwise(addrs) for row in messages(a, b, every(1000, count=5), MB)]


def jobs(*parts: list[Row]) -> list[tuple[str, list[str]]]:
    found = run("recognition", {"flows": flows(*parts), "topology": NICS})
    members = found["job_members"].group_by("job_id").agg(pl.col("addr").sort())
    return sorted(found["jobs"].join(members, on="job_id").select("kind", "addr").rows())


def addrs(gpus: tuple[int, ...], *hosts: int) -> list[str]:
    return sorted(f"10.0.{host}.{gpu}" for host in hosts for gpu in gpus)


def test_rails_on_the_same_hosts_are_one_job_and_other_hosts_another() -> None:
    assert jobs(rail(1, 1, 2), rail(2, 1, 2), rail(1, 3, 4)) == [
        ("training", addrs((1, 2), 1, 2)),
        ("training", addrs((1,), 3, 4)),
    ]


def test_rails_that_share_too_few_hosts_stay_apart() -> None:
    assert len(jobs(rail(1, 1, 2), rail(2, 2, 3, 4))) == 2


def test_what_stays_in_one_host_does_not_train() -> None:
    assert jobs(messages("10.0.1.1", "10.0.1.2", [5], MB)) == [("other", addrs((1, 2), 1))]


def test_addresses_outside_the_topology_join_nothing() -> None:
    storage = [row for host in (1, 3) for row in messages(f"10.0.{host}.1", "10.9.9.9", [5], MB)]
    assert len(jobs(rail(1, 1, 2), rail(1, 3, 4), storage)) == 2


def test_chatter_joins_jobs() -> None:
    """The published method takes any flow for a link."""
    assert len(jobs(rail(1, 1, 2), rail(1, 3, 4), messages("10.0.2.1", "10.0.3.1", [5], 48))) == 1


def test_only_the_window_links_but_the_past_names() -> None:
    table = flows(rail(1, 1, 2), [(start + 60_000, end + 60_000, *rest) for start, end, *rest in rail(1, 1, 2, 3)])
    first, second = (
        run("recognition", {"flows": table, "topology": NICS}, WINDOW.shifted(shift))["jobs"] for shift in (0, 1)
    )
    assert second["endpoints"].to_list() == [3]
    assert first["job_id"].to_list() == second["job_id"].to_list()
