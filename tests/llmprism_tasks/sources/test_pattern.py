"""Patterns: which files a window has by their names, and which patterns are refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources.pattern import Pattern, fixed_folder

MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
MINUTES = st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001


def window(moment: dt.datetime, length_ns: int = MINUTE_NS) -> Window:
    return Window.starting(moment.replace(second=0, microsecond=0), length_ns)


@given(MINUTES)
def test_a_name_made_of_a_window_s_start_gives_that_window(moment: dt.datetime) -> None:
    wanted = window(moment)
    for text in ("f/{window:%Y%m%dT%H%M}.csv", "f/{window:%Y-%m-%d}/{window:%H%M}*.csv", "f/{window:%Y%j%H%M%S}.csv"):
        name = text.format(window=wanted.start).replace("*", "-leaf1")
        assert Pattern.parse(text).spans([name], MINUTE_NS) == {name: wanted}


@pytest.mark.parametrize(
    "name",
    [
        *("f/20261125T2460.csv", "f/20261325T1200.csv", "f/20260231T1200.csv", "f/2026112T1200.csv"),
        *("f/20261125T1200.json", "g/20261125T1200.csv", "f/20261125T1200.csv.part"),
    ],
)
def test_a_name_that_is_no_time_or_has_something_else_is_no_match(name: str) -> None:
    assert Pattern.parse("f/{window:%Y%m%dT%H%M}.csv").spans([name], MINUTE_NS) == {}


@pytest.mark.parametrize(
    ("name", "there"), [("2026000", 0), ("2026001", 1), ("2026365", 1), ("2026366", 0), ("2028366", 1)]
)
def test_a_day_of_the_year_is_one_that_the_year_has(name: str, there: int) -> None:
    assert len(Pattern.parse("{window:%Y%j}").spans([name], MINUTE_NS)) == there


def test_parts_of_a_time_that_contradict_each_other_are_no_match() -> None:
    pattern = Pattern.parse("f/{window:%Y%m%d}/{window:%Y%m%dT%H%M}.csv")
    assert pattern.spans(["f/20261124/20261125T1200.csv"], MINUTE_NS) == {}
    assert len(pattern.spans(["f/20261125/20261125T1200.csv"], MINUTE_NS)) == 1


def test_a_file_of_an_hour_holds_records_of_all_its_minutes() -> None:
    name = "f/2026112512.csv"
    (span,) = Pattern.parse("f/{window:%Y%m%d%H}.csv").spans([name], MINUTE_NS).values()
    assert span == Window.starting(dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC), HOUR_NS)


def test_files_near_an_interval_are_those_whose_span_with_the_lateness_meets_it(tmp_path: Path) -> None:
    """A record may be late by 90 s: the minute's own file, the next ones that it may come in, and those before."""
    pattern = Pattern.parse(f"{tmp_path}/{{window:%H%M%Y%m%d}}.csv")
    noon = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
    for minute in range(-5, 6):
        (tmp_path / (noon + dt.timedelta(minutes=minute)).strftime("%H%M%Y%m%d.csv")).touch()
    near = pattern.near(window(noon), MINUTE_NS, lateness_ns=90 * 10**9)
    minutes = sorted((span.start_ns - window(noon).start_ns) // MINUTE_NS for span in near.values())
    assert minutes == [-2, -1, 0, 1, 2]
    assert [*pattern.near(window(noon), MINUTE_NS, lateness_ns=0).values()] == [window(noon)]
    assert len(pattern.everywhere(MINUTE_NS)) == 11


@pytest.mark.parametrize(
    "text",
    [
        *("f/{window:%H%M}.csv", "f/{window:%Y%m}.csv", "f/{window:%Y%m%d%B}.csv", "f/{window}.csv"),
        *("f/{other:%Y%m%d}.csv", "f/{window!r:%Y%m%d}.csv", "f/{window:%Y%m%d.csv"),
    ],
)
def test_a_pattern_that_gives_no_day_in_digits_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="expected the window's start in numbers, to the day or finer"):
        Pattern.parse(text)


@pytest.mark.parametrize(
    ("wildcard", "folder"),
    [("a/b/*.csv", "a/b"), ("a/b?/c", "a"), ("./[ab]/c.csv", "."), ("*.csv", "."), ("/a/b.csv", "/a")],
)
def test_the_folder_before_the_first_wildcard(wildcard: str, folder: str) -> None:
    assert fixed_folder(wildcard) == folder
