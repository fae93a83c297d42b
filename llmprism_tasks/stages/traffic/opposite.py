"""What answers a pair: the opposite pair, from its receiver to its sender, and records of the same size."""

from __future__ import annotations

import polars as pl

ENDS = ["src_addr", "dst_addr"]


def opposite(pairs: pl.DataFrame, *columns: str, key: tuple[str, ...] = ()) -> pl.DataFrame:
    """Return what is known of each pair's opposite, to be joined with pairs on `key` and their two addresses.

    Parameters
    ----------
    pairs : `src_addr`, `dst_addr`, the columns and the key
    columns : each becomes `back_…`
    key : columns that are the same for both pairs, such as `job_id`
    """
    turned = dict(zip(ENDS, reversed(ENDS), strict=True))
    return pairs.select(*key, **turned, **{f"back_{column}": pl.col(column) for column in columns})


def same_size(size: str, other: str, tolerance: float) -> pl.Expr:
    """Say whether two sizes (names of columns, bytes) differ by at most a ratio of the other one; NULL if one is."""
    return (pl.col(size) / pl.col(other) - 1).abs() <= tolerance


def log_ratio(sent: str, back: str) -> pl.Expr:
    """Return by how much two numbers of bytes (names of columns) differ: the logarithm of the larger over the other."""
    return (pl.col(sent) / pl.col(back)).log().abs()
