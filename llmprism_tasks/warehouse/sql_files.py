"""SQL texts of `sql/`: found by name, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from llmprism_tasks.contract import shipped_files


@cache
def statement(name: str) -> str:
    """Return the text of `sql/statements/<name>.sql`; its values are bound by the caller, by name."""
    return (shipped_files.folder("sql") / "statements" / f"{name}.sql").read_text(encoding="utf-8").rstrip().rstrip(";")


@cache
def texts(kind: str) -> dict[str, str]:
    """Return every text of `sql/<kind>/` by file name without its ending, in the order of names."""
    files = sorted((shipped_files.folder("sql") / kind).glob("*.sql"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def quoted(text: str | Path) -> str:
    """Return an SQL string literal, for the few places (ATTACH, LOAD) where DuckDB binds no values."""
    return "'" + str(text).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
