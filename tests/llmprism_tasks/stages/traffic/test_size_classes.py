"""Records of one tensor share a class although headers make their sizes differ, or a rank sends some of it early."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MS, flows, messages

from llmprism_tasks.stages.traffic import nic_pairs, size_classes

PAIR = ["src_addr", "dst_addr"]


def found(*records: tuple[str, str, int], tolerance: float = 0.02) -> list[tuple[str, int, int]]:
    table = flows(*(messages(src, dst, [i], size) for i, (src, dst, size) in enumerate(records)))
    table = nic_pairs.in_order(table)
    classed = table.with_columns(size_class=size_classes.classes(table, tolerance)).sort(*PAIR, "bytes")
    return classed.select(pl.concat_str(PAIR), "bytes", "size_class").rows()


def test_classes_are_counted_pair_by_pair() -> None:
    records = [("a", "b", 500), ("a", "b", 100), ("b", "a", 500), ("a", "b", 101)]
    assert found(*records) == [("ab", 100, 0), ("ab", 101, 0), ("ab", 500, 1), ("ba", 500, 0)]


@pytest.mark.parametrize(("size", "number"), [(1_020, 0), (1_021, 1)])
def test_a_class_holds_what_is_within_the_tolerance(size: int, number: int) -> None:
    assert found(("a", "b", 1_000), ("a", "b", size))[-1] == ("ab", size, number)


def test_without_tolerance_only_equal_sizes_share_a_class() -> None:
    assert [row[2] for row in found(("a", "b", 7), ("a", "b", 7), ("a", "b", 8), tolerance=0)] == [0, 0, 1]


def test_nothing_has_no_classes() -> None:
    assert size_classes.classes(nic_pairs.in_order(flows()), 0.02).size == 0


def test_what_a_rank_sent_early_counts_with_the_rest() -> None:
    """From when the rest was sent, whatever other pairs send in between and in whichever order rows come."""
    early = [*messages("a", "b", [0, 100], 4), *messages("a", "b", [30, 130], 44), *messages("a", "b", [200], 48)]
    table = flows(early, messages("b", "a", [10, 110], 44))
    pieces = size_classes.join_early_records(nic_pairs.in_order(table.sample(fraction=1, shuffle=True, seed=3)), 0.02)
    starts = ((pieces["flow_start_ns"] - table["flow_start_ns"].min()) // MS).to_list()
    found = list(zip(pieces.select(pl.concat_str(PAIR)).to_series(), starts, pieces["bytes"], strict=True))
    assert sorted(found) == [("ab", 30, 48), ("ab", 130, 48), ("ab", 200, 48), ("ba", 10, 44), ("ba", 110, 44)]
    assert pieces.columns == [*table.columns, "pair"]


def test_nothing_is_in_one_piece() -> None:
    assert size_classes.join_early_records(nic_pairs.in_order(flows()), 0.02).is_empty()
