"""What docs/ has from the contract and from sql/ is as `make reference` writes it, and its queries run."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from small_windows import FIRST, diagnosis, writer

from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import texts
from llmprism_tasks.warehouse.upkeep import read_copy
from reference import grafana, tables_page
from reference.__main__ import FILES

MOST_S = 0.3
"""Seconds of processor time, whatever else the machine does: eight panels are there within about two seconds."""

MINUTES = 30


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Return half an hour of two jobs, with a fault in ten of the minutes."""
    warehouse = empty_warehouse(tmp_path_factory.mktemp("dashboards") / "w.duckdb")
    write = writer(warehouse)
    for number in range(MINUTES):
        write(number, [diagnosis(number, rank=1, lost_gpu_s=10.0)] if 10 <= number < 20 else [])
    row = f"({FIRST.start_ns}, 'gpt', '10.3.1.5', 0, 100, 50, 20, 10, 15, NULL, 5)"
    warehouse.write(lambda connection: connection.execute(f"INSERT INTO step_breakdown VALUES {row}"))
    return warehouse


@pytest.fixture(scope="module")
def copied(filled: Warehouse) -> Warehouse:
    """Return its read copy, which dashboards read."""
    place = Path(filled.location).with_name("copy.duckdb")
    read_copy.publish(filled, place)
    return read_copy.open_copy(place, lock_wait_s=5)


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_what_the_command_writes(project: Path, name: str) -> None:
    assert (project / "docs" / name).read_text(encoding="utf-8") == FILES[name]().rstrip() + "\n", "make reference"


def as_grafana_asks(text: str) -> str:
    """Put values in the places of Grafana's variables, as it does."""
    from_ms, to_ms = FIRST.start_ns // 10**6, FIRST.shifted(MINUTES).start_ns // 10**6
    values = {"${__from}": str(from_ms), "${__to}": str(to_ms), "${job_id:sqlstring}": "'bert','gpt'"}
    return re.sub(r"\$\{[^}]*\}", lambda variable: values[variable[0]], text)


def queries() -> list[str]:
    board = json.loads(grafana.dashboard())
    asked = [target["rawSql"] for panel in board["panels"] for target in panel["targets"]]
    return [*asked, *(one["query"] for one in board["templating"]["list"] if one["type"] == "query")]


@pytest.mark.parametrize("query", queries(), ids=lambda query: query.partition(",")[0].removeprefix("-- ")[:40])
def test_each_query_of_the_dashboard_is_quick_and_finds_something(copied: Warehouse, query: str) -> None:
    asked = as_grafana_asks(query)
    took = []
    for _ in range(3):
        began = time.process_time()
        assert store.query(copied, asked).height > 0
        took.append(time.process_time() - began)
    assert min(took) < MOST_S


def test_every_query_of_the_folder_is_on_the_dashboard() -> None:
    assert {panel.query for panel in grafana.PANELS} | {"job_names"} == set(texts("dashboards"))


def test_the_panels_say_what_the_tables_say(copied: Warehouse) -> None:
    (incident,) = store.query(copied, as_grafana_asks(grafana.query("incidents"))).to_dicts()
    assert (incident["subject"], incident["host"], incident["lost_gpu_s"]) == ("10.3.1.5", "gpt-01", 100.0)
    (place,) = store.query(copied, as_grafana_asks(grafana.query("worst_places"))).to_dicts()
    assert (place["place"], place["windows"], place["lost_gpu_s"]) == ("gpt-01", 10, 100.0)
    lost = store.query(copied, as_grafana_asks(grafana.query("lost_time")))
    assert lost.group_by("job_id").sum().sort("job_id")["lost_gpu_s"].to_list() == [0.0, 100.0]
    split = store.query(copied, as_grafana_asks(grafana.query("time_split"))).row(0, named=True)
    assert sum(split[part] for part in split if part != "time") == pytest.approx(1)


def test_panels_do_not_lie_on_each_other() -> None:
    taken = set()
    for panel in json.loads(grafana.dashboard())["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken
        assert max(x for x, _ in cells) < grafana.COLUMNS
        taken |= cells


@pytest.mark.parametrize("name", [*(table.name for table in TABLES), *texts("views")])
def test_each_table_and_view_is_on_the_page_with_a_query_that_runs(project: Path, filled: Warehouse, name: str) -> None:
    assert f"\n### {name}\n" in (project / "docs" / "tables.md").read_text(encoding="utf-8")
    store.query(filled, tables_page.example(name))


def test_an_example_is_of_a_table_that_is_there() -> None:
    assert set(tables_page.EXAMPLES) <= {table.name for table in TABLES} | set(texts("views"))


def test_the_readme_names_every_table_view_and_page(project: Path) -> None:
    readme = (project / "README.md").read_text(encoding="utf-8")
    names = {*(table.name for table in TABLES), *(file.stem for file in (project / "sql" / "views").glob("*.sql"))}
    assert {name for name in names if f"`{name}`" not in readme} == set()
    assert {page.name for page in (project / "docs").glob("*.md") if f"(docs/{page.name})" not in readme} == set()
