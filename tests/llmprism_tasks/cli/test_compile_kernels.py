"""All kernels are compiled by one command, so that no analysis compiles any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from accuracy.runs.sources import CAPTURES
from llmprism_tasks.cli import compile_kernels

ANALYZE = "from llmprism_tasks import cli; cli.run()"
LOADED = """
import sys
from llmprism_tasks.cli import compile_kernels
compile_kernels.load()
print(*sys.modules)
"""


def test_every_module_with_kernels_is_loaded(project: Path) -> None:
    sources = (project / "llmprism_tasks").rglob("*.py")
    with_kernels = {one for one in sources if "\n@kernel(" in one.read_text(encoding="utf-8")}
    names = {".".join(one.relative_to(project).with_suffix("").parts) for one in with_kernels}
    ran = subprocess.run([sys.executable, "-c", LOADED], cwd=project, capture_output=True, text=True, check=True)
    assert names
    assert names <= set(ran.stdout.split())


def test_an_analysis_compiles_nothing(tmp_path: Path) -> None:
    """If this fails with what is unchanged in the repository, `make setup` has not run since the last change."""
    capture = CAPTURES / "dp4pp2_slow_rank"
    words = ["--flows", capture / "flows.parquet", "--topology", capture / "topology.csv"]
    command = [sys.executable, "-c", ANALYZE, "analyze", *words, "--warehouse", tmp_path / "w.duckdb"]
    variables = os.environ | {"NUMBA_DEBUG_CACHE": "1"}
    ran = subprocess.run(list(map(str, command)), env=variables, capture_output=True, text=True, check=True)
    said = ran.stdout.splitlines()
    assert said[-1].startswith("Windows done: 3")
    assert any("data loaded" in line for line in said)
    assert not [line for line in said if "data saved" in line]


def test_only_machine_code_beside_the_sources_is_removed(tmp_path: Path) -> None:
    names = ["steps/__pycache__/a.f-1.py311.nbi", "steps/__pycache__/a.f-1.py311.1.nbc"]
    others = ["steps/__pycache__/a.cpython-311.pyc", "steps/a.py", "a.nbi"]
    for name in [*names, *others]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    compile_kernels.clear(tmp_path)
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()) == sorted(others)
