"""Print how right the results are: `python tests/golden [FOLDER ...]`, by default for the captures of the repository.

A folder holds `flows`, `flows.parquet` or `flows_coarse.parquet`, `topology.csv` and `truth/`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import polars as pl
import scored_runs
import scoring
from rich.console import Console
from rich.table import Table

REAL = Path(__file__).resolve().parents[1] / "data" / "real"
FLOWS = ("flows", "flows.parquet", "flows_coarse.parquet")
COLUMNS = ("run", "jobs exact", "dp, pp: precision / recall", "steps found", "extra", "median", "p95", "named")


def main(folders: list[Path]) -> None:
    """Analyse each folder's flows in a temporary warehouse, and print a row for each and one for all together."""
    table, errors = Table(*COLUMNS), []
    for folder in folders:
        for flows in FLOWS:
            if (folder / flows).exists():
                with tempfile.TemporaryDirectory() as place:
                    run = scored_runs.scored_run(folder, flows, Path(place) / "scores.duckdb", validated=False)
                table.add_row(folder.name + flows.removesuffix(".parquet").removeprefix("flows"), *figures(run))
                errors.append(scoring.duration_errors(run.steps))
    pooled = pl.concat(errors)["error"]
    table.add_row("all together", "", "", "", "", *percents(pooled.median(), pooled.quantile(0.95, "linear")), "")
    Console(width=130).print(table)


def figures(run: scored_runs.Scored) -> list[str]:
    """Return the figures of a run as they are printed."""
    kinds = scoring.kind_scores(run.found, run.truth, run.jobs).filter(pl.col("kind").is_in(["dp", "pp"]))
    steps = scoring.step_scores(run.steps)
    errors = scoring.duration_errors(run.steps)["error"]
    named = dict.fromkeys(trouble["subject"] for trouble in run.troubles)
    return [
        f"{run.jobs['exact'].sum()} of {run.jobs.height}",
        f"{kinds['precision'].min():.3f} / {kinds['recall'].min():.3f}",
        f"{steps['found'].sum()} of {steps['true'].sum()}",
        str(steps["extra"].sum()),
        *percents(errors.median(), errors.quantile(0.95, "linear")),
        ", ".join(named) or "nobody",
    ]


def percents(*ratios: object) -> list[str]:
    return [f"{100 * float(str(ratio)):.3f} %" for ratio in ratios]


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]] or sorted(REAL.iterdir()))
