"""Who has sent on what it receives had received it, whether its records are there or not."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.stages.liveness.passed_on import with_lost


def sent(*rows: tuple[str, str, int]) -> dict[tuple[str, str], float]:
    """Return what pairs that send 100 bytes in each step have sent now, by their ends."""
    table = pl.DataFrame(rows, schema=["src_addr", "dst_addr", "sent"], orient="row").with_columns(usual=pl.lit(100.0))
    return {(src, dst): now for src, dst, now in with_lost(table).select("src_addr", "dst_addr", "sent").iter_rows()}


@pytest.mark.parametrize(("onward", "known"), [(76, 100), (75, 50)])
def test_half_of_what_is_lacking_must_have_been_sent_on(onward: int, known: int) -> None:
    assert sent(("a", "b", 50), ("b", "c", onward), ("c", "a", 50))["a", "b"] == known


@pytest.mark.parametrize("parts", [2, 3])
def test_who_stopped_is_at_most_one_part_behind_the_next(parts: int) -> None:
    """`a` lacks some of the last parts of 10 bytes, each member after it one less."""
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    rows = [(*pair, 100 - 10 * max(parts - place, 0)) for place, pair in enumerate(ring)]
    assert sent(*rows)["a", "b"] == 100 - 10 * parts


@pytest.mark.parametrize("other", [("b", "a", 100), ("b", "d", 100), ("d", "b", 100)])
def test_what_goes_both_ways_or_to_several_is_not_sent_on(other: tuple[str, str, int]) -> None:
    assert sent(("a", "b", 50), ("b", "c", 100), ("c", "a", 100), other)["a", "b"] == 50


def test_nobody_has_sent_more_than_before_because_the_next_has() -> None:
    assert sent(("a", "b", 120), ("b", "c", 100), ("c", "a", 100))["a", "b"] == 120
