"""Settings of traffic: which flows count as bulk data."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number


@dataclass(frozen=True)
class TrafficSettings:
    """Which flows carry the data of a job."""

    control_bytes: int = number(
        16_384,
        unit="bytes",
        low=0,
        high=1_048_576,
        reason="handshakes, scalars and ready messages are below 4 KiB, the smallest activation seen has 64 KiB",
    )
    same_size: float = number(
        0.02,
        unit="ratio",
        low=0,
        high=0.5,
        reason="size tolerance of a message that came in parts: headers and retransmissions change it by less than 2 %",
    )
    longest_pause_ms: float = number(
        20.0,
        unit="ms",
        low=0,
        high=1000,
        reason="longest gap between parts of one message: a slow NIC pauses for milliseconds, a GPU computes "
        "for longer",
    )
    restart_silence_s: float = number(
        10.0,
        unit="s",
        low=0.1,
        high=3600,
        reason="a framework takes longer to restart after a crash; data loaders and garbage collection pause for less. "
        "A job that is silent for so much longer than ever before is overdue, too",
    )
    restart_ratio: float = number(
        4.0,
        unit="ratio of the usual silence",
        low=1,
        high=1000,
        reason="a step with a checkpoint may be silent two or three times as long as other steps",
    )
