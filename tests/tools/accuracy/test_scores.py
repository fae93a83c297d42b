"""`python -m accuracy scores`: a table of how right the results about folders are."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import REAL

from accuracy.__main__ import main


def test_a_row_is_printed_for_each_folder_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scores", str(REAL / "pp2_only")]) == 0
    printed = capsys.readouterr().out
    assert "pp2_only" in printed
    assert "fsdp4" not in printed


def test_a_folder_without_truth_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scores", str(tmp_path)]) == 1
    assert "no flows beside truth/" in capsys.readouterr().out
