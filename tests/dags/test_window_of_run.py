"""Which window a run is for."""

from __future__ import annotations

import datetime as dt

import pytest

from llmprism_run import window_of_run
from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.contract.windows import Window

MINUTE_NS = 60_000_000_000
START = dt.datetime(2026, 5, 1, 4, 12, tzinfo=dt.UTC)
END = START + dt.timedelta(minutes=1)
WINDOW = Window.starting(START, MINUTE_NS)


def test_a_scheduled_run_does_its_data_interval() -> None:
    assert window_of_run(None, START, END, MINUTE_NS) == WINDOW


@pytest.mark.parametrize("text", ["2026-05-01T04:12Z", "2026-05-01T04:12:59", "2026-05-01 06:12:30+02:00"])
def test_a_run_by_hand_does_the_window_asked_for(text: str) -> None:
    assert window_of_run(text, None, None, MINUTE_NS) == WINDOW


def test_what_was_asked_for_goes_before_the_data_interval() -> None:
    assert window_of_run("2026-05-01T05:00Z", START, END, MINUTE_NS) == WINDOW.shifted(48)


def test_a_run_without_any_window_says_what_to_give() -> None:
    with pytest.raises(SettingsError, match="window_start set to a time in it"):
        window_of_run(None, None, None, MINUTE_NS)


def test_a_time_that_is_none_is_shown() -> None:
    with pytest.raises(SettingsError, match="'yesterday'"):
        window_of_run("yesterday", START, END, MINUTE_NS)


@pytest.mark.parametrize("length_s", [30, 120])
def test_a_schedule_that_does_not_fit_the_windows_is_refused(length_s: int) -> None:
    with pytest.raises(SettingsError, match=r"window\.length_s"):
        window_of_run(None, START, END, length_s * 1_000_000_000)
