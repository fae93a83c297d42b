"""What the commands print: messages, tables, CSV, and progress while a person watches."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from llmprism_tasks.contract.visible_text import shown

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from llmprism_tasks.contract.windows import Window


@contextlib.contextmanager
def progress(first: str) -> Iterator[Callable[[Window, int, int], None] | None]:
    """Show progress while a person watches; gives the function to call with each window, or None."""
    if not (sys.stderr.isatty() or os.environ.get("FORCE_COLOR")):  # Rich knows, and takes a while to import
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=terminal(stderr=True), transient=True) as progress:
        task = progress.add_task(first, total=None)
        yield lambda window, done, of: progress.update(task, description=str(window), completed=done, total=of)


def terminal(*, stderr: bool = False) -> Console:
    """Return a console of rich that colours nothing by itself."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def say(message: str, *, stderr: bool = False) -> None:
    """Print a line; control characters are shown, not obeyed."""
    print(shown(message), file=sys.stderr if stderr else sys.stdout)


def print_rows(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    """Print rows as a table; on a screen where one does not fit, with a line for each value.

    Where no screen limits it, a table is as wide as it is. Control characters are shown, not obeyed.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = terminal()
    cells = [[Text("" if value is None else shown(str(value))) for value in row] for row in rows]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(Text(column))
    for row in cells:
        table.add_row(*row)
    width = console.measure(table, options=console.options.update(width=100_000)).maximum
    if console.is_terminal and width > console.width:
        for number, row in enumerate(cells, 1):
            grid = Table.grid(padding=(0, 2, 0, 0))
            for column, value in zip(columns, row, strict=True):
                grid.add_row(Text(column, "bold"), value)
            console.rule(f"{number:,} of {len(rows):,}", align="left")
            console.print(grid)
        return
    if not console.is_terminal:
        console.width = width
    console.print(table)


def write_csv(rows: pl.DataFrame) -> None:
    """Write rows as CSV; lists and structs, for which it has no form, as JSON text; to a terminal without controls."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    watched = sys.stdout.isatty()
    writer.writerow(shown(rows.columns) if watched else rows.columns)
    for row in rows.iter_rows():
        told = [json.dumps(one, default=str) if isinstance(one, list | dict) else one for one in row]
        writer.writerow(shown(told) if watched else told)
