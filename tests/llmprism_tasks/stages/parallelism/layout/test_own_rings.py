"""Rails have one ring or several: in one, all are alike; of several, those that share neither host nor ring are not."""

from __future__ import annotations

import random

import polars as pl
import pytest
from handmade import MS, members, topology

from llmprism_tasks.stages.parallelism.layout import own_rings

HOSTS = "abcd"
ENDS_MS = 500
"""From when a ring begins to when it ends."""


def rings(
    own_ms: float,
    *,
    host_ms: float = 0.0,
    ring_ms: float = 0.0,
    late_ms: float = 0.0,
    ring_of: tuple[int, ...] = (0, 1),
    in_step: int | None = 1,
    hosts: str = HOSTS,
    awaits: bool = False,
    steps: int = 40,
    also: tuple[str, str] | None = None,
) -> int | str | None:
    """Return how many peers a host has by the rings of its rails, or `absent`.

    Hosts in a ring, of whose GPUs so many seem to be in step. Each GPU begins up to `own_ms` late, each host up to
    `host_ms`, and each ring up to `ring_ms`; and each ring ends up to `late_ms` later than that. Who `awaits` sends
    nothing before its receiver is there, and ends when all have been.
    """
    draw, rows, gpus = random.Random(1), [], len(ring_of)
    after = dict(zip(hosts, hosts[1:] + hosts[0], strict=True))
    for step in range(steps):
        late = {host: draw.uniform(0, host_ms) for host in hosts}
        held = [(draw.uniform(0, ring_ms), draw.uniform(0, late_ms)) for _ in range(gpus)]
        there = {
            (host, gpu): 1000 * step + late[host] + held[ring][0] + draw.uniform(0, own_ms)
            for host in hosts
            for gpu, ring in enumerate(ring_of)
        }
        for host in hosts:
            for gpu, ring in enumerate(ring_of):
                begins = max(there[host, gpu], there[after[host], gpu] if awaits else 0)
                ends = (max(there.values()) if awaits else begins) + ENDS_MS + held[ring][1]
                rows.append((f"{host}{gpu}", step, round(begins * MS), round(ends * MS)))
    moments = pl.DataFrame(rows, schema=["src_addr", "step", "first_ns", "last_ns"], orient="row")
    following = {f"{host}{gpu}": f"{to}{gpu}" for host, to in after.items() for gpu in range(gpus)}
    links = [("j", src, dst, "dp") for src, dst in following.items()] + ([("j", "a0", *also)] if also else [])
    pairs = pl.DataFrame(links, schema=["job_id", "src_addr", "dst_addr", "kind"], orient="row").with_row_index("pair")
    sent = moments.join(pairs.filter(pl.col("kind") == "dp"), on="src_addr").select(
        "pair", "step", "first_ns", "last_ns"
    )
    nics_of = {host: [f"{host}{gpu}" for gpu in range(gpus)] for host in hosts}
    nics = members({"j": {addr: host for host, of in nics_of.items() for addr in of}})
    known = pl.DataFrame({"job_id": ["j"], "peers": [in_step]}, schema_overrides={"peers": pl.Int64}).drop_nulls()
    found = own_rings.peers_by_rings(known, sent, pairs, nics, topology(nics_of))
    return found["peers"].item() if found.height else "absent"


def test_in_one_ring_all_are_alike() -> None:
    assert rings(20) == 1
    assert rings(20, ring_of=(0, 1, 2, 3)) == 1


@pytest.mark.parametrize("hosts", ["ab", "abc", "abcd"])
def test_the_ends_of_a_hop_begin_alike_in_one_ring_too(hosts: str) -> None:
    assert rings(60, awaits=True, hosts=hosts, steps=200) == 1


@pytest.mark.parametrize("hosts", ["ab", "abc", "abcd"])
@pytest.mark.parametrize(("host_ms", "found"), [(5, 1), (60, 2)])
def test_peers_are_closer_than_those_that_share_neither_host_nor_ring(hosts: str, host_ms: float, found: int) -> None:
    assert rings(15, host_ms=host_ms, hosts=hosts) == found


@pytest.mark.parametrize(("ring_ms", "found"), [(5, 1), (60, 2)])
def test_a_ring_may_hold_its_members_back(ring_ms: float, found: int) -> None:
    assert rings(15, ring_ms=ring_ms) == found
    assert rings(15, late_ms=ring_ms) == found


@pytest.mark.parametrize(("ring_ms", "found"), [(3, 1), (12, 2)])
def test_what_clocks_differ_by_tells_nothing(ring_ms: float, found: int) -> None:
    assert rings(0.1, ring_ms=ring_ms) == found


@pytest.mark.parametrize(
    ("ring_of", "in_step", "found"),
    [((0, 1, 2, 3), 1, 4), ((0, 1, 0, 1), 1, 2), ((0, 1, 1, 1), 1, None), ((0, 1, 1, 1), 4, 4), ((0, 1, 0, 1), 4, 4)],
)
def test_a_ring_may_have_several_rails(ring_of: tuple[int, ...], in_step: int, found: int | None) -> None:
    """Where one has more of them than another, nobody knows who is a peer, unless all are in step."""
    assert rings(15, ring_ms=90, ring_of=ring_of, in_step=in_step) == found


@pytest.mark.parametrize(("ring_ms", "steps", "found"), [(60, 3, 1), (60, 4, 2), (30, 8, 1), (30, 200, 2)])
def test_the_fewer_steps_the_further_apart_rings_must_be(ring_ms: float, steps: int, found: int) -> None:
    assert rings(1 if ring_ms > 30 else 15, ring_ms=ring_ms, steps=steps) == found


@pytest.mark.parametrize(
    ("also", "found"),
    [(("c0", "pp"), 2), (("c1", "pp"), 1), (("c1", "other"), 2), (("c0", "cp"), 1), (("c0", "ep"), 1)],
)
def test_rails_may_be_stages_where_a_pipeline_goes_from_one_to_another(also: tuple[str, str], found: int) -> None:
    """Who passes blocks or exchanges tokens meets others in every layer."""
    assert rings(15, ring_ms=60, also=also) == found


def test_where_nobody_knows_who_is_in_step_nobody_is_asked() -> None:
    assert rings(15, ring_ms=60, in_step=None) == "absent"
