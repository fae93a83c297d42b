"""Frames as Arrow files: how processes hand tables to each other.

The files are memory-mapped: a reader shares the pages that the writer wrote, and copies nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from llmprism_tasks.numerics import encoding
from llmprism_tasks.warehouse.storage.temporary_folder import unfinished, writing_to

CATEGORIES = b"categories"
"""Key in a file's metadata: the columns whose numbers stand for the texts of a second file, `<name>.texts.arrow`."""


def write_frame(frame: pl.DataFrame, folder: Path, name: str) -> None:
    """Write a frame to `<folder>/<name>.arrow`, replacing it in one step.

    Categories are written as this process's numbers, with the text of each number in a second file: Polars would number
    them anew for each column, which takes twice as long as everything else.

    Raises
    ------
    TransientError : there is no room
    """
    categories = [column for column, kind in frame.schema.items() if kind == pl.Categorical]
    if categories:
        _write(_texts(frame.select(categories)), folder, f"{name}.texts", [])
    _write(frame.with_columns(pl.col(categories).to_physical()), folder, name, categories)


def read_frame(folder: Path, name: str) -> pl.DataFrame:
    """Return the frame that `write_frame` wrote, memory-mapped: the files may be deleted while the frame is in use.

    Raises
    ------
    OSError, pyarrow.ArrowException : the file is missing or damaged
    """
    frame, categories = _read(folder, name)
    if not categories:
        return frame
    texts, _ = _read(folder, f"{name}.texts")
    written, here = texts["number"].to_numpy(), texts["text"].cast(pl.Categorical)
    numbers = np.zeros(np.max(written, initial=0) + 1, np.uint32)
    numbers[written] = here.to_physical().to_numpy()
    return frame.with_columns(
        pl.Series(column, numbers).gather(frame[column]).cat.to(here.dtype) for column in categories
    )


def _texts(columns: pl.DataFrame) -> pl.DataFrame:
    """Return each `number` that occurs in columns of categories, and the `text` that it stands for."""
    met = [encoding.distinct_codes(column.to_physical().drop_nulls().to_numpy()) for column in columns]
    numbers = pl.Series("number", np.unique(np.concatenate(met)))
    return pl.DataFrame({"number": numbers, "text": numbers.cat.to(pl.Categorical()).cast(pl.String)})


def _write(frame: pl.DataFrame, folder: Path, name: str, categories: list[str]) -> None:
    rows = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    rows = rows.replace_schema_metadata({CATEGORIES: json.dumps(categories)})
    path = folder / f"{name}.arrow"
    made = unfinished(path)
    with writing_to(folder):
        with pa.OSFile(str(made), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        made.replace(path)


def _read(folder: Path, name: str) -> tuple[pl.DataFrame, list[str]]:
    with pa.memory_map(str(folder / f"{name}.arrow")) as file:
        rows = pa.ipc.open_file(file).read_all()
    return pl.DataFrame(pl.from_arrow(rows)), json.loads(rows.schema.metadata[CATEGORIES])
