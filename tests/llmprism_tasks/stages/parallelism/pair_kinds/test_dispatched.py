"""Tokens that are as many bytes in every step: what is dispatched comes back in the combine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, every, flows

from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.pair_kinds import dispatched
from llmprism_tasks.stages.parallelism.pair_kinds.features import stream_steps, with_back
from llmprism_tasks.stages.traffic import nic_pairs

STEPS = every(1000, count=12)
LAYERS = (0, 200, 400, 600)


def in_steps(rows: list[Row]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return flows of a job with steps of a second, and its pairs."""
    named = flows(rows).with_columns(
        job_id=pl.lit("j"),
        step=(pl.col("flow_start_ns") - WINDOW.start_ns) // (1000 * MS),
        pair=pl.struct(nic_pairs.PAIR).rank("dense").cast(pl.Int32),
    )
    numbered = nic_pairs.in_order(named)
    return numbered, with_back(nic_pairs.pairs_of(numbered, ["job_id", *nic_pairs.PAIR]))


def told(rows: list[Row]) -> dict[str, float]:
    """Return the ratio of steps in which most of what a pair sends comes back, by its two NICs."""
    numbered, pairs = in_steps(rows)
    found = dispatched.returned(numbered, pairs, Settings()).join(pairs, on="pair")
    return {src + dst: ratio for src, dst, ratio in found.select(*nic_pairs.PAIR, "returned").rows()}


def exchanged(size: Callable[[], int], *, back: Callable[[int, int], tuple[int, int]]) -> list[Row]:
    """Return what two NICs send each other at once in each layer, and then in the combine, given what they sent."""
    rows: list[Row] = []
    for begin in [step + layer for step in STEPS for layer in LAYERS]:
        there, here = size(), size()
        returns = back(there, here)
        rows += [(begin, begin + 20, "a", "b", there), (begin, begin + 20, "b", "a", here)]
        rows += [(begin + 50, begin + 70, "a", "b", returns[0]), (begin + 50, begin + 70, "b", "a", returns[1])]
    return rows


def any_size(seed: int) -> Callable[[], int]:
    draw = np.random.default_rng(seed)
    return lambda: int(draw.uniform(1, 9) * MB)


@pytest.mark.parametrize("seed", range(4))
def test_what_comes_back_in_sizes_of_one_step_is_tokens(seed: int) -> None:
    assert told(exchanged(any_size(seed), back=lambda there, here: (here, there))) == {"ab": 1.0, "ba": 1.0}


@pytest.mark.parametrize("seed", range(4))
def test_sizes_that_go_one_way_alone_are_nothing(seed: int) -> None:
    """Records that a collector splits have new sizes, too."""
    other = any_size(seed + 100)
    ratios = told(exchanged(any_size(seed), back=lambda there, here: (other(), other())))
    assert max(ratios.values()) <= 0.25


@pytest.mark.parametrize("seed", range(4))
def test_sizes_that_come_back_in_the_next_step_as_well_are_nothing(seed: int) -> None:
    """Where records are cut anywhere, and are many or much alike, some size comes back by chance."""
    draw = np.random.default_rng(seed)
    ratios = told(exchanged(lambda: int(draw.uniform(5, 5.01) * MB), back=lambda there, here: (here, there)))
    assert max(ratios.values()) <= 0.25


def test_sizes_that_repeat_in_every_step_are_nothing() -> None:
    sizes = iter([2 * MB, 3 * MB, 4 * MB, 5 * MB, 6 * MB, 7 * MB, 8 * MB, 9 * MB] * len(STEPS))
    assert told(exchanged(lambda: next(sizes), back=lambda there, here: (here, there))) == {"ab": 0.0, "ba": 0.0}


def test_what_goes_both_ways_at_once_is_nothing() -> None:
    """Messages of two members of a ring are joined alike: as many of each, and as many each time of another number."""
    size = any_size(1)
    rows = [
        (step + layer, step + layer + 20, src, dst, of_both)
        for step in STEPS
        for layer in LAYERS
        for of_both in [size()]
        for src, dst in ("ab", "ba")
    ]
    assert told(rows) == {"ab": 0.0, "ba": 0.0}


def test_who_has_nobody_that_answers_is_not_asked() -> None:
    assert told([(step, step + 20, "a", "b", 5 * MB) for step in STEPS]) == {}


@pytest.mark.parametrize(
    ("later", "sender", "expert", "backward"),
    [(190, "a", 1.0, []), (210, "a", 1.0, ["c"]), (500, "a", 1.0, ["c"]), (210, "b", 1.0, []), (210, "a", 0.4, [])],
)
def test_what_begins_a_pass_after_the_tokens_of_its_sender_goes_on_in_the_backward_pass(
    later: int, sender: str, expert: float, backward: list[str]
) -> None:
    """Who sends no tokens may be of a later stage of a pipeline."""
    rows = [(step + 300 * late, step + 300 * late + 20, "a", "d", 5 * MB) for step in STEPS for late in range(3)]
    rows += [
        (step + later + 50 * one, step + later + 50 * one + 20, sender, "c", 2 * MB)
        for step in STEPS
        for one in range(9)
    ]
    numbered, pairs = in_steps(rows)
    periods = pl.DataFrame({"job_id": ["j"], "period_ns": [1000.0 * MS]})
    pairs = pairs.with_columns(expert=pl.when(dst_addr="d").then(expert).otherwise(0.0))
    found = dispatched.begun_a_pass_later(stream_steps(numbered, pairs, periods, Settings()), pairs)
    assert pairs.filter(pl.col("pair").is_in(found.implode()))["dst_addr"].to_list() == backward
