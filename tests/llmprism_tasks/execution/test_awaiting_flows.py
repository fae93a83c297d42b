"""How long a run waits for its window's flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.execution.window import seconds_to_wait
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import load

WINDOW = Window(1_777_608_720_000_000_000, 60_000_000_000)
LATENESS_S = 90


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    pattern = str(tmp_path / "{window:%Y%m%dT%H%M}.parquet")
    own_file = {"window.waits_for_next_file": "no", "window.quiet_s": "0"}
    return load(overrides={"places.flows": pattern, "window.allowed_lateness_s": str(LATENESS_S)} | own_file)


def after(seconds: float) -> int:
    """A moment so long after the window's end."""
    return WINDOW.end_ns + round(seconds * NANOSECONDS_PER_SECOND)


@pytest.mark.parametrize(("since_end_s", "wait_s"), [(0, 1), (1, 1), (8, 2), (40, 10), (88, 2)])
def test_waits_grow_and_end_with_the_lateness(settings: Settings, since_end_s: float, wait_s: float) -> None:
    assert seconds_to_wait(WINDOW, settings, now_ns=after(since_end_s)) == wait_s


def test_when_the_next_file_is_due_waits_are_short_again(settings: Settings) -> None:
    assert seconds_to_wait(WINDOW, settings, now_ns=after(52)) == 8
    assert seconds_to_wait(WINDOW, settings, now_ns=after(60)) == 1
    assert seconds_to_wait(WINDOW, settings, now_ns=after(72)) == 3


@pytest.mark.parametrize("since_end_s", [LATENESS_S, LATENESS_S + 0.5, 1e6])
def test_nobody_waits_once_the_lateness_has_passed(settings: Settings, since_end_s: float) -> None:
    assert seconds_to_wait(WINDOW, settings, now_ns=after(since_end_s)) == 0


def test_nobody_waits_for_flows_that_are_there(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / f"{WINDOW.start:%Y%m%dT%H%M}.parquet").touch()
    assert seconds_to_wait(WINDOW, settings, now_ns=after(0)) == 0
