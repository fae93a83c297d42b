"""Frames come out of their files as they went in."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.execution.partitions.arrow_exchange import read_frame, write_frame
from llmprism_tasks.warehouse.storage.temporary_folder import temporary_folder

TEXTS = pl.Series("text", ["a", None, "b", "a"])
ROWS = pl.DataFrame(
    {
        "text": TEXTS,
        "category": TEXTS.cast(pl.Categorical),
        "path": [["leaf-1", "spine-2"], [], None, ["leaf-1"]],
        "time": [2**62, 0, None, -1],
        "share": [0.5, float("inf"), None, -0.0],
    }
)


@pytest.mark.parametrize("rows", [ROWS, ROWS.clear(), pl.concat([ROWS[:3], ROWS[1:]], rechunk=False)])
def test_a_frame_is_read_as_it_was_written_and_outlives_its_file(rows: pl.DataFrame) -> None:
    with temporary_folder() as folder:
        write_frame(rows, folder, "rows")
        found = read_frame(folder, "rows")
    assert not folder.exists()
    assert found.schema == rows.schema
    assert found.equals(rows)
    assert set(found.n_chunks("all")) == {1}


def test_a_frame_written_again_leaves_the_one_in_use_as_it_is(tmp_path: Path) -> None:
    write_frame(ROWS, tmp_path, "rows")
    found = read_frame(tmp_path, "rows")
    write_frame(ROWS.reverse(), tmp_path, "rows")
    assert found.equals(ROWS)
    assert read_frame(tmp_path, "rows").equals(ROWS.reverse())


def test_where_there_is_no_room_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"set TMPDIR, or places\.handover, to another"):
        write_frame(ROWS, tmp_path / "nowhere", "rows")
