"""Activations are ahead of gradients, and tell the order of stages, wherever steps are cut and whatever is slow."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.layout.chain_order import in_lead

STEPS = 5


def one_f_one_b(stages: int, stage: int, micro_batches: int) -> str:
    """Return what a stage exchanges with the next one in a step of 1F1B: `d`own and `u`p."""
    ahead = min(stages - 1 - stage, micro_batches)
    return "d" * ahead + "ud" * (micro_batches - ahead) + "u" * ahead


def order(line: str, hops: list[str], *, cut: int = 0) -> dict[str, int]:
    """Return the place of each node of a line, of whose hops each step shows these messages, from this one on."""
    links, messages = [], []
    for number, ((above, below), ways) in enumerate(zip(pairwise(line), hops, strict=True)):
        links += [(2 * number, "j", above, below), (2 * number + 1, "j", below, above)]
        turned = (ways * STEPS)[cut:]
        for at, way in enumerate(turned):
            messages.append((2 * number + (way == "u"), at // len(ways), 100 * at + number))
    messages.sort()
    schema = {"pair": pl.Int64, "job_id": pl.String, "src_addr": pl.String, "dst_addr": pl.String}
    pair, step, start = np.array(messages, dtype=np.int64).T
    found = in_lead(pair, step, start, pl.DataFrame(links, schema=schema, orient="row"))
    assert set(found["size"]) <= {len(line)}
    return dict(found.select("node", "place").iter_rows())


@given(
    st.integers(3, 6).flatmap(lambda stages: st.permutations("abcdefgh"[:stages])),
    st.integers(0, 5),
    st.integers(0, 40),
)
def test_activations_are_ahead_wherever_steps_are_cut(line: list[str], more: int, cut: int) -> None:
    stages = len(line)
    hops = [one_f_one_b(stages, stage, stages + more) for stage in range(stages - 1)]
    told = order("".join(line), hops, cut=cut % len(hops[0]))
    assert told == ({addr: place for place, addr in enumerate(line)} if stages + more > 3 else {})


def test_in_gpipe_neither_direction_is_ahead() -> None:
    assert order("abcd", ["dddduuuu"] * 3) == {}


@pytest.mark.parametrize(("micro_batches", "told"), [(3, False), (4, True)])
def test_three_stages_need_four_micro_batches(micro_batches: int, told: bool) -> None:
    """Activations are ahead by 0.042 in the mean of both hops, or by 0.0625."""
    assert bool(order("abc", [one_f_one_b(3, stage, micro_batches) for stage in range(2)])) == told


def test_two_stages_take_turns() -> None:
    assert order("ab", [one_f_one_b(2, 0, 8)]) == {}


def test_a_ring_has_no_first_stage() -> None:
    assert order("abca", [one_f_one_b(4, stage, 8) for stage in range(3)]) == {}


def test_no_messages_no_order() -> None:
    none = np.zeros(0, np.int64)
    links = pl.DataFrame(schema={"pair": pl.Int64, "job_id": pl.String, "src_addr": pl.String, "dst_addr": pl.String})
    assert in_lead(none, none, none, links).is_empty()
