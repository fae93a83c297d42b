"""Who may import whom: the packages' order, the homes of foreign libraries, and what importing a light module costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import PROJECT

PACKAGE = "llmprism_tasks"

ALLOWED: dict[str, set[str]] = {
    "__init__": set(),
    "contract": set(),
    "settings": {"contract"},
    "numerics": {"contract"},
    "stages": {"contract", "settings", "numerics"},
    "sources": {"contract", "settings"},
    "warehouse": {"contract", "settings", "numerics", "sources"},
    "validation": {"contract", "settings", "warehouse"},
    "execution": {"contract", "settings", "numerics", "stages", "sources", "warehouse", "validation", "reports"},
    "reports": {"contract", "settings", "warehouse"},
    "simulate": {"contract", "settings"},
    "cli": {"contract", "settings", "execution", "reports", "simulate", "sources", "validation", "warehouse"},
    "dags": {"contract", "settings", "execution", "simulate", "reports", "warehouse"},
}
"""Each package, and the packages it may import besides itself and the version."""

HOMES: dict[str, set[str]] = {
    "duckdb": {"warehouse"},
    "duckdb_engine": {"warehouse"},
    "sqlalchemy": {"warehouse", "validation"},
    "great_expectations": {"validation"},
    "airflow": {"dags"},
    "numba": {"numerics"},
    "loky": {"execution"},
    "rich": {"cli", "reports"},
    "fastapi": {"reports", "dags"},
    "jinja2": {"reports"},
    "plotly": {"reports"},
    "uvicorn": {"cli"},
    "pandas": set(),
}
"""Foreign libraries and the only packages that may import them."""

LIGHT = ("contract.errors", "contract.plan", "contract.tables", "settings.load", "execution.partitions.pool", "cli")
HEAVY = (
    "polars",
    "pyarrow",
    "duckdb",
    "numpy",
    "numba",
    "pandas",
    "sqlalchemy",
    "great_expectations",
    "airflow",
    "rich",
    "fastapi",
    "jinja2",
    "plotly",
    "uvicorn",
)


def modules() -> list[Path]:
    return sorted([*(PROJECT / PACKAGE).rglob("*.py"), *(PROJECT / "dags").rglob("*.py")])


def part_of(path: Path) -> str:
    """Return the package that a file belongs to: the first folder inside `llmprism_tasks`, or `dags`."""
    inside = path.relative_to(PROJECT)
    return Path(inside.parts[1]).stem if inside.parts[0] == PACKAGE else inside.parts[0]


def imported(source: str) -> Iterator[str]:
    """Yield the dotted names that a module imports anywhere in it, also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{name.name}" for name in node.names)


def breaches(part: str, source: str) -> list[str]:
    """Return what a module of a package imports though it may not."""
    found = []
    for name in imported(source):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if first == "":
            found.append(f"{part} imports {name}: imports are absolute")
        elif first == PACKAGE and target not in ALLOWED[part] | {part, "", "__version__"}:
            allowed = ", ".join(sorted(ALLOWED[part])) or "nothing of ours"
            found.append(f"{part} imports {name}: it may import {allowed}")
        elif part not in HOMES.get(first, {part}):
            found.append(f"{part} imports {name}: its only home is {', '.join(sorted(HOMES[first])) or 'elsewhere'}")
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_module_imports_only_what_its_place_allows(path: Path) -> None:
    assert not breaches(part_of(path), path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("numerics", "from llmprism_tasks.stages.traffic import nic_pairs"),
        ("stages", "import llmprism_tasks.warehouse.store"),
        ("stages", "def late():\n    from llmprism_tasks.warehouse import store"),
        ("sources", "from llmprism_tasks.execution.window import run_stage"),
        ("contract", "from llmprism_tasks import settings"),
        ("execution", "from llmprism_tasks.cli import main"),
        ("stages", "from .recognition import phase"),
        ("execution", "import duckdb"),
        ("validation", "import duckdb"),
        ("stages", "import great_expectations as gx"),
        ("execution", "from airflow.sdk import task"),
        ("contract", "import pandas as pd"),
    ],
)
def test_a_forbidden_import_is_found(part: str, source: str) -> None:
    assert len(breaches(part, source)) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("stages", "from llmprism_tasks.numerics.intervals import unions"),
        ("stages", "from llmprism_tasks.stages.traffic.nic_pairs import PAIR"),
        ("warehouse", "import duckdb"),
        ("cli", "from llmprism_tasks import __version__"),
        ("dags", "from airflow.sdk import DAG"),
    ],
)
def test_an_allowed_import_passes(part: str, source: str) -> None:
    assert not breaches(part, source)


@pytest.mark.parametrize("module", LIGHT)
def test_importing_a_light_module_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {PACKAGE}.{module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_the_pipeline_loads_neither_airflow_nor_great_expectations() -> None:
    code = f"import sys, {PACKAGE}.execution.window; print(*{{'airflow', 'great_expectations'}} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
