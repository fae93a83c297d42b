"""The scenarios about what surrounds jobs: each shows its oddity, and is small enough to be analysed in seconds."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.simulate import Simulation, load_scenario, simulate

START_NS = 1_760_000_400 * 10**9
RECORDS = 160_000


def made(name: str, minutes: int = 1) -> Simulation:
    return simulate(load_scenario(name), minutes=minutes, seed=5, start_ns=START_NS)


def step_seconds(found: Simulation) -> dict[str, float]:
    length = (pl.col("end_ns") - pl.col("start_ns")).median() / 1e9
    return dict(found.truth["truth_steps"].group_by("job").agg(length).iter_rows())


@pytest.mark.parametrize(
    "name",
    [
        *("background", "coarse", "hang", "inference", "lossy", "narrow", "one_after_another", "pathless", "restarts"),
        *("sampled", "short_steps", "twins", "two_tenants", "uneven_steps"),
    ],
)
def test_a_minute_has_few_records_of_every_job_that_can_be_seen(name: str) -> None:
    found = made(name)
    assert 10_000 < found.flows.height < RECORDS
    seen = set(found.flows["src_addr"])
    for job, members in found.truth["truth_jobs"].filter("visible").group_by("job"):
        assert seen & set(members["addr"]), job


def test_twins_differ_in_nothing_but_their_places() -> None:
    jobs = {job.name: job for job in load_scenario("twins").jobs}
    for one, other in (("left", "right"), ("near", "next")):
        layouts = [
            (j.tp, j.pp, j.dp, j.layers, j.hidden, j.micro_batches, j.forward_ms) for j in (jobs[one], jobs[other])
        ]
        assert layouts[0] == layouts[1]
    assert jobs["left"].hosts == jobs["right"].hosts
    seconds = step_seconds(made("twins"))
    assert seconds["left"] == pytest.approx(seconds["right"], rel=0.02)


def test_long_steps_are_longer_than_a_window_can_hold_and_short_ones_are_many() -> None:
    assert [round(seconds) for seconds in sorted(step_seconds(made("long_steps", 4)).values())] == [15, 40, 90]
    assert all(0.18 < seconds < 0.55 for seconds in step_seconds(made("short_steps")).values())


def test_the_platform_is_as_large_as_the_published_one() -> None:
    jobs = load_scenario("platform").jobs
    assert len(jobs) == 12
    assert sum(job.ranks for job in jobs) == 2880
    assert {job.tp for job in jobs} == {2, 4, 8}
    assert {job.pp for job in jobs} == {1, 2, 4, 8}
    assert (min(job.dp for job in jobs), max(job.dp for job in jobs)) == (2, 64)


def test_who_cannot_be_seen_leaves_nothing() -> None:
    found = made("narrow")
    assert found.truth["truth_jobs"].filter(~pl.col("visible"))["job"].unique().to_list() == ["unseen"]
    members = found.truth["truth_jobs"].filter(job="unseen")["addr"].implode()
    assert not found.flows["src_addr"].is_in(members).any()
