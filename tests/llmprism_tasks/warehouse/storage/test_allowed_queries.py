"""Queries of users: what may be asked, and that nothing else is read, written or switched on by asking."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.storage import allowed_queries

LET_THROUGH = [
    "SELECT 1 AS one;",
    "FROM windows",
    "-- a remark\nWITH a AS (SELECT 1 AS x) SELECT x FROM a /* and another */",
    "SELECT * FROM range(3), unnest([1, 2])",
    "FROM (VALUES (1, 2)) AS t(a, b) PIVOT (sum(b) FOR a IN (1))",
    "PIVOT windows ON status IN ('done') USING count(*)",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "DESCRIBE windows",
    "DESCRIBE SELECT 1",
    "SUMMARIZE windows",
    "EXPLAIN SELECT count(*) FROM windows",
    "EXPLAIN ANALYZE SELECT count(*) FROM windows",
    "EXPLAIN (FORMAT json) SELECT 1",
    "SELECT table_name FROM information_schema.tables",
    "SELECT view_name FROM duckdb_views()",
]

REFUSED = {
    "read_text": "SELECT * FROM read_text('{file}')",
    "read_blob": "SELECT (SELECT count(*) FROM read_blob('{file}'))",
    "read_csv": "FROM read_csv('{file}')",
    "read_json": "FROM read_json('{file}')",
    "parquet_metadata": "FROM parquet_metadata('{file}')",
    "sniff_csv": "FROM sniff_csv('{file}')",
    "a file's name": "FROM '{file}'",
    "a described file": "DESCRIBE FROM '{file}'",
    "a summarised file": "SUMMARIZE '{file}'",
    "a URL": "FROM 'https://127.0.0.1:9/x.csv'",
    "glob": "FROM glob('/etc/*')",
    "COPY": "COPY (SELECT 1) TO '{new}'",
    "EXPORT": "EXPORT DATABASE '{new}'",
    "PREPARE": "PREPARE p AS COPY (SELECT 1) TO '{new}'",
    "EXECUTE": "EXECUTE p",
    "a prepared COPY": "PREPARE p AS COPY (SELECT 1) TO '{new}'; EXECUTE p",
    "ATTACH": "ATTACH '{new}'",
    "DETACH": "DETACH warehouse",
    "INSTALL": "INSTALL httpfs",
    "LOAD": "LOAD httpfs",
    "SET": "SET threads = 1",
    "log_query_path": "SET log_query_path = '{new}'",
    "profiling_output": "PRAGMA profiling_output = '{new}'",
    "enable_profiling": "PRAGMA enable_profiling",
    "enable_logging": "CALL enable_logging(storage = 'file', storage_path = '{new}')",
    "enable_logging as rows": "FROM enable_logging(storage = 'file', storage_path = '{new}')",
    "enable_logging in the lake's folder": "FROM enable_logging(storage = 'file', storage_path = '{lake}/log')",
    "enable_logging, explained": "EXPLAIN ANALYZE FROM enable_logging(storage = 'file', storage_path = '{lake}/log')",
    "enable_logging behind a remark": "EXPLAIN /* */ ANALYZE FROM enable_logging()",
    "orphans deleted as rows": "FROM ducklake_delete_orphaned_files('lake', cleanup_all => true)",
    "snapshots expired as rows": "FROM ducklake_expire_snapshots('lake', older_than => now())",
    "a query in a text": "FROM query('SELECT 1')",
    "json_execute_serialized_sql": "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "explained COPY": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{new}'",
    "explained CREATE": "EXPLAIN ANALYZE CREATE TABLE memory.main.t AS SELECT 1",
    "several statements": "SELECT 1; SELECT 2",
    "PIVOT that looks for its values": "PIVOT windows ON status USING count(*)",
    "INSERT": "INSERT INTO windows SELECT * FROM windows",
    "DELETE": "DELETE FROM windows",
    "CREATE": "CREATE TABLE t (a INTEGER)",
    "CREATE TEMP": "CREATE TEMP TABLE t (a INTEGER)",
    "BEGIN": "BEGIN",
    "CHECKPOINT": "CHECKPOINT",
    "VACUUM": "VACUUM",
    "USE": "USE main",
    "nothing": ";",
    "an empty text": "",
    "a remark": "-- SELECT 1",
}


@pytest.fixture(scope="module", params=["{}/w.duckdb", "ducklake:{}/w"], ids=["file", "lake"])
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return open_warehouse(Warehouse(request.param.format(tmp_path_factory.mktemp("queries")), lock_wait_s=20))


@pytest.mark.parametrize("sql", LET_THROUGH)
def test_what_reads_the_warehouse_is_run(one: Warehouse, sql: str) -> None:
    assert store.query(one, sql).columns


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED)
def test_all_else_is_refused_and_leaves_no_trace(one: Warehouse, tmp_path: Path, sql: str) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n", encoding="utf-8")
    lake = Path(one.location.removeprefix("ducklake:") + ".files")
    before = sorted(lake.rglob("*"))
    with pytest.raises(InputError, match="that llmprism does not run") as refused:
        store.query(one, sql.format(file=file, new=tmp_path / "new", lake=lake))
    assert refused.value.expected.startswith("one SELECT over the tables and views of the warehouse")
    assert "open the warehouse with DuckDB itself" in refused.value.todo
    assert list(tmp_path.iterdir()) == [file]
    assert sorted(lake.rglob("*")) == before


@pytest.mark.parametrize(
    "sql", ["FROM read_text('{}')", "FROM '{}'", "COPY (SELECT 1) TO '{}.new'", "ATTACH '{}.new'", "SET threads = 1"]
)
def test_the_connection_alone_refuses_too(one: Warehouse, tmp_path: Path, sql: str) -> None:
    """Were the form of a query to deceive the first wall, there is a second."""
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n", encoding="utf-8")
    with one.reading() as connection:
        allowed_queries.confine(connection)
        with pytest.raises((duckdb.PermissionException, duckdb.InvalidInputException)):
            connection.execute(sql.format(file))
    assert list(tmp_path.iterdir()) == [file]


def test_a_pivot_without_its_values_is_told_to_name_them(one: Warehouse) -> None:
    with pytest.raises(InputError, match="name them, as in PIVOT"):
        store.query(one, "PIVOT windows ON status USING count(*)")
