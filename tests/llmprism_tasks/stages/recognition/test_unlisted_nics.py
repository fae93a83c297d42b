"""Who trains with a job's members, though the topology lacks it, is told; who stores or serves is not."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import (
    MB,
    WINDOW,
    Row,
    every,
    flows,
    jobs_of,
    members,
    messages,
    ring,
    settings,
    stages,
    topology,
    visible,
)

from llmprism_tasks.stages.recognition.unlisted_nics import with_unlisted
from llmprism_tasks.stages.traffic.index import TrafficIndex

HOSTS = {f"host-{addr}": [addr] for addr in "abc"}
BEGINS = every(4000, count=14, start=1000)


def unlisted(*parts: list[Row], kind: str = "training", after: int = 0, hosts: str = "abc") -> list[str] | None:
    """Return who trains with `a`, `b` and `c`, and is not in the topology; None for nobody."""
    window = WINDOW.shifted(after)
    own = members({"j": {addr: f"host-{addr}" for addr in hosts}}, window)
    jobs = jobs_of(own).with_columns(kind=pl.lit(kind))
    table = visible(flows(*parts), window)
    found = with_unlisted(jobs, own, TrafficIndex.of(table, settings().traffic), topology(HOSTS), window, settings())
    assert found.drop("unlisted").equals(jobs.drop("unlisted"))
    listed: list[str] | None = found["unlisted"].to_list()[0]
    return listed


RING = ring("abxc", BEGINS)
STORAGE = [row for at in BEGINS for row in messages("s", "a", [at], 80 * MB)]


def test_a_job_whose_members_are_all_known_lacks_nobody() -> None:
    assert unlisted(ring("abc", BEGINS)) is None


def test_one_of_a_ring_and_the_next_stage_of_a_pipeline_are_lacking() -> None:
    assert unlisted(RING) == ["x"]
    assert unlisted(stages("ay", BEGINS, micro_batches=8), RING) == ["x", "y"]


def test_a_job_that_is_no_training_lacks_nobody() -> None:
    assert unlisted(RING, kind="other") is None


def test_what_was_sent_before_the_window_is_no_news() -> None:
    assert unlisted(RING, after=1) is None


def test_who_trains_with_somebody_else_is_not_of_the_job() -> None:
    assert unlisted(ring("bxc", BEGINS), hosts="a") is None


def test_storage_that_is_read_in_each_step_and_written_to_now_and_then_is_none() -> None:
    """As much in all: but it gives at one time, and takes at another."""
    saved = [row for i in range(14) for row in messages("a", "s", [38_000 + 10 * i], 80 * MB)]
    assert unlisted(STORAGE) is None
    assert unlisted(STORAGE, saved) is None
    at_once = [row for part in (5, 25, 45) for row in messages("a", "s", [part * 1000], 300 * MB)]
    assert unlisted(STORAGE, at_once) is None


@pytest.mark.parametrize(("share", "listed"), [(0.4, None), (0.6, ["s"])])
def test_who_gives_less_than_half_of_what_it_takes_does_not_train(share: float, listed: list[str] | None) -> None:
    answers = [row for at in BEGINS for row in messages("a", "s", [at + 500], round(80 * MB * share))]
    assert unlisted(STORAGE, answers) == listed


@pytest.mark.parametrize(("size", "listed"), [(4 * MB, None), (6 * MB, ["x"])])
def test_chatter_is_less_than_ten_megabytes(size: int, listed: list[str] | None) -> None:
    assert unlisted(messages("a", "x", [1000], size), messages("x", "a", [2000], size)) == listed


def test_rows_in_any_order_tell_the_same() -> None:
    mixed = [*reversed(RING), *STORAGE]
    assert unlisted(mixed) == unlisted(STORAGE, RING) == ["x"]
