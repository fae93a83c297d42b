"""Escape sequences in the names of files and in what a query returns: they are shown, and reach no terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from llmprism_tasks import cli
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

COMMAND = [sys.executable, "-c", "from llmprism_tasks.cli import run; run()"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_files_name_is_shown_in_errors_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    Path("topology.csv").write_text("addr,host\n10.0.0.1,h\n", encoding="utf-8")
    Path("flows").mkdir()
    for name in ("a\x1b[31m.csv", "b\x1b[31m.txt"):
        Path("flows", name).write_text("x,y\n1,2\n", encoding="utf-8")
    assert cli.main(["analyze", "--flows", "flows", "--topology", "topology.csv", "--warehouse", "w"]) == 1
    err = capsys.readouterr().err
    assert "a\\u001b[31m.csv" in err
    assert "b\\u001b[31m.txt" in err
    assert "\x1b" not in err


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_rows_of_a_query_are_shown_on_a_terminal(form: str) -> None:
    open_warehouse(Warehouse("w", lock_wait_s=1))
    ours, theirs = pty.openpty()
    query = "SELECT chr(27) || ']0;' || chr(155) || chr(8238) || 'x' AS a"
    subprocess.run([*COMMAND, "sql", "--warehouse", "w", "--format", form, query], stdout=theirs, check=True)
    os.close(theirs)
    seen = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "\\u001b]0;\\u009b\\u202ex" in seen.replace("\\u001B", "\\u001b")
    assert not {"\x1b]", "\x9b", "\u202e"} & {seen[at : at + size] for at in range(len(seen)) for size in (1, 2)}
