"""A NIC whose link went down holds up all others, which had gone on for one more message."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from llmprism_tasks.stages.diagnosis.pauses.odd_rail import odd_nics

MB = 1_000_000


def sent(rails: int = 4, lacking: Mapping[tuple[str, str], float] | None = None, **usual: float) -> pl.DataFrame:
    """Return what NICs of three hosts, `a0` and so on, had sent each other, of 100 MB a step: half of it, or less."""
    rows = [
        (src, dst, usual.get(src + dst, 100) * MB, round(50 * MB * (lacking or {}).get((src, dst), 1.0)))
        for rail in range(rails)
        for one, two in ("ab", "ba", "bc", "cb")
        for src, dst in [(f"{one}{rail}", f"{two}{rail}")]
    ]
    return pl.DataFrame(rows, schema=["src_addr", "dst_addr", "usual", "sent"], orient="row")


def named(frame: pl.DataFrame, message: float = 50 * MB) -> str | None:
    hosts = {f"{host}{rail}": host for host in "abc" for rail in range(4)}
    return " ".join(odd_nics(frame.with_columns(message=pl.lit(message)), hosts)) or None


BOTH = {("a1", "b1"): 0.5, ("b1", "a1"): 0.5, ("c1", "b1"): 0.5}


def test_the_nic_that_all_that_lacks_something_has_in_common_stopped_alone() -> None:
    assert named(sent(lacking=BOTH)) == "b1"
    assert named(sent(lacking=BOTH).sample(fraction=1, shuffle=True, seed=1)) == "b1"


@pytest.mark.parametrize(("rails", "nic"), [(4, "b1"), (3, "b1"), (2, None)])
def test_of_two_rails_either_may_be_odd(rails: int, nic: str | None) -> None:
    assert named(sent(rails, BOTH)) == nic


@pytest.mark.parametrize(("share", "nic"), [(0.89, "b1"), (0.91, None)])
def test_it_lacks_more_than_pairs_that_do_the_same_work_differ_by(share: float, nic: str | None) -> None:
    assert named(sent(lacking=dict.fromkeys(BOTH, share))) == nic


@pytest.mark.parametrize(
    "lacking",
    [
        {},
        {("a1", "b1"): 0.5},
        {("a1", "b1"): 0.5, ("c1", "b1"): 0.5},
        BOTH | {("a2", "b2"): 0.5},
        dict.fromkeys([(f"a{rail}", f"b{rail}") for rail in range(4)], 0.0),
    ],
    ids=["nothing", "one pair", "only what it receives", "another rail, too", "a host"],
)
def test_else_nobody_stopped_alone(lacking: Mapping[tuple[str, str], float]) -> None:
    assert named(sent(lacking=lacking)) is None


def test_of_one_link_either_end_may_have_stopped() -> None:
    assert named(sent(lacking={("a1", "b1"): 0.5, ("b1", "a1"): 0.5})) == "a1 b1"


@pytest.mark.parametrize(("lacks", "nic"), [(1.1, "b1"), (0.9, None)])
def test_late_in_a_step_it_lacks_a_message(lacks: float, nic: str | None) -> None:
    """Half of a message of two megabytes, of the fifty that have been sent."""
    assert named(sent(lacking=dict.fromkeys(BOTH, 1 - lacks / 50)), message=2 * MB) == nic


@pytest.mark.parametrize(("usual", "nic"), [(109, "b1"), (111, None)])
def test_pairs_that_do_other_work_are_no_sisters(usual: float, nic: str | None) -> None:
    assert named(sent(lacking=BOTH, c1b1=usual, a1b1=usual)) == nic
