"""Steps of the second source take the time that the order of operations says; rings move the bytes they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from accuracy.second_source.execution import Run, Training
from accuracy.second_source.fabric import Fabric

NICS = tuple(f"10.0.{host}.1" for host in range(4))
EXACT = Training("job", "ddp", NICS, 0.0, 20.0, jitter=0.0, optimizer_s=0.1, overlap=False)


def run(job: Training) -> tuple[Run, pl.DataFrame]:
    """Return the job after its end, and its messages."""
    rng = np.random.default_rng(1)
    under_way = Run(job, Fabric(rng, 1e9, spread=0.0), rng)
    under_way.run()
    columns = ["start", "end", "src", "dst", "channel", "size"]
    return under_way, pl.DataFrame(under_way.fabric.records, schema=columns, orient="row")


def seconds(under_way: Run) -> list[float]:
    return [end - start for _, start, end, _ in under_way.steps]


def test_a_replicated_step_computes_then_reduces_in_a_ring() -> None:
    done, messages = run(EXACT)
    gradients = EXACT.layer_bytes * (EXACT.layers + 2 * EXACT.head)
    carried = 2 * 3 / 4 * gradients
    expected = 3 * EXACT.layers * EXACT.layer_s + carried / 1e9 + EXACT.optimizer_s
    assert seconds(done) == pytest.approx([expected] * len(done.steps), rel=0.01)
    sent = messages.filter(pl.col("src") == NICS[0])
    assert sent["dst"].unique().to_list() == [NICS[1]]
    assert sent["size"].sum() / len(done.steps) == pytest.approx(carried, rel=1 / len(done.steps))


def test_a_pipeline_fills_and_drains_as_1f1b_does() -> None:
    job = replace(EXACT, schedule="1f1b", pp=4, micro_batches=6, activation_bytes=1.0, layers=2)
    done, messages = run(job)
    apart = np.diff([end for _, _, end, _ in done.steps])
    assert apart == pytest.approx((6 + 4 - 1) * 3 * job.layers * job.layer_s + job.optimizer_s, rel=0.06)
    assert {kind for kinds in done.kinds.values() for kind in kinds} == {"pp"}
    forward = messages.filter(pl.col("src") == NICS[0]).height
    assert forward == pytest.approx(6 * len(done.steps), abs=6)


def test_sharded_parameters_are_gathered_twice_and_reduced_once() -> None:
    done, messages = run(replace(EXACT, schedule="fsdp", head=0.0, channels=1))
    each = messages.filter(pl.col("src") == NICS[0])["size"].sum() / len(done.steps)
    assert each == pytest.approx(3 * 3 / 4 * EXACT.layers * EXACT.layer_bytes, rel=1 / len(done.steps))


def test_a_slow_rank_holds_all_up() -> None:
    slow = replace(EXACT, slow=((2, 0.0, 20.0, 2.0),))
    assert np.mean(seconds(run(slow)[0])) > 1.5 * np.mean(seconds(run(EXACT)[0]))


def test_pauses_come_between_two_steps() -> None:
    done, _ = run(replace(EXACT, pause_every=5, pause_s=3.0))
    between = [later[1] - sooner[2] for sooner, later in zip(done.steps, done.steps[1:], strict=False)]
    assert max(between) == pytest.approx(3.0)
    assert between[4] == pytest.approx(3.0)
