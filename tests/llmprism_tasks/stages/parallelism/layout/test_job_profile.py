"""A job's figures from its pairs."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.settings import ParallelismSettings
from llmprism_tasks.stages.parallelism.layout import job_profile

PERIOD = 1_000_000_000


@pytest.mark.parametrize(
    ("shares", "kind", "sharded"),
    [(0.4, "other", True), (0.6, "other", False), (0.4, "pp", False)],
    ids=["fewer bytes", "as many", "beside a pipeline"],
)
def test_rings_that_move_most_say_whether_parameters_are_sharded(shares: float, kind: str, *, sharded: bool) -> None:
    """HSDP gathers through nine tenths of the step around `ab` and `cd`; `ac` and `bd` reduce in half of it. Where
    other kinds share links these are busy for longer, and the less busy ones decide."""
    links = {"ab": 1.0, "cd": 1.0, "ac": shares, "bd": shares, "ad": 1.0}
    pairs = pl.DataFrame(
        {
            "pair": range(len(links)),
            "job_id": "j",
            "src_addr": [link[0] for link in links],
            "dst_addr": [link[1] for link in links],
            "kind": ["dp"] * 4 + [kind],
            "bytes_per_step": list(links.values()),
        }
    )
    busy = [0.9, 0.9, 0.5, 0.5, 0.9]
    sent = pl.DataFrame(
        {"pair": range(len(links)), "step": 1, "first_ns": 0, "last_ns": [round(part * PERIOD) for part in busy]}
    )
    periods = pl.DataFrame({"job_id": ["j"], "period_ns": [PERIOD]})
    laid = pl.DataFrame({"job_id": ["j"], "dp": [4], "cp": [1]})
    found = job_profile.sharded(sent, pairs, periods, laid, ParallelismSettings())
    assert found.row(0, named=True) == {"job_id": "j", "sharded": sharded}
