"""Scheduled minutes: what ran together is counted once, and a minute moved to the clock is the same minute."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from bench.measure.airflow_latency import _together, moved
from bench.platforms import minutes
from bench.platforms.minutes import MINUTE_NS, Platform, simulated
from llmprism_tasks.contract.windows import Window


def task(first: int, last: int) -> dict[str, str]:
    return {"start_date": f"2026-01-01T00:00:{first:02d}Z", "end_date": f"2026-01-01T00:00:{last:02d}Z"}


def test_tasks_side_by_side_are_one_span() -> None:
    spans = [
        (first.second, last.second) for first, last in _together([task(5, 9), task(1, 4), task(6, 12), task(2, 3)])
    ]
    assert spans == [(1, 4), (5, 12)]


def test_a_minute_moved_is_the_same_at_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "FOLDER", tmp_path)
    platform, window = Platform("small", 64), Window.containing(2_000_000_000 * 10**9, MINUTE_NS)
    simulated(platform, 1, lambda line: None)
    moved(platform, 0, window, tmp_path / "moved.parquet")
    before, after = pl.read_parquet(platform.flows(0)), pl.read_parquet(tmp_path / "moved.parquet")
    assert after["flow_start_ns"].is_between(window.start_ns, window.end_ns, closed="left").all()
    assert (after["flow_start_ns"] - before["flow_start_ns"]).n_unique() == 1
    assert (after["flow_end_ns"] - after["flow_start_ns"]).equals(before["flow_end_ns"] - before["flow_start_ns"])
    assert after.drop("flow_start_ns", "flow_end_ns").equals(before.drop("flow_start_ns", "flow_end_ns"))
