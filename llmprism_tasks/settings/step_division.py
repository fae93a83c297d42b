"""Settings of step division, in the section `rhythm`."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number


@dataclass(frozen=True)
class RhythmSettings:
    """How the common period of pairs is found, and which bursts count as a step."""

    shortest_quiet_ms: float = number(
        5.0,
        unit="ms",
        low=0.001,
        high=1000,
        reason="the longest common idle timeout of collectors; steps last 0.2 s or more and have far longer gaps",
    )
    quiet_ratio: float = number(
        1.5,
        unit="ratio",
        low=1.01,
        high=100,
        reason="in captured DDP the gap between bursts is 1.7 times the longest gap inside a burst",
    )
    few_quiet_ratio: float = number(
        5.0,
        unit="ratio",
        low=1.01,
        high=1000,
        reason="two or three bursts count as steps only if far apart: computing between steps is silent for seconds",
    )
    same_size: float = number(
        0.02,
        unit="ratio",
        low=0,
        high=0.5,
        reason="headers and merged control messages change the size of a tensor by less than 2 %",
    )
    one_size_share: float = number(
        0.9,
        unit="ratio",
        low=0,
        high=1,
        reason="share of a pair's bytes in one message size: 1.0 for pipeline pairs, at most 0.7 for gradient buckets",
    )
    answer_bytes: float = number(
        0.2,
        unit="natural logarithm",
        low=0,
        high=10,
        reason="both directions of a collective carry equal bytes in a step, apart from lost records",
    )
    least_share: float = number(
        0.05,
        unit="ratio of the bytes",
        low=0,
        high=1,
        reason="a message size below this share of its pair, or a period below this share of its group, "
        "counts as chance",
    )
    byte_tolerance: float = number(
        0.1,
        unit="ratio",
        low=0,
        high=1,
        reason="every step moves the same bytes; loss and retransmission change a few percent",
    )
    pace_tolerance: float = number(
        0.25,
        unit="ratio",
        low=0,
        high=1,
        reason="durations of healthy steps vary by up to 10 %, adjacent ones by more, parts of a step by far more",
    )
    same_period: float = number(
        0.1,
        unit="ratio",
        low=0.001,
        high=1,
        reason="median periods over a few steps of one job differ by their jitter, up to 10 %",
    )
    least_support: float = number(
        0.6,
        unit="ratio of the NICs",
        low=0,
        high=1,
        reason="all NICs take part in a step; some pairs have too many lost records to show it",
    )
    period_support: float = number(
        0.85,
        unit="ratio of the best supported",
        low=0,
        high=1,
        reason="a chance period is shared by some pairs, the step period by nearly all",
    )
    period_persistence: float = number(
        0.4,
        unit="ratio of the time",
        low=0,
        high=1,
        reason="micro-batches span most of a step, gradient buckets a tenth of it",
    )
    least_run: float = number(
        0.1,
        unit="ratio of the time seen",
        low=0,
        high=1,
        reason="four buckets of a first burst span seconds, the steps of a job that just stopped most of a minute",
    )
    least_run_s: float = number(
        10.0,
        unit="s",
        low=0,
        high=3600,
        reason="a shorter run of bursts may be the gradient buckets of one step, which can take seconds",
    )
    compact: float = number(
        0.75,
        unit="ratio of the period",
        low=0,
        high=1,
        reason="gradients are reduced in the backward pass, at most two thirds of a step; per-layer traffic (experts, "
        "context parallelism) spans more",
    )
    steady_variation: float = number(
        0.3,
        unit="ratio",
        low=0,
        high=10,
        reason="experts are called equally often in each step; the number of gradient buckets in a burst varies",
    )
    least_step: float = number(
        0.6,
        unit="ratio",
        low=0,
        high=1,
        reason="share of a typical step's bytes: the first broadcast of weights carries less, a step with "
        "lost records more",
    )
    least_whole: float = number(
        0.9,
        unit="ratio",
        low=0,
        high=1,
        reason="share of a typical step's bytes: a smaller burst may be only the first part of its step",
    )
