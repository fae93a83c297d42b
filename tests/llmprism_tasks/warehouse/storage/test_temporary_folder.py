"""The private folder is nobody else's, and what killed processes left there goes after a while."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from flowfiles import LATENESS_NS, WINDOW, flow, write

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse.landing import landing
from llmprism_tasks.warehouse.storage.temporary_folder import KEPT_S, delete_old_folders, private_folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"llmprism-{os.getuid()}"


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


def test_landing_deletes_what_a_killed_one_left(place: Path, tmp_path: Path) -> None:
    """Each landing that was killed left a folder of its own before, for ever."""
    (place / "of a killed one").mkdir(parents=True)
    then = time.time() - KEPT_S - 60
    os.utime(place / "of a killed one", (then, then))
    flows = write(tmp_path / "flows.jsonl", [flow(0)])
    landing.land(empty_warehouse(tmp_path / "w.duckdb"), WINDOW, str(flows), lateness_ns=LATENESS_NS)
    assert list(place.iterdir()) == []
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path != place]
