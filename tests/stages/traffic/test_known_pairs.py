"""What is known of a pair is told again where its flows and those that answer them are the same, and only there."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB, Row, every, flows, messages, pipeline, ring, settings

from llmprism_tasks.stages.step_division.periodicity import stream_rhythms
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.known_pairs import known_pair_by_pair

CALLS: list[int] = []


def sent(src: str, dst: str) -> list[Row]:
    return messages(src, dst, every(10, count=3), MB)


FORTH, BACK, OTHER = sent("b", "c"), sent("c", "b"), sent("a", "d")


@known_pair_by_pair
def bytes_of(table: pl.DataFrame, factor: int) -> pl.DataFrame:
    CALLS.append(table.height)
    pairs = table.group_by("pair", *nic_pairs.PAIR).agg(pl.col("bytes").sum() * factor).sort("pair")
    back = pairs.select(src_addr="dst_addr", dst_addr="src_addr", back="bytes")
    return pairs.join(back, on=nic_pairs.PAIR, how="left", maintain_order="left")


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    for ends in ("yz", "xz", "wz"):
        bytes_of(flows(sent(*ends)), 1)
    CALLS.clear()


def test_fewer_pairs_are_told_of_with_their_new_numbers() -> None:
    bytes_of(flows(FORTH, BACK, OTHER), 1)
    part = flows(FORTH, BACK)
    found = bytes_of(part, 1)
    assert len(CALLS) == 1
    assert found["pair"].to_list() == [0, 1]
    assert found.equals(bytes_of.__wrapped__(nic_pairs.in_order(part), 1))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(flows(FORTH[:-1], BACK), id="a flow less"),
        pytest.param(flows(FORTH), id="no answer any more"),
        pytest.param(flows(FORTH, BACK, sent("e", "f")), id="a pair more"),
    ],
)
def test_what_is_not_the_same_is_worked_out_anew(table: pl.DataFrame) -> None:
    bytes_of(flows(FORTH, BACK, OTHER), 1)
    assert bytes_of(table, 1).equals(bytes_of.__wrapped__(nic_pairs.in_order(table), 1))  # type: ignore[attr-defined]
    assert CALLS[1:] == [table.height] * 2


def test_other_settings_are_another_question() -> None:
    table = flows(FORTH)
    assert bytes_of(table, 2)["bytes"].to_list() == [2 * each for each in bytes_of(table, 1)["bytes"]]


def test_rhythms_are_those_of_the_pairs_alone() -> None:
    job = pipeline("a", "b", every(1000, count=20))
    whole, part = flows(job, ring("cdef", every(700, count=20))), flows(job)
    stream_rhythms(whole, settings().rhythm)
    fresh = stream_rhythms.__wrapped__.__wrapped__  # type: ignore[attr-defined]
    assert stream_rhythms(part, settings().rhythm).equals(fresh(part, settings().rhythm))
