"""DuckDB's extensions, from installed packages: nothing is downloaded.

`python -m llmprism_tasks.warehouse.lake.extensions` puts them where processes load them from, beside this code. `make
setup` and the Docker image run it. Without it, the first process that opens a DuckLake does the same, and has to be
allowed to write there.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse.sql_files import identifier

FOLDER = Path(__file__).parent / "__pycache__" / "duckdb"
"""DuckDB's `extension_directory`. Its own is in the home of whoever runs the process, where services often may not
write. DuckDB keeps the extensions of each of its versions apart."""

COMMAND = "python -m llmprism_tasks.warehouse.lake.extensions"

LAKE, POSTGRES = "ducklake", "postgres_scanner"
PACKAGES = {LAKE: "duckdb-extension-ducklake", POSTGRES: "llmprism[distributed]"}
"""What to install for an extension."""


def connect() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB in memory that loads its extensions from `FOLDER`, and downloads none.

    Their signatures are not checked, which would take 60 ms for each connection: they come from installed packages, as
    the code that loads them does.
    """
    return duckdb.connect(
        ":memory:",
        config={
            "allow_unsigned_extensions": "true",
            "autoinstall_known_extensions": "false",
            "extension_directory": str(FOLDER),
        },
    )


def load(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension; if it is not in `FOLDER`, or damaged, it is put there from its package.

    Raises
    ------
    InputError : its package is not installed, or the folder cannot be written
    """
    try:
        connection.execute(f"LOAD {identifier(name)}")
    except (duckdb.IOException, duckdb.InvalidInputException):  # it is not there, or damaged
        _install(connection, name)
        connection.execute(f"LOAD {identifier(name)}")


def _install(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    try:
        import_extension(name, force_install=True, con=connection)
    except ModuleNotFoundError as error:
        raise InputError(
            found=f"no package {error.name}",
            expected=f"that package, which holds DuckDB's extension {name}, to open the warehouse",
            todo=f"Install {PACKAGES[name]}, with the extension in the same version as duckdb, or use a DuckDB file.",
        ) from error
    except duckdb.IOException as error:
        raise InputError(
            found=f"DuckDB's extension {name} is not in {FOLDER} and cannot be put there ({error})",
            expected="the extension in that folder, to open the warehouse",
            todo=f"Run `{COMMAND}` once as the user who installed llmprism, or use a DuckDB file.",
        ) from error


def main() -> None:
    """Put all extensions whose packages are installed into `FOLDER`."""
    with connect() as connection:
        for name in PACKAGES:
            if find_spec(f"duckdb_extension_{name}") is not None:
                _install(connection, name)


if __name__ == "__main__":
    main()
