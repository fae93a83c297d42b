"""What is an address is what the standard library takes for one."""

from __future__ import annotations

import ipaddress
import re

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmprism_tasks.sources.addresses import ADDRESS

IMPOSSIBLE = ("10.0.0.300", "256.0.0.1", "fe80::1::2", "1:2:3", "1:2:3:4:5:6:7:8:9", "12345::", "::1%")
PARTS = ("f0", "9f", "abcd", "12345", ":", ":", ":", "::", "1.2.3.4", "256")


def is_address(text: str) -> bool:
    return bool(pl.Series([text]).str.contains(ADDRESS).item())


def is_one_to_python(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", IMPOSSIBLE)
def test_impossible_addresses_are_none(text: str) -> None:
    assert not is_address(text)


@given(st.ip_addresses().map(str))
def test_every_address_is_one(text: str) -> None:
    assert is_address(text)


@given(st.lists(st.sampled_from(PARTS), max_size=17).map("".join))
@example("::ffff:10.0.0.1")
@example("1:2:3:4:5:6:7::")
@example("1:2:3:4:5:6:7::8")
@example("1:2:3:4:5:6:1.2.3.4")
@example("1:2:3:4:5::1.2.3.4")
@example("::2:3:4:5:6:1.2.3.4")
@settings(max_examples=500)
def test_of_texts_that_look_like_addresses_those_that_can_be_are(text: str) -> None:
    assert is_address(text) == is_one_to_python(text)


@given(st.lists(st.integers(0, 999), min_size=3, max_size=5))
def test_no_group_of_an_ipv4_address_is_above_255(numbers: list[int]) -> None:
    text = ".".join(map(str, numbers))
    assert is_address(text) == is_one_to_python(text)


def test_a_zone_and_groups_with_zeros_before_them_may_be_in_it() -> None:
    assert is_address("fe80::1%eth0")
    assert is_address("010.000.000.001")
    assert re.fullmatch(ADDRESS, "fe80::1%eth0")
