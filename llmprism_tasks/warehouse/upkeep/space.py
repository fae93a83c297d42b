"""Space: how much tables take, and how that of deleted rows is given back, in a DuckDB file and in a DuckLake.

A DuckDB file keeps the blocks of deleted rows for new ones, and deleted rows beside others stay in it. Where that is
much of the file, a copy without it takes the file's place. A DuckLake keeps files for the snapshots that have them;
both are deleted when the snapshots are old.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import duckdb

from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.warehouse.connect import STORAGE_VERSION, Warehouse
from llmprism_tasks.warehouse.lake.attach import LAKE, in_postgres
from llmprism_tasks.warehouse.sql_files import identifier, quoted
from llmprism_tasks.warehouse.storage.value_codes import NUMBERED

logger = logging.getLogger(__name__)

WASTE_RATIO = 1 / 3
"""Share of a file in free blocks and deleted rows above which it is copied; below it, the next windows fill it."""

OLD_S = 3600
"""Seconds for which a DuckLake keeps files that no table has any more: a query that began before may read them."""

TIDYING_THREADS = 1
"""Threads that tidy a DuckLake. Two flush two tables at a time, and DuckLake (d8a1881e, of DuckDB 1.5.5) notes which in
a list without a lock (`DuckLakeTransaction::MarkInlinedDataForDeletion`). Of 1,278 flushes four ended in
`double free` or a corrupt heap, of 550 with one thread none."""

COPY_SUFFIX = ".smaller"
"""Ending of the copy while it is made; one that is there before was left by a process that was killed."""


def folder_of(warehouse: Warehouse) -> Path:
    """Return the folder of a warehouse's file, or of a DuckLake's data."""
    if not warehouse.location.startswith(LAKE):
        return Path(warehouse.location).resolve().parent
    with warehouse.reading() as connection:
        ((folder,),) = connection.execute("SELECT data_path FROM ducklake_settings('lake')").fetchall()
    return Path(folder)


def places_of(warehouse: Warehouse) -> list[Path]:
    """Return the folders of this machine, and the files, that whoever writes to a warehouse writes to."""
    file = Path(warehouse.location.removeprefix(LAKE)).resolve()
    places = [folder_of(warehouse)] if in_postgres(warehouse.location) else [file, file.parent, folder_of(warehouse)]
    return [place for place in dict.fromkeys(places) if place.exists()]


def warehouse_bytes(warehouse: Warehouse) -> int:
    """Return the size of a warehouse's files; of a DuckLake, of its data and, if it is a file, its catalog."""
    path = Path(warehouse.location.removeprefix(LAKE))
    files = [path, Path(f"{path}.wal")]
    if warehouse.location.startswith(LAKE):
        files += folder_of(warehouse).rglob("*.parquet")
    return sum(file.stat().st_size for file in files if file.is_file())


def table_bytes(warehouse: Warehouse) -> dict[str, int]:
    """Return about how many bytes each table of the contract takes."""
    with warehouse.reading() as connection:
        return {table.name: _table_bytes(connection, warehouse.location, table.name) for table in TABLES}


def give_back(warehouse: Warehouse, *, old_s: float = OLD_S) -> None:
    """Give back the space of deleted rows; may be killed and run again.

    Parameters
    ----------
    old_s : of a DuckLake, only files that were replaced or left behind so many seconds ago are deleted

    Raises
    ------
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    if warehouse.location.startswith(LAKE):
        _tidy_lake(warehouse, old_s)
    else:
        _tidy_file(warehouse)


def _table_bytes(connection: duckdb.DuckDBPyConnection, location: str, table: str) -> int:
    schema = "stored" if table in NUMBERED else "main"
    if location.startswith(LAKE):
        sizes = f"SELECT sum(data_file_size_bytes) FROM ducklake_list_files('lake', '{table}', schema => '{schema}')"
    else:
        # Small columns share a block, most of which the next windows will fill: its last column is taken to be as large
        # as the others in it are on average. One that has a block to itself may fill it.
        sizes = (
            "WITH blocks AS (SELECT count(*) AS segments, max(block_offset) AS last_starts "
            f"FROM pragma_storage_info('{schema}.{table}') WHERE block_id >= 0 GROUP BY block_id) "
            "SELECT sum(if(segments = 1, block_size, least(block_size, last_starts * segments / (segments - 1)))) "
            "FROM blocks, (SELECT block_size FROM pragma_database_size())"
        )
    ((found,),) = connection.execute(sizes).fetchall()
    return int(found or 0)


def _tidy_file(warehouse: Warehouse) -> None:
    """Write what is in the log to the file; where much of it is waste, put a copy without it in its place.

    Nobody else has the file open meanwhile. Who waits for it opens it anew, by its name, and so finds the copy.
    """
    path = Path(warehouse.location).resolve()  # not what may be a link to it
    copy = path.with_name(path.name + COPY_SUFFIX)
    _remove(copy)
    with warehouse.alone() as connection:
        connection.execute("CHECKPOINT")
        size, waste = _waste(connection)
        if waste <= WASTE_RATIO * size:
            return
        room = shutil.disk_usage(path.parent).free
        if room < size - waste:
            logger.warning(
                "%s is not copied to give back %d bytes: the copy takes %d, and %d are free in %s",
                path, waste, size - waste, room, path.parent,
            )  # fmt: skip
            return
        try:
            _copy(connection, path, copy)
        except BaseException:
            _remove(copy)
            raise
        copy.replace(path)
        _synchronise(path.parent)


def _waste(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Return the size of the open file, and about how much of it are free blocks and deleted rows, bytes."""
    total, free, block = connection.execute(
        "SELECT total_blocks, free_blocks, block_size FROM pragma_database_size()"
    ).fetchall()[0]
    waste = float(free * block)
    for table, rows in _counts(connection, _name(connection)).items():
        blocks, stored_rows = connection.execute(
            "SELECT count(DISTINCT block_id), sum(count) FILTER (column_id = 0 AND segment_type <> 'VALIDITY') "
            f"FROM pragma_storage_info({quoted(table)})"
        ).fetchall()[0]
        waste += block * blocks * (1 - rows / stored_rows) if stored_rows else 0
    return total * block, round(waste)


def _name(connection: duckdb.DuckDBPyConnection) -> str:
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    return str(name)


def _copy(connection: duckdb.DuckDBPyConnection, path: Path, copy: Path) -> None:
    """Copy the open file; the copy is on the disk when this returns."""
    name = _name(connection)
    connection.execute(f"ATTACH {quoted(copy)} AS smaller (STORAGE_VERSION {quoted(STORAGE_VERSION)})")
    connection.execute(f"COPY FROM DATABASE {identifier(name)} TO smaller")
    there, copied = (_counts(connection, database) for database in (name, "smaller"))
    connection.execute("DETACH smaller")
    log = Path(f"{path}.wal")
    if there != copied or log.exists():
        raise TransientError(
            found=f"a copy of {path} with other rows than the file itself, or rows in {log}",
            expected="a copy that is equal to the file",
            todo="The file is as it was. Run it again; if it happens again, please report it.",
        )
    shutil.copymode(path, copy)
    _synchronise(copy)


def _counts(connection: duckdb.DuckDBPyConnection, database: str) -> Mapping[str, int]:
    tables = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?", [database]
    ).fetchall()
    counted = {}
    for schema, table in tables:
        rows = connection.execute(
            f"SELECT count(*) FROM {identifier(database)}.{identifier(schema)}.{identifier(table)}"
        ).fetchall()
        counted[f"{schema}.{table}"] = int(rows[0][0])
    return counted


def _remove(copy: Path) -> None:
    for file in (copy, Path(f"{copy}.wal")):
        file.unlink(missing_ok=True)


def _synchronise(path: Path) -> None:
    """Have the disk hold what was written to a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _tidy_lake(warehouse: Warehouse, old_s: float) -> None:
    """Forget old snapshots, join the small files of windows, and delete files that nothing refers to.

    The files of flows and timeline stay as they are: they are deleted whole, when their windows expire.
    """
    long_ago = f"now() - INTERVAL '{float(old_s)} seconds'"
    steps = [
        "ducklake_flush_inlined_data('lake')",
        *(f"ducklake_merge_adjacent_files('lake', '{one.name}')" for one in TABLES if one.name not in NUMBERED),
        "ducklake_rewrite_data_files('lake')",
        f"ducklake_expire_snapshots('lake', older_than => {long_ago})",
        f"ducklake_cleanup_old_files('lake', older_than => {long_ago})",
        f"ducklake_delete_orphaned_files('lake', older_than => {long_ago})",
    ]
    with warehouse.alone() as connection:
        connection.execute(f"SET threads = {TIDYING_THREADS}")
        for step in steps:
            connection.execute(f"CALL {step}")
