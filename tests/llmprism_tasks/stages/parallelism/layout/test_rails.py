"""Rings through hosts: in at one GPU, out at another, unseen between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations, product

import polars as pl
import pytest
from handmade import degrees_of, members, topology
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.layout import rails

Pair = tuple[str, str, str]
COLUMNS = {"job_id": pl.String, "src_addr": pl.String, "dst_addr": pl.String, "kind": pl.String}


def hosts_of(count: int, gpus: int) -> dict[str, list[str]]:
    return {f"host-{host}": [f"{host:02}-{gpu}" for gpu in range(gpus)] for host in range(count)}


def channel_order(group: Sequence[str], channel: int, *, turned: bool, both_ways: bool) -> list[str]:
    """Return the way of a channel through a host: as NCCL may turn it to begin at another NIC, or walk it back."""
    begin = channel % len(group) if turned else 0
    order = [*group[begin:], *group[:begin]]
    return order[::-1] if both_ways and channel % 2 else order


def rings(
    hosts: dict[str, list[str]], tp: int, channels: int, *, turned: bool = False, both_ways: bool = False
) -> Iterator[Pair]:
    """Yield the hops of the gradients' rings of a job on all GPUs of the hosts: one group for each place of `tp`."""
    for place, channel in product(range(tp), range(channels)):
        ways = [channel_order(of[place::tp], channel, turned=turned, both_ways=both_ways) for of in hosts.values()]
        yield from ((here[-1], there[0], "dp") for here, there in pairwise([*ways, ways[0]]))


def table(pairs: Sequence[Pair]) -> pl.DataFrame:
    return pl.DataFrame([("j", *pair) for pair in sorted(set(pairs))], schema=COLUMNS, orient="row")


def members_of(pairs: Sequence[Pair], hosts: dict[str, list[str]]) -> dict[str, str]:
    """Return the host of each NIC that these pairs name."""
    host_of = {addr: host for host, of in hosts.items() for addr in of}
    return {addr: host_of[addr] for pair in pairs for addr in pair[:2]}


def found(
    pairs: Sequence[Pair], hosts: dict[str, list[str]], others: dict[str, str] | None = None
) -> tuple[int | None, int | None, int | None]:
    """Return (tp, pp, dp) of a job whose members are the NICs of these pairs."""
    jobs = {"j": members_of(pairs, hosts)} | ({"other": others} if others else {})
    laid = degrees_of(table(pairs), members(jobs), topology(hosts))
    return laid.filter(pl.col("job_id") == "j").select("tp", "pp", "dp").row(0)


@pytest.mark.parametrize(("gpus", "tp"), [(4, 1), (4, 2), (4, 4), (8, 1), (8, 2), (8, 4)])
def test_rings_of_few_channels(gpus: int, tp: int) -> None:
    """NICs that no channel uses are silent, and no members; but the GPUs are replicas all the same."""
    tables, used, everywhere, expected = [], {}, {}, {}
    for count, channels, turned, both_ways in product((2, 3, 4), (1, 2, 4), (False, True), (False, True)):
        job = f"{count} hosts, {channels} channels, {turned=}, {both_ways=}"
        hosts = {f"{job}: {name}": [f"{job}: {addr}" for addr in of] for name, of in hosts_of(count, gpus).items()}
        pairs = list(rings(hosts, tp, channels, turned=turned, both_ways=both_ways))
        tables.append(table(pairs).with_columns(job_id=pl.lit(job)))
        used[job] = members_of(pairs, hosts)
        everywhere |= hosts
        expected[job] = (job, tp, 1, count * gpus // tp)
    laid = degrees_of(pl.concat(tables), members(used), topology(everywhere))
    assert {row[0]: row for row in laid.select("job_id", "tp", "pp", "dp").rows()} == expected


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_pipeline_whose_rings_leave_nics_silent(tp: int, channels: int) -> None:
    """Two stages on two hosts each: every NIC is in the pipeline, and few in the rings."""
    hosts = hosts_of(4, 8)
    names = list(hosts)
    pairs = [pair for half in (names[:2], names[2:]) for pair in rings({h: hosts[h] for h in half}, tp, channels)]
    for first, second in ((0, 2), (1, 3)):
        for here, there in zip(hosts[names[first]], hosts[names[second]], strict=True):
            pairs += [(here, there, "pp"), (there, here, "pp")]
    assert found(pairs, hosts) == (tp, 2, 16 // tp)


@pytest.mark.parametrize(("tp", "expected"), [(2, (2, 2, 8)), (4, (4, 2, 4)), (8, (8, 2, 2))])
def test_a_pipeline_whose_rings_stay_on_their_rails(tp: int, expected: tuple[int, int, int]) -> None:
    """Each ring enters a host at the NIC where it leaves it; the pipeline's other NICs belong to these rings, too."""
    hosts = hosts_of(4, 8)
    first, second, third, fourth = hosts.values()
    pairs = [
        (*ends, "dp")
        for here, there in ((first, second), (third, fourth))
        for place in range(tp)
        for ends in permutations((here[place], there[place]))
    ]
    for here, there in ((first, third), (second, fourth)):
        pairs += [(*ends, "pp") for both in zip(here, there, strict=True) for ends in permutations(both)]
    assert found(pairs, hosts) == expected


def test_half_a_host_is_no_whole_one() -> None:
    """Four GPUs of eight, whether the others are idle or another job's."""
    hosts = hosts_of(3, 8)
    upper = {host: of[4:] for host, of in hosts.items()}
    lower = {addr: host for host, of in hosts.items() for addr in of[:4]}
    pairs = list(rings(upper, 2, 1))
    assert found(pairs, hosts) == found(pairs, hosts, lower) == (2, 1, 6)


def test_what_lies_between_is_another_job_s() -> None:
    """Rings enter at GPU 0 and leave at 7; but another job has GPUs 2 to 5."""
    hosts = hosts_of(2, 8)
    ours = {host: [*of[:2], *of[6:]] for host, of in hosts.items()}
    inner = {addr: host for host, of in hosts.items() for addr in of[2:6]}
    assert found(list(rings(ours, 2, 1)), hosts, inner) == (2, 1, 4)


def test_a_part_of_a_host_that_no_job_would_get_is_not_filled_up() -> None:
    """From GPU 0 to 6 are seven of eight: whether the eighth takes part, and what lies between, nobody can say."""
    hosts = hosts_of(3, 8)
    pairs = [(here[6], there[0], "dp") for here, there in pairwise([*hosts.values(), hosts["host-0"]])]
    assert found(pairs, hosts) == (None, None, None)


def test_rails_that_lost_their_pairs_are_not_taken_for_silent_ones() -> None:
    """Of four rings' pairs three are seen: the fourth place has nothing to be judged by."""
    hosts = hosts_of(3, 8)
    whole = list(rings(hosts, 4, 2, both_ways=True))
    partial = [pair for pair in whole if pair[0][-1] not in "37"]
    everybody = members({"j": {addr: host for host, of in hosts.items() for addr in of}})
    laid = degrees_of(table(partial), everybody, topology(hosts))
    assert laid.select("tp", "pp", "dp").row(0) == (None, None, None)


def test_a_group_that_would_hold_most_of_a_pipeline_is_none() -> None:
    """Hops that cross by one, and messages between the same NICs: they cannot be replicas and stages at once."""
    hosts = hosts_of(2, 2)
    (a, b), (c, d) = hosts.values()
    pairs = [(a, d, "dp"), (d, a, "dp"), (b, c, "dp"), (c, b, "dp"), (a, c, "pp"), (c, a, "pp")]
    assert found(pairs, hosts) == (None, None, None)


@pytest.mark.parametrize(("count", "strides"), [(4, [1]), (5, [])])
def test_hops_that_cross_rails_between_two_hosts_alone_are_no_ring_s(count: int, strides: list[int]) -> None:
    """Each rail has its ring, and one pair was taken for a part of them: of four hosts it touches half."""
    hosts = hosts_of(count, 4)
    straight = list(rings(hosts, 4, 1))
    nics = rails.ranked(members({"j": {addr: host for host, of in hosts.items() for addr in of}}), topology(hosts))
    stray = table([*straight, (hosts["host-0"][0], hosts["host-1"][1], "dp")])
    assert rails.strides(rails.hops(stray, nics), nics)["stride"].to_list() == strides


@given(st.sampled_from([1, 2, 4]), st.integers(1, 8), st.booleans(), st.booleans())
def test_the_stride_divides_what_rings_cross(tp: int, channels: int, turned: bool, both_ways: bool) -> None:
    hosts = hosts_of(2, 8)
    pairs = table(list(rings(hosts, tp, channels, turned=turned, both_ways=both_ways)))
    shuffled = pairs.sample(fraction=1, shuffle=True, seed=channels)
    nics = rails.ranked(members({"j": {addr: host for host, of in hosts.items() for addr in of}}), topology(hosts))
    found_ = [rails.strides(rails.hops(some, nics), nics)["stride"].to_list() for some in (pairs, shuffled)]
    assert found_[0] == found_[1] == [tp]
