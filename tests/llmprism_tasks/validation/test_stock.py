"""The suites need nothing of llmprism: the program in docs/validation.md runs them with Great Expectations alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from sound_window import SUITES, WINDOW, changed, sound

from llmprism_tasks.warehouse import store

ALONE = "\nassert not [name for name in sys.modules if name.startswith('llmprism')]\n"


@pytest.fixture(scope="module")
def outcomes(project: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the page's program on a warehouse of two windows, the second of which has flows without bytes."""
    folder = tmp_path_factory.mktemp("stock")
    warehouse, later = empty_warehouse(folder / "w.duckdb"), WINDOW.shifted(1)
    store.replace(warehouse, WINDOW, sound())
    rows = sound(later)
    rows |= {"flows": changed("flows", bytes=0)(rows), "flow_files": rows["flow_files"].clear()}  # the same two files
    store.replace(warehouse, later, rows)
    page = (project / "docs" / "validation.md").read_text(encoding="utf-8")
    program = folder / "check.py"
    program.write_text(page.partition("```python\n")[2].partition("```")[0] + ALONE, encoding="utf-8")
    command = [sys.executable, "-I", str(program), warehouse.location, str(project / "expectations")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return dict(line.split(" ", 1) for line in ran.stdout.splitlines())


def test_every_suite_loads_and_every_expectation_is_evaluated(outcomes: dict[str, str]) -> None:
    assert {name.partition(".")[0] for name in outcomes} == set(SUITES)
    assert not [outcome for outcome in outcomes.values() if "exception" in outcome]


def test_what_is_wrong_fails_and_nothing_else(outcomes: dict[str, str]) -> None:
    assert sorted(name for name, outcome in outcomes.items() if outcome != "holds") == [
        "flows.bytes",
        "flows.packets",  # for there are fewer bytes than packets
        "windows.duplicate_share",  # one of five, in each window
    ]
    assert "'unexpected_count': 4" in outcomes["flows.bytes"]
