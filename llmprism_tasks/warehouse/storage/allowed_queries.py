"""Which queries of a user are run: one that reads the warehouse's own tables and nothing else.

Three walls, each enough for most of what is refused: the query's form, the functions that it takes rows from, and a
connection that opens no other file and keeps its configuration. Some of DuckDB's functions that give rows write files
or delete them, on a read-only connection too, so only those that are named here may be used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse.sql_files import quoted

FUNCTIONS = frozenset(
    {
        *("range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree", "summary"),
        *("duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_schemas", "duckdb_tables", "duckdb_types"),
        *("duckdb_views", "histogram", "histogram_values", "pg_timezone_names", "pragma_table_info", "pragma_version"),
    }
)
"""Functions of DuckDB that give rows and touch no file."""
EXPLAIN = re.compile(r"\s*EXPLAIN\b(\s+ANALYZE\b)?(\s*\(\s*(FORMAT|ANALYZE)\b[^()]*\))?", re.IGNORECASE)
LOCKS = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET lock_configuration = true",
)


def confine(connection: duckdb.DuckDBPyConnection) -> None:
    """Have a connection open no files but those of the warehouse, and keep it so until it is closed."""
    lakes = connection.execute("SELECT options['data_path'] FROM duckdb_databases() WHERE type = 'ducklake'").fetchall()
    if lakes == [(None,)]:  # it was attached without, for its catalog says where its files are
        lakes = connection.execute(
            "SELECT value FROM ducklake_options('lake') WHERE option_name = 'data_path'"
        ).fetchall()
    connection.execute(f"SET allowed_directories = [{', '.join(quoted(path) for (path,) in lakes)}]")
    for lock in LOCKS:
        connection.execute(lock)


def check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse all but one statement that reads tables and views: SELECT, EXPLAIN of one, SHOW, DESCRIBE, SUMMARIZE.

    Raises
    ------
    InputError : it is something else
    duckdb.Error : it is no SQL
    """
    statements = connection.extract_statements(sql)
    if len(statements) > 1 and not any(one.query for one in statements):  # DuckDB made several of one
        raise refused("PIVOT that looks for its values first: name them, as in PIVOT windows ON status IN ('done')")
    if len(statements) != 1:
        raise refused(f"{len(statements)} statements")
    (one,) = statements
    explained = EXPLAIN.match(one.query) if one.type == duckdb.StatementType.EXPLAIN else None
    text = one.query[explained.end() :] if explained else one.query
    # Not bound: for the first bound value, DuckDB checks for pandas types, and imports pandas to do so.
    ((tree,),) = connection.execute(f"SELECT json_serialize_sql({quoted(text)})").fetchall()
    parsed = json.loads(tree)
    if parsed["error"]:  # only SELECT has a tree, and what is short for one
        raise refused(one.type.name)
    foreign = sorted({name for name in _functions(parsed) if name not in FUNCTIONS})
    if foreign:
        raise refused(f"rows of the function {', '.join(foreign)}")


def refused(what: str) -> InputError:
    """Return the error for a query that is not run."""
    return InputError(
        found=f"a query that llmprism does not run ({what})",
        expected="one SELECT over the tables and views of the warehouse, or EXPLAIN, SHOW, DESCRIBE or SUMMARIZE",
        todo="For anything else, such as other files or changes, open the warehouse with DuckDB itself.",
    )


def _functions(tree: Any) -> Iterator[str]:
    """Yield the names of the functions that a parsed query takes rows from."""
    if isinstance(tree, list):
        for part in tree:
            yield from _functions(part)
    elif isinstance(tree, dict):
        if tree.get("type") == "TABLE_FUNCTION":
            yield str(tree["function"]["function_name"]).lower()
        for part in tree.values():
            yield from _functions(part)
