"""The house: few entries in a folder, imports that point one way at every level, and no tricks."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import PROJECT

PACKAGE = "llmprism_tasks"
STATEMENTS = PROJECT / "sql" / "statements"

MOST_ENTRIES = 12
"""Entries in a folder that a reader takes in at one look."""

PHASES = (
    *("traffic", "step_division", "liveness", "recognition", "parallelism", "timeline", "diagnosis"),
    *("published", "partition_values"),
)
"""Entries of `stages/`: each may import those before it."""

TRICKS = re.compile(
    r"meta_path|sys\.modules|ModuleType|_dispatcher|_library_class|_rebuild_env|_RJEM|set_threshold|gc\.freeze"
    r"|os\._exit|importlib\.import_module|weakref|ctypes"
)
"""What changes the process that imports the library, or reaches into another library."""

GENERATED = {"__pycache__"}


def folders(top: Path) -> list[Path]:
    return [top, *(path for path in sorted(top.rglob("*")) if path.is_dir() and not GENERATED & set(path.parts))]


def modules() -> list[Path]:
    return sorted([*(PROJECT / PACKAGE).rglob("*.py"), *(PROJECT / "dags").rglob("*.py")])


def dotted(path: Path) -> str:
    """Return the module's dotted name; a package's is that of its folder."""
    return ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


def imported(source: str, known: set[str]) -> Iterator[str]:
    """Yield the modules of ours that a module imports anywhere in it, also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in known else node.module


@functools.cache
def arrows() -> dict[str, set[str]]:
    """Return each module with the modules that it imports."""
    known = {dotted(path) for path in modules()}
    return {dotted(path): set(imported(path.read_text(encoding="utf-8"), known)) for path in modules()}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the nodes of a cycle, the first one again at the end; empty if there is none."""
    done: set[str] = set()

    def visit(node: str, above: list[str]) -> list[str]:
        if node in above:
            return [*above[above.index(node) :], node]
        if node in done:
            return []
        found = next((way for below in sorted(graph.get(node, ())) if (way := visit(below, [*above, node]))), [])
        done.add(node)
        return found

    return next((way for node in sorted(graph) if (way := visit(node, []))), [])


def between_children(folder: str, graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows between the entries of a package: its modules and its folders, each folder as one."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        for target in targets:
            if module.startswith(f"{folder}.") and target.startswith(f"{folder}."):
                one, other = (name.removeprefix(f"{folder}.").partition(".")[0] for name in (module, target))
                if one != other:
                    found[one].add(other)
    return found


@pytest.mark.parametrize(
    "folder",
    [*folders(PROJECT / PACKAGE), *folders(STATEMENTS), PROJECT / "tests"],
    ids=lambda path: str(path.relative_to(PROJECT)),
)
def test_a_folder_has_few_entries(folder: Path) -> None:
    entries = {path.name for path in folder.iterdir()} - GENERATED
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def test_statements_have_names_of_their_own_and_are_shipped() -> None:
    """They are found by name alone, in whatever folder; an installation holds the folders that are listed."""
    files = sorted(STATEMENTS.rglob("*.sql"))
    assert len({file.name for file in files}) == len(files)
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = {pattern for patterns in project["tool"]["setuptools"]["data-files"].values() for pattern in patterns}
    assert {f"{file.parent.relative_to(PROJECT)}/*.sql" for file in files} <= shipped


@pytest.mark.parametrize("folder", folders(PROJECT / PACKAGE), ids=lambda path: str(path.relative_to(PROJECT)))
def test_imports_between_the_entries_of_a_folder_point_one_way(folder: Path) -> None:
    way = cycle(between_children(dotted(folder), arrows()))
    assert not way, " -> ".join(way)


def test_a_phase_imports_only_phases_before_it() -> None:
    stages = f"{PACKAGE}.stages"
    for phase, targets in between_children(stages, arrows()).items():
        later = {one for one in targets if PHASES.index(one) > PHASES.index(phase)}
        assert not later, f"{phase} imports {sorted(later)}, which come after it"


def test_a_cycle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert not cycle({"a": {"b", "c"}, "b": {"c"}})


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_module_uses_no_trick(path: Path) -> None:
    assert not TRICKS.findall(path.read_text(encoding="utf-8"))
