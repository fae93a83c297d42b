"""Host names as Slurm writes them."""

from __future__ import annotations

import pytest

from llmprism_tasks.reports.hosts import abbreviated


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["login"], "login"),
        (["node0007"], "node0007"),
        (["node0001", "node0000", "node0001"], "node[0000-0001]"),
        ([f"node{n:04d}" for n in range(32)], "node[0000-0031]"),
        (["a1", "a2", "a3", "a5", "a9", "a10"], "a[1-3,5,9-10]"),
        (["node9", "node09", "node10"], "node9, node[09-10]"),
        (["gpu0", "gpu1", "gpu10"], "gpu[0-1,10]"),
        (["b-1", "a-1", "b-2"], "a-1, b-[1-2]"),
        (["rack1-7", "rack2-7"], "rack1-7, rack2-7"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
    ],
)
def test_hosts_that_differ_in_their_last_number_are_ranges(names: list[str], expected: str) -> None:
    assert abbreviated(names) == expected


def test_numbers_written_with_zeros_go_on_past_them() -> None:
    assert abbreviated(["n08", "n09", "n10", "n11"]) == "n[08-11]"
