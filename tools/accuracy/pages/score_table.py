"""How right the results about folders of flows are, as one table in the terminal."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.console import RenderableType

from accuracy.runs.scored_run import scores_of
from accuracy.runs.sources import Source
from llmprism_tasks.reports.evaluation import Scores, all_figures, score_tables, together
from llmprism_tasks.reports.evaluation.headline import headline


def table_of_scores(sources: Iterable[Source]) -> RenderableType:
    """Analyse each folder's flows in a temporary warehouse; return a row for each and one for all together."""
    runs: dict[str, Scores] = {}
    for source in sources:
        with tempfile.TemporaryDirectory() as place:
            runs[source.label] = scores_of(Path(source.folder), source.flows, "joint", Path(place) / "scores.duckdb")
    parts = {name: headline(scores) for name, scores in runs.items()}
    return score_tables.render(all_figures(together(runs)), of="run", parts=parts)
