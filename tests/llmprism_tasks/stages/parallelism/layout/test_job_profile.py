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
    sent = pl.DataFrame({"pair": range(len(busy)), "step": 1, "first_ns": 0, "last_ns": last, "quiet_ns": 0})
    periods = pl.DataFrame({"job_id": ["j"], "period_ns": [PERIOD]})
    laid = pl.DataFrame({"job_id": ["j"], "dp": [4], "cp": [1]})
    found = job_profile.sharded(sent, pairs, periods, laid, ParallelismSettings())
    assert found["sharded"].to_list() == ([] if sharded is None else [sharded])


@pytest.mark.parametrize(
    ("quiet", "back", "sharded"),
    [(0.15, 0.15, True), (0.22, 0.22, None), (0.3, 0.3, False), (0.3, 0.0, True)],
    ids=["brief", "in between", "long", "one way"],
)
def test_the_one_long_silence_of_a_link_is_no_part_of_its_time(
    quiet: float, back: float, *, sharded: bool | None
) -> None:
    """A step may be told to end between gradients and the gathers of a sharded optimizer. What is silent one way alone
    is a link that is not."""
    both = {"pair": [0, 1], "job_id": "j", "src_addr": ["a", "b"], "dst_addr": ["b", "a"], "kind": "dp"}
    pairs = pl.DataFrame({**both, "bytes_per_step": 1.0})
    silent = [round(part * PERIOD) for part in (quiet, back)]
    sent = pl.DataFrame({"pair": [0, 1], "step": 1, "first_ns": 0, "last_ns": round(0.9 * PERIOD), "quiet_ns": silent})
    periods = pl.DataFrame({"job_id": ["j"], "period_ns": [PERIOD]})
    laid = pl.DataFrame({"job_id": ["j"], "dp": [2], "cp": [1]})
    found = job_profile.sharded(sent, pairs, periods, laid, ParallelismSettings())
    assert found["sharded"].to_list() == [sharded]


def test_the_longest_silence_of_a_step_lies_between_two_messages_of_a_pair() -> None:
    flows = pl.DataFrame(
        [
            *((0, step, 100 * step + at, 100 * step + at + 5, 7) for step in range(2) for at in (0, 10, 70, 80)),
            *((1, step, 100 * step + at, 100 * step + at + 5, 7) for step in range(2) for at in (0, 10)),
            (2, 0, 40, 45, 7),
        ],
        schema=["pair", "step", "flow_start_ns", "flow_end_ns", "bytes"],
        orient="row",
    )
    found = job_profile.by_step(flows).select("pair", "step", "bytes", "first_ns", "last_ns", "quiet_ns", "resumed_ns")
    assert found.rows() == [
        (0, 0, 28, 0, 80, 50, 70),
        (0, 1, 28, 100, 180, 50, 170),
        (1, 0, 14, 0, 10, 5, 10),
        (1, 1, 14, 100, 110, 5, 110),
        (2, 0, 7, 40, 40, 0, 40),
    ]
