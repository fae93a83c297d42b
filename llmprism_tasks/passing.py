"""Passing: frames on their way to another process, in files whose rows are looked at where they lie, and not read.

Polars' own reader would copy them, in pieces that each step after it would have to join. Categories pass as the numbers
that this process has for them, with the words that these stand for beside them: Polars would number them for each
column anew, which takes twice as long as all the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from llmprism_tasks import temporary
from llmprism_tasks.numerics import encoding

CATEGORIES = b"categories"
"""Key of a file's metadata: the columns whose numbers stand for words."""

WORDS = "words"
"""Ends the name of the file that has them."""


def put(frame: pl.DataFrame, folder: Path, name: str) -> None:
    """Write a frame to files.

    Raises
    ------
    TransientError : there is no room for it
    """
    categories = [column for column, kind in frame.schema.items() if kind == pl.Categorical]
    _write(frame.with_columns(pl.col(categories).to_physical()), folder, name, categories)
    if categories:
        _write(_words(frame.select(categories)), folder, f"{name}.{WORDS}")


def taken(folder: Path, name: str) -> pl.DataFrame:
    """Return the frame of files and remove their names: the memory, maybe hundreds of megabytes, goes with it."""
    frame, categories = _taken(folder, name)
    if not categories:
        return frame
    words, _ = _taken(folder, f"{name}.{WORDS}")
    there = words["number"].to_numpy()
    here = words["word"].cast(pl.Categorical)  # Polars forgets its numbers with the last column that has them
    numbers = np.zeros(np.max(there, initial=0) + 1, np.uint32)
    numbers[there] = here.to_physical().to_numpy()
    return frame.with_columns(
        pl.Series(column, numbers).gather(frame[column]).cat.to(here.dtype) for column in categories
    )


def _words(columns: pl.DataFrame) -> pl.DataFrame:
    """Return each `number` that columns of categories have, and the `word` that it stands for."""
    met = [encoding.codes_met(column.to_physical().drop_nulls().to_numpy()) for column in columns]
    numbers = pl.Series("number", np.unique(np.concatenate(met)))
    return pl.DataFrame({"number": numbers, "word": numbers.cat.to(pl.Categorical()).cast(pl.String)})


def _write(frame: pl.DataFrame, folder: Path, name: str, categories: Sequence[str] = ()) -> None:
    rows = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    rows = rows.replace_schema_metadata({CATEGORIES: json.dumps(categories)})
    with (
        temporary.written_in(folder),
        pa.OSFile(str(_path(folder, name)), "wb") as file,
        pa.ipc.new_file(file, rows.schema) as writer,
    ):
        writer.write_table(rows)


def _taken(folder: Path, name: str) -> tuple[pl.DataFrame, list[str]]:
    path = _path(folder, name)
    with pa.memory_map(str(path)) as file:
        rows = pa.ipc.open_file(file).read_all()
    path.unlink()
    return pl.DataFrame(pl.from_arrow(rows)), json.loads(rows.schema.metadata[CATEGORIES])


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.arrow"
