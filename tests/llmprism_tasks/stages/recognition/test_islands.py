"""Islands: hosts that exchange no data; those of one job begin together."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import MB, Row, every, flows, messages, settings, topology

from llmprism_tasks.execution.partitions.partition import divide_platform
from llmprism_tasks.stages.recognition.islands import hosts_in_unison
from llmprism_tasks.stages.traffic.index import TrafficIndex
from llmprism_tasks.stages.traffic.nic_pairs import PAIR

HOSTS = topology({host: [f"{host}0"] for host in "abcdef"})
TOLERANCE_MS = settings().recognition.phase_tolerance_ms


def drawn(count: int = 40, seed: int = 1) -> list[float]:
    """Return moments that no rhythm explains, ms."""
    return sorted(np.random.default_rng(seed).uniform(0, 60_000, count).tolist())


def in_unison(*parts: list[Row]) -> list[set[str]]:
    """Return the hosts that are in unison with others, and see that they are in one partition."""
    table = flows(*parts)
    found = hosts_in_unison(TrafficIndex.of(table, settings().traffic), HOSTS, settings())
    divided = divide_platform(table, HOSTS, settings(), most=10)
    frames = [divided.partition(number).flows for number in range(divided.n_partitions)]
    together = [{addr[0] for end in PAIR for addr in frame[end]} for frame in frames]
    groups = [set(hosts) for hosts in found.group_by("unison", maintain_order=True).agg("host")["host"].to_list()]
    pairs = {frozenset((src[0], dst[0])) for src, dst in table.select(PAIR).rows() if dst[0] in "abcdef"}
    alone = [set(pair) for pair in pairs if not any(pair <= group for group in groups)]
    assert sorted(map(sorted, (hosts & set("abcdef") for hosts in together))) == sorted(map(sorted, [*groups, *alone]))
    return groups


def sent(hosts: str, moments: list[float]) -> list[Row]:
    return messages(f"{hosts[0]}0", f"{hosts[1]}0", moments, MB)


@pytest.mark.parametrize(("late", "groups"), [(0.9 * TOLERANCE_MS, [set("abcd")]), (3 * TOLERANCE_MS, [])])
def test_islands_that_begin_together_are_in_unison(late: float, groups: list[set[str]]) -> None:
    moments = drawn()
    assert (
        in_unison(sent("ab", moments), sent("cd", [at + late for at in moments]), sent("ef", drawn(seed=2))) == groups
    )


@pytest.mark.parametrize(("shared", "joined"), [(32, True), (28, False)])
def test_most_moments_of_both_are_shared(shared: int, joined: bool) -> None:
    """Of 40 moments, three quarters and what chance adds."""
    moments = drawn()
    other = sorted([*moments[:shared], *drawn(40 - shared, seed=3)])
    assert bool(in_unison(sent("ab", moments), sent("cd", other))) == joined


def test_a_part_of_what_another_does_is_not_unison() -> None:
    """A copy of files may begin with some of a job's steps; the job does not begin with the copy's."""
    moments = drawn(80)
    assert not in_unison(sent("ab", moments), sent("cd", moments[::4]))


@pytest.mark.parametrize(("count", "joined"), [(10, True), (9, False)])
def test_few_moments_coincide_by_chance(count: int, joined: bool) -> None:
    moments = every(5_000, count=count)
    assert bool(in_unison(sent("ab", moments), sent("cd", moments))) == joined


def test_those_that_always_send_are_in_unison_with_nobody() -> None:
    moments = every(4 * TOLERANCE_MS, count=4_000)
    assert not in_unison(sent("ab", moments), sent("cd", moments))


@pytest.mark.parametrize(("pause", "joined"), [(0.001, False), (2 * TOLERANCE_MS, True)])
def test_a_record_that_goes_on_begins_nothing(pause: float, joined: bool) -> None:
    """A collector cuts the records of all at each second of its clock."""

    def cut(hosts: str) -> list[Row]:
        return [(1000.0 * at, 1000.0 * (at + 1) - pause, f"{hosts[0]}0", f"{hosts[1]}0", MB) for at in range(50)]

    assert bool(in_unison(cut("ab"), cut("cd"))) == joined


def test_storage_is_no_host_of_an_island() -> None:
    moments = drawn()
    rows = [*sent("ab", moments), *messages("a0", "s", drawn(seed=4), MB)]
    assert in_unison(rows, sent("cd", moments)) == [set("abcd")]
