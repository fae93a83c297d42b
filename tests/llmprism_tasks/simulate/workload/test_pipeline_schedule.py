"""Pipelines: the order of their passes, and how long they take where nothing varies."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from llmprism_tasks.simulate.network.collectives import PipelineSends, StageQueuePairs
from llmprism_tasks.simulate.steps.execution import Durations, Execution
from llmprism_tasks.simulate.workload.operations import FORWARD, Compute, Post, Wait
from llmprism_tasks.simulate.workload.pipeline_schedule import Pass, schedule

NOTHING = np.empty(0, dtype=np.int64)
NOWHERE = StageQueuePairs(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, np.empty(0))


def seconds(pp: int, chunks: int, micro_batches: int) -> float:
    """Return how long a pipeline takes with forwards of 1 s per pp_stage, backwards of 2 s and free transfers."""
    programs = [
        [Compute(op.phase) if isinstance(op, Pass) else op for op in schedule(stage, pp, chunks, micro_batches)]
        for stage in range(pp)
    ]
    free = PipelineSends(NOWHERE, units=1, payload=0.0, lanes=1)
    durations = Durations(
        compute=lambda op, stage: np.full((1, 1), (1.0 if op.phase == FORWARD else 2.0) / chunks),
        factor=lambda op, stage: np.ones((1, 1)),
        routed=lambda call, stage: np.ones((1, 1)),
        transfer=lambda transfer: np.ones((1, 1)),
        length=lambda micro_batch: np.ones((1, 1)),
    )
    peers = {(here, there): free for here in range(pp) for there in range(pp)}
    walk = Execution([np.zeros((1, 1))] * pp, communicators={}, pipeline_sends=peers, durations=durations)
    walk.play(programs)
    return float(max(now.max() for now in walk.now))


@pytest.mark.parametrize(("pp", "micro_batches"), [(1, 1), (1, 4), (2, 1), (2, 8), (4, 2), (4, 4), (4, 16), (8, 3)])
def test_without_jitter_a_pipeline_takes_what_the_formula_says(pp: int, micro_batches: int) -> None:
    assert seconds(pp, 1, micro_batches) == pytest.approx((micro_batches + pp - 1) * 3)


@pytest.mark.parametrize(("pp", "chunks", "micro_batches"), [(2, 2, 2), (2, 2, 8), (4, 2, 8), (4, 4, 16), (3, 2, 6)])
def test_interleaving_divides_the_bubble_by_the_chunks(pp: int, chunks: int, micro_batches: int) -> None:
    # Narayanan and others (2021), section 2.2.2: the bubble is (pp - 1) (forward + backward) / chunks.
    assert seconds(pp, chunks, micro_batches) == pytest.approx(3 * micro_batches + 3 * (pp - 1) / chunks)


@pytest.mark.parametrize(
    ("pp", "chunks", "micro_batches"), [(1, 1, 3), (4, 1, 2), (4, 1, 16), (2, 2, 4), (4, 3, 8), (3, 5, 6)]
)
def test_each_pass_comes_once_and_each_transfer_has_two_ends(pp: int, chunks: int, micro_batches: int) -> None:
    posted: Counter[tuple[int, int, int]] = Counter()
    for stage in range(pp):
        operations = schedule(stage, pp, chunks, micro_batches)
        passes = [(op.phase, op.chunk, op.micro_batch) for op in operations if isinstance(op, Pass)]
        assert len(set(passes)) == len(passes) == 2 * chunks * micro_batches
        own = [transfer for op in operations if isinstance(op, Post) for transfer in op.transfers]
        waited = {transfer for op in operations if isinstance(op, Wait) for transfer in op.transfers}
        assert waited <= set(own)
        posted.update(own)
    assert set(posted.values()) <= {2}
    assert len(posted) == 2 * (pp * chunks - 1) * micro_batches
