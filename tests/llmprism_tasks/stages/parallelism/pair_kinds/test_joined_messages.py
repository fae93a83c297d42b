"""Records that are whole numbers of one message are as many messages, whatever a collector joined."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, every, flows, messages, settings

from llmprism_tasks.stages.parallelism.pair_kinds import joined_messages
from llmprism_tasks.stages.parallelism.pair_kinds.features import with_back
from llmprism_tasks.stages.step_division import periodicity
from llmprism_tasks.stages.traffic import nic_pairs

PERIOD, STEPS = 1000, 12
BEGINS = every(PERIOD, count=STEPS)
PERIODS = pl.DataFrame({"job_id": ["j"], "period_ns": [float(PERIOD * MS)]})
BLOCK = 8 * MB


def judged(*parts: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return what is told of each pair that has a record of several messages."""
    since = pl.col("flow_start_ns") - WINDOW.start_ns
    table = nic_pairs.in_order(
        flows(*parts).with_columns(
            job_id=pl.lit("j"),
            step=since // (PERIOD * MS),
            pair=pl.struct(periodicity.PAIR).rank("dense").cast(pl.Int32),
        )
    )
    pairs = with_back(nic_pairs.pairs_of(table, ["job_id", *periodicity.PAIR]))
    found = joined_messages.joined(table, pairs, PERIODS, settings())
    named = pairs.join(found, on="pair").with_columns(ends=pl.concat_str("src_addr", "dst_addr"))
    return {row["ends"]: row for row in named.iter_rows(named=True)}


def joined(pair: str, times: Sequence[float], draw: random.Random, *, most: int = 4, size: int = BLOCK) -> list[Row]:
    """Return messages of a pair at these times of each step, one to `most` of which become a record."""
    rows: list[Row] = []
    for begin in BEGINS:
        left = list(times)
        while left:
            number = draw.randint(1, most)
            rows += messages(*pair, [begin + left[0]], size * len(left[:number]))
            left = left[number:]
    return rows


def test_blocks_that_are_joined_fill_the_step() -> None:
    found = judged(joined("ac", range(0, 800, 40), random.Random(7)))["ac"]
    assert (found["filling"], found["message"], found["pipeline"]) == (1, BLOCK, 0)


def test_what_is_joined_of_one_burst_does_not() -> None:
    assert judged(joined("ac", range(0, 200, 10), random.Random(7)))["ac"]["filling"] == 0


def test_pairs_without_a_record_of_several_messages_are_absent() -> None:
    assert judged(joined("ac", range(0, 800, 40), random.Random(7), most=1)) == {}
    assert judged() == {}


def test_micro_batches_that_are_joined_take_turns() -> None:
    """Activations go from 0 to 600 ms, gradients come back 200 ms later; of neither a size recurs in all steps."""
    there = joined("ac", range(0, 600, 50), random.Random(3), most=3)
    back = joined("ca", range(200, 800, 50), random.Random(4), most=3)
    found = judged(there, back)
    assert {pair: row["pipeline"] for pair, row in found.items()} == {"ac": 1, "ca": 1}


@pytest.mark.parametrize(("off", "known"), [(0.018, True), (0.022, False)])
def test_most_bytes_are_whole_numbers_of_the_message(off: float, known: bool) -> None:
    """Records of one message, and of two that miss it by so much of one."""
    rows = [
        row
        for begin in BEGINS
        for at in range(0, 800, 40)
        for row in messages("a", "c", [begin + at], BLOCK if at % 80 else round((2 + off) * BLOCK))
    ]
    assert ("ac" in judged(rows)) == known


@pytest.mark.parametrize(("steps", "message"), [(5, BLOCK), (6, BLOCK // 2)])
def test_the_message_is_the_smallest_size_that_recurs_in_most_steps(steps: int, message: int) -> None:
    """Of twelve steps, some have half of a block as well."""
    halves = [row for begin in BEGINS[:steps] for row in messages("a", "c", [begin + 900], BLOCK // 2)]
    assert judged(joined("ac", range(0, 800, 40), random.Random(7)), halves)["ac"]["message"] == message
