"""Step division and parallelism: gaps begin steps, sizes vote in each, and data-parallel components overrule."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, every, flows, messages

from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.published.parallelism import pair_kinds
from llmprism_tasks.stages.published.step_division import JOB_PAIR, steps_until

RULE = Settings().published
STEPS = every(1_000, count=10)


def inside(*parts: list[Row]) -> pl.DataFrame:
    return flows(*parts).with_columns(job_id=pl.lit("job"))


def steps(rows: list[Row], until: float = 60_000) -> pl.DataFrame:
    return steps_until(inside(rows), JOB_PAIR, WINDOW.start_ns + round(until * MS), RULE)


def kinds(*parts: list[Row]) -> dict[tuple[str, str], str]:
    found = pair_kinds(inside(*parts), WINDOW.end_ns, RULE)
    return {(src, dst): kind for src, dst, kind in found.select("src_addr", "dst_addr", "kind").rows()}


def bursts(src: str, dst: str) -> list[Row]:
    return [row for begin in STEPS for row in burst(src, dst, begin)]


def equal(src: str, dst: str, sizes: tuple[int, ...] = (MB,)) -> list[Row]:
    return [
        row for begin in STEPS for i in range(8) for row in messages(src, dst, [begin + i * 10], sizes[i % len(sizes)])
    ]


def test_each_gap_begins_a_step() -> None:
    found = steps(bursts("a", "b"))
    assert found["start_ns"].to_list() == [WINDOW.start_ns + round(begin * MS) for begin in STEPS]
    assert found["flows"].to_list() == [8] * 10
    assert found["distinct_sizes"].to_list() == [2] * 10
    assert found["ended"].all()


@pytest.mark.parametrize(("until", "ended"), [(9_050, False), (9_100, False), (9_110, False), (9_800, True)])
def test_a_step_has_ended_when_a_gap_says_so(until: float, ended: bool) -> None:
    """The last burst lasts from 9000 to 9100 ms; an interval of a few milliseconds more is no gap yet."""
    assert steps(bursts("a", "b"), until)["ended"].to_list() == [True] * 9 + [ended]


def test_what_comes_later_changes_nothing() -> None:
    early = steps(bursts("a", "b"), 5_800).filter("ended")
    assert steps(bursts("a", "b")).filter("ended").head(early.height).equals(early)


def test_a_record_a_step_shows_no_step() -> None:
    """Known limit: where every interval is a gap, none is a change."""
    assert steps(messages("a", "b", STEPS, MB)).height == 1


def test_one_size_is_a_pipeline_and_several_are_data_parallel() -> None:
    assert kinds(equal("a", "b"), bursts("c", "d")) == {("a", "b"): "pp", ("c", "d"): "dp"}


def test_the_most_frequent_count_decides() -> None:
    odd = equal("a", "b") + messages("a", "b", [2_005, 3_005], MB // 2)
    assert kinds(odd) == {("a", "b"): "pp"}
    found = pair_kinds(inside(odd), WINDOW.end_ns, RULE).row(0, named=True)
    assert (found["distinct_sizes"], round(found["confidence"], 6)) == (1, 0.8)


def test_inside_a_data_parallel_component_every_pair_is_data_parallel() -> None:
    ring = bursts("a", "b") + bursts("b", "c")
    assert kinds(ring, equal("c", "a")) == {("a", "b"): "dp", ("b", "c"): "dp", ("c", "a"): "dp"}
    assert kinds(ring, equal("c", "d")) == {("a", "b"): "dp", ("b", "c"): "dp", ("c", "d"): "pp"}


def test_headers_turn_a_pipeline_into_data_parallelism() -> None:
    """Known limit: sizes that differ by merged headers are distinct to the published method."""
    assert kinds(equal("a", "b", (MB, MB + 48))) == {("a", "b"): "dp"}
