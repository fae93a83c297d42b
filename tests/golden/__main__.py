"""Print how right the results are: `python tests/golden [FOLDER ...]`, by default for the captures of the repository.

A folder holds `flows`, `flows.parquet` or `flows_coarse.parquet`, `topology.csv` and `truth/`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from scored_runs import scored_run

from llmprism_tasks.reports.evaluation import Scores, all_figures, together
from llmprism_tasks.reports.evaluation import score_tables as report
from llmprism_tasks.reports.evaluation.headline import headline

REAL = Path(__file__).resolve().parents[1] / "data" / "real"
FLOWS = {"flows": "", "flows.parquet": "", "flows_coarse.parquet": ", coarse"}


def main(folders: list[Path]) -> None:
    """Analyse each folder's flows in a temporary warehouse, and print a row for each and one for all together."""
    runs: dict[str, Scores] = {}
    for folder in folders:
        for flows, variant in FLOWS.items():
            if (folder / flows).exists():
                with tempfile.TemporaryDirectory() as place:
                    run = scored_run(folder, flows, Path(place) / "scores.duckdb", validated=False)
                runs[folder.name + variant] = run.scores
    parts = {name: headline(scores) for name, scores in runs.items()}
    Console(width=report.WIDTH).print(report.render(all_figures(together(runs)), of="run", parts=parts))


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]] or sorted(REAL.iterdir()))
