"""The page of the second source of traffic: what is read of jobs that the first simulator cannot make."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accuracy.runs.scored_run import scores_of
from accuracy.second_source.cases import CASES
from accuracy.second_source.folder import write
from llmprism_tasks.reports.evaluation import together
from llmprism_tasks.reports.evaluation.headline import headline

ABOUT = """# A second source of traffic

`python -m accuracy second` writes this page. Its jobs come from `tools/accuracy/second_source`, which shares no code
with `llmprism simulate`: steps follow from the order of their operations, collectives are NCCL's rings, a record for
each channel. Parameters are drawn at random, by seeds that nothing was built with. A step's duration is that up to the
end of its gradients' synchronisation; *degrees* are `tp`, `pp`, `dp` and the order of stages, by windows.
"""

COLUMNS = (
    "kind", "jobs exact, windows", "called other", "pairs, precision", "recall", "degrees right / wrong / unknown",
    "steps found", "extra", "duration error, median %", "95th percentile %",
)  # fmt: skip


def write_second_source(page: Path, seeds: Sequence[int], names: Sequence[str]) -> Iterator[str]:
    """Measure cases on some seeds, write the page, and yield a line as each kind is done."""
    rows = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for name in names:
        rows.append(_row(name, _measured(name, seeds)))
        yield rows[-1]
    lines = [ABOUT, *rows, "", f"Seeds: {', '.join(map(str, seeds))}."]
    page.write_text("".join(f"{line}\n" for line in lines))
    yield f"Written: {page}"


def _measured(name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the figures of one kind over all seeds together."""
    scores = {}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write(CASES[name](np.random.default_rng([seed, len(name)])), folder, seed)
            scores[str(seed)] = scores_of(folder, "flows.parquet", "joint", folder / "second.duckdb")
    return headline(together(scores))


def _row(name: str, found: dict[str, Any]) -> str:
    degrees = (sum(one[word] for one in found["degrees"].values()) for word in ("right", "wrong", "unknown"))
    errors = found["duration_error"]
    cells = [
        name.replace("_", " "),
        f"{found['exact']} of {found['windows']}",
        str(found["called_other"]),
        *(f"{found[word] or 0:.3f}" for word in ("precision", "recall")),
        " / ".join(map(str, degrees)),
        f"{found['steps_found']} of {found['steps']}",
        str(found["steps_extra"]),
        *(f"{100 * (errors[word] or 0):.2f}" for word in ("median", "p95")),
    ]
    return _line(cells)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
