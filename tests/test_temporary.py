"""The folder for temporary files: nobody else's, and swept up after a while."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from llmprism_tasks.temporary import LONGEST_S, home, sweep, written_in

from llmprism_tasks.contract.errors import InputError, TransientError


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"llmprism-{os.getuid()}"


@pytest.mark.parametrize(("older_s", "left"), [(-60, 1), (60, 0)])
def test_what_was_left_behind_is_swept_up_after_a_while(older_s: int, left: int) -> None:
    (home() / "of yesterday" / "inner").mkdir(parents=True)
    then = time.time() - LONGEST_S - older_s
    os.utime(home() / "of yesterday", (then, then))
    sweep()
    assert len(list(home().iterdir())) == left


def test_a_folder_that_somebody_else_made_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    somebody_else = os.getuid() + 1
    place.with_name(f"llmprism-{somebody_else}").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: somebody_else)
    with pytest.raises(InputError, match="not a folder that belongs to this user"):
        home()


def test_a_link_or_a_file_in_the_place_of_the_folder_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="not a folder that belongs to this user"):
        home()
    place.unlink()
    place.touch()
    with pytest.raises(InputError, match="not a folder that belongs to this user"):
        home()


def test_where_nothing_can_be_written_it_says_what_to_do(tmp_path: Path) -> None:
    with written_in(tmp_path):
        (tmp_path / "there").touch()
    with pytest.raises(TransientError, match="set TMPDIR to another folder"), written_in(tmp_path / "nowhere"):
        (tmp_path / "nowhere" / "file").touch()
