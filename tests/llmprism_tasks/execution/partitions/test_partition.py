"""Partitions of a platform: hosts that exchange data stay together, and each partition knows when others send."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.execution.partitions.partition import (
    RESOLUTION_NS,
    Partitions,
    divide_platform,
    job_batches,
    latest_starts,
)
from llmprism_tasks.settings import Settings

SETTINGS = Settings()
DATA, CONTROL = SETTINGS.traffic.control_bytes + 1, SETTINGS.traffic.control_bytes
HOSTS = {f"{host}{nic}": host for host in "abcdef" for nic in (0, 1)}
TOPOLOGY = pl.DataFrame({"addr": list(HOSTS), "host": list(HOSTS.values())})

Sent = tuple[str, str, int]


def platform(*sent: Sent, most: int = 10) -> Partitions:
    """Divide flows, each of which starts a millisecond after the one before it."""
    source, target, sizes = zip(*sent, strict=True)
    starts = [10**18 + RESOLUTION_NS * at for at in range(len(sent))]
    flows = pl.DataFrame({"src_addr": source, "dst_addr": target, "bytes": sizes, "flow_start_ns": starts})
    flows = flows.with_columns(flow_end_ns="flow_start_ns")
    return divide_platform(flows, TOPOLOGY, SETTINGS, most=most)


def sets(found: Partitions) -> list[set[str]]:
    """Return the addresses of each partition."""
    frames = [found.partition(number).flows for number in range(found.n_partitions)]
    return [{*frame["src_addr"], *frame["dst_addr"]} for frame in frames]


def test_hosts_that_exchange_data_are_in_one_partition_with_all_their_nics() -> None:
    assert sets(platform(("a0", "b0", DATA), ("b1", "c0", DATA), ("d0", "e0", DATA))) == [
        {"a0", "b0", "b1", "c0"},
        {"d0", "e0"},
    ]


@pytest.mark.parametrize(("size", "number"), [(CONTROL, 2), (DATA, 1)])
def test_control_messages_join_no_hosts_and_are_in_no_partition(size: int, number: int) -> None:
    found = platform(("a0", "b0", DATA), ("c0", "d0", DATA), ("b0", "c0", size))
    assert found.n_partitions == number
    assert sum(found.partition(at).flows.height for at in range(number)) == 2 + (size == DATA)


def test_traffic_with_storage_is_in_the_partition_of_its_host_and_also_kept_apart() -> None:
    found = platform(("a0", "b0", DATA), ("c0", "d0", DATA), ("a0", "s", DATA), ("t", "d0", DATA), ("s", "t", DATA))
    assert sets(found) == [{"a0", "b0", "s"}, {"c0", "d0", "t"}]
    assert found.outside["src_addr"].to_list() == ["a0", "t", "s"]


def test_starts_of_flows_in_no_partition_are_known_to_all() -> None:
    found = platform(("a0", "b0", DATA), ("c0", "d0", DATA), ("b0", "c0", CONTROL), ("s", "t", DATA))
    begin = found.flows["flow_start_ns"][0]
    seen = [
        [(ns - begin) // RESOLUTION_NS for ns in found.partition(at).other_starts["flow_start_ns"]] for at in (0, 1)
    ]
    assert seen == [[1, 2, 3], [0, 2, 3]]


def test_partitions_have_about_as_many_flows_each() -> None:
    sent = [
        (f"{a}0", f"{b}0", DATA) for a, b, times in (("a", "b", 5), ("c", "d", 3), ("e", "f", 2)) for _ in range(times)
    ]
    found = platform(*sent, most=2)
    assert [found.partition(at).flows.height for at in range(found.n_partitions)] == [5, 5]


NICS = st.sampled_from([*HOSTS, "s", "t"])


@given(st.lists(st.tuples(NICS, NICS, st.sampled_from([CONTROL, DATA])), min_size=1, max_size=20), st.integers(1, 4))
def test_every_flow_with_data_is_in_the_one_partition_of_its_hosts(sent: list[Sent], most: int) -> None:
    found = platform(*sent, most=most)
    frames = [found.partition(number).flows for number in range(found.n_partitions)]
    assert [frame.height for frame in frames] == sorted((frame.height for frame in frames), reverse=True)
    hosts = [{HOSTS[addr] for addr in nics if addr in HOSTS} for nics in sets(found)]
    assert sum(map(len, hosts)) == len(set().union(*hosts))
    expected = [
        one for one in sent if (one[0] in HOSTS or one[1] in HOSTS) and (one[2] == DATA or not {*one[:2]} <= {*HOSTS})
    ]
    rows = [row for frame in frames for row in frame.select("src_addr", "dst_addr", "bytes").iter_rows()]
    assert [row for row in sorted(expected) if row not in rows] == []
    assert all(frame["flow_start_ns"].is_sorted() for frame in frames)


def packed(most: int, **jobs: Sequence[str]) -> list[list[str]]:
    """Pack jobs, given the host of each of their members, into batches."""
    members = pl.DataFrame({"job_id": jobs.keys(), "host": jobs.values()}).explode("host")
    sizes = pl.DataFrame({"job_id": jobs.keys(), "endpoints": map(len, jobs.values())})
    return job_batches(sizes, members, most)


def test_jobs_are_packed_the_largest_first_each_to_the_batch_with_fewest_endpoints() -> None:
    jobs = {"j": ["a"] * 2, "k": ["b"] * 5, "l": ["c"] * 4, "m": ["d"] * 1}
    assert packed(2, **jobs) == [["k", "m"], ["l", "j"]]
    assert packed(9, **jobs) == [["k"], ["l"], ["j"], ["m"]]


def test_jobs_that_share_hosts_directly_or_through_others_are_packed_together() -> None:
    assert packed(9, j=["a", "b"], k=["b", "c", "c"], l=["d"], m=["c"]) == [["k", "j", "m"], ["l"]]


def test_no_jobs_make_no_batch() -> None:
    none = pl.DataFrame(schema={"job_id": pl.String, "endpoints": pl.Int32, "host": pl.String})
    assert job_batches(none, none, 2) == []


SLOT = 10


def others(times: list[int], groups: list[int], group: int) -> list[int]:
    latest = latest_starts(np.array(times, np.int64), np.array(groups, np.int32), SLOT)
    return latest.of_others(group).tolist()


@given(st.lists(st.tuples(st.integers(100, 160), st.integers(0, 3)), max_size=30), st.integers(0, 3))
def test_the_latest_of_others_in_each_slot(seen: list[tuple[int, int]], group: int) -> None:
    last: dict[int, int] = {}
    for time, who in seen:
        if who != group:
            last[time // SLOT] = max(last.get(time // SLOT, 0), time)
    assert others([time for time, _ in seen], [who for _, who in seen], group) == [last[slot] for slot in sorted(last)]


@pytest.mark.parametrize(("group", "expected"), [(0, [119, 131]), (1, [112]), (2, [119, 131])])
def test_a_group_s_own_times_are_not_among_those_of_others(group: int, expected: list[int]) -> None:
    assert others([110, 119, 112, 131], [1, 1, 0, 1], group) == expected
