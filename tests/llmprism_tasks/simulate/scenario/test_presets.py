"""The scenarios that come with the product: what each shows is in its truth, and the truth is in its records."""

from __future__ import annotations

import polars as pl
import pytest
from small_platforms import run

from llmprism_tasks.simulate import load_scenario

KIND_OF_USE = {
    "answers": {"dp", "pp", "other"},
    "context_parallel": {"cp", "dp", "pp", "other"},
    "experts": {"ep", "dp", "pp", "other"},
    "fully_sharded": {"dp"},
    "interleaved": {"dp", "pp", "other"},
    "relayed": {"dp", "ep", "pp", "other"},
    "tied_embeddings": {"dp", "pp", "other"},
    "trees": {"dp", "pp", "other"},
    "uneven_lengths": {"dp", "pp", "other"},
}
RECORDS = 200_000  # a simulated minute is to be analysed in seconds


@pytest.mark.parametrize("name", KIND_OF_USE)
def test_pairs_carry_what_the_truth_says(name: str) -> None:
    scenario = load_scenario(name)
    made = run(scenario)
    flows, pairs = made.flows, made.truth["truth_pairs"]
    assert flows.height < RECORDS
    assert set(pairs["kind"]) == KIND_OF_USE[name]
    assert pairs.is_unique().all()
    assert set(pairs.select("src_addr", "dst_addr").iter_rows()) == set(
        flows.select("src_addr", "dst_addr").unique().iter_rows()
    )
    steps = made.truth["truth_steps"].group_by("job").len()
    assert steps.height == len(scenario.jobs)
    assert steps["len"].min() >= 8
    bps = pl.col("bytes") * 8e9 / (pl.col("flow_end_ns") - pl.col("flow_start_ns"))
    assert flows.filter(pl.col("packets") > 100).select(bps.max()).item() < scenario.fabric.link_gbps * 1e9
