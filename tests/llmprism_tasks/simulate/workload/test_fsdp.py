"""FSDP: what is gathered and reduced, how often, and that it fills the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from small_platforms import inside, one_job, payload_per_pair, run

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.simulate import Simulation
from llmprism_tasks.simulate.workload.message_sizes import sharded_units


def sharded(**changes: Any) -> Simulation:
    settings = {"tp": 1, "dp": 8, "sharding": "full", "channels": 4, "micro_batches": 1, "forward_ms": 400}
    return run(one_job(**(settings | changes)))


@pytest.mark.parametrize(
    ("changes", "gathers", "reductions", "gradient_bytes"),
    [
        ({}, 1, 1, 4),
        ({"micro_batches": 2, "forward_ms": 200}, 2, 2, 4),
        ({"micro_batches": 2, "forward_ms": 200, "reduce_every_micro_batch": "no", "gradients": "bf16"}, 2, 1, 2),
    ],
)
def test_layers_are_gathered_twice_a_micro_batch_and_the_root_once(
    changes: dict[str, Any], gathers: int, reductions: int, gradient_bytes: int
) -> None:
    job = one_job(tp=1, dp=8, sharding="full", channels=4).jobs[0]
    made = sharded(**changes)
    root, *layers = sharded_units(job)
    data = gathers * 2 * (root + 2 * sum(layers)) + reductions * gradient_bytes * (root + sum(layers))
    # Each channel leaves a host of four through another GPU, with a quarter of seven eighths of the data.
    sent = payload_per_pair(made, "dp")
    assert sent.to_numpy() == pytest.approx(data * 7 / 8 / 4, rel=1e-3)
    assert sent.len() == 8
    assert made.truth["layouts"].select("dp", "tp", "sharded").row(0) == (8, 1, "yes")


def test_traffic_leaves_no_gap_as_long_as_a_tenth_of_the_step() -> None:
    made = sharded(layers=16)
    flows, _ = inside(made)
    step_ns = made.truth["truth_steps"].select((pl.col("end_ns") - pl.col("start_ns")).mean()).item()
    silence = np.diff(np.sort(flows["flow_start_ns"].to_numpy()))
    assert silence.max() < step_ns / 10


def test_gradients_end_before_the_optimizer_and_no_parameters_are_gathered_between() -> None:
    made = sharded()
    flows, _ = inside(made)
    for step in made.truth["truth_steps"][1:].iter_rows(named=True):
        between = flows.filter(pl.col("flow_start_ns").is_between(step["grad_end_ns"], step["end_ns"]))
        assert between.is_empty()
        last = flows.filter(pl.col("flow_end_ns") <= step["grad_end_ns"])["flow_end_ns"].max()
        assert step["grad_end_ns"] - last < 20_000


def test_copies_of_a_sharded_model_reduce_their_shards() -> None:
    made = sharded(hosts=[0, 1, 2, 3], dp=16, shard_ranks=8)
    job = one_job(tp=1, dp=8, sharding="full").jobs[0]
    root, *layers = sharded_units(job)
    whole = root + sum(layers)
    sent = payload_per_pair(made, "dp").to_numpy()
    between = (2 * (root + 2 * sum(layers)) + 4 * whole) * 7 / 8 / 4
    shards = 4 * whole / 8  # an all-reduce of two ranks: half the data, twice
    assert sorted(set(np.round(sent / 1e4))) == sorted({np.round(between / 1e4), np.round(shards / 1e4)})
    assert len(sent) == 16 + 16


@pytest.mark.parametrize(
    "changes", [{"shard_ranks": 3}, {"embeddings": "tied"}, {"tp": 2, "dp": 2, "pp": 2}, {"algorithm": "tree"}]
)
def test_what_does_not_go_with_sharding_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        one_job(**({"tp": 1, "dp": 8, "sharding": "full"} | changes))
