"""Settings of recognition."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number


@dataclass(frozen=True)
class RecognitionSettings:
    """When clusters of NICs are one job."""

    host_similarity: float = number(
        0.5,
        unit="ratio",
        low=0,
        high=1,
        reason="Jaccard similarity of host sets above which clusters are one job; rails of one job have the same hosts",
    )
    phase_tolerance_ms: float = number(
        3.0,
        unit="ms",
        low=0,
        high=1000,
        reason="shift of a step end by a lost last record, a clock of milliseconds or a crossing flow",
    )
    least_together: float = number(
        0.75,
        unit="ratio of the bytes",
        low=0,
        high=1,
        reason="of the bytes that do not start together by chance: one of two rails of a job starts nine tenths within "
        "milliseconds of the other's, fewer where records are lost; of two jobs each starts less than a tenth",
    )
    negligible: float = number(
        0.002,
        unit="ratio",
        low=0,
        high=1,
        reason="rate relative to the NIC's largest pair: chatter has at most 0.0004, the smallest activations 0.013",
    )
    settling_s: float = number(
        30.0,
        unit="s",
        low=1,
        high=3600,
        reason="least age assumed for a pair: a host that has just joined counts, a single message of chatter does not",
    )
    regular_bursts: int = number(
        4,
        unit="bursts",
        low=2,
        high=100,
        reason="two or three equal bursts happen by chance, such as three copies of one model",
    )
    longest_silence: float = number(
        2.0,
        unit="ratio",
        low=1,
        high=100,
        reason="a pair silent for this many times its longest earlier silence, while its job goes on, has left the job",
    )
    least_bytes: int = number(
        10_000_000,
        unit="bytes",
        low=0,
        high=10**12,
        reason="bytes of a job's median NIC in a window: chatter among all NICs stays below, a few small "
        "steps move more",
    )
    silent_periods: float = number(
        1.5,
        unit="periods",
        low=0,
        high=10,
        reason="a pair silent for longer than its period plus jitter has stopped",
    )
