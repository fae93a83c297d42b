"""Settings of parallelism identification."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number


@dataclass(frozen=True)
class ParallelismSettings:
    """What tells the kinds of pairs apart."""

    least_presence: float = number(
        0.5,
        unit="ratio of the steps",
        low=0,
        high=1,
        reason="traffic seen in fewer steps (start-up, a checkpoint) does not belong to the layout",
    )
    steady_presence: float = number(
        0.8,
        unit="ratio of the steps",
        low=0,
        high=1,
        reason="traffic of the training step occurs in every step, though the first may have begun unseen; unrelated "
        "traffic that occurs as often does so several times per step, and not equally often",
    )
    answer_interval: float = number(
        0.25,
        unit="ratio of the time between records",
        low=0,
        high=10,
        reason="an activation is sent alone before the next exchange; both directions of a collective start together",
    )
    lag_interval: float = number(
        0.75,
        unit="ratio of the time between records",
        low=0,
        high=10,
        reason="a gradient returns one forward and one backward pass after its activation; the record of a late rank "
        "follows that of the early rank sooner",
    )
    answer_ms: float = number(
        5.0,
        unit="ms",
        low=0,
        high=10_000,
        reason="clocks of two switches differ by up to a millisecond; a micro-batch takes tens of milliseconds",
    )
    pipeline_spread: float = number(
        0.25,
        unit="ratio of the period",
        low=0,
        high=1,
        reason="micro-batches fill at least half of the step, one burst of equal gradient buckets a tenth",
    )
    filling_spread: float = number(
        0.5,
        unit="ratio of the period",
        low=0,
        high=1,
        reason="experts and context-parallel rings send in every layer, through most of the step",
    )
    sharded_spread: float = number(
        0.7,
        unit="ratio of the period",
        low=0,
        high=1,
        reason="sharded parameters are gathered in forward and backward; gradients are reduced in at most "
        "half of the step",
    )
    message_ms: float = number(
        1.0,
        unit="ms",
        low=0,
        high=10_000,
        reason="queue pairs of one message start within microseconds, micro-batches several milliseconds apart",
    )
    expert_variation: float = number(
        0.002,
        unit="ratio",
        low=0,
        high=1,
        reason="variation of a pair's bytes per step: routed expert messages vary by a percent, gradients do not",
    )
    expert_sizes: float = number(
        0.5,
        unit="ratio of the records",
        low=0,
        high=1,
        reason="share of message sizes not seen in most other steps: routing makes new sizes, a schedule "
        "repeats its sizes",
    )
    gradient_share: float = number(
        0.2,
        unit="ratio of the bytes",
        low=0,
        high=1,
        reason="share of gradients on a pair that experts use too: up to a tenth of routed sizes are equal by chance",
    )
    ring_share: float = number(
        0.5,
        unit="ratio",
        low=0,
        high=1,
        reason="bytes relative to the NIC's largest gradient pair: rings of one collective carry equal bytes",
    )
