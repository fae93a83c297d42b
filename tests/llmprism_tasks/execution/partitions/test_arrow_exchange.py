"""Frames come out of their files as they went in; the private folder is nobody else's, and is cleared after a while."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import polars as pl
import pytest

from llmprism_tasks.contract.errors import InputError, TransientError
from llmprism_tasks.execution.partitions.arrow_exchange import (
    KEPT_S,
    delete_old_folders,
    private_folder,
    read_frame,
    temporary_folder,
    write_frame,
)

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


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"llmprism-{os.getuid()}"


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


@pytest.mark.parametrize(("older_s", "left"), [(-60, 1), (60, 0)])
def test_what_was_left_behind_is_swept_up_after_a_while(older_s: int, left: int) -> None:
    (private_folder() / "of yesterday" / "inner").mkdir(parents=True)
    then = time.time() - KEPT_S - older_s
    os.utime(private_folder() / "of yesterday", (then, then))
    delete_old_folders(private_folder())
    assert len(list(private_folder().iterdir())) == left


def test_a_folder_that_somebody_else_made_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    somebody_else = os.getuid() + 1
    place.with_name(f"llmprism-{somebody_else}").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: somebody_else)
    with pytest.raises(InputError, match="not a folder that belongs to this user"):
        private_folder()


def test_a_link_or_a_file_in_the_place_of_the_folder_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="not a folder that belongs to this user"):
        private_folder()
    place.unlink()
    place.touch()
    with pytest.raises(InputError, match="not a folder that belongs to this user"):
        private_folder()
