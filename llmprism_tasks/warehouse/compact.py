"""Flow records as Arrow has them -> rows of `flows` in a third of the memory: texts are numbers, their words kept once.

An address takes four bytes, and so does a whole path: there are thousands of either, and millions of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from llmprism_tasks.frames import BETWEEN_SWITCHES, compact_schema
from llmprism_tasks.methods import numbering
from llmprism_tasks.tables import FLOW_COLUMNS

TYPES = compact_schema(FLOW_COLUMNS)
REQUIRED = [column.name for column in FLOW_COLUMNS if not column.optional]
ADDRESSES = ("src_addr", "dst_addr")
PATH = "switch_path"

Rows = npt.NDArray[np.int64]


class OddError(Exception):
    """Something here needs a second look."""


def fits(schema: pa.Schema) -> bool:
    """Tell whether a file's columns can be those of flows, if no number is too large."""
    names = schema.names
    return (
        len(set(names)) == len(names)
        and set(REQUIRED) <= set(names)
        and all(_fits(schema.field(name).type, name) for name in TYPES if name in names)
    )


def compact(records: pa.Table) -> pl.DataFrame:
    """Return rows with all columns of `flows` but the window.

    Parameters
    ----------
    records : columns that `fits`, their texts as dictionaries

    Raises
    ------
    OddError : a required field is missing, a number is too large for its column, or a text is not as it should be
    """
    columns = {name: _column(records, name) for name in TYPES}
    if any(columns[name].null_count() for name in REQUIRED):
        raise OddError
    return pl.DataFrame(columns)


def _column(records: pa.Table, name: str) -> pl.Series:
    if name not in records.column_names:
        return pl.Series(name, [None], TYPES[name]).new_from_index(0, records.num_rows)
    if name == PATH:
        return _paths(records[name])
    if name in ADDRESSES:
        return _addresses(records[name])
    found = _series(records[name])
    numbers = found.cast(TYPES[name], strict=False)
    if numbers.null_count() != found.null_count():
        raise OddError
    return numbers


class Columns:
    """Rows in memory that is taken once, for as many as there may be: to join parts would take it twice.

    Attributes
    ----------
    rows : how many there are
    """

    def __init__(self, room: int) -> None:
        self.rows = 0
        self._values = {
            name: np.empty(room, pl.Series([], dtype=kind).to_physical().to_numpy().dtype)
            for name, kind in TYPES.items()
        }
        self._known: dict[str, npt.NDArray[np.bool_]] = {}

    def add(self, part: pl.DataFrame) -> None:
        """Add rows that `compact` returned."""
        begin, self.rows = self.rows, self.rows + part.height
        for name, values in self._values.items():
            column = part[name].to_physical()
            if not column.null_count():
                values[begin : self.rows] = column.to_numpy()
            else:
                values[begin : self.rows] = column.fill_null(0).to_numpy()
                known = self._known.setdefault(name, np.ones(values.size, np.bool_))
                known[begin : self.rows] = column.is_not_null().to_numpy()

    def put(self, rows: Rows, places: slice | Rows) -> None:
        """Put what is in some rows to other places; frames that were returned before are of no use then."""
        for values in (*self._values.values(), *self._known.values()):
            values[places] = values[rows]

    def frame(self) -> pl.DataFrame:
        """Return the rows, which stay in this memory."""
        return pl.DataFrame([self._column(name) for name in TYPES])

    def _column(self, name: str) -> pl.Series:
        values = pl.Series(name, pl.from_arrow(_arrow(self._values[name], self.rows, self._known.get(name))))
        return values.cat.to(TYPES[name]) if TYPES[name] == pl.Categorical else values


def _series(array: pa.Array | pa.ChunkedArray) -> pl.Series:
    return pl.Series(pl.from_arrow(array))


def _arrow(values: npt.NDArray[Any], rows: int, known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return the first values as Arrow, in the same memory; `pa.array` would import pandas to ask if they are some."""
    bits = None if known is None else pa.py_buffer(np.packbits(known[:rows], bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), rows, [bits, pa.py_buffer(values)])


def _fits(found: pa.DataType, name: str) -> bool:
    if name == PATH:
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and _is_text(found.value_type)
    return _is_text(found) if name in ADDRESSES else pa.types.is_integer(found)


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def _words(dictionary: pa.Array) -> pl.Series:
    dictionary.validate(full=True)  # Arrow reads any bytes for text, and Polars believes it
    return _series(dictionary)


def _addresses(column: pa.ChunkedArray) -> pl.Series:
    for chunk in column.chunks:
        _words(chunk.dictionary)
    return _series(column).cast(pl.Categorical)


def _paths(column: pa.ChunkedArray) -> pl.Series:
    return pl.concat([pl.Series([], dtype=pl.Categorical), *map(_paths_of, column.chunks)], rechunk=False)


def _paths_of(lists: pa.Array) -> pl.Series:
    """Return each path as the names of its switches, joined; the few that there are get joined once each."""
    switches, offsets = lists.values, _series(lists.offsets).cast(pl.Int64).to_numpy()
    names = _words(switches.dictionary)
    if switches.null_count or (names == "").any() or names.str.contains(BETWEEN_SWITCHES, literal=True).any():
        raise OddError
    numbers, first = numbering.numbered_lists(_series(switches.indices).cast(pl.Int32).to_numpy(), offsets)
    paths = _series(lists.take(_arrow(first, first.size))).cast(pl.List(pl.String)).list.join(BETWEEN_SWITCHES)
    named = paths.fill_null("").cast(pl.Categorical)  # a row without a path may be first of those without a switch
    if lists.null_count:
        return named.gather(pl.Series(numbers).set(pl.Series(lists.is_null()), None))
    return named.gather(numbers)
