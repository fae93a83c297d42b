"""What gradients weigh, from what goes round their rings."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import members

from llmprism_tasks.stages.parallelism.layout import job_profile


@pytest.mark.parametrize(
    ("other", "sharded", "found"),
    [("pp", False, [1000]), ("cp", False, []), ("ep", False, []), ("pp", True, []), ("pp", None, [])],
)
def test_a_ring_sends_nearly_twice_what_it_reduces_and_nothing_is_said_where_it_may_carry_more(
    other: str, *, sharded: bool | None, found: list[int]
) -> None:
    """Four ranks on four hosts reduce 1,000 bytes: each sends 1,500."""
    rows = [("j", src, dst, "dp", 1500.0) for src, dst in ("ab", "bc", "cd", "da")] + [("j", "a", "c", other, 70.0)]
    pairs = pl.DataFrame(rows, schema=["job_id", "src_addr", "dst_addr", "kind", "bytes_per_step"], orient="row")
    groups = pl.DataFrame({"job_id": "j", "addr": list("abcd"), "group": 0})
    nics = members({"j": {nic: f"host-{nic}" for nic in "abcd"}})
    shards = pl.DataFrame({"job_id": ["j"], "sharded": [sharded]}, schema_overrides={"sharded": pl.Boolean})
    assert job_profile.gradients(pairs, groups, nics, shards)["gradient_bytes"].to_list() == found
