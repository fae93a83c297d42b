"""A job that ends in the window and comes back in it has two runs, and the steps of both are told."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MS, WINDOW, every, flows, jobs_of, members, ring, settings, visible

from llmprism_tasks.contract.plan import stage_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.stages.parallelism.phase import parallelism
from llmprism_tasks.stages.partition_values import PartitionValues
from llmprism_tasks.stages.step_division import division
from llmprism_tasks.stages.timeline.phase import timeline
from llmprism_tasks.stages.traffic import nic_pairs

DEFAULT = settings()
MEMBERS = members({"j": {addr: f"host-{addr}" for addr in "abcd"}})
TOPOLOGY = MEMBERS.select("addr", "host", gpu=pl.lit(0))
BEFORE, AFTER = every(2000, count=11), every(1300, count=18, start=36_000)
"""Steps until 20.1 s, and from 36 s on others that take less time and move twice as much, in another order."""
FLOWS = flows(ring("abcd", BEFORE), ring("acbd", AFTER, size=160_000_000))


def divided(table: pl.DataFrame = FLOWS, window: Window = WINDOW) -> division.Division:
    inside = nic_pairs.inside_jobs(visible(table, window), MEMBERS)
    found = division.divide(nic_pairs.bulk(inside, DEFAULT.traffic), window, DEFAULT)
    assert found is not None
    return found


def test_steps_of_both_runs_are_counted_through() -> None:
    ends = divided().job_steps.sort("step")
    assert ends["step"].to_list() == list(range(len(BEFORE) + len(AFTER)))
    assert ends["end_ns"].to_list() == [WINDOW.start_ns + round((at + 100) * MS) for at in [*BEFORE, *AFTER]]
    assert ends["run"].to_list() == [0] * len(BEFORE) + [1] * len(AFTER)


def test_a_pause_that_is_not_long_makes_no_second_run() -> None:
    table = flows(ring("abcd", [*BEFORE, *every(2000, count=15, start=28_000)]))
    assert divided(table).job_steps["run"].unique().to_list() == [0]


def test_the_window_after_counts_the_second_run_alone() -> None:
    following = Window(WINDOW.end_ns, WINDOW.length_ns)
    later = flows(ring("abcd", BEFORE), ring("acbd", every(1300, count=40, start=36_000), size=160_000_000))
    found = divided(later, following)
    assert found.job_steps["end_ns"].min() == WINDOW.start_ns + 36_100 * MS
    assert found.job_steps["run"].unique().to_list() == [0]


@pytest.mark.parametrize(("layers", "runs"), [(28, [0]), (36, [0, 1])])
def test_a_run_too_short_for_steps_as_long_as_those_before_shows_none(layers: int, runs: list[int]) -> None:
    """Steps of 4 s, and then layers of 400 ms; what goes on for three such steps and longer may be another job."""
    found = divided(flows(ring("abcd", every(4000, count=6)), ring("abcd", every(400, count=layers, start=36_000))))
    assert found.job_steps["run"].unique().sort().to_list() == runs


@pytest.mark.parametrize(("count", "main"), [(10, 0), (11, 1), (12, 1)])
def test_the_layout_is_that_of_the_run_with_most_steps(count: int, main: int) -> None:
    table = flows(ring("abcd", BEFORE), ring("acbd", every(1300, count=count, start=36_000), size=160_000_000))
    run, other = divided(table).by_run()
    assert other is not None
    assert (run.endpoints["run"].unique().to_list(), other.endpoints["run"].unique().to_list()) == ([main], [1 - main])


def test_a_job_with_one_run_has_no_other() -> None:
    found = divided(flows(ring("abcd", BEFORE)))
    assert found.by_run() == (found, None)


def test_the_pairs_of_both_runs_end_steps_and_the_second_begins_with_its_own_flows() -> None:
    values = PartitionValues(FLOWS, WINDOW, DEFAULT)
    known = {"jobs": jobs_of(MEMBERS), "job_members": MEMBERS}
    taken = values.named(stage_named("parallelism").takes, known)
    jobs, job_members, pairs = parallelism(**taken, **known, topology=TOPOLOGY, window=WINDOW, settings=DEFAULT)
    assert set(pairs.filter(pl.col("kind") == "dp").select(pl.col("src_addr") + pl.col("dst_addr")).to_series()) == {
        *("ab", "bc", "cd", "da"),
        *("ac", "cb", "bd"),
    }
    known = {"jobs": jobs, "job_members": job_members, "pairs": pairs}
    taken = values.named(stage_named("timeline").takes, known)
    steps, *_ = timeline(**taken, **known, window=WINDOW, settings=DEFAULT)
    steps = steps.filter(pl.col("addr").is_null())
    assert steps["step_index"].sort().to_list() == list(range(len(BEFORE) + len(AFTER)))
    first = steps.filter(pl.col("step_index") == len(BEFORE))
    assert first["start_ns"].item() == WINDOW.start_ns + 36_000 * MS


@pytest.mark.parametrize(("kind", "steps"), [("training", True), ("other", False)])
def test_only_jobs_that_train_have_training_steps(kind: str, steps: bool) -> None:
    known = {"jobs": jobs_of(MEMBERS).with_columns(kind=pl.lit(kind)), "job_members": MEMBERS}
    found = PartitionValues(FLOWS, WINDOW, DEFAULT).named(["division"], known)
    assert (found["division"] is not None) == steps
