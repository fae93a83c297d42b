"""The SQL texts agree with the contract, read well, and run on a DuckDB file as on a DuckLake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmprism_tasks.contract import shipped_files
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.sql_files import texts
from llmprism_tasks.warehouse.storage.value_codes import NUMBERED, stored

SQL = shipped_files.folder("sql")
PROMISED = {"job_health_by_minute", "step_times_by_job", "pairs_by_kind", "slowest_subjects", "window_bookkeeping"}


@pytest.fixture(scope="module", params=["{}.duckdb", "ducklake:{}.ducklake"], ids=["file", "lake"])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return open_warehouse(Warehouse(request.param.format(tmp_path_factory.mktemp("sql") / "warehouse"), lock_wait_s=20))


def test_each_table_of_the_contract_has_a_file_of_its_name() -> None:
    assert set(texts("tables")) == {table.name for table in TABLES} | {"schema_version"}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_have_the_contracts_columns(either: Warehouse, table: object) -> None:
    found = store.query(either, f"DESCRIBE {table.name}").select("column_name", "column_type").rows()
    assert found == [(column.name, column.type) for column in table.columns]
    required = store.query(either, f"SELECT column_name FROM (DESCRIBE {stored(table.name)}) WHERE \"null\" = 'NO'")
    numbers = NUMBERED.get(table.name, {})
    told = {text for name in required["column_name"] for text in numbers.get(name, ("", (name,)))[1]}
    parts = {text for _, texts_ in numbers.values() for text in texts_ if len(texts_) > 1}  # may be NULL in what is not
    assert told - parts == {column.name for column in table.columns if not column.optional} - parts


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_columns_meaning_is_the_contracts(table: object) -> None:
    comments = re.findall(r"--\s+(.*)$", texts("tables")[table.name].partition("(\n")[2], re.MULTILINE)
    assert comments == [column.meaning for column in table.columns]


def test_the_views_that_people_use_are_there(either: Warehouse) -> None:
    assert set(texts("views")) >= PROMISED
    for name in texts("views"):
        columns = store.query(either, f"DESCRIBE {name}").select("column_name", "column_type").rows()
        assert columns
        if name in PROMISED:
            assert "TIMESTAMP" in {kind for _, kind in columns}
        assert store.query(either, f"FROM {name}").height == 0


@pytest.mark.parametrize(
    "path", sorted((*SQL.glob("tables/*.sql"), *SQL.glob("views/*.sql"))), ids=lambda path: path.stem
)
def test_tables_and_views_say_what_a_row_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    header = "\n".join(line for line in text.splitlines() if line.startswith("-- "))
    assert header.startswith("-- One row")
    assert "Grain: " in header
    assert "From: " in header
    assert re.search(rf"CREATE (TABLE IF NOT EXISTS|OR REPLACE VIEW) {path.stem}\b", text)


@pytest.mark.parametrize("path", sorted(SQL.glob("views/*.sql")), ids=lambda path: path.stem)
def test_views_name_their_columns(path: Path) -> None:
    assert not re.search(r"^SELECT\s+(\w+\.)?\*", path.read_text(encoding="utf-8"), re.MULTILINE)  # inside, a CTE may


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [int(name.partition("_")[0]) for name in texts("migrations")]
    assert numbers == list(range(1, len(numbers) + 1))
