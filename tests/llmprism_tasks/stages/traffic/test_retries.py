"""A packet that is sent again after twice as long each time, with no answer, has met a path that is down."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from handmade import MS, WINDOW, Row, flows
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.traffic import nic_pairs, retries


def sent(times: Sequence[float], size: int = 8_948, pair: str = "ab") -> list[Row]:
    """Return single packets from `a` to `b` at these times, in ms."""
    return [(at, at, pair[0], pair[1], size) for at in times]


def found(*rows: Sequence[Row]) -> list[tuple[str, str, float, float]]:
    numbered, _ = nic_pairs.numbered(flows(*rows))
    return [
        (src, dst, (since - WINDOW.start_ns) / MS, (until - WINDOW.start_ns) / MS)
        for src, dst, since, until in retries.retried(numbered).rows()
    ]


TRIES = sent([1000, 1440, 2300])
BULK = [(0, 40, "a", "b", 2_000_000), (4000, 4040, "a", "b", 2_000_000), (500, 510, "b", "a", 2_000_000)]


def test_three_tries_in_vain_are_told_with_their_first_and_last_time() -> None:
    assert found(BULK, TRIES) == [("a", "b", 1000, 2300)]
    assert found(BULK, sent([1000, 1440, 2300, 4000])) == [("a", "b", 1000, 2300), ("a", "b", 1440, 4000)]


@pytest.mark.parametrize(("last", "tells"), [(2231, False), (2233, True), (2407, True), (2409, False)])
def test_each_wait_is_twice_as_long_as_the_one_before(last: float, tells: bool) -> None:
    """After 440 ms, within a tenth of 880."""
    assert bool(found(sent([1000, 1440, last]))) == tells


@pytest.mark.parametrize(("wait", "tells"), [(99, False), (100, True)])
def test_messages_that_follow_each_other_quickly_are_no_tries(wait: float, tells: bool) -> None:
    assert bool(found(sent([1000, 1000 + wait, 1000 + 3 * wait]))) == tells


@pytest.mark.parametrize(("size", "tells"), [(9_216, True), (9_217, False)])
def test_a_try_is_one_packet(size: int, tells: bool) -> None:
    """Messages of a pipeline are of one size, too, and follow each other as they like."""
    assert bool(found(sent([1000, 1440, 2300], size))) == tells


def test_packets_of_several_sizes_or_with_others_between_are_no_tries() -> None:
    assert not found(sent([1000, 1440]), sent([2300], 8_000))
    assert not found(TRIES, sent([1500], 100))
    assert found(TRIES, sent([1500], 100, "ac"))


@pytest.mark.parametrize(("at", "tells"), [(999, True), (1001, False), (2299, False), (2301, True)])
def test_who_answers_was_reached(at: float, tells: bool) -> None:
    assert bool(found(TRIES, sent([at], 48, "ba"))) == tells


def test_nothing_is_told_of_nothing() -> None:
    numbered, _ = nic_pairs.numbered(flows([]))
    assert_frame_equal(retries.retried(numbered), pl.DataFrame(schema=retries.RETRIES_SCHEMA))
