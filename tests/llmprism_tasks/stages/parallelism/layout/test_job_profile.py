"""A job's figures from its pairs."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.settings import ParallelismSettings
from llmprism_tasks.stages.parallelism.layout import job_profile

PERIOD = 1_000_000_000


@pytest.mark.parametrize(
    ("shares", "kind", "others", "sharded"),
    [
        pytest.param(0.4, "other", ["ad"], True, id="fewer bytes"),
        pytest.param(0.6, "other", ["ad"], False, id="as many"),
        pytest.param(0.4, "pp", ["ad"], False, id="beside a pipeline"),
        pytest.param(0.6, "ep", ["ad", "bc"], False, id="between those who exchange tokens"),
        pytest.param(0.6, "ep", ["ad", "db", "bc"], None, id="among those who exchange tokens"),
    ],
)
def test_rings_that_move_most_say_whether_parameters_are_sharded(
    shares: float, kind: str, others: list[str], *, sharded: bool | None
) -> None:
    """HSDP gathers through nine tenths of the step around `ab` and `cd`; `ac` and `bd` reduce in half of it. Where
    other kinds share links these are busy for longer, and the less busy ones decide."""
    busy = {"ab": 0.9, "cd": 0.9, "ac": 0.5, "bd": 0.5, **dict.fromkeys(others, 0.9)}
    carried = {"ac": shares, "bd": shares}
    pairs = pl.DataFrame(
        {
            "pair": range(len(busy)),
            "job_id": "j",
            "src_addr": [link[0] for link in busy],
            "dst_addr": [link[1] for link in busy],
            "kind": [kind if link in others else "dp" for link in busy],
            "bytes_per_step": [carried.get(link, 1.0) for link in busy],
        }
    )
    last = [round(part * PERIOD) for part in busy.values()]
    sent = pl.DataFrame({"pair": range(len(busy)), "step": 1, "first_ns": 0, "last_ns": last})
    periods = pl.DataFrame({"job_id": ["j"], "period_ns": [PERIOD]})
    laid = pl.DataFrame({"job_id": ["j"], "dp": [4], "cp": [1]})
    found = job_profile.sharded(sent, pairs, periods, laid, ParallelismSettings())
    assert found["sharded"].to_list() == ([] if sharded is None else [sharded])
