"""What was measured, kept as JSON by version of the code, and the machine it was measured on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from accuracy.runs.sources import PROJECT
from bench.platforms.minutes import FOLDER

Result = Mapping[str, Any]
LIBRARIES = ("polars", "duckdb", "numpy", "numba", "pyarrow", "great-expectations", "apache-airflow")
CPU_INFO = Path("/proc/cpuinfo")


@cache
def version() -> str:
    """Tell versions of the code apart by all that decides costs."""
    folders = {"llmprism_tasks": "*.py", "sql": "*.sql", "expectations": "*.json", "dags": "*.py"}
    files = sorted(file for folder, kind in folders.items() for file in (PROJECT / folder).rglob(kind))
    apart = PROJECT / "llmprism_tasks" / "simulate"
    decides = [file for file in files if apart not in file.parents]
    return hashlib.sha256(b"".join(file.read_bytes() for file in decides)).hexdigest()[:12]


def machine() -> dict[str, Any]:
    """Describe the machine and what runs on it, without names or places."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def _processor() -> str:
    lines = CPU_INFO.read_text(encoding="utf-8").splitlines() if CPU_INFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def keep(name: str, result: Result) -> None:
    """Write a result whole or not at all, with the code's version, the machine and its load."""
    file = FOLDER / "results" / version() / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    passing = file.with_suffix(".passing")
    said = {"version": version(), "machine": machine(), "load": os.getloadavg()[0]}
    passing.write_text(json.dumps({**said, **result}), encoding="utf-8")
    passing.replace(file)


def kept(name: str) -> Result | None:
    """Return what this version of the code measured, or else the version that did last."""
    here = FOLDER / "results" / version() / f"{name}.json"
    others = sorted((FOLDER / "results").glob(f"*/{name}.json"), key=lambda file: file.stat().st_mtime)
    for file in (here, *others[::-1]):
        if file.exists():
            result: Result = json.loads(file.read_text(encoding="utf-8"))
            return result
    return None
