"""Flood: what is sound, and that the flood is what it says."""

from __future__ import annotations

import pytest

from reliability import flood
from reliability.kills import START_NS

ADDRESSES = 1_000


def test_each_address_sends_one_flow_in_the_minute() -> None:
    flows = flood.flood(ADDRESSES)
    assert flows["src_addr"].n_unique() == flows.height == ADDRESSES
    assert flows["flow_start_ns"].is_between(START_NS, START_NS + flood.MINUTE_NS, closed="left").all()


@pytest.mark.parametrize(
    ("changes", "is_sound"),
    [
        ({}, True),
        ({"read": 999}, False),
        ({"put_aside": 899}, False),
        ({"with": {"cpu_s": [20.0, 3.0, 2.0], "peak_mb": [801, 400, 400]}}, False),
        ({"with": {"cpu_s": [20.0, 3.0, 2.6], "peak_mb": [700, 400, 400]}}, False),
        ({"with": {"cpu_s": [20.0, 3.0, 2.0], "peak_mb": [700, 400, 520]}}, False),
    ],
)
def test_lost_records_much_memory_or_a_dear_minute_later_are_not_sound(
    changes: dict[str, object], is_sound: bool
) -> None:
    found = {
        "sent": 1000,
        "read": 1000,
        "landed": 100,
        "put_aside": 900,
        "with": {"cpu_s": [20.0, 3.0, 2.0], "peak_mb": [800, 450, 410]},
        "without": {"cpu_s": [2.0, 2.0, 2.0], "peak_mb": [400, 400, 400]},
    }
    assert flood.is_sound(found | changes) is is_sound
