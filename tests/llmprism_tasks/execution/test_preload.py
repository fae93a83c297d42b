"""What was imported and loaded in one process is there in those that are forked from it, and works there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from captured_minutes import WINDOWS, drop, flows_file

FORKED = """
import os, sys
from llmprism_tasks import cli
from llmprism_tasks.execution import analyze
analyze.preload("joint")
there = set(sys.modules)
if os.fork() == 0:
    code = cli.main(sys.argv[1:])
    ours = ("llmprism_tasks.stages", "great_expectations")
    print("late:", *(name for name in set(sys.modules) - there if name.startswith(ours)))
    sys.stdout.flush()
    os._exit(code)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_forked_process_analyses_with_what_it_finds(tmp_path: Path) -> None:
    drop(tmp_path)
    words = ["--flows", flows_file(tmp_path, WINDOWS[0]), "--topology", tmp_path / "topology.csv"]
    command = [sys.executable, "-c", FORKED, "analyze", *map(str, words), "--warehouse", str(tmp_path / "w.duckdb")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "Windows done: 1" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "late:"
