"""SQLAlchemy dialect with which Great Expectations runs its queries in an open warehouse connection.

`duckdb_engine` alone fails in three ways. Rows are lost, because Great Expectations closes a connection before it
fetches them. Reflection reads a PostgreSQL catalog that DuckDB does not have. Every engine opens the file again,
although DuckDB admits one process at a time. So this dialect fetches rows as soon as a query has run, reads columns
with DESCRIBE, and uses the connection that `warehouse.connect` has opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import duckdb_engine
import sqlalchemy
import sqlalchemy.types as sql
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy
from sqlalchemy.pool import StaticPool

URL = "duckdb+llmprism://"

TYPES: Mapping[str, type[sql.TypeEngine[Any]]] = {
    "BIGINT": sql.BIGINT,
    "INTEGER": sql.INTEGER,
    "DOUBLE": sql.DOUBLE,
    "BOOLEAN": sql.BOOLEAN,
    "VARCHAR": sql.VARCHAR,
}


class _FetchedAtOnce(duckdb_engine.Dialect.execution_ctx_cls):  # type: ignore[misc]
    """Fetch a query's rows as soon as it has run."""

    def post_exec(self) -> None:
        super().post_exec()
        if self.cursor.description is not None and not self.isinsert:
            self.cursor_fetch_strategy = FullyBufferedCursorFetchStrategy(
                self.cursor, alternate_description=self.cursor.description, initial_buffer=self.cursor.fetchall()
            )


class LlmprismDialect(duckdb_engine.Dialect):  # type: ignore[misc]
    """DuckDB for Great Expectations; registered as `duckdb.llmprism` by the package's entry point."""

    name = "duckdb"
    supports_statement_cache = False
    execution_ctx_cls = _FetchedAtOnce

    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        """Return a table's or view's columns as SQLAlchemy's reflection wants them."""
        quoted = ".".join(self.identifier_preparer.quote(part) for part in (schema, table_name) if part)
        return [
            {"name": name, "type": TYPES.get(kind, sql.NullType)(), "nullable": nullable == "YES", "default": None}
            for name, kind, nullable, *_ in connection.exec_driver_sql(f"DESCRIBE {quoted}").fetchall()
        ]

    def get_pk_constraint(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return no primary key: NOT NULL is the only constraint that DuckDB and DuckLake share."""
        return {"constrained_columns": [], "name": None}


class _Borrowed(duckdb_engine.ConnectionWrapper):  # type: ignore[misc]
    """A connection that its owner closes, and not SQLAlchemy."""

    def close(self) -> None:
        """Leave the connection open for its owner."""


def engine(connection: duckdb.DuckDBPyConnection) -> sqlalchemy.Engine:
    """Return an engine that borrows an open connection instead of making its own."""
    return sqlalchemy.create_engine(URL, creator=lambda: _Borrowed(connection), poolclass=StaticPool)


def expression(text: str) -> sqlalchemy.ColumnElement[Any]:
    """Return an expression in SQL as a column that a query can have."""
    return sqlalchemy.literal_column(text)
