"""What there is to run, and the results that were kept: one JSON file for each run, method and version of the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from accuracy.collectors import CURVES, point
from accuracy.families import FAMILIES, FIRST_PUBLISHED_SEED, TROUBLES

PROJECT = Path(__file__).resolve().parents[1]
KEPT = PROJECT / ".accuracy"
CAPTURES = PROJECT / "tests" / "data" / "real"
FLOWS = {"flows": "", "flows.parquet": "", "flows_coarse.parquet": ", coarse"}
"""Names that a folder's records may have, and what is said of them."""

METHODS = ("joint", "published")
EVERY_FAMILY = {**FAMILIES, **TROUBLES}
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """Where a run's records come from: a scenario and a seed, or a folder that holds them.

    Attributes
    ----------
    group : the family, `curves` or `captures`
    label : which of the group: the seed, the knob and its value, the folder
    content, minutes, seed : of a scenario
    folder, flows : of what was captured; `flows` is the name of the file or folder in it
    methods : those that are measured on it
    """

    group: str
    label: str
    content: Mapping[str, Any] | None = None
    minutes: int = 0
    seed: int = 0
    folder: str = ""
    flows: str = "flows"
    methods: tuple[str, ...] = METHODS

    @property
    def digest(self) -> str:
        """Tell sources apart by what they hold, so that a family that is drawn otherwise is measured again."""
        if self.content is None:
            files = sorted(file for file in Path(self.folder).rglob("*") if file.is_file())
            holds: Any = [self.flows, [(file.name, file.stat().st_size) for file in files]]
        else:
            holds = [self.content, self.minutes, self.seed]
        return hashlib.sha256(json.dumps(holds, sort_keys=True).encode()).hexdigest()[:12]

    def file(self, method: str) -> str:
        name = self.group if self.content is not None else f"{self.group}-{Path(self.folder).name}"
        return f"{name}-{self.seed}-{self.digest}-{method}.json"


@cache
def version() -> str:
    """Tell versions of the code apart by all that decides results."""
    files = [*(PROJECT / "llmprism_tasks").rglob("*.py"), *(PROJECT / "sql").rglob("*.sql")]
    apart = {"cli.py", "reports", "validation"}
    decides = sorted(file for file in files if not apart & set(file.relative_to(PROJECT).parts))
    return hashlib.sha256(b"".join(file.read_bytes() for file in decides)).hexdigest()[:12]


def family_sources(names: Iterable[str], seeds: Sequence[int] | None) -> Iterator[Source]:
    """Yield the families' scenarios of some seeds, or of those that each family publishes."""
    for name in names:
        family = EVERY_FAMILY[name]
        for seed in family.seeds if seeds is None else seeds:
            yield Source(name, str(seed), family.content(seed), family.minutes, seed, methods=family.methods)


def curve_sources(seeds: Sequence[int] | None) -> Iterator[Source]:
    """Yield the points of all curves; where two curves meet, they share what was measured."""
    for name, curve in CURVES.items():
        for shown, value in curve.values:
            for seed in seeds or (FIRST_PUBLISHED_SEED,):
                yield Source("curves", f"{name} {shown}", point(curve.key, value, seed), 3, seed)


def capture_sources(folders: Iterable[Path] | None = None) -> Iterator[Source]:
    """Yield the records of folders with `topology.csv` and `truth/`, by default of all captures of the repository."""
    for folder in sorted(CAPTURES.iterdir()) if folders is None else folders:
        for flows, variant in FLOWS.items():
            if (folder / flows).exists() and (folder / "truth").is_dir():
                yield Source("captures", folder.name + variant, folder=str(folder), flows=flows)


def kept(source: Source, method: str, *, of_any_version: bool = False) -> Result | None:
    """Return what was measured by this version of the code, or else by the last one that did, if that will do."""
    places = [KEPT / version()]
    if of_any_version:
        places += sorted(KEPT.glob("*"), key=lambda place: place.stat().st_mtime, reverse=True)
    for place in places:
        file = place / source.file(method)
        if file.exists():
            result: Result = json.loads(file.read_text(encoding="utf-8"))
            return result
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


def keep(source: Source, method: str, result: Result) -> None:
    """Write a result whole or not at all, under the version of the code that it names."""
    file = KEPT / result["version"] / source.file(method)
    file.parent.mkdir(parents=True, exist_ok=True)
    passing = file.with_suffix(".passing")
    passing.write_text(json.dumps(result), encoding="utf-8")
    passing.replace(file)
