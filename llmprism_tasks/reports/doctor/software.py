"""Software: versions against what this llmprism was made for, and whether its kernels are compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from llmprism_tasks import __version__
from llmprism_tasks.reports.doctor.finding import Finding, judged

LIBRARIES = ("duckdb", "polars", "great-expectations", "apache-airflow", "duckdb-extension-ducklake")
COMPILE = "python -m llmprism_tasks.cli.compile_kernels"
DECORATED = re.compile(r"^@kernel\(", re.MULTILINE)


def versions(installed: Mapping[str, str | None], required: Sequence[str]) -> Iterator[Finding]:
    """Compare installed versions with requirements such as `duckdb>=1.5,<1.6`; None is a package that is not there."""
    yield judged("llmprism", __version__)
    for requirement in map(Requirement, required):
        if requirement.name not in installed:
            continue
        version = installed[requirement.name]
        if version is None:
            todo = f"Install {requirement.name}{requirement.specifier}, if it is used here."
            yield judged(requirement.name, "not installed", warning=todo)
        elif version in requirement.specifier:
            yield judged(requirement.name, version)
        else:
            wrong = f"Install {requirement.name}{requirement.specifier}: this llmprism was tried with no other."
            yield judged(requirement.name, version, problem=wrong)


def look_at_versions() -> Iterator[Finding]:
    """Check the packages of this Python."""
    installed: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = None
    required = [line for line in metadata.requires("llmprism") or () if ";" not in line]
    yield from versions(installed, required)


def kernels(sources: Mapping[Path, float], compiled: Mapping[str, float]) -> Finding:
    """Compare modules with kernels with Numba's cache.

    Parameters
    ----------
    sources : when each module was last changed, s
    compiled : by module name without ending, when its machine code was last written, s
    """
    missing = [path for path, changed in sources.items() if compiled.get(path.stem, 0.0) < changed]
    found = f"{len(sources) - len(missing)} of {len(sources)} modules of kernels are compiled"
    wait = f"Run {COMPILE} once; else the first analysis spends a minute on it." if missing else ""
    return judged("kernels", found, warning=wait)


def look_at_kernels(package: Path, environment: Mapping[str, str]) -> Finding:
    """Check the kernels of the package in a folder."""
    sources = {
        path: path.stat().st_mtime
        for path in package.rglob("*.py")
        if DECORATED.search(path.read_text(encoding="utf-8"))
    }
    own = environment.get("NUMBA_CACHE_DIR")
    folders = [Path(own)] if own else [package, Path("~/.cache/numba").expanduser()]
    compiled: dict[str, float] = {}
    for folder in folders:
        for file in folder.rglob("*.nbi") if os.access(folder, os.R_OK) else ():
            name = file.name.partition(".")[0]
            compiled[name] = max(compiled.get(name, 0.0), file.stat().st_mtime)
    return kernels(sources, compiled)
