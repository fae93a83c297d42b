"""What a table of the data contract is: its columns, types, key and meaning; and the columns that many tables have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column: its SQL type, its meaning, and whether it may be NULL (`optional`)."""

    name: str
    type: str
    meaning: str
    optional: bool = False


@dataclass(frozen=True)
class Table:
    """A table. Its key is unique, and rows are stored and returned in the order of the key."""

    name: str
    meaning: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns' names, in the table's order."""
        return tuple(column.name for column in self.columns)


WINDOW = Column("window_start_ns", "BIGINT", "the window the row belongs to")
JOB = Column("job_id", "VARCHAR", "the job, the same from window to window while half of its members stay")
STEP = Column("step_index", "INTEGER", "the job's step, counted from 0 in each window; the same for all members")
