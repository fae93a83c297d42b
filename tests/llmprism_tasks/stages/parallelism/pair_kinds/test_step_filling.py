"""What goes on throughout the step: sharded parameters, blocks of context, or tokens for experts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise, permutations

import polars as pl
import pytest

from llmprism_tasks.stages.parallelism.pair_kinds import step_filling

BLOCK, BURST, OTHER_BURST = 2e6, 9e7, 6e7
STEP = 4e8
"""Bytes per step of what fills it; what does not carries half."""

Pair = tuple[str, str, str, float | None, float | None]


@pytest.mark.parametrize(
    ("hop", "carried", "kind"),
    [("da", 1.09, "dp"), ("da", 1.11, "cp"), ("db", 1.0, "cp"), ("ea", 1.0, "cp")],
)
def test_the_hop_that_closes_a_ring_is_one_of_it_whatever_it_does_in_bursts(
    hop: str, carried: float, kind: str
) -> None:
    """Of sharded parameters one hop is done after half of the step: it waits for nobody."""
    hops = [("a", "b", "filling", BLOCK, None), ("b", "c", "filling", BLOCK, None), ("c", "d", "filling", BLOCK, None)]
    amounts = dict.fromkeys("abc", STEP) | {hop[0]: carried * STEP}
    found = filled([*hops, (hop[0], hop[1], "dp", BLOCK, BURST)], carried=amounts)
    assert found["b", "c"] == kind


def ring(nics: str) -> list[tuple[str, str]]:
    return list(pairwise([*nics, nics[0]]))


def filled(
    pairs: Iterable[Pair],
    *,
    carried: Mapping[str, float] | None = None,
    message: float | None = None,
) -> dict[tuple[str, str], str]:
    """Return the kinds of pairs from (sender, receiver, kind, filling size, burst size).

    `carried` says how many bytes per step senders send, `message` what those consist of that have no size.
    """
    rows = [(src, dst, kind, fills if kind == "filling" else burst, burst) for src, dst, kind, fills, burst in pairs]
    columns = ("src_addr", "dst_addr", "kind", "common_size", "burst_size")
    types = dict.fromkeys(columns, pl.Float64) | dict.fromkeys(columns[:3], pl.String)
    usual = {"filling": STEP, "dp": STEP / 2, "pp": STEP / 2}
    frame = pl.DataFrame(rows, schema=[(name, types[name]) for name in columns], orient="row").with_columns(
        job_id=pl.lit("j"),
        message=pl.when(pl.col("common_size").is_null()).then(pl.lit(message, pl.Float64)),
        bytes_per_step=pl.Series([(carried or {}).get(row[0], usual[row[2]]) for row in rows]),
    )
    found = step_filling.settle_filling_pairs(frame, 0.02, 0.1)
    return {(src, dst): kind for src, dst, kind in found.select("src_addr", "dst_addr", "kind").iter_rows()}


@pytest.mark.parametrize(("alike", "kind"), [(7, "cp"), (8, "dp")])
def test_sharded_parameters_have_the_shape_of_what_is_reduced_on_most_pairs(alike: int, kind: str) -> None:
    """In half of its precision. Of blocks of context the collector merges so many by chance, on some of ten pairs."""
    fill = [(f"a{i}", f"b{i}", "filling", BURST / 2 if i < alike else BLOCK, None) for i in range(10)]
    assert filled([*fill, ("b", "a", "dp", None, BURST)])["a0", "b0"] == kind


@pytest.mark.parametrize(("times", "kind"), [(6, "dp"), (5.985, "dp"), (6.03, "cp"), (5.5, "cp"), (0.01, "cp")])
def test_what_shards_are_reduced_to_is_a_whole_number_of_joined_messages(times: float, kind: str) -> None:
    """Nothing but messages is known of any pair that fills the step."""
    hops = [("a", "b", "filling", None, None), ("b", "a", "dp", None, times * BLOCK)]
    assert filled(hops, message=BLOCK)["a", "b"] == kind


@pytest.mark.parametrize(("whole", "kind"), [(7, "cp"), (8, "dp")])
def test_of_many_tensors_some_are_a_whole_number_of_blocks_by_chance(whole: int, kind: str) -> None:
    """Of ten."""
    reduced = [("b", f"c{i}", "dp", None, (i + (0 if i <= whole else 0.5)) * BLOCK) for i in range(1, 11)]
    assert filled([("a", "b", "filling", None, None), *reduced], message=BLOCK)["a", "b"] == kind


@pytest.mark.parametrize(("size", "kind"), [(BURST / 2, "dp"), (BLOCK, "cp")])
def test_sizes_say_more_of_tensors_than_joined_messages(size: float, kind: str) -> None:
    """One pair has a size, nine have messages only, which are a part of what is reduced or are not."""
    message = 0.7 * BURST if kind == "dp" else BURST / 6
    joined = [(f"a{i}", f"b{i}", "filling", None, None) for i in range(9)]
    found = filled([*joined, ("a9", "b9", "filling", size, None), ("b", "a", "dp", None, BURST)], message=message)
    assert {found[f"a{i}", f"b{i}"] for i in range(10)} == {kind}


@pytest.mark.parametrize(("both", "kind"), [(1.0, "cp"), (1.019, "cp"), (1.021, "dp"), (0.97, "dp")])
def test_blocks_that_share_a_hop_with_gradients_add_up_with_them(both: float, kind: str) -> None:
    """Even where blocks that a collector merged happen to be as large as a bucket."""
    hops = [("a", "b", "filling", BURST, None), ("b", "c", "dp", None, BURST), ("c", "a", "dp", None, BURST)]
    assert filled(hops, carried={"b": STEP / 2, "c": both * 1.5 * STEP})["a", "b"] == kind


@pytest.mark.parametrize(
    ("carried", "burst", "kind"),
    [
        (0.91, 1, "dp"),
        (0.89, 1, "cp"),
        (1.09, 1.019, "dp"),
        (1.11, 1, "cp"),
        (1, 1.021, "cp"),
        (0.91, None, "dp"),
        (0.89, None, "cp"),
    ],
)
def test_hops_of_a_ring_that_fill_just_about_half_of_the_step_carry_as_much(
    carried: float, burst: float | None, kind: str
) -> None:
    """Sharded parameters and gradients: one hop fills the step, as it seems, the others do not."""
    size = None if burst is None else burst * BURST
    hops = [("a", "b", "filling", BLOCK, BURST), ("b", "c", "dp", BLOCK, BURST)]
    found = filled([*hops, ("c", "a", "dp", BLOCK, size)], carried={"b": STEP, "c": carried * STEP})
    assert set(found.values()) == {"dp", kind}
    assert found["b", "c"] == found["c", "a"] == "dp"


@pytest.mark.parametrize(("carried", "kind"), [(0.91, "dp"), (0.89, "cp")])
def test_hops_of_which_no_burst_is_known_carry_as_much_as_the_others_of_their_ring(carried: float, kind: str) -> None:
    """The buckets of one hop are joined in other ways in each step; those of the others go on through the step."""
    hops = [("a", "b", "filling", BLOCK, None), ("b", "a", "dp", None, None)]
    assert filled(hops, carried={"b": carried * STEP})["a", "b"] == kind


@pytest.mark.parametrize(("both", "gradients"), [(1.0, "dp"), (1.019, "dp"), (1.021, "cp")])
def test_a_ring_of_gradients_goes_round_several_rings_of_blocks(both: float, gradients: str) -> None:
    """Of `abcd` and `efgh`; the gradients are reduced while the backward pass goes on, and fill the step as well."""
    blocks, grads = 4e8, 6e8
    carried = {"d": grads, "h": grads} | dict.fromkeys("abcefg", both * (blocks + grads))
    hops = [(src, dst, "filling", BLOCK, None) for src, dst in ring("abcdefgh")]
    # Where a small ring closes, there are blocks alone.
    closing = [("D", "a", "filling", BLOCK, None), ("H", "e", "filling", BLOCK, None)]
    found = filled([*hops, *closing, ("x", "y", "dp", None, BURST)], carried=carried | {"D": blocks, "H": blocks})
    assert found["d", "e"] == found["h", "a"] == gradients
    assert {found[hop] for hop in ring("abcdefgh") if hop[0] not in "dh"} == {"cp"}


def two_by_two(replicas: list[tuple[str, str]], size: float = OTHER_BURST) -> dict[tuple[str, str], str]:
    """Return the kinds of a ring of gradients of four NICs, `ab` and `cd` of which exchange, with more such pairs."""
    exchanges = [("b", "a"), ("d", "c")]
    return filled(
        [
            *((src, dst, "filling", BLOCK, None) for src, dst in exchanges),
            *((src, dst, "dp", BLOCK, BURST) for src, dst in ring("abcd")),
            *((src, dst, "dp", None, size) for src, dst in replicas),
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


@pytest.mark.parametrize(
    ("nics", "gradients", "left_out", "kind"),
    [
        ("abcd", STEP * 1.2, 0, "ep"),
        ("abcd", STEP * 1.2, 1, "cp"),
        ("abcd", STEP * 0.9, 0, "cp"),
        ("abc", STEP, 0, "cp"),
    ],
    ids=["all with all", "but for one pair", "gradients carry less", "three"],
)
def test_blocks_go_around_and_are_not_sent_to_all(nics: str, gradients: float, left_out: int, kind: str) -> None:
    """Balanced tokens have sizes that recur, as blocks have. They share the hops of a ring of gradients, which carry
    more than tokens alone then."""
    hops = ring(nics)
    every = [pair for pair in permutations(nics, 2) if pair not in hops]
    filling = [(src, dst, "filling", BLOCK, None) for src, dst in every[left_out:]]
    rows = [*filling, *((src, dst, "dp", BLOCK, BURST) for src, dst in hops)]
    assert filled_between(rows, gradients)[every[-1]] == kind


def filled_between(rows: list[Pair], gradients: float) -> dict[tuple[str, str], str]:
    """Return the kinds of pairs of which those of gradients carry so many bytes in a step."""
    columns = ("src_addr", "dst_addr", "kind", "common_size", "burst_size")
    frame = pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        pl.col("burst_size").cast(pl.Float64),
        job_id=pl.lit("j"),
        message=pl.lit(None, pl.Float64),
        bytes_per_step=pl.when(pl.col("kind") == "dp").then(gradients).otherwise(STEP),
    )
    found = step_filling.settle_filling_pairs(frame, 0.02, 0.1)
    return {(src, dst): kind for src, dst, kind in found.select("src_addr", "dst_addr", "kind").iter_rows()}
