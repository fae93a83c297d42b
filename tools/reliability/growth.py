"""Growth: how large a warehouse is, hour by hour, when what was kept long enough expires each hour.

One simulated minute is analysed, look-back included. Its rows, moved in time, are the minutes that follow: what is
written is what a run of such a minute writes, in a hundredth of the time.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from llmprism_tasks.contract.plan import DERIVED
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution import upkeep
from llmprism_tasks.execution.analyze import analyze
from llmprism_tasks.settings import PlaceSettings, RetentionSettings, Settings
from llmprism_tasks.simulate.simulation import write_scenario
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.upkeep import space

LOCATIONS = {"file": "w.duckdb", "lake": "ducklake:w.ducklake"}
START_NS, MINUTE_NS, MINUTES_AN_HOUR = 1_767_225_600 * 10**9, 60 * 10**9, 60
MINUTES = 2
"""Simulated; the last of them, which has a look-back, is repeated."""

TIMES = ("window_start_ns", "window_end_ns", "flow_start_ns", "flow_end_ns", "start_ns", "end_ns")
WRITTEN = ("flows", "flows_quarantine", "windows", "validation_results", *DERIVED)

LEVEL_RATIO = 1.1
"""By how much the last third of the hours may be larger than the third before, if the warehouse has stopped growing."""


def measure(
    warehouse: str,
    *,
    scenario: str,
    hours: int,
    retention: RetentionSettings,
    say: Callable[[str], None],
    minutes_an_hour: int = MINUTES_AN_HOUR,
) -> dict[str, Any]:
    """Write some hours of minutes, expire after each, and return the size in bytes after each hour.

    Parameters
    ----------
    warehouse : one of `LOCATIONS`
    scenario : name or file of what is simulated
    minutes_an_hour : minutes after which rows expire
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        location = LOCATIONS[warehouse].replace("w.", f"{folder}/w.")
        template = _minute(folder, scenario)
        settings = Settings(places=PlaceSettings(warehouse=location), retention=retention)
        place, sizes = open_warehouse(Warehouse(location, lock_wait_s=60)), []
        for hour in range(hours):
            for minute in range(minutes_an_hour):
                _write(place, template, hour * minutes_an_hour + minute)
            before = space.warehouse_bytes(place)
            found = upkeep.expire(settings, old_s=0)
            sizes.append(found.after)
            expired = sum(rows.due for rows in found.rows.values())
            say(f"hour {hour + 1}: {before:,} bytes, {found.after:,} after {expired:,} rows expired")
        return {
            "warehouse": warehouse,
            "scenario": scenario,
            "minutes_an_hour": minutes_an_hour,
            "flows_per_window": template["flows"].height,
            "retention": dataclasses.asdict(retention),
            "bytes": sizes,
            "bytes_by_table": space.table_bytes(place),
        }


def is_level(found: Mapping[str, Any]) -> bool:
    """Return whether the warehouse had stopped growing in the last third of the hours."""
    sizes = found["bytes"]
    third = max(len(sizes) // 3, 1)
    return bool(max(sizes[-third:]) <= LEVEL_RATIO * max(sizes[-2 * third : -third]))


def sentence(found: Mapping[str, Any]) -> str:
    """Return what was found, in one sentence."""
    sizes = found["bytes"]
    return (
        f"{found['warehouse']}, {found['flows_per_window']:,} flows a minute: {max(sizes):,} bytes at the most in "
        f"{len(sizes)} hours, {sizes[-1]:,} in the end; it has {'' if is_level(found) else 'not '}stopped growing."
    )


def _minute(folder: Path, scenario: str) -> dict[str, pl.DataFrame]:
    """Return all rows of a simulated minute's window, of the beginning of time."""
    write_scenario(folder / "inputs", scenario=scenario, minutes=MINUTES, seed=0, start_ns=START_NS)
    places = PlaceSettings(
        str(folder / "inputs" / "flows"), str(folder / "inputs" / "topology.csv"), str(folder / "template.duckdb")
    )
    window = analyze(Settings(places=places))[-1]
    template = Warehouse(places.warehouse, 5)
    return store.read_each(template, dict.fromkeys(WRITTEN, window))


def _write(warehouse: Warehouse, rows: Mapping[str, pl.DataFrame], number: int) -> None:
    """Write the minute's rows as those of a later one."""
    window = Window(rows["windows"]["window_start_ns"][0], MINUTE_NS).shifted(number)
    later = number * MINUTE_NS
    store.replace(
        warehouse,
        window,
        {
            table: frame.with_columns(pl.col(name) + later for name in TIMES if name in frame.columns)
            for table, frame in rows.items()
        },
        ordered=True,
    )
