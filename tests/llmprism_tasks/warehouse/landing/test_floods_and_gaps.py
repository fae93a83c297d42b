"""Floods of addresses are put aside and counted; gaps between records do not make windows without end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from flowfiles import LATENESS_NS, MINUTE_NS, WINDOW, csv_text, flow, write

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import landing
from llmprism_tasks.warehouse.landing.intake import Intake
from reliability.flood import flood

LISTED = pl.Series(["10.0.0.1", "10.0.0.2"])
STRANGERS = 4


def strangers(count: int) -> list[dict[str, object]]:
    """Flows of NICs, of an address that sends twice, and of addresses that send once."""
    once = [flow(number / 10, src_addr=f"172.16.0.{number}") for number in range(count - 1)]
    return [flow(0), flow(1, src_addr="172.17.0.1"), flow(2, src_addr="172.17.0.1"), *once]


def land(warehouse: Warehouse, path: Path) -> dict[str, int]:
    intake = Intake(listed=LISTED, most_unlisted=STRANGERS)
    return landing.land(warehouse, WINDOW, str(path), lateness_ns=LATENESS_NS, intake=intake)


@pytest.mark.parametrize(("count", "aside"), [(STRANGERS, 0), (STRANGERS + 1, 1), (STRANGERS + 3, 3)])
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_addresses_that_the_topology_lacks_are_put_aside_beyond_a_number(
    warehouse: Warehouse, tmp_path: Path, ending: str, count: int, aside: int
) -> None:
    counts = land(warehouse, write(tmp_path / f"flows{ending}", strangers(count)))
    assert counts == {"read": count + 2, "landed": count + 2 - aside, "quarantined": aside, "duplicate": 0}
    rows = store.read(warehouse, "flows_quarantine", WINDOW)
    assert rows["reason"].to_list() == ["unlisted_flood"] * aside
    assert "172.17.0.1" in store.read(warehouse, "flows", WINDOW)["src_addr"].to_list()  # it sends most
    (reason,) = store.read(warehouse, "windows", WINDOW)["reason"]
    assert (f"the flows of the {aside} that sent and received least" in (reason or "")) == (aside > 0)


def test_a_flood_costs_later_windows_nothing(tmp_path: Path) -> None:
    warehouse = empty_warehouse(tmp_path / "w.duckdb")
    write(tmp_path / "a.parquet", [flow(60), *strangers(50)])
    for window in (WINDOW, WINDOW.shifted(1)):
        landing.land(warehouse, window, str(tmp_path / "a.parquet"), lateness_ns=LATENESS_NS)
    assert store.read(warehouse, "flows", WINDOW.shifted(1))["src_addr"].to_list() == ["10.0.0.1"]
    assert store.query(warehouse, "SELECT count(*) FROM stored.names").item() > 50


FLOOD, MOST_MB = 500_000, 330
"""Addresses of a flood, and the memory that landing it may take: 270 to 310 MB were measured, 350 when what was put
aside was stored part by part, and sorted with the names of its files."""

LANDS_A_FLOOD = """
import resource, sys
import polars as pl
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.landing import landing
from llmprism_tasks.warehouse.landing.intake import Intake

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

warehouse = open_warehouse(Warehouse("w.duckdb", 5))
before = peak_mb()
intake = Intake(listed=pl.Series(["10.0.0.1"]), most_unlisted=1_000)
landing.land_all(warehouse, "flood.parquet", length_ns=60 * 10**9, intake=intake)
assert "great_expectations" not in sys.modules  # it takes 170 MB, and is not needed yet
print(peak_mb() - before)
"""


def test_a_flood_takes_no_memory_that_grows_with_it(tmp_path: Path) -> None:
    flood(FLOOD).write_parquet(tmp_path / "flood.parquet")
    took = subprocess.run(
        [sys.executable, "-c", LANDS_A_FLOOD], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(took.stdout) < MOST_MB
    warehouse = Warehouse(str(tmp_path / "w.duckdb"), 5)
    counted = "SELECT sum(rows_read), sum(rows_landed + rows_quarantined), sum(rows_quarantined) > 0 FROM windows"
    assert store.query(warehouse, counted).row(0) == (FLOOD, FLOOD, True)


GAP_MINUTES = 1_439


def test_a_small_file_makes_no_million_of_windows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line a day, nearly: each gap is short enough to be filled, all of them are 1.4 million windows."""
    records = [flow(60 * GAP_MINUTES * number) for number in range(1000)]
    path = tmp_path / "flows.csv"
    path.write_text(csv_text(records), encoding="utf-8")
    windows = landing.windows_in(str(path), MINUTE_NS)
    assert len(windows) == 1000 + GAP_MINUTES - 1  # one gap fits in a day of windows
    assert "1,436,562 empty windows lie between records" in caplog.text
    assert f"a record of {WINDOW.shifted(GAP_MINUTES)} in {path}" in caplog.text
    assert "raise the setting" in caplog.text


@pytest.mark.parametrize("minutes", [1440, 1441])
def test_a_gap_of_more_than_a_day_is_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, minutes: int
) -> None:
    """So is one record of a wrong year, which before was landed without a word."""
    path = write(tmp_path / "flows.csv", [flow(0), flow(60 * (minutes + 1))])
    windows = landing.windows_in(str(path), MINUTE_NS)
    assert len(windows) == (2 if minutes > 1440 else 2 + minutes)
    assert (f"1.0 days without a record lie between a record of {WINDOW} in {path}" in caplog.text) == (minutes > 1440)


@pytest.mark.parametrize(("most", "filled"), [(5, (2, 3)), (4, (2,)), (1, ())])
def test_the_shortest_gaps_are_filled_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, most: int, filled: tuple[int, ...]
) -> None:
    path = write(tmp_path / "flows.csv", [flow(0), flow(60 * 4), flow(60 * 7)])  # gaps of three and of two windows
    windows = landing.windows_in(str(path), MINUTE_NS, intake=Intake(most_empty_windows=most))
    assert len(windows) == 3 + sum(filled)
    assert windows == sorted(windows)
    assert {WINDOW, WINDOW.shifted(4), Window(WINDOW.shifted(7).start_ns, MINUTE_NS)} <= set(windows)
    assert ("longest gaps are left out" in caplog.text) == (most < 5)
