"""The results that were kept: one JSON file for each run, method and version of the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from accuracy.families.registry import FIRST_PUBLISHED_CAPTURE, FIRST_PUBLISHED_SEED
from accuracy.runs.sources import PROJECT, Source

KEPT = PROJECT / ".accuracy"
Result = Mapping[str, Any]


@cache
def version() -> str:
    """Tell versions of the code apart by all that decides results."""
    files = [*(PROJECT / "llmprism_tasks").rglob("*.py"), *(PROJECT / "sql").rglob("*.sql")]
    apart = {"cli", "reports", "validation"}
    decides = sorted(file for file in files if not apart & set(file.relative_to(PROJECT).parts))
    return hashlib.sha256(b"".join(file.read_bytes() for file in decides)).hexdigest()[:12]


def kept(source: Source, method: str, *, of_any_version: bool = False) -> Result | None:
    """Return what was measured by this version of the code, or else by the last one that did, if that will do."""
    places = [KEPT / version()]
    if of_any_version:
        places += sorted(KEPT.glob("*"), key=lambda place: place.stat().st_mtime, reverse=True)
    for place in places:
        file = place / source.file(method)
        if file.exists():
            return _read(file)
    return None


def keep_prices(seed: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write what replays said of faults, as `prices.prices` yields it."""
    file = KEPT / version() / f"prices-{seed}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(list(rows)), encoding="utf-8")


def kept_prices(seed: int) -> tuple[str | None, list[dict[str, Any]]]:
    """Return what was kept last of a seed's prices, and the version of the code; None and no rows if nothing was."""
    files = sorted(KEPT.glob(f"*/prices-{seed}.json"), key=lambda file: file.stat().st_mtime)
    if not files:
        return None, []
    rows: list[dict[str, Any]] = json.loads(files[-1].read_text(encoding="utf-8"))
    return files[-1].parent.name, rows


def keep_named(name: str, result: Result) -> None:
    """Write the result of a run of a name whole or not at all, under the version of the code that it names."""
    file = KEPT / result["version"] / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    passing = file.with_suffix(".passing")
    passing.write_text(json.dumps(result), encoding="utf-8")
    passing.replace(file)


def kept_named(name: str) -> Result | None:
    """Return what this version of the code was measured to make of a run of a name."""
    file = KEPT / version() / f"{name}.json"
    return _read(file) if file.exists() else None


def kept_unseen(prefix: str) -> dict[str, Result]:
    """Return what was measured last of runs of published seeds, by what follows the prefix: `1000`, `1001, coarse`.

    The name of a run is the prefix and its seed. What was made of other seeds, or has a name instead, is left out.
    """
    files = sorted(KEPT.glob(f"*/{prefix}*.json"), key=lambda file: file.stat().st_mtime)
    latest = {file.stem.removeprefix(prefix): file for file in files}
    seeds = {name: name.split(",")[0] for name in latest}
    first = FIRST_PUBLISHED_CAPTURE if prefix == "capture-" else FIRST_PUBLISHED_SEED
    unseen = [name for name, seed in seeds.items() if seed.isdigit() and int(seed) >= first]
    return {name: _read(latest[name]) for name in sorted(unseen, key=lambda name: (int(seeds[name]), name))}


def _read(file: Path) -> Result:
    result: Result = json.loads(file.read_text(encoding="utf-8"))
    return result


def keep(source: Source, method: str, result: Result) -> None:
    """Write a result whole or not at all, under the version of the code that it names."""
    file = KEPT / result["version"] / source.file(method)
    file.parent.mkdir(parents=True, exist_ok=True)
    passing = file.with_suffix(".passing")
    passing.write_text(json.dumps(result), encoding="utf-8")
    passing.replace(file)
