"""Ranges of time: as asked for, of whole windows, and thinned to what can be read."""

from __future__ import annotations

import polars as pl
import pytest
from small_windows import FIRST

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.reports.pages.ranges import LASTS, Range, asked_range, sample
from llmprism_tasks.warehouse.asking import asking
from llmprism_tasks.warehouse.connect import Warehouse

MINUTE = 60_000_000_000


def asked(warehouse: Warehouse, **query: str) -> Range:
    with asking(warehouse, longest_s=5) as ask:
        return asked_range(ask, query)


def test_a_range_ends_with_the_newest_window_and_begins_with_the_first(filled: Warehouse) -> None:
    found = asked(filled)
    assert (found.from_ns, found.to_ns, found.last) == (FIRST.start_ns, FIRST.shifted(1).end_ns, "6h")
    assert found.windows == 2
    assert found.slices() == [FIRST.start_ns, FIRST.shifted(1).start_ns]


def test_a_range_from_one_time_to_another_holds_whole_windows(filled: Warehouse) -> None:
    found = asked(filled, **{"from": "2026-01-01T00:00:30", "to": "2026-01-01T00:01"})
    assert (found.from_ns, found.to_ns) == (FIRST.start_ns, FIRST.end_ns)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"last": "9y"}, "last=9y"),
        ({"from": "yesterday"}, "from=yesterday"),
        ({"from": "2026-01-02", "to": "2026-01-01"}, "a range from 2026-01-02"),
    ],
)
def test_a_range_that_cannot_be_read_is_refused(filled: Warehouse, query: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        asked(filled, **query)


@pytest.mark.parametrize("last", LASTS)
def test_slices_are_whole_windows_and_few(last: str) -> None:
    found = Range(0, LASTS[last] * 10**9, last, MINUTE, None, None)
    assert found.slice_ns(120) % MINUTE == 0
    assert len(found.slices(120)) <= 120
    assert found.slice_ns(120) * 120 >= found.to_ns


def test_a_sample_keeps_both_ends_and_all_of_a_few() -> None:
    windows = pl.Series(range(1_000))
    some = sample(windows, 60)
    assert (len(some), some[0], some[-1]) == (60, 0, 999)
    assert sample(windows.head(60), 60) == list(range(60))
