"""Who may import whom: the house plan's directions, the homes of foreign libraries, and the cost of the plan."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "llmprism_tasks"

FOUNDATION = {"errors", "frames", "kinds", "plan", "postponed", "resources", "settings", "tables", "windows"}

ALLOWED: dict[str, set[str]] = {
    "__init__": set(),
    "aside": set(),
    "errors": set(),
    "windows": set(),
    "tables": set(),
    "plan": set(),
    "kinds": set(),
    "unlisted": set(),
    "temporary": {"errors"},
    "postponed": set(),
    "resources": {"errors"},
    "settings": {"kinds", "windows"},
    "configuration": {"errors", "settings"},
    "frames": {"errors", "tables"},
    "numerics": set(),
    "methods": {"errors", "numerics"},
    "compile_kernels": {"stages"},
    "stages": FOUNDATION | {"methods"},
    "sources": FOUNDATION,
    "warehouse": FOUNDATION | {"aside", "methods", "sources"},
    "validation": FOUNDATION | {"warehouse"},
    "webhook": set(),
    "notifications": FOUNDATION | {"warehouse", "webhook"},
    "deriving": FOUNDATION,
    "passing": FOUNDATION | {"methods", "temporary"},
    "serving": FOUNDATION | {"deriving", "passing"},
    "worker": FOUNDATION | {"deriving", "passing", "sources", "temporary"},
    "sharing": FOUNDATION | {"deriving", "worker"},
    "dividing": FOUNDATION | {"deriving", "sharing", "worker"},
    "drafts": FOUNDATION | {"deriving", "temporary"},
    "running": FOUNDATION | {"aside", "deriving", "dividing", "drafts", "sources", "warehouse", "worker"},
    "pipeline": FOUNDATION
    | {
        "aside",
        "notifications",
        "running",
        "sources",
        "unlisted",
        "warehouse",
        "validation",
        "warm",
        "worker",
    },
    "warm": FOUNDATION | {"deriving", "validation"},
    "reports": FOUNDATION | {"unlisted", "warehouse"},
    "evaluation": FOUNDATION,
    "simulate": FOUNDATION,
    "cli": FOUNDATION
    | {"configuration", "evaluation", "pipeline", "reports", "simulate", "sources", "warehouse", "worker"},
    "dags": FOUNDATION | {"configuration", "pipeline", "reports", "simulate", "sources", "warehouse"},
}
"""Each part of the tree, and the parts it may import besides itself and the package's own version."""

HOMES: dict[str, set[str]] = {
    "duckdb": {"warehouse"},
    "duckdb_engine": {"warehouse"},
    "sqlalchemy": {"warehouse"},
    "great_expectations": {"validation"},
    "airflow": {"dags"},
    "numba": {"numerics"},
    "rich": {"cli", "reports"},
    "pandas": set(),
}
"""Foreign libraries and the only parts that may import them."""

LIGHT = ("errors", "kinds", "windows", "tables", "plan", "settings", "configuration", "resources", "worker", "cli")
LIBRARIES = ("polars", "pyarrow", "duckdb", "numpy", "numba", "pandas", "sqlalchemy")
HEAVY = (*LIBRARIES, "great_expectations", "airflow", "rich")


def modules() -> list[Path]:
    return sorted([*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / "dags").rglob("*.py")])


def part_of(path: Path) -> str:
    """Return the part of the tree a file belongs to: the module or subpackage of the package, or `dags`."""
    inside = path.relative_to(ROOT)
    return Path(inside.parts[1]).stem if inside.parts[0] == PACKAGE else inside.parts[0]


def imported(source: str) -> Iterator[str]:
    """Yield the dotted names that a module imports anywhere in it, also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{name.name}" for name in node.names)


def breaches(part: str, source: str) -> list[str]:
    """Return what a module of some part of the tree imports though it may not."""
    found = []
    for name in imported(source):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if first == "":
            found.append(f"{part} imports {name}: imports are absolute")
        elif first == PACKAGE and target not in ALLOWED[part] | {part, "", "__version__"}:
            found.append(
                f"{part} imports {name}: it may import {', '.join(sorted(ALLOWED[part])) or 'nothing of ours'}"
            )
        elif part not in HOMES.get(first, {part}):
            found.append(f"{part} imports {name}: its only home is {', '.join(HOMES[first]) or 'elsewhere'}")
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_place_allows(path: Path) -> None:
    assert not breaches(part_of(path), path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("methods", "from llmprism_tasks.tables import TABLES"),
        ("methods", "from llmprism_tasks import tables"),
        ("stages", "import llmprism_tasks.warehouse.store"),
        ("stages", "def late():\n    from llmprism_tasks.warehouse import store"),
        ("sources", "from llmprism_tasks.pipeline import run_window"),
        ("plan", "from llmprism_tasks import frames"),
        ("pipeline", "from llmprism_tasks.cli import main"),
        ("stages", "from .recognition import recognition"),
        ("pipeline", "import duckdb"),
        ("validation", "import duckdb"),
        ("stages", "import great_expectations as gx"),
        ("pipeline", "from airflow.sdk import task"),
        ("frames", "import pandas as pd"),
    ],
)
def test_a_forbidden_import_is_found(part: str, source: str) -> None:
    assert len(breaches(part, source)) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("stages", "from llmprism_tasks.methods.outlier import distance"),
        ("stages", "from llmprism_tasks.stages.traffic import rates"),
        ("warehouse", "import duckdb"),
        ("cli", "from llmprism_tasks import __version__"),
        ("dags", "from airflow.sdk import DAG"),
    ],
)
def test_an_allowed_import_is_let_pass(part: str, source: str) -> None:
    assert not breaches(part, source)


def test_allowed_directions_have_no_cycle() -> None:
    seen: set[str] = set()

    def visit(part: str, above: tuple[str, ...]) -> None:
        assert part not in above, " -> ".join((*above, part))
        if part not in seen:
            for below in ALLOWED[part]:
                visit(below, (*above, part))
            seen.add(part)

    for part in ALLOWED:
        visit(part, ())


@pytest.mark.parametrize("module", LIGHT)
def test_importing_a_light_module_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {PACKAGE}.{module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_the_pipeline_loads_neither_airflow_nor_great_expectations() -> None:
    code = f"import sys, {PACKAGE}.pipeline; print(*sorted(set(sys.modules) & {{'airflow', 'great_expectations'}}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
