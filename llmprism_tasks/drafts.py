"""Drafts: what stages made of a window, in files, until the tasks of these stages write it to the warehouse.

Each task is a process of its own. The first that needs a window's flows takes them through all stages while they are in
memory, for reading and numbering them again and again would be most of the work; the later tasks find their tables
made. Nothing depends on it: a stage that finds no draft is run again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl

from llmprism_tasks import temporary
from llmprism_tasks.contract.plan import Stage
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.deriving import Derived

MADE = "made.json"


class Drafts:
    """The drafts of one window, on this machine; a sink for what stages make.

    Parameters
    ----------
    warehouse : of which they are; two warehouses may have the same window
    """

    def __init__(self, warehouse: str, window: Window) -> None:
        of_warehouse = hashlib.sha256(warehouse.encode()).hexdigest()[:12]
        self._folder = temporary.home() / f"{of_warehouse}-{window.start_ns}"
        self._new, self._pieces, self._stage_ns = self._folder, 0, Counter[str]()

    def begin(self) -> None:
        """Begin anew, with none."""
        temporary.sweep()
        self.forget()
        self._new, self._pieces, self._stage_ns = Path(tempfile.mkdtemp(dir=temporary.home())), 0, Counter()

    def take(self, derived: Derived, jobs: Sequence[str] | None, *, more: int | None = None) -> None:
        """Add what stages made, to be found once all is; what each stage made of which flows is kept apart."""
        with temporary.written_in(self._new):
            for stage, tables in derived.made.items():
                for table, rows in tables.items():
                    rows.write_ipc(self._new / f"{stage}.{table}.{self._pieces:06}", compression="lz4")
        self._pieces += 1
        self._stage_ns.update(derived.stage_ns)

    def end(self, made_of: str) -> None:
        """Let what was taken be found.

        Parameters
        ----------
        made_of : tells all that the stages depend on; who asks for what was made of anything else finds none
        """
        with temporary.written_in(self._new):
            told = json.dumps([made_of, self._stage_ns, sorted(file.name for file in self._new.iterdir())])
            (self._new / MADE).write_text(told, encoding="utf-8")
        self.forget()
        with suppress(OSError):  # another task made the same just now
            self._new.rename(self._folder)

    def of(self, stage: Stage, made_of: str) -> Derived | None:
        """Return what a stage made; None if there is no draft of it, made of just that."""
        try:
            told, stage_ns, names = json.loads((self._folder / MADE).read_text(encoding="utf-8"))
            if told != made_of or stage.name not in stage_ns:
                return None
            tables = {
                table: _rows([self._folder / name for name in names if name.startswith(f"{stage.name}.{table}.")])
                for table in stage.writes
            }
        except (OSError, ValueError, pl.exceptions.PolarsError):  # a piece is gone, or spoilt
            return None
        return Derived({stage.name: tables}, {stage.name: stage_ns[stage.name]})

    def forget(self) -> None:
        """Remove what can be found."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _rows(files: Sequence[Path]) -> pl.DataFrame:
    """Read pieces of a table; lists are copied, for Arrow warns of empty ones that lie as they do in a file."""
    lists = pl.col(pl.List(pl.String)).gather(pl.int_range(pl.len()))
    return pl.concat([pl.read_ipc(file) for file in files]).with_columns(lists)
