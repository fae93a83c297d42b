"""Topology: read the table of GPU NICs, with each NIC's address, host, GPU index, leaf switch and pod."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import polars as pl

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.frames import schema
from llmprism_tasks.contract.tables import TOPOLOGY_COLUMNS
from llmprism_tasks.contract.visible_text import STEERING, shown
from llmprism_tasks.sources.addresses import one_spelling

logger = logging.getLogger(__name__)

SCHEMA = schema(TOPOLOGY_COLUMNS)
NAMES = tuple(column.name for column in TOPOLOGY_COLUMNS)
REQUIRED = tuple(column.name for column in TOPOLOGY_COLUMNS if not column.optional)


def read_topology(path: str) -> pl.DataFrame:
    """Read the NIC table from CSV or Parquet.

    Returns
    -------
    `addr`, `host`, `gpu`, `leaf_switch`, `pod`, one row per NIC, sorted by `addr`; optional columns that the file lacks
    are NULL, unknown columns are dropped

    Raises
    ------
    InputError : the file does not exist or cannot be read, lacks a required column or value, has an address twice, a
        GPU index that is no whole number, or names that differ in control characters alone.
        The whole file is refused, because a wrong NIC table gives wrong jobs.
    """
    raw = _raw(path)
    missing = [name for name in REQUIRED if name not in raw.columns]
    if missing:
        found = f"{path}, header: no column {', '.join(missing)}, only {', '.join(raw.columns) or 'nothing'}"
        raise _error(found, f"the columns {', '.join(REQUIRED)}")
    text = raw.select(
        pl.col(name).cast(pl.String, strict=False).str.strip_chars().replace("", None)
        if name in raw.columns
        else pl.lit(None, pl.String).alias(name)
        for name in NAMES
    )
    text = _without_controls(path, text)
    text = text.with_columns(one_spelling(text["addr"]))
    whole = pl.col("gpu").str.replace(r"\.0+$", "").cast(pl.Int32, strict=False)
    _refuse(path, text, pl.any_horizontal(pl.col(*REQUIRED).is_null()), f"{' and '.join(REQUIRED)} in every row")
    _refuse(
        path, text, pl.col("gpu").is_not_null() & whole.is_null(), "gpu as the GPU's whole-numbered index in its host"
    )
    _refuse(path, text, ~pl.col("addr").is_first_distinct(), "each addr once")
    return text.with_columns(whole).cast(SCHEMA).sort("addr")


def _without_controls(path: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Remove control characters from names, so that none reaches a terminal or a picture; refuse names that differ in
    nothing else."""
    clean = rows.with_columns(pl.all().str.replace_all(STEERING, "").replace("", None))
    changed = [name for name in NAMES if not clean[name].equals(rows[name])]
    for name in changed:
        both = pl.DataFrame({"raw": rows[name], "clean": clean[name]}).unique()
        alike = both.filter(pl.col("clean").is_duplicated() | pl.col("clean").is_null())["raw"]
        _refuse(
            path,
            rows,
            pl.col(name).is_in(alike.implode()) & pl.col(name).str.contains(STEERING),
            f"in column {name} names that differ in more than control characters",
        )
    if changed:
        _warn_of_controls(path, ", ".join(changed))
    return clean


@functools.cache
def _warn_of_controls(path: str, columns: str) -> None:
    """Warn once: the topology is read for each window."""
    logger.warning("%s: removed control characters from names in %s", shown(path), columns)


def _raw(path: str) -> pl.DataFrame:
    if not Path(path).is_file():
        raise _error(f"no file {path}", "the NIC table, as CSV or Parquet")
    try:
        if path.lower().endswith(".parquet"):
            return pl.read_parquet(path, hive_partitioning=False)
        return pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise _error(f"{path}, a file that cannot be read ({reason})", "a whole CSV or Parquet file") from error


def _refuse(path: str, rows: pl.DataFrame, wrong: pl.Expr, expected: str) -> None:
    """Raise an error for the first wrong row; rows are counted from 1, after the header."""
    bad = rows.with_row_index("row", offset=1).filter(wrong)
    if bad.height:
        values = ", ".join(f"{name}={bad[0, name] or ''}" for name in NAMES)
        others = f" and {bad.height - 1} more rows" if bad.height > 1 else ""
        raise _error(f"{path}, row {bad[0, 'row']}{others}: {values}", expected)


def _error(found: str, expected: str) -> InputError:
    return InputError(found=found, expected=expected, todo="Check places.topology (--topology) and correct the file.")
