"""What there is to run: the families' scenarios, the points of the curves, and the captures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accuracy.families.collectors import CURVES, point
from accuracy.families.registry import FAMILIES, FIRST_PUBLISHED_SEED, TROUBLES

PROJECT = Path(__file__).resolve().parents[3]
CAPTURES = PROJECT / "tests" / "data" / "real"
FLOWS = {"flows": "", "flows.parquet": "", "flows_coarse.parquet": ", coarse"}
"""Names that a folder's records may have, and what is said of them."""

METHODS = ("joint", "published")
EVERY_FAMILY = {**FAMILIES, **TROUBLES}


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
        """Return the name of the file that keeps a method's figures of this source."""
        name = self.group if self.content is not None else f"{self.group}-{Path(self.folder).name}"
        return f"{name}-{self.seed}-{self.digest}-{method}.json"


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
