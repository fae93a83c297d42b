"""Which pairs fall silent together: those of lines of stages alike."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, every, flows, messages

from llmprism_tasks.stages.step_division.stage_lines import silent_together
from llmprism_tasks.stages.traffic import nic_pairs


def numbers(links: dict[str, int], *, since: int = 0) -> dict[str, int]:
    """Return the number of each pair, given how many messages of 1 MB go over each, one a millisecond."""
    rows = [row for pair, count in links.items() for row in messages(*pair, every(1, count=count), MB)]
    bulk = nic_pairs.in_order(flows(rows))
    pairs = nic_pairs.pairs_of(bulk, [*nic_pairs.PAIR])
    names = pairs.select(pl.concat_str(nic_pairs.PAIR)).to_series().to_list()
    return dict(zip(names, silent_together(bulk, WINDOW.start_ns + since * MS).tolist(), strict=True))


def both(*links: str, count: int = 100) -> dict[str, int]:
    return {pair: count for link in links for pair in (link, link[::-1])}


def test_nothing_has_no_lines() -> None:
    assert silent_together(nic_pairs.in_order(flows([])), 0).size == 0


def test_the_links_of_a_line_are_one() -> None:
    assert len(set(numbers(both("ab", "bc", "cd")).values())) == 1


@pytest.mark.parametrize(("last", "lines"), [("fa", False), ("fd", True)])
def test_stages_whose_replicas_exchange_gradients_one_way_are_no_lines(last: str, *, lines: bool) -> None:
    """The rings of two stages go round three pipelines; of two pipelines nothing comes back."""
    found = numbers({**both("ab", "cd", "ef"), **dict.fromkeys(["bd", "df", last], 100)})
    assert (found["ab"] == found["ba"]) == lines


@pytest.mark.parametrize(
    "links",
    [both("ab", "bc", "ca"), {"ab": 100, "bc": 100}, {"ab": 100, "bc": 100, "ca": 100}],
    ids=["circle", "one way", "ring"],
)
def test_pairs_of_no_line_are_each_by_themselves(links: dict[str, int]) -> None:
    assert len(set(numbers(links).values())) == len(links)


def test_a_pair_that_carries_little_joins_no_lines() -> None:
    found = numbers({**both("ab", count=200), **both("cd", count=100), **both("bc", count=9)})
    assert found["ab"] == found["ba"] != found["cd"] == found["dc"]
    assert found["bc"] != found["cb"]


@pytest.mark.parametrize(("count", "alike"), [(1000, True), (991, True), (989, False)])
def test_lines_are_alike_that_move_the_same_but_for_a_hundredth(count: int, *, alike: bool) -> None:
    found = numbers({**both("ab", "bc", count=1000), **both("de", "ef", count=count)})
    assert (found["ab"] == found["ef"]) == alike


def test_lines_of_other_lengths_are_not_alike() -> None:
    """Two links that move 300 messages each, and three that move 200."""
    found = numbers({**both("ab", "bc", count=300), **both("de", "ef", "fg", count=200)})
    assert found["ab"] != found["de"]


@pytest.mark.parametrize(("since", "count"), [(50, 1), (51, 3)])
def test_a_pair_that_sent_nothing_since_is_of_no_line(since: int, count: int) -> None:
    assert len(set(numbers({**both("ab"), **both("bc", count=50)}, since=since).values())) == count
