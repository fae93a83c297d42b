"""Rows of users' queries: every SELECT can be printed."""

from __future__ import annotations

import json

import pytest

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return open_warehouse(Warehouse(str(tmp_path_factory.mktemp("queries") / "w.duckdb"), lock_wait_s=20))


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT 1 AS a, 2 AS a", ["a", "a_1"]),
        ('SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS "A"', ["a", "a_1", "a_1_1", "A_2"]),
        ("SELECT sum(1), sum(1), 1 + 1", ["sum(1)", "sum(1)_1", "(1 + 1)"]),
    ],
)
def test_names_that_are_repeated_are_numbered_as_in_tables_of_duckdb(
    one: Warehouse, sql: str, names: list[str]
) -> None:
    with one.reading() as connection:
        assert connection.sql(f"FROM ({sql})").columns == names
    assert store.query(one, sql, most=1).columns == names


def test_a_join_shows_the_columns_of_both_tables(one: Warehouse) -> None:
    found = store.query(one, "SELECT * FROM jobs JOIN job_members ON jobs.job_id = job_members.job_id", most=1)
    assert {"job_id", "job_id_1"} <= set(found.columns)
    assert store.query(one, "SELECT reason, * FROM flows_quarantine", most=1).columns[0] == "reason"


TEXTS = {
    "INTERVAL '1 month 2 days 3 ms'": "1 month 2 days 00:00:00.003",
    "TIMESTAMP '1600-01-01'": "1600-01-01 00:00:00",
    "'infinity'::TIMESTAMP": "infinity",
    "'-infinity'::DATE": "-infinity",
    "TIMESTAMP '290000-01-01'": "290000-01-01 00:00:00",
    "make_timestamp_ns(1767225600000000001)": "2026-01-01 00:00:00.000000001",
    "[INTERVAL '1 day']": "[1 day]",
    "{'a': 'infinity'::TIMESTAMP}": "{'a': infinity}",
    "170141183460469231731687303715884105727::HUGEINT": "170141183460469231731687303715884105727",
    "1.50::DECIMAL(10, 2)": "1.50",
    "MAP {1: 2}": "{1=2}",
    "TIME '10:00'": "10:00:00",
    "'101'::BIT": "101",
    "'a'::ENUM ('a', 'b')": "a",
    "'\\xAA'::BLOB": "\\xAA",
    "4::VARIANT": "4",
}


@pytest.mark.parametrize(("value", "text"), TEXTS.items())
def test_what_json_does_not_know_is_written_as_duckdb_writes_it(one: Warehouse, value: str, text: str) -> None:
    found = store.query(one, f"SELECT {value} AS it", most=1)
    assert found.rows() == [(text,)]
    assert json.loads(found.write_json()) == [{"it": text}]


def test_numbers_texts_and_what_is_made_of_them_stay(one: Warehouse) -> None:
    sql = "SELECT 1 AS a, 0.5::DOUBLE AS b, true AS c, 'x' AS d, [1, 2] AS e, {'k': ['v']} AS f, [1]::TINYINT[1] AS g"
    found = store.query(one, f"{sql}, NULL AS h -- a remark", most=1)
    assert found.rows() == [(1, 0.5, True, "x", [1, 2], {"k": ["v"]}, [1], None)]


def test_rows_stay_in_the_order_that_was_asked_for(one: Warehouse) -> None:
    sql = "SELECT range * INTERVAL '1 s' FROM range(300000) ORDER BY hash(range)"
    with one.reading() as connection:
        wanted = [text for (text,) in connection.execute(f"SELECT CAST(#1 AS VARCHAR) FROM ({sql})").fetchall()]
    assert store.query(one, sql, most=300_000).to_series().to_list() == wanted


def test_a_query_with_more_rows_than_fit_is_refused_before_they_are_there(one: Warehouse) -> None:
    assert store.query(one, "SELECT * FROM range(7)", most=7).height == 7
    with pytest.raises(InputError, match="more than 7 rows"):
        store.query(one, "SELECT * FROM range(8)", most=7)
    with pytest.raises(InputError, match="more than 7 rows"):
        store.query(one, "SELECT * FROM range(1000000000000000)", most=7)
