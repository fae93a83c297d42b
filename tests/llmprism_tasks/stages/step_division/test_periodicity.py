"""Streams: which sizes of a pair's messages are streams of their own."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB, flows, settings

from llmprism_tasks.stages.step_division.periodicity import stream_rhythms

DEFAULT = settings().rhythm

AGAIN_MS = (0, 5_000, 10_000, 15_000, 20_000)
"""When messages of one size come: every five seconds, by chance or by habit."""


def periods_of_sizes(*, other_size: float) -> list[float]:
    """Return the periods of a pair's sizes, in s: one comes every five seconds, others whenever."""
    messages = [(at, at + 10, "a", "b", 4 * MB) for at in AGAIN_MS]
    messages += [(at + 1_300, at + 1_310, "a", "b", round(other_size * 4 * MB)) for at in (0, 3_100, 9_700, 17_900)]
    found = stream_rhythms(flows(messages), DEFAULT).filter(size_class=0).drop_nulls("period_ns")
    return (found["period_ns"] / 1e9).round(3).to_list()


@pytest.mark.parametrize("other_size", [1.05, 1.5])
def test_a_size_that_is_set_apart_from_others_has_a_period_of_its_own(other_size: float) -> None:
    assert periods_of_sizes(other_size=other_size) == [5.0]


def test_a_size_that_others_run_into_has_none() -> None:
    """Samples of all lengths make messages of all sizes, and some of these come again as chance will have it."""
    messages = [(at, at + 10, "a", "b", 4 * MB) for at in AGAIN_MS]
    messages += [(at + 1_300, at + 1_310, "a", "b", round(1.012 * 4 * MB)) for at in (0, 3_100, 9_700)]
    messages += [(at + 2_100, at + 2_110, "a", "b", round(1.03 * 4 * MB)) for at in (0, 6_100, 13_700)]
    found = stream_rhythms(flows(messages), DEFAULT)
    assert found.filter(pl.col("size_class") >= 0).is_empty()
