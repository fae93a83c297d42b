"""What an analysis costs is held by ratios within one run: to work of a fixed size, and to half the platform's cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from guard import analysis, cheapest_s, fixed_work, platform

from llmprism_tasks.execution.partitions import stage_runner

JOBS = 2
MOST_TIMES_FIXED_WORK = 12.0
"""An analysis of two jobs of 32 GPUs against the fixed work: 8.5 on a quiet machine, half of it validation by Great
Expectations."""

MOST_TIMES_HALF = 2.5
"""Twice the jobs cost at most this many times as much: 2 is in proportion, 4 with the square of the flows."""


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> tuple[Callable[[], None], Callable[[], None]]:
    """Analyses of a platform and of one twice as large; what is imported and compiled once is done."""
    folder = tmp_path_factory.mktemp("guard")
    half, whole = (analysis(platform(folder / str(jobs), jobs), folder / str(jobs)) for jobs in (JOBS, 2 * JOBS))
    half()
    return half, whole


def test_an_analysis_is_not_dearer_than_it_was_and_grows_with_the_flows(
    works: tuple[Callable[[], None], Callable[[], None]],
) -> None:
    fixed, half, whole = cheapest_s(fixed_work, *works)
    assert half / fixed < MOST_TIMES_FIXED_WORK
    assert whole / half < MOST_TIMES_HALF


def test_the_guard_notices_stages_that_are_slower(
    works: tuple[Callable[[], None], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five stages that each cost the fixed work three times more; it is timed before and after them, for a machine that
    is busy during one of the two alone."""
    functions = stage_runner.stage_functions("joint")

    def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(**kwargs: Any) -> Any:
            for _ in range(3):
                fixed_work()
            return function(**kwargs)

        return call

    slow = {name: slowly(function) for name, function in functions.items()}
    monkeypatch.setattr(stage_runner, "stage_functions", lambda _: slow)
    before, analysed, after = cheapest_s(fixed_work, works[0], fixed_work, repeats=1)
    assert analysed / min(before, after) > MOST_TIMES_FIXED_WORK
