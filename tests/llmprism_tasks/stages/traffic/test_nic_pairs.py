"""Only bulk data between members of one job is a job's traffic."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import WINDOW, flows, members, messages, settings, topology
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.traffic import nic_pairs

SOME = flows(messages("a", "b", [0], 1), messages("b", "a", [1], 2), messages("b", "storage", [2], 3))


def test_flows_with_an_end_outside_the_topology_are_left_out() -> None:
    kept = nic_pairs.between_gpus(SOME, topology({"h": ["a"], "i": ["b"]}).select("addr", "host"))
    assert kept.select("src_addr", "dst_addr", "src_host", "dst_host").rows() == [
        ("a", "b", "h", "i"),
        ("b", "a", "i", "h"),
    ]


def test_no_nics_no_flows() -> None:
    assert nic_pairs.between_gpus(SOME, topology({}).select("addr", "host")).is_empty()


@pytest.mark.parametrize(("size", "kept"), [(16_384, 0), (16_385, 1)])
def test_bulk_is_larger_than_control_messages(size: int, kept: int) -> None:
    assert nic_pairs.bulk(flows(messages("a", "b", [0], size)), settings().traffic).height == kept


@pytest.mark.parametrize(("limit", "kept"), [(0, 3), (1, 2), (3, 0)])
def test_what_control_is_can_be_set(limit: int, kept: int) -> None:
    assert nic_pairs.bulk(SOME, settings("traffic", control_bytes=limit).traffic).height == kept


@pytest.mark.parametrize(("answer", "sent"), [(400_000, [400_000] * 4), (300_000, [400_000] * 3 + [100_000, 300_000])])
def test_a_message_that_a_collector_cut_is_whole_where_as_much_comes_back(answer: int, sent: list[int]) -> None:
    """Messages of 400 kB, 100 ms apart; the last one came in two parts with a pause of 5 ms."""
    whole = messages("a", "b", [0, 100, 200], 400_000)
    parts = [*messages("a", "b", [300], 100_000), *messages("a", "b", [306], 300_000)]
    back = messages("b", "a", [50, 150, 250], answer)
    found = nic_pairs.bulk(flows(whole, parts, back), settings().traffic).filter(pl.col("src_addr") == "a")
    assert found["bytes"].to_list() == sent
    assert found["flow_end_ns"].max() == flows(parts)["flow_end_ns"].max()


def test_flows_between_two_jobs_are_inside_neither() -> None:
    table = flows(messages("a", "b", [0], 1), messages("c", "d", [1], 2), messages("a", "c", [2], 3))
    nics = members({"one": {"a": "h", "b": "h"}, "two": {"c": "h", "d": "h"}})
    inside = nic_pairs.inside_jobs(table, nics)
    assert inside.select("job_id", "bytes").sort("bytes").rows() == [("one", 1), ("two", 2)]
    assert set(inside.columns) == {*nic_pairs.NUMBERED_COLUMNS, "job_id"}


def test_only_the_columns_that_stages_look_at_are_kept() -> None:
    nics = members({"j": {"a": "h", "b": "h"}})
    assert set(nic_pairs.inside_jobs(SOME, nics).columns) == {*nic_pairs.NUMBERED_COLUMNS, "job_id"}
    assert set(nic_pairs.between_gpus(SOME, nics.select("addr")).columns) == {*nic_pairs.NUMBERED_COLUMNS}


def test_a_row_leads_back_to_the_rest_of_the_record() -> None:
    by_time = flows(messages("a", "b", [1, 2], 2), messages("b", "a", [3], 1))
    table = by_time.reverse().with_columns(src_port=pl.Series([7, 8, 9]))
    ordered, _ = nic_pairs.numbered(table)
    assert table["src_port"].gather(ordered["row"]).to_list() == [9, 8, 7]


def test_flows_of_a_pair_lie_together_in_the_order_asked_for() -> None:
    mixed = flows(messages("a", "b", [0, 5, 9], 3), messages("b", "a", [1, 6], 2), messages("a", "c", [2, 7], 1))
    flows_, pairs = nic_pairs.numbered(mixed.sample(fraction=1, shuffle=True, seed=1))
    assert pairs.rows() == [(0, "a", "b"), (1, "a", "c"), (2, "b", "a")]
    ordered = flows_.select("src_addr", "dst_addr", "flow_start_ns")
    runs = ordered.with_columns(run=pl.struct("src_addr", "dst_addr").rle_id())
    assert runs["run"].n_unique() == 3
    assert (runs["flow_start_ns"].diff() > 0).filter(runs["run"].diff() == 0).all()


@pytest.mark.parametrize("codes", [pl.Categorical, pl.Enum(["storage", "c", "b", "a"])])
def test_addresses_may_be_categories_in_any_order(codes: pl.DataType) -> None:
    table = flows(messages("b", "a", [3, 1], 2), messages("a", "b", [2], 1), messages("b", "storage", [0], 3))
    coded = table.with_columns(pl.col("src_addr", "dst_addr").cast(codes))
    for one, other in zip(nic_pairs.numbered(coded), nic_pairs.numbered(table), strict=True):
        assert_frame_equal(one, other)
    mixed = coded.with_columns(table["dst_addr"])
    assert nic_pairs.numbered(mixed)[1].equals(nic_pairs.numbered(table)[1])


def test_steps_that_overlap_are_put_one_after_the_other() -> None:
    rows = [(0, 2, 10), (0, 1, 11), (0, 2, 12), (0, 1, 13), (1, 0, 9)]
    table = pl.DataFrame(rows, schema=["pair", "step", "flow_start_ns"], orient="row")
    assert nic_pairs.step_by_step(table).rows() == [rows[1], rows[3], rows[0], rows[2], rows[4]]
    followed = table.filter(pl.col("step") != 1)
    assert nic_pairs.step_by_step(followed) is followed


def test_what_a_pair_sent_in_the_window_is_counted() -> None:
    kept = settings("traffic", control_bytes=5).traffic
    inside = nic_pairs.inside_jobs(
        flows(messages("a", "b", [0, 5, 70_000], 9), messages("a", "b", [6], 2), messages("b", "a", [70_001], 9)),
        members({"j": {"a": "h", "b": "i"}}),
    )
    found = nic_pairs.sent_in_window(inside, WINDOW, kept).select(
        "src_addr", "flows", "bytes", "bulk_flows", "bulk_bytes"
    )
    assert found.rows() == [("a", 3, 20, 2, 18)]


def test_every_flow_is_seen_from_both_ends() -> None:
    seen = nic_pairs.by_endpoint(flows(messages("a", "b", [0], 7)))
    assert seen.select("addr", "peer", "sends", "bytes").rows() == [("a", "b", True, 7), ("b", "a", False, 7)]
    assert nic_pairs.by_endpoint(flows()).columns == seen.columns


def test_nothing_stays_nothing() -> None:
    none = flows()
    assert nic_pairs.bulk(none, settings().traffic).is_empty()
    assert nic_pairs.inside_jobs(none, members({"j": {"a": "h"}})).is_empty()
    inside = nic_pairs.inside_jobs(SOME, members({"j": {"a": "h", "b": "h"}}).clear())
    assert nic_pairs.named(inside).schema["job_id"] == pl.String


def test_what_is_in_order_stays_as_it_is_and_the_rest_is_brought_into_it() -> None:
    table = flows(messages("b", "a", [0, 5], 3), messages("a", "b", [1, 6], 2)).with_columns(job_id=pl.lit("j"))
    ordered = nic_pairs.in_order(table.sample(fraction=1, shuffle=True, seed=2))
    assert ordered.select("pair", "src_addr").rows() == [(0, "a"), (0, "a"), (1, "b"), (1, "b")]
    assert ordered["flow_start_ns"].diff().to_list()[1::2] == [5_000_000, 5_000_000]
    assert nic_pairs.in_order(ordered) is ordered
    assert nic_pairs.in_order(ordered.reverse()).equals(ordered)
    assert nic_pairs.starts_of_pairs(ordered).tolist() == [0, 2, 4]
    assert nic_pairs.starts_of_pairs(ordered.clear()).tolist() == [0]


def test_codes_are_named_and_names_coded() -> None:
    nics = members({"j": {"a": "h", "b": "g"}})
    inside = nic_pairs.inside_jobs(SOME, nics)
    named = nic_pairs.named(inside)
    assert named.select("src_addr", "dst_addr", "job_id").dtypes == [pl.String] * 3
    assert named["job_id"].unique().to_list() == ["j"]
    told = pl.DataFrame({"job_id": ["j", "j"], "flow_start_ns": [1, 2]})
    assert inside.join(nic_pairs.as_coded(told, inside), on="job_id", how="semi").height == inside.height
    assert nic_pairs.as_coded(told, named).equals(told)


def test_pairs_that_are_all_there_keep_the_memory_of_their_flows() -> None:
    flows_, _ = nic_pairs.numbered(SOME)
    nics = pl.concat([SOME["src_addr"], SOME["dst_addr"]]).unique().alias("addr").to_frame()
    assert nic_pairs.between_gpus(flows_, nics) is flows_
