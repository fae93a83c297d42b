"""Truth folder: read what a simulator, or the ranks of a real run, recorded about jobs, steps, pairs and faults."""

from __future__ import annotations

import operator
from pathlib import Path

import polars as pl

from llmprism_tasks.contract.errors import InputError

REQUIRED = {
    "truth_jobs": ("job", "addr", "start_ns", "end_ns"),
    "truth_steps": ("job", "step", "start_ns", "end_ns"),
    "truth_pairs": ("job", "src_addr", "dst_addr", "kind"),
}
"""Required tables, and their required columns."""

COLUMNS = REQUIRED | {
    "truth_faults": ("kind", "job", "subject_type", "subject", "start_ns", "end_ns"),
    "truth_pauses": ("job", "start_ns", "end_ns"),
    "truth_ranks": ("job", "addr", "pp_index"),
    "layouts": ("job",),
}


def read_truth(folder: str) -> dict[str, pl.DataFrame]:
    """Read the tables of a truth folder by file name: `truth_*.parquet` and `layouts.csv`.

    Without `truth_ranks`, pipeline stages are computed from `layouts` and `truth_jobs`, whose rows are then in the
    order of the ranks.

    Raises
    ------
    InputError : the folder does not exist, or a table is missing, cannot be read or lacks a column
    """
    place = Path(folder)
    files = [place / f"{table}.{'csv' if table == 'layouts' else 'parquet'}" for table in COLUMNS]
    tables = {file.stem: _table(file) for file in files if file.is_file() or file.stem in REQUIRED}
    if "truth_ranks" not in tables and "layouts" in tables:
        tables["truth_ranks"] = megatron_stages(tables)
    return tables


def _table(file: Path) -> pl.DataFrame:
    wanted = COLUMNS[file.stem]
    try:
        table = pl.read_csv(file) if file.suffix == ".csv" else pl.read_parquet(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise _error(f"{file}, which cannot be read ({reason})", wanted) from error
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise _error(f"{file} without column {', '.join(missing)}", wanted)
    return table


def _error(found: str, columns: tuple[str, ...]) -> InputError:
    return InputError(
        found=found,
        expected=f"a table with the columns {', '.join(columns)}",
        todo="Pass a truth folder with --truth; `llmprism simulate` writes one beside the flows.",
    )


def megatron_stages(tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the pipeline stage of each member in Megatron's rank order: tp, cp, dp, pp, with pp the slowest index.

    Only jobs of one layout are returned whose members are as many as their ranks, and whose `pp` pairs all link
    neighbouring stages (or, interleaved, the last and the first). For other jobs the order of rows is no rank order.

    Returns
    -------
    `job`, `addr`, `pp_index`
    """
    degrees = [name for name in ("tp", "cp", "dp", "pp") if name in tables["layouts"].columns]
    sizes = (
        tables["layouts"]
        .filter(pl.col("job").is_unique())
        .select("job", "pp", ranks=pl.reduce(operator.mul, [pl.col(one) for one in degrees]))
    )
    ranks = (
        tables["truth_jobs"]
        .select("job", "addr", rank=pl.int_range(pl.len()).over("job"), members=pl.len().over("job"))
        .join(sizes, on="job")
        .filter(pl.col("members") == pl.col("ranks"))
        .select("job", "addr", "pp", pp_index=pl.col("rank") // (pl.col("ranks") // pl.col("pp")))
    )
    links = tables["truth_pairs"].filter(pl.col("kind") == "pp").select("job", "src_addr", "dst_addr")
    for end in ("src", "dst"):
        stage = ranks.select("job", pl.col("addr").alias(f"{end}_addr"), pl.col("pp_index").alias(end), "pp")
        links = links.join(stage, on=["job", f"{end}_addr"], how="inner", suffix="_other")
    apart = (pl.col("src") - pl.col("dst")).abs()
    odd = links.filter((apart != 1) & (apart != pl.col("pp") - 1))
    return ranks.join(odd, on="job", how="anti").select("job", "addr", "pp_index")
