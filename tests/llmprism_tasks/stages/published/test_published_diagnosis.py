"""The three k-sigma rules: a slow step, group or switch stands out, a crowded switch too; few or equal ones do not."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.published.diagnosis import cross_group, cross_step, switch_level

RULE = Settings().published


def job_steps(*durations: int) -> pl.DataFrame:
    ends = pl.Series(durations).cum_sum()
    columns = {"step_index": range(len(durations)), "start_ns": ends - pl.Series(durations), "end_ns": ends}
    return pl.DataFrame(columns).with_columns(job_id=pl.lit("job"), addr=pl.lit(None, dtype=pl.String))


def test_a_slow_step_stands_out() -> None:
    found = cross_step(job_steps(100, 101, 99, 150, 100, 101), RULE)
    assert found.select("subject", "start_ns", "end_ns").rows() == [("job", 300, 450)]
    assert found["excess"][0] == pytest.approx(150 / 100.5 - 1)
    assert found["score"][0] > RULE.sigmas


@pytest.mark.parametrize("durations", [(100, 100, 100, 100), (100, 900), (1000, 1000, 1001, 1000), (7,)])
def test_equal_or_few_steps_do_not(durations: tuple[int, ...]) -> None:
    assert cross_step(job_steps(*durations), RULE).is_empty()


def test_a_slow_group_stands_out_among_the_groups_of_its_step() -> None:
    lasting = {"a": 100, "b": 101, "c": 160, "d": 99}
    placed = pl.DataFrame(
        [("job", 0, f"{group}1", f"{group}2", 0, ends) for group, ends in lasting.items()],
        schema=["job_id", "step_index", "src_addr", "dst_addr", "flow_start_ns", "flow_end_ns"],
        orient="row",
    )
    found = cross_group(placed, placed.select("job_id", "src_addr", "dst_addr"), RULE)
    assert found["subject"].to_list() == ["c1 and 1 more"]


def crossing(ns_per_byte: dict[str, int], at_once: dict[str, int]) -> pl.DataFrame:
    """Return five turns of flows over each switch, as many at once as said."""
    rows = [
        ("job", [switch], turn * 10_000, turn * 10_000 + pace * 1_000, 1_000)
        for switch, pace in ns_per_byte.items()
        for turn in range(5)
        for _ in range(at_once[switch])
    ]
    return pl.DataFrame(rows, schema=["job_id", "switch_path", "flow_start_ns", "flow_end_ns", "bytes"], orient="row")


@pytest.mark.parametrize(
    ("pace", "load", "subjects"),
    [(4, 3, ["s0"]), (2, 9, ["s0"]), (2, 3, []), (4, 9, ["s0", "s0"])],
    ids=["slow", "crowded", "like the others", "both"],
)
def test_a_slow_or_crowded_switch_stands_out(pace: int, load: int, subjects: list[str]) -> None:
    others = [f"s{i}" for i in range(1, 6)]
    flows = crossing({"s0": pace} | dict.fromkeys(others, 2), {"s0": load} | dict.fromkeys(others, 3))
    assert switch_level(flows, RULE)["subject"].to_list() == subjects


def test_flows_without_a_path_say_nothing_of_switches() -> None:
    flows = crossing({"s0": 2}, {"s0": 3}).with_columns(switch_path=pl.lit(None, dtype=pl.List(pl.String)))
    assert switch_level(flows, RULE).is_empty()
