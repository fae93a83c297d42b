"""Settings of timeline reconstruction."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number


@dataclass(frozen=True)
class TimelineSettings:
    """When a step is over."""

    overdue: float = number(
        1.25,
        unit="ratio of a typical burst",
        low=1,
        high=10,
        reason="a gradient synchronisation that lasts longer than this and lacks bytes has lost records, it "
        "is not slow",
    )
