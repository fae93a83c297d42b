"""Who has come to an exchange announces it before data flow; an answer, or chatter now and then, is no such news."""

from __future__ import annotations

from itertools import permutations

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, flows, settings
from job_evidence import coded, groups, steps

from llmprism_tasks.stages.diagnosis.own_work.announcements import announced
from llmprism_tasks.stages.diagnosis.own_work.own_work import own_work
from llmprism_tasks.stages.traffic import nic_pairs

COUNT = 20
NEEDED = ["pair", "job_id", "kind", *nic_pairs.PAIR, *nic_pairs.TIMES]


def exchanges(kind: str = "dp") -> pl.DataFrame:
    """Return what two replicas send each other for 400 ms at the end of each second: `a` comes then, and `b` before."""
    ends = list(permutations("ab", 2))
    rows = [(at * 1000 + 600.0, at * 1000 + 999.0, src, dst, 8 * MB) for at in range(COUNT) for src, dst in ends]
    return nic_pairs.in_order(coded(flows(rows).with_columns(job_id=pl.lit("j"), kind=pl.lit(kind))))


def told(*said: list[Row], kind: str = "dp") -> pl.DataFrame:
    """Return what is announced beside the exchanges."""
    texts = nic_pairs.named(exchanges(kind).drop("pair", "kind", "job_id"))
    members = pl.DataFrame({"addr": ["a", "b"], "job_id": "j"})
    every = nic_pairs.inside_jobs(pl.concat([texts, flows(*said).select(texts.columns)]), members)
    data = every.filter(pl.col("bytes") > MB).with_columns(kind=pl.lit(kind))
    return announced(every, data, settings().traffic)


def each_second(src: str, dst: str, at_ms: float, size: int = 192, every: int = 1) -> list[Row]:
    return [(at * 1000 + at_ms, at * 1000 + at_ms, src, dst, size) for at in range(0, COUNT, every)]


def offsets_ms(found: pl.DataFrame) -> set[tuple[str, float]]:
    since = (found["flow_start_ns"] - WINDOW.start_ns) % (1000 * MS) / MS
    return set(zip(found["src_addr"].cast(pl.String), since, strict=True))


def test_what_a_member_sends_before_the_others_announces_it() -> None:
    found = told(each_second("b", "a", 200))
    assert found.columns == NEEDED
    assert offsets_ms(found) == {("b", 200.0)}
    assert found["bytes"].unique().to_list() == [0]


@pytest.mark.parametrize(("apart_ms", "counts"), [(0.5, False), (3, True)])
def test_what_answers_is_none(apart_ms: float, counts: bool) -> None:
    """The first one comes before anything, so it counts, whatever answers it more than a millisecond later."""
    found = told(each_second("b", "a", 200), each_second("a", "b", 200 + apart_ms))
    assert (("a", 200 + apart_ms) in offsets_ms(found)) == counts
    assert (("b", 200.0) in offsets_ms(found)) == counts


def test_what_is_sent_back_while_data_flow_is_none() -> None:
    assert told(each_second("b", "a", 700)).is_empty()


@pytest.mark.parametrize(("every", "counts"), [(10, True), (11, True), (20, False)])
def test_what_is_said_now_and_then_is_chatter(every: int, counts: bool) -> None:
    assert told(each_second("b", "a", 200, every=every)).is_empty() != counts


def test_a_message_of_a_pipeline_announces_nobody() -> None:
    assert told(each_second("b", "a", 200), kind="pp").is_empty()


def test_of_two_replicas_the_one_that_announces_nothing_computes_longer() -> None:
    data = exchanges()
    silent, heard = data.select(NEEDED), told(each_second("b", "a", 200)).cast(data.select(NEEDED).schema)
    for flows_, longer in ((silent, {"a": 0.0, "b": 0.0}), (pl.concat([silent, heard]), {"a": 2.0, "b": 0.0})):
        work = own_work(flows_, steps("ab", COUNT), groups("ab")).group_by("addr").agg(pl.col("excess").median())
        assert dict(work.rows()) == pytest.approx(longer, abs=0.01)
