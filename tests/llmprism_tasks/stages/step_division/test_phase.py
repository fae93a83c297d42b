"""Each pair's flows are divided at the steps of its sender."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pytest
from handmade import (
    MB,
    MS,
    WINDOW,
    Row,
    every,
    flows,
    jobs_of,
    members,
    messages,
    pipeline,
    ring,
    settings,
    taken,
    visible,
)

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division.phase import step_division

NICS = members({"j": {"a": "h", "b": "h", "c": "i", "d": "i"}})
DEFAULT = settings()
PERIOD = 1000


def divided(
    *parts: Iterable[Row], nics: pl.DataFrame = NICS, window: Window = WINDOW, values: Settings = DEFAULT
) -> pl.DataFrame:
    own = nics.with_columns(window_start_ns=pl.lit(window.start_ns))
    (found,) = step_division(
        **taken("step_division", visible(flows(*parts), window), window, values, job_members=own),
        jobs=jobs_of(own),
        job_members=own,
        window=window,
        settings=values,
    )
    return found


def of_pair(found: pl.DataFrame, src: str, dst: str) -> pl.DataFrame:
    return found.filter(src_addr=src, dst_addr=dst).sort("step_index")


def test_nothing_has_no_steps() -> None:
    assert divided().equals(frames.empty("pair_steps"))
    assert divided(nics=NICS.clear()).equals(frames.empty("pair_steps"))


def test_a_job_without_a_rhythm_has_no_steps() -> None:
    assert divided(messages("a", "b", [0, 17, 4000], MB)).is_empty()


def test_control_messages_alone_are_no_steps() -> None:
    assert divided(messages("a", "b", every(1000, count=20), 16_384)).is_empty()


def test_a_burst_is_a_row_with_its_times_flows_and_bytes() -> None:
    found = of_pair(divided(ring("ab", every(PERIOD, count=10))), "a", "b")
    assert found["step_index"].to_list() == list(range(10))
    assert found["flows"].unique().to_list() == [8]
    assert found["bytes"].unique().to_list() == [sum(80 * MB * share // 12 for share in (1, 2) * 4)]
    starts, ends = ((found[name] - WINDOW.start_ns) // MS for name in ("start_ns", "end_ns"))
    assert starts.to_list() == every(PERIOD, count=10)
    assert ends.to_list() == every(PERIOD, count=10, start=100)


def work() -> list[Row]:
    """Ten steps of two replicas with two stages: micro-batches for 600 ms, then gradients."""
    begins = every(PERIOD, count=10)
    rows = [*pipeline("a", "c", begins, spread=600), *pipeline("b", "d", begins, spread=600)]
    return [*rows, *ring("ab", every(PERIOD, count=10, start=700)), *ring("cd", every(PERIOD, count=10, start=650))]


def test_micro_batches_belong_to_the_step_that_their_sender_ends_next() -> None:
    found = of_pair(divided(work()), "a", "c")
    assert found["flows"].to_list() == [4] * 10
    assert ((found["start_ns"] - WINDOW.start_ns) // MS).to_list() == every(PERIOD, count=10)


def test_a_record_that_stays_open_past_the_window_does_not_carry_its_step_along() -> None:
    """Whatever a collector's active timeout, or a clock, makes of a record's end, a step ends in its window."""
    found = divided(work(), [(PERIOD, PERIOD + 3_600_000, "a", "d", 9 * MB)])
    assert of_pair(found, "a", "d")["end_ns"].to_list() == [WINDOW.end_ns - 1]


def test_all_pairs_count_steps_alike() -> None:
    found = divided(work())
    assert found.group_by("src_addr", "dst_addr").agg(pl.col("step_index").sort())["step_index"].n_unique() == 1


def test_each_window_counts_from_0() -> None:
    rows = ring("ab", every(PERIOD, count=80))
    second = divided(rows, window=WINDOW.shifted(1))
    assert of_pair(second, "a", "b")["step_index"].to_list() == list(range(20))
    assert second["window_start_ns"].unique().to_list() == [WINDOW.end_ns]


@pytest.mark.parametrize(("other", "distinct"), [(8 * MB + 160_000, 1), (8 * MB + 160_001, 2)])
def test_sizes_that_differ_by_headers_count_once(other: int, distinct: int) -> None:
    """Two per cent of 8 MB, the size of the other messages."""
    extra = messages("a", "c", every(PERIOD, count=10, start=300), other)
    found = of_pair(divided(work(), extra), "a", "c")
    assert found["distinct_sizes"].to_list() == [distinct] * 10


def test_control_messages_are_flows_but_no_sizes() -> None:
    control = [
        *messages("a", "c", every(PERIOD, count=10, start=300), 48),
        *messages("d", "a", every(PERIOD, count=10), 48),
    ]
    found = divided(work(), control)
    both = of_pair(found, "a", "c")
    assert both.select(pl.col("flows", "distinct_sizes").unique()).row(0) == (5, 1)
    assert of_pair(found, "d", "a")["distinct_sizes"].unique().to_list() == [0]


def test_a_sender_without_steps_of_its_own_has_no_rows() -> None:
    idle = [row for i, at in enumerate([50, 1740, 2300, 5900, 6100]) for row in messages("c", "a", [at], MB << i)]
    found = divided(ring(["a", "b", "d"], every(PERIOD, count=10)), idle)
    assert "c" not in found["src_addr"]


def test_jobs_are_divided_each_by_its_own_rhythm() -> None:
    nics = members({"one": {"a": "h", "b": "h"}, "two": {"c": "i", "d": "i"}})
    rows = [*ring("ab", every(1000, count=10)), *ring("cd", every(700, count=15, start=333))]
    found = divided(rows, nics=nics)
    assert found.group_by("job_id").agg(pl.col("step_index").max()).sort("job_id").rows() == [("one", 9), ("two", 14)]
    one = divided(ring("ab", every(1000, count=10)), nics=nics.filter(job_id="one"))
    assert one.equals(found.filter(job_id="one"))


def test_a_job_that_begins_with_a_broadcast_is_divided_alike_beside_other_jobs() -> None:
    """The first weights, sent over the rings, are no step, whether or not the data begin with them."""
    nics = members({"one": {"a": "h", "b": "h"}, "two": {"c": "i", "d": "i"}})
    broadcast = ring("cd", [20_000], size=24 * MB)
    own = [*broadcast, *ring("cd", every(1000, count=20, start=22_000))]
    alone = divided(own, nics=nics.filter(job_id="two"))
    both = divided(own, ring("ab", every(700, count=70)), nics=nics)
    assert alone["step_index"].max() == 19
    assert alone.equals(both.filter(job_id="two"))
