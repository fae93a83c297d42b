"""Flood: a minute in which as many unknown addresses send a flow as one likes, and what it costs then and later."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.contract.frames import schema
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.simulate.simulation import write_scenario
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from reliability.kills import SCENARIO, START_NS

MINUTE_NS = 60 * 10**9
LATER = (1, 7)
"""Minutes that follow the flood: one that looks back at it, and one that does not."""

MOST_MB = 800
"""Of a process that lands the flood: what the smallest machines have left beside Airflow."""

MOST_RATIO = 1.25
"""By how much a minute after the look-back may cost more than without a flood: CPU times vary so on a busy machine."""


def measure(addresses: int, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Analyze a minute with and without a flood, then later minutes; return memory and CPU seconds of each command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # By a process of its own: what this one once held would count as the peak of the processes that it starts.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as apart:
            minutes, flooded, own = apart.submit(_prepare, folder, addresses).result()
        found: dict[str, Any] = {"addresses": addresses}
        for way, first in (("without", minutes[0]), ("with", flooded)):
            costs = [_analyze(folder, f"{way}.duckdb", file) for file in (first, *(minutes[one] for one in LATER))]
            found[way] = {"cpu_s": [cpu_s for cpu_s, _ in costs], "peak_mb": [peak_mb for _, peak_mb in costs]}
            say(f"{way} a flood: {found[way]}")
        counted = "SELECT rows_read, rows_landed, rows_quarantined FROM windows ORDER BY window_start_ns LIMIT 1"
        ((read, landed, put_aside),) = store.query(Warehouse(str(folder / "with.duckdb"), 60), counted).rows()
        return {
            **found,
            "sent": own + addresses,
            "read": read,
            "landed": landed,
            "put_aside": put_aside,
        }


def _prepare(folder: Path, addresses: int) -> tuple[list[Path], Path, int]:
    """Write minutes of flows and the first of them with a flood; returns their files, and the first one's records."""
    scenario = folder / "tiny.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    write_scenario(folder, scenario=str(scenario), minutes=LATER[-1] + 1, seed=0, start_ns=START_NS)
    minutes, flooded = sorted((folder / "flows").iterdir()), folder / "flooded.parquet"
    records = pl.read_parquet(minutes[0])
    pl.concat([records, flood(addresses).select(records.columns)]).sort("flow_start_ns").write_parquet(flooded)
    return minutes, flooded, records.height


def flood(addresses: int) -> pl.DataFrame:
    """Return flows of the first minute, one from each of so many addresses, all to one GPU."""
    numbers = np.arange(addresses)
    draw = np.random.default_rng(0)
    start_ns = START_NS + np.sort(draw.integers(0, MINUTE_NS, addresses))
    groups = pl.DataFrame({"a": numbers >> 16, "b": numbers >> 8 & 255, "c": numbers & 255})
    return pl.DataFrame(
        {
            "flow_start_ns": start_ns,
            "flow_end_ns": start_ns + draw.integers(1, 10**6, addresses),
            "src_addr": groups.select(pl.format("100.{}.{}.{}", "a", "b", "c")).to_series(),
            "dst_addr": pl.repeat("10.0.0.1", addresses, eager=True),
            "src_port": draw.integers(1024, 65536, addresses),
            "dst_port": np.full(addresses, 4791),
            "protocol": np.full(addresses, 17),
            "bytes": draw.integers(100, 10**6, addresses),
            "packets": np.full(addresses, 7),
            "switch_path": pl.Series([["leaf0"]]).new_from_index(0, addresses),
        },
        schema=schema(FLOW_COLUMNS),
    )


def is_sound(found: Mapping[str, Any]) -> bool:
    """Return whether the flood was counted to the last record, in little memory, and later minutes pay nothing."""
    counted = found["sent"] == found["read"] == found["landed"] + found["put_aside"]
    return counted and found["with"]["peak_mb"][0] <= MOST_MB and later_ratio(found) <= MOST_RATIO


def later_ratio(found: Mapping[str, Any]) -> float:
    """Return what the last minute cost, in CPU time or memory, times its cost without a flood."""
    return float(max(found["with"][cost][-1] / found["without"][cost][-1] for cost in ("cpu_s", "peak_mb")))


def sentence(found: Mapping[str, Any]) -> str:
    """Return what was found, in a sentence."""
    cost = found["with"]
    return (
        f"{found['addresses']:,} unknown addresses in a minute: {cost['peak_mb'][0]} MB and "
        f"{cost['cpu_s'][0]:.0f} CPU s; "
        f"{found['put_aside']:,} of {found['read']:,} records put aside; a later minute costs {later_ratio(found):.2f} "
        "times what it costs without a flood"
    )


def _analyze(folder: Path, warehouse: str, flows: Path) -> tuple[float, int]:
    """Run the command; return its CPU seconds and the peak of its memory, MB."""
    command = [str(Path(sys.executable).parent / "llmprism"), "analyze", "--flows", str(flows)]
    command += ["--topology", "topology.csv", "--warehouse", warehouse]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {process.returncode}: {(folder / 'said').read_text('utf-8')}"
        )
    return used.ru_utime + used.ru_stime, used.ru_maxrss // 1024
