"""SQL files: the texts in `sql/`, found by name and read once; and quoting of SQL literals and names."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from llmprism_tasks.contract import shipped_files


@cache
def statement(name: str) -> str:
    """Return the text of `<name>.sql` in a folder of `sql/statements/`; the caller binds its values by name."""
    (file,) = (shipped_files.folder("sql") / "statements").rglob(f"{name}.sql")
    return file.read_text(encoding="utf-8").rstrip().rstrip(";")


@cache
def texts(kind: str) -> dict[str, str]:
    """Return all texts of `sql/<kind>/` by file name without ending, sorted by name."""
    files = sorted((shipped_files.folder("sql") / kind).glob("*.sql"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def quoted(text: str | Path) -> str:
    """Return an SQL string literal, for statements (ATTACH, LOAD) in which DuckDB binds no values."""
    return "'" + str(text).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
