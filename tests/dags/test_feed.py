"""The live demonstration's feed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from captured_minutes import MINUTE_NS

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources.topology import read_topology

MOMENT = dt.datetime(2026, 5, 1, 4, 12, tzinfo=dt.UTC)


def test_a_run_drops_its_minute_where_the_minute_dag_looks_for_it(
    bag: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMPRISM_DEMO_FOLDER", str(tmp_path))
    done = bag.dags["llmprism_demo_feed"].test(logical_date=MOMENT + dt.timedelta(minutes=1))

    assert done.state == "success"
    window = Window.starting(MOMENT, MINUTE_NS)
    flows = pl.read_parquet(tmp_path / "flows" / f"{MOMENT:%Y%m%dT%H%M}.parquet")
    assert flows["flow_start_ns"].is_between(window.start_ns, window.end_ns, closed="left").all()
    nics = read_topology(str(tmp_path / "topology.csv"))["addr"]
    assert flows["src_addr"].is_in(nics.implode()).all()
