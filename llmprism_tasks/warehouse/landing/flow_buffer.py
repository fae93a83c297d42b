"""Flow buffer: convert Arrow records to rows of `flows` in a third of the memory, with texts as categories.

An address takes four bytes, and so does a whole path: there are thousands of each, and millions of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from llmprism_tasks.contract.frames import BETWEEN_SWITCHES, compact_schema
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.contract.visible_text import STEERING
from llmprism_tasks.numerics import encoding, grouped_sort
from llmprism_tasks.sources.addresses import one_spelling

TYPES = compact_schema(FLOW_COLUMNS)
CODES = pl.UInt32()
"""Type of the categories' codes."""
PHYSICAL = {name: CODES if kind == pl.Categorical else kind for name, kind in TYPES.items()}
CATEGORIES = pl.Series(dtype=pl.Categorical)
"""Keeps all categories alive: Polars drops them with the last column that uses any, and codes would change meaning."""

REQUIRED = [column.name for column in FLOW_COLUMNS if not column.optional]
ADDRESSES = ("src_addr", "dst_addr")
PATH = "switch_path"

Rows = npt.NDArray[np.int64]


class OddError(Exception):
    """A file or record needs the record-by-record landing."""


def fits(schema: pa.Schema) -> bool:
    """Return whether a file's columns can be those of flows, if no number is too large."""
    names = schema.names
    return (
        len(set(names)) == len(names)
        and set(REQUIRED) <= set(names)
        and all(_fits(schema.field(name).type, name) for name in TYPES if name in names)
    )


def compact(records: pa.Table) -> pl.DataFrame:
    """Return rows with all columns of `flows` but the window; texts are codes of categories.

    Parameters
    ----------
    records : columns for which `fits` holds, with texts as dictionaries

    Raises
    ------
    OddError : a required field is missing, a number is too large for its column, or a text is invalid
    """
    columns = {name: _column(records, name) for name in TYPES}
    if any(columns[name].null_count() for name in REQUIRED):
        raise OddError
    return pl.DataFrame(columns)


def _column(records: pa.Table, name: str) -> pl.Series:
    if name not in records.column_names:
        return pl.Series(name, [None], PHYSICAL[name]).new_from_index(0, records.num_rows)
    if name == PATH or name in ADDRESSES:
        codes = map(_paths if name == PATH else _addresses, records[name].chunks)
        return pl.concat([*codes] or [pl.Series(dtype=CODES)])
    found = _series(records[name])
    numbers = found.cast(TYPES[name], strict=False)
    if numbers.null_count() != found.null_count():
        raise OddError
    return numbers


class Columns:
    """Rows in a buffer that is allocated once at full size; joining parts would need the memory twice.

    Attributes
    ----------
    rows : number of valid rows; rows beyond are unused
    """

    def __init__(self, room: int) -> None:
        self.rows = room
        empty = {name: pl.Series(dtype=kind).to_numpy() for name, kind in PHYSICAL.items()}
        self._values = {name: np.empty(room, none.dtype) for name, none in empty.items()}
        self._known: dict[str, npt.NDArray[np.bool_]] = {}

    def fill(self, begin: int, part: pl.DataFrame) -> None:
        """Write rows from `compact` to the buffer, from row `begin` on; several threads may do so at once."""
        places = slice(begin, begin + part.height)
        for name, values in self._values.items():
            column = part[name]
            if not column.null_count():
                values[places] = column.to_numpy()
            else:
                values[places] = column.fill_null(0).to_numpy()
                self._known.setdefault(name, np.ones(values.size, np.bool_))[places] = column.is_not_null().to_numpy()

    def close_up(self, stretches: Iterable[tuple[int, int]]) -> None:
        """Keep only some stretches of rows, and move them together.

        Parameters
        ----------
        stretches : first row and number of rows of each stretch, in order
        """
        self.rows = 0
        for begin, rows in stretches:
            if begin > self.rows:
                self.put(slice(begin, begin + rows), slice(self.rows, self.rows + rows))
            self.rows += rows

    def put(self, rows: slice | Rows, places: slice | Rows) -> None:
        """Copy some rows to other places; frames returned before become invalid."""
        for values in (*self._values.values(), *self._known.values()):
            values[places] = values[rows]

    def values(self, name: str) -> npt.NDArray[Any]:
        """Return a column without a copy, with texts as codes; NULL has an arbitrary value."""
        return self._values[name][: self.rows]

    def frame(self, rows: slice | Rows = slice(None)) -> pl.DataFrame:
        """Return all rows without a copy, or a copy of some rows."""
        return pl.DataFrame([self._column(name, rows) for name in TYPES])

    def _column(self, name: str, rows: slice | Rows) -> pl.Series:
        known = self._known[name][: self.rows][rows] if name in self._known else None
        found = pl.Series(name, pl.from_arrow(_arrow(self.values(name)[rows], known)))
        return found.cat.to(TYPES[name]) if TYPES[name] == pl.Categorical else found


def _series(array: pa.Array | pa.ChunkedArray) -> pl.Series:
    return pl.Series(pl.from_arrow(array))


def _arrow(values: npt.NDArray[Any], known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Convert values to Arrow without a copy; `pa.array` would import pandas to check the type."""
    bits = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [bits, pa.py_buffer(values)])


def _fits(found: pa.DataType, name: str) -> bool:
    if name == PATH:
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and _is_text(found.value_type)
    return _is_text(found) if name in ADDRESSES else pa.types.is_integer(found)


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def _words(dictionary: pa.Array) -> pl.Series:
    dictionary.validate(full=True)  # Arrow accepts any bytes as text, and Polars relies on it
    return _series(dictionary)


def _codes(words: pl.Series) -> pl.Series:
    return words.cast(pl.Categorical).to_physical()


def _addresses(column: pa.DictionaryArray) -> pl.Series:
    return _codes(one_spelling(_words(column.dictionary))).gather(_series(column.indices))


def _paths(lists: pa.ListArray) -> pl.Series:
    """Return each path as the joined names of its switches; each distinct path is joined once."""
    switches, offsets = lists.values, _series(lists.offsets).cast(pl.Int64).to_numpy()
    names = _words(switches.dictionary)
    odd = (names == "") | names.str.contains(BETWEEN_SWITCHES, literal=True) | names.str.contains(STEERING)
    if switches.null_count or odd.any():
        raise OddError
    numbers, first = encoding.numbered_lists(_series(switches.indices).cast(pl.Int32).to_numpy(), offsets)
    paths = _series(lists.take(_arrow(first))).cast(pl.List(pl.String)).list.join(BETWEEN_SWITCHES)
    codes = _codes(paths.fill_null(""))  # the first of the rows without a switch may be a row without a path
    found = pl.Series(grouped_sort.taken(codes.to_numpy(), numbers))
    return found.set(_series(lists.is_null()), None) if lists.null_count else found
