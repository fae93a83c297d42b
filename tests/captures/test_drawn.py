"""What seeds draw: all kinds and troubles by turns, on a cluster that can play it."""

from __future__ import annotations

import cluster
import drawn
import pytest

SEEDS = range(200)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_capture_fits_the_cluster(seed: int) -> None:
    scenario = drawn.draw(seed)
    places = [addr for job in scenario.jobs for addr in job.addrs]
    assert len(places) == len(set(places)) <= len(cluster.NICS)
    for job in scenario.jobs:
        assert len(job.addrs) == job.tp * job.pp * job.dp
        assert job.dp % job.ep == job.dp % job.cp == 0
        assert job.layers >= job.pp * job.virtual
        assert job.pp == 1 or job.micro_batches >= job.pp


@pytest.mark.parametrize("seed", SEEDS)
def test_tensor_parallel_ranks_are_on_one_host(seed: int) -> None:
    hosts = {node.addr: node.host for node in cluster.NICS}
    for job in drawn.draw(seed).jobs:
        for at in range(0, len(job.addrs), job.tp):
            assert len({hosts[addr] for addr in job.addrs[at : at + job.tp]}) == 1


@pytest.mark.parametrize("parity", [0, 1])
def test_a_dozen_seeds_of_a_parity_have_every_kind_and_every_trouble(parity: int) -> None:
    turns = [(2 * turn + parity) for turn in range(12)]
    kinds = {drawn.KINDS[seed // 2 % len(drawn.KINDS)] for seed in turns}
    troubles = {fault.kind for seed in turns for fault in drawn.draw(seed).faults}
    assert kinds == set(drawn.KINDS)
    assert troubles == set(drawn.TROUBLES) - {"none"}


def test_somebody_still_sends_when_a_job_was_killed() -> None:
    killed = [drawn.draw(seed) for seed in SEEDS if any(one.kind == "killed_rank" for one in drawn.draw(seed).faults)]
    assert killed
    assert all(len(scenario.jobs) == 2 for scenario in killed)
