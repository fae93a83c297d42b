"""What goes on throughout the step: sharded parameters, blocks of context, or tokens for experts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import polars as pl
import pytest

from llmprism_tasks.stages.parallelism.pair_kinds import step_filling

BLOCK, BURST, OTHER_BURST = 2e6, 9e7, 6e7
STEP = 4e8
"""Bytes per step of what fills it; what does not carries half."""

Pair = tuple[str, str, str, float | None, float | None, float]


def ring(nics: str) -> list[tuple[str, str]]:
    return list(pairwise([*nics, nics[0]]))


def filled(
    pairs: Iterable[Pair],
    *,
    carried: Mapping[str, float] | None = None,
    begins: Mapping[str, float | None] | None = None,
) -> dict[tuple[str, str], str]:
    """Return the kinds of pairs from (sender, receiver, kind, filling size, burst size, ratio of steps they fill).

    `carried` says how many bytes per step senders send, `begins` after which part of a step.
    """
    rows = [
        (src, dst, kind, fills if kind == "filling" else burst, burst, fills, ratio)
        for src, dst, kind, fills, burst, ratio in pairs
    ]
    columns = ("src_addr", "dst_addr", "kind", "common_size", "burst_size", "filling_size", "filling")
    types = dict.fromkeys(columns, pl.Float64) | dict.fromkeys(columns[:3], pl.String)
    usual = {"filling": STEP, "dp": STEP / 2, "pp": STEP / 2}
    frame = pl.DataFrame(rows, schema=[(name, types[name]) for name in columns], orient="row").with_columns(
        job_id=pl.lit("j"),
        bytes_per_step=pl.Series([(carried or {}).get(row[0], usual[row[2]]) for row in rows]),
        begins=pl.Series([(begins or {}).get(row[0], 0.0) for row in rows], dtype=pl.Float64),
    )
    found = step_filling.settle_filling_pairs(frame, 0.02, 0.1)
    return {(src, dst): kind for src, dst, kind in found.select("src_addr", "dst_addr", "kind").iter_rows()}


@pytest.mark.parametrize(("nics", "kind"), [("ab", "cp"), ("abc", "cp"), ("abcd", "ep")])
def test_experts_exchange_with_more_peers_than_a_ring_has_those_of_the_gradients_ring_among_them(
    nics: str, kind: str
) -> None:
    gradients = set(ring(nics))
    pairs = [
        (src, dst, "dp", BLOCK, BURST, 0.0) if (src, dst) in gradients else (src, dst, "filling", BLOCK, None, 1.0)
        for src in nics
        for dst in nics
        if src != dst
    ]
    found = filled([*pairs, ("x", "a", "filling", BLOCK, None, 1.0), ("x", "y", "dp", None, BURST, 0.0)])
    assert {found[pair] for pair in found if pair not in gradients} == {kind, "dp"}


@pytest.mark.parametrize(("sharing", "kind"), [(7, "cp"), (8, "dp")])
def test_buckets_of_a_single_micro_batch_fill_most_of_a_step_and_end_in_a_burst(sharing: int, kind: str) -> None:
    """Of eight pairs that fill most steps so many end in the burst of the others, which fill some."""
    fill = [(f"a{i}", f"b{i}", "filling", BLOCK, BURST if i < sharing else BLOCK, 0.6) for i in range(8)]
    assert filled([*fill, ("b", "a", "dp", None, BURST, 0.4)])["a0", "b0"] == kind


@pytest.mark.parametrize(("alike", "kind"), [(7, "cp"), (8, "dp")])
def test_sharded_parameters_have_the_shape_of_what_is_reduced_on_most_pairs(alike: int, kind: str) -> None:
    """In half of its precision. Of blocks of context the collector merges so many by chance, on some of ten pairs."""
    fill = [(f"a{i}", f"b{i}", "filling", BURST / 2 if i < alike else BLOCK, None, 1.0) for i in range(10)]
    assert filled([*fill, ("b", "a", "dp", None, BURST, 0.0)])["a0", "b0"] == kind


@pytest.mark.parametrize(("whole", "kind"), [(2, "dp"), (1, "cp")])
def test_tensors_are_reduced_by_half_of_a_ring_at_least(whole: int, kind: str) -> None:
    """What one pair of four has the collector split off, and blocks of context may happen to have its size."""
    fill = [(dst, src, "filling", BURST / 2, None, 1.0) for src, dst in ring("abcd")]
    reduced = [(*pair, "dp", None, BURST if i < whole else OTHER_BURST, 0.0) for i, pair in enumerate(ring("abcd"))]
    assert filled([*fill, *reduced])["b", "a"] == kind


@pytest.mark.parametrize(
    ("carried", "burst", "kind"),
    [(0.91, 1, "dp"), (0.89, 1, "cp"), (1.09, 1.019, "dp"), (1.11, 1, "cp"), (1, 1.021, "cp"), (1, None, "cp")],
)
def test_hops_of_a_ring_that_fill_just_about_half_of_the_step_carry_as_much(
    carried: float, burst: float | None, kind: str
) -> None:
    """Sharded parameters and gradients: one hop fills the step, as it seems, the others do not."""
    size = None if burst is None else burst * BURST
    hops = [("a", "b", "filling", BLOCK, BURST, 1.0), ("b", "c", "dp", BLOCK, BURST, 0.1)]
    found = filled([*hops, ("c", "a", "dp", BLOCK, size, 0.1)], carried={"b": STEP, "c": carried * STEP})
    assert set(found.values()) == {"dp", kind}
    assert found["b", "c"] == found["c", "a"] == "dp"


@pytest.mark.parametrize(("begins", "kind"), [(0.19, "cp"), (0.21, "dp"), (None, "cp")])
def test_what_begins_in_the_backward_pass_is_gradients(begins: float | None, kind: str) -> None:
    """Layer by layer, copies of a model sum what rings that gather parameters have summed among themselves."""
    rings = [(src, dst, "dp", BLOCK, BURST, 0.1) for src, dst in [*ring("ab"), *ring("cd")]]
    copies = [(src, dst, "filling", BLOCK, OTHER_BURST, 1.0) for src, dst in [("x", "y"), ("y", "x")]]
    found = filled([*rings, *copies], begins={"x": begins, "y": begins})
    assert found["x", "y"] == found["y", "x"] == kind


def two_by_two(replicas: list[tuple[str, str]], size: float = OTHER_BURST) -> dict[tuple[str, str], str]:
    """Return the kinds of a ring of gradients of four NICs, `ab` and `cd` of which exchange, with more such pairs."""
    exchanges = [("b", "a"), ("d", "c")]
    return filled(
        [
            *((src, dst, "filling", BLOCK, None, 1.0) for src, dst in exchanges),
            *((src, dst, "dp", BLOCK, BURST, 0.2) for src, dst in ring("abcd")),
            *((src, dst, "dp", None, size, 0.0) for src, dst in replicas),
        ]
    )


def test_the_gradients_of_experts_are_reduced_apart_from_those_of_common_layers() -> None:
    assert two_by_two([])["b", "a"] == "cp"
    found = two_by_two([*ring("ac"), *ring("bd")])
    assert {found[pair] for pair in (("b", "a"), ("d", "c"))} == {"ep"}
    assert found["a", "c"] == found["a", "b"] == "dp"


@pytest.mark.parametrize(("ratio", "kind"), [(1.019, "cp"), (1.021, "ep")])
def test_what_is_reduced_apart_is_other_tensors(ratio: float, kind: str) -> None:
    """The same ones go round in two orders."""
    assert two_by_two([*ring("ac"), *ring("bd")], BURST * ratio)["b", "a"] == kind


@pytest.mark.parametrize("replicas", [ring("ac"), [("a", "c"), ("b", "d")], [("b", "c"), ("d", "a")]])
def test_what_does_not_go_round_among_all_replicas_is_no_expert_s(replicas: list[tuple[str, str]]) -> None:
    """Two stages' embedding; copies one way; hops of the common ring whose sizes the collector merged."""
    assert two_by_two(replicas)["b", "a"] == "cp"
