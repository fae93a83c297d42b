"""Parts of a platform: who exchanges data is together, whose flows are in none of them, and who else was seen when."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llmprism_tasks.stages.parts import RESOLUTION_NS, Parts, batches, parts

from llmprism_tasks.settings import TrafficSettings

SETTINGS = TrafficSettings()
DATA, CHATTER = SETTINGS.control_bytes + 1, SETTINGS.control_bytes
HOSTS = {f"{host}{nic}": host for host in "abcdef" for nic in (0, 1)}
TOPOLOGY = pl.DataFrame({"addr": list(HOSTS), "host": list(HOSTS.values())})

Sent = tuple[str, str, int]


def platform(*sent: Sent, most: int = 10) -> Parts:
    """Divide flows, each of which starts a millisecond after the one before it."""
    source, target, sizes = zip(*sent, strict=True)
    starts = [10**18 + RESOLUTION_NS * at for at in range(len(sent))]
    flows = pl.DataFrame({"src_addr": source, "dst_addr": target, "bytes": sizes, "flow_start_ns": starts})
    return parts(flows, TOPOLOGY, SETTINGS, most=most)


def sets(found: Parts) -> list[set[str]]:
    """Return the addresses of each part."""
    frames = [found.part(number).flows for number in range(found.number)]
    return [{*frame["src_addr"], *frame["dst_addr"]} for frame in frames]


def test_hosts_that_exchange_data_are_in_one_part_with_all_their_nics() -> None:
    assert sets(platform(("a0", "b0", DATA), ("b1", "c0", DATA), ("d0", "e0", DATA))) == [
        {"a0", "b0", "b1", "c0"},
        {"d0", "e0"},
    ]


@pytest.mark.parametrize(("size", "number"), [(CHATTER, 2), (DATA, 1)])
def test_chatter_joins_nobody_and_is_in_no_part(size: int, number: int) -> None:
    found = platform(("a0", "b0", DATA), ("c0", "d0", DATA), ("b0", "c0", size))
    assert found.number == number
    assert sum(found.part(at).flows.height for at in range(number)) == 2 + (size == DATA)


def test_what_goes_to_storage_is_its_sender_s_and_told_apart() -> None:
    found = platform(("a0", "b0", DATA), ("c0", "d0", DATA), ("a0", "s", DATA), ("t", "d0", DATA), ("s", "t", DATA))
    assert sets(found) == [{"a0", "b0", "s"}, {"c0", "d0", "t"}]
    assert found.outside["src_addr"].to_list() == ["a0", "t", "s"]


def test_others_are_seen_though_they_are_in_no_part() -> None:
    found = platform(("a0", "b0", DATA), ("c0", "d0", DATA), ("b0", "c0", CHATTER), ("s", "t", DATA))
    begin = found.flows["flow_start_ns"][0]
    seen = [[(ns - begin) // RESOLUTION_NS for ns in found.part(at).elsewhere["flow_start_ns"]] for at in (0, 1)]
    assert seen == [[1, 2, 3], [0, 2, 3]]


def test_of_few_parts_none_is_much_larger_than_the_others() -> None:
    sent = [
        (f"{a}0", f"{b}0", DATA) for a, b, times in (("a", "b", 5), ("c", "d", 3), ("e", "f", 2)) for _ in range(times)
    ]
    found = platform(*sent, most=2)
    assert [found.part(at).flows.height for at in range(found.number)] == [5, 5]


NICS = st.sampled_from([*HOSTS, "s", "t"])


@given(st.lists(st.tuples(NICS, NICS, st.sampled_from([CHATTER, DATA])), min_size=1, max_size=20), st.integers(1, 4))
def test_every_flow_with_data_is_in_the_one_part_of_its_hosts(sent: list[Sent], most: int) -> None:
    found = platform(*sent, most=most)
    frames = [found.part(number).flows for number in range(found.number)]
    assert [frame.height for frame in frames] == sorted((frame.height for frame in frames), reverse=True)
    hosts = [{HOSTS[addr] for addr in nics if addr in HOSTS} for nics in sets(found)]
    assert sum(map(len, hosts)) == len(set().union(*hosts))
    expected = [
        one for one in sent if (one[0] in HOSTS or one[1] in HOSTS) and (one[2] == DATA or not {*one[:2]} <= {*HOSTS})
    ]
    rows = [row for frame in frames for row in frame.select("src_addr", "dst_addr", "bytes").iter_rows()]
    assert [row for row in sorted(expected) if row not in rows] == []
    assert all(frame["flow_start_ns"].is_sorted() for frame in frames)


def dealt(most: int, **jobs: Sequence[str]) -> list[list[str]]:
    """Deal jobs, given the host of each of their members, into batches."""
    members = pl.DataFrame({"job_id": jobs.keys(), "host": jobs.values()}).explode("host")
    sizes = pl.DataFrame({"job_id": jobs.keys(), "endpoints": map(len, jobs.values())})
    return batches(sizes, members, most)


def test_jobs_are_dealt_the_largest_first_each_to_the_batch_with_fewest_endpoints() -> None:
    jobs = {"j": ["a"] * 2, "k": ["b"] * 5, "l": ["c"] * 4, "m": ["d"] * 1}
    assert dealt(2, **jobs) == [["k", "m"], ["l", "j"]]
    assert dealt(9, **jobs) == [["k"], ["l"], ["j"], ["m"]]


def test_jobs_that_share_hosts_directly_or_through_others_are_dealt_together() -> None:
    assert dealt(9, j=["a", "b"], k=["b", "c", "c"], l=["d"], m=["c"]) == [["k", "j", "m"], ["l"]]


def test_no_jobs_are_no_batch() -> None:
    none = pl.DataFrame(schema={"job_id": pl.String, "endpoints": pl.Int32, "host": pl.String})
    assert batches(none, none, 2) == []
