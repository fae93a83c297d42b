"""A packet that is sent again after twice as long each time, with no answer, has met a path that is down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from handmade import MS, WINDOW, Row, flows
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.traffic import nic_pairs, retries

CHANCE = 1 / 6000
"""In a minute of a job of which a hundred hours may show chance once."""


def sent(times: Sequence[float], size: int = 8_948, pair: str = "ab") -> list[Row]:
    """Return single packets from `a` to `b` at these times, in ms."""
    return [(at, at, pair[0], pair[1], size) for at in times]


def found(*rows: Sequence[Row], ports: dict[int, int] | None = None) -> list[tuple[str, str, float, float]]:
    """Return what is told of records; `ports` is the port of each size, or else no ports are known."""
    table = flows(*rows)
    port = table.select(pl.col("bytes").replace_strict(ports or {}, default=None, return_dtype=pl.Int32).alias("port"))
    known = port.select(src_port="port", dst_port="port")
    numbered, _ = nic_pairs.numbered(table)
    return [
        (src, dst, (since - WINDOW.start_ns) / MS, (until - WINDOW.start_ns) / MS)
        for src, dst, since, until in retries.retried(numbered, CHANCE, known if ports else None).rows()
    ]


TRIES = sent([1000, 1440, 2300, 4000, 7400])
"""Three waits that are twice as long as the one before."""

BULK = [(0, 40, "a", "b", 2_000_000), (9000, 9040, "a", "b", 2_000_000), (500, 510, "b", "a", 2_000_000)]


def test_tries_in_vain_are_told_by_threes_with_their_first_and_last_time() -> None:
    assert found(BULK, TRIES) == [("a", "b", 1000, 2300), ("a", "b", 1440, 4000), ("a", "b", 2300, 7400)]


@pytest.mark.parametrize(("last", "tells"), [(7059, False), (7061, True), (7739, True), (7741, False)])
def test_each_wait_is_twice_as_long_as_the_one_before(last: float, tells: bool) -> None:
    """After 1700 ms, within a tenth of 3400."""
    assert bool(found(sent([1000, 1440, 2300, 4000, last]))) == tells


@pytest.mark.parametrize("packets", [4, 5])
def test_two_waits_that_double_may_be_chance(packets: int) -> None:
    """A wait is twice as long as the one before in one of 22 cases."""
    assert bool(found(sent([1000, 1440, 2300, 4000, 7400][:packets]))) == (packets > 4)


def test_heartbeats_at_any_time_are_no_tries() -> None:
    """Some of a thousand waits double, as by chance."""
    rng = np.random.default_rng(1)
    assert not found(*(sent(rng.exponential(1000, 100).cumsum().tolist(), 300, pair) for pair in ("ab", "cb")))


def test_all_that_try_to_reach_a_receiver_count_together() -> None:
    two = [1000, 1440, 2300, 4000]
    assert found(sent(two), sent(two, pair="cb"))
    assert not found(sent(two), sent(two, pair="cd"))


@pytest.mark.parametrize(("wait", "tells"), [(199, False), (200, True)])
def test_messages_that_follow_each_other_quickly_are_no_tries(wait: float, tells: bool) -> None:
    assert bool(found(sent([1000 + wait * at for at in (0, 1, 3, 7, 15)][: 5 if tells else 3]))) == tells


@pytest.mark.parametrize(("size", "tells"), [(9_216, True), (9_217, False)])
def test_a_try_is_one_packet(size: int, tells: bool) -> None:
    """Messages of a pipeline are of one size, too, and follow each other as they like."""
    assert bool(found(sent([1000, 1440, 2300, 4000, 7400], size))) == tells


def test_packets_of_several_sizes_or_with_others_between_are_no_tries() -> None:
    assert not found(sent([1000, 1440, 2300, 4000]), sent([7400], 8_000))
    assert not found(TRIES, sent([1500], 100))
    assert found(TRIES, sent([1500], 100, "ac"))


@pytest.mark.parametrize("port", [7946, 50_000])
def test_other_connections_send_what_they_like_meanwhile(port: int) -> None:
    """The port of 100 bytes is another one, or that of the tries."""
    assert bool(found(TRIES, sent([1500], 100), ports={8_948: 50_000, 100: port})) == (port == 7946)


@pytest.mark.parametrize(("back", "tells"), [(3800, False), (3900, True), (4100, True), (4300, False)])
def test_a_connection_that_goes_on_when_it_would_be_tried_again_was_tried(back: float, tells: bool) -> None:
    """Each of two senders tries three times, the last time after 860 ms, and then sends 2 MB 1.7 s later, or so."""
    tries = [sent([1000, 1440, 2300], pair=pair) for pair in ("ab", "cb")]
    assert bool(found(*tries, [(back, back + 40, src, "b", 2_000_000) for src in "ac"])) == tells


def test_a_probe_before_the_first_try_is_no_wait_that_did_not_double() -> None:
    """Of 3 in 3 waits, or 3 in 4, the former alone is more than chance."""
    assert found(sent([824, 1000, 1440, 2300, 4000, 7400]))
    assert not found(sent([760, 1000, 1440 + 176, 2300 + 176, 4000 + 176, 7400 + 176][:5]))


@pytest.mark.parametrize(("at", "left"), [(999, 3), (1001, 2), (7399, 2), (7401, 3), (2299, 1)])
def test_who_answers_was_reached(at: float, left: int) -> None:
    assert len(found(TRIES, sent([at], 48, "ba"))) == left


def test_nothing_is_told_of_nothing() -> None:
    numbered, _ = nic_pairs.numbered(flows([]))
    assert_frame_equal(retries.retried(numbered, CHANCE), pl.DataFrame(schema=retries.RETRIES_SCHEMA))
