"""Settings of the published method."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number


@dataclass(frozen=True)
class PublishedSettings:
    """The published method's own numbers; it is kept for comparison."""

    posterior: float = number(
        0.95,
        unit="probability",
        low=0.5,
        high=1,
        reason="as published: posterior probability at which a change point begins a step",
    )
    run_length: int = number(
        64,
        unit="intervals",
        low=1,
        high=4096,
        reason="longest run length kept; most bursts are shorter, and the time grows with it",
    )
    hazard: float = number(
        0.3, unit="probability", low=0.001, high=0.999, reason="a step may have as few as three records before its gap"
    )
    interval_scale: float = number(
        0.5, unit="natural logarithm", low=0.001, high=10, reason="intervals inside a burst differ by a factor of two"
    )
    mean_weight: float = number(
        0.01,
        unit="intervals",
        low=1e-6,
        high=1000,
        reason="the level of a run may lie ten scales from that of the prior",
    )
    scale_weight: float = number(
        1000.0, unit="intervals", low=1, high=1e9, reason="with less, recurring gaps soon count as ordinary"
    )
    shortest_interval_ms: float = number(
        20.0,
        unit="ms",
        low=1e-6,
        high=1000,
        reason="gradient buckets and channels of one burst follow each other sooner",
    )
    sigmas: float = number(3.0, unit="deviations", low=0.1, high=100, reason="the usual k of a k-sigma rule")
    resolution: float = number(
        0.003, unit="ratio", low=1e-6, high=1, reason="published error of step durations; lesser differences are none"
    )
