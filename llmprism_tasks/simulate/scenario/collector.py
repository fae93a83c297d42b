"""The collector of a scenario: how it cuts, samples, loses and times the records that it exports."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number, text


@dataclass(frozen=True)
class Collector:
    """How packets become flow records."""

    idle_timeout_ms: float = number(
        1.0, unit="ms", low=0, high=1e4, reason="silence of a queue pair that ends a record"
    )
    active_timeout_s: float = number(
        0.0, unit="s", low=0, high=3600, reason="a record this long is exported and goes on as another; 0: never"
    )
    sampled: int = number(
        1, unit="packets", low=1, high=10**6, reason="one packet in so many is counted, and scaled up"
    )
    retransmitted: float = number(0.0, unit="ratio", low=0, high=1, reason="records with packets sent twice")
    lost: float = number(0.0, unit="ratio", low=0, high=1, reason="records that never arrive")
    doubled: float = number(0.0, unit="ratio", low=0, high=1, reason="records that arrive twice")
    doubled_us: float = number(
        0.0, unit="us", low=0, high=1e6, reason="the copy's times are off by up to this, as another switch's would be"
    )
    skew_us: float = number(0.0, unit="us", low=0, high=1e6, reason="standard deviation of the switches' clocks")
    seen_by: str = text(
        "leaf",
        choices=("leaf", "any"),
        reason="who exports a queue pair's records: its first leaf, or any switch on its path",
    )
    clock_us: float = number(0.0, unit="us", low=0, high=1e6, reason="times are cut to multiples of this; 0: to 1 ns")
    disorder_ms: float = number(
        0.0, unit="ms", low=0, high=60_000, reason="rows come up to this later than their start would place them"
    )
    pathless: float = number(
        0.0, unit="ratio", low=0, high=1, reason="records whose switch_path the collector does not know"
    )
