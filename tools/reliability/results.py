"""What was measured: a JSON file for each measurement, in the folder `.reliability` of the checkout."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
KEPT = PROJECT / ".reliability"

LARGEST = ("peak_mb",)
"""Figures of which the largest counts where measurements are added up."""


def keep(name: str, measured: Mapping[str, Any], *, add: bool = False) -> None:
    """Write a measurement, with the commit and the day on which it was made.

    Parameters
    ----------
    add : to what was measured before: a long measurement can be made in parts, with a seed for each
    """
    KEPT.mkdir(exist_ok=True)
    made = {**measured, "commit": _commit(), "day": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"}
    before = kept(name) if add else None
    (KEPT / f"{name}.json").write_text(json.dumps(together(before, made) if before else made, indent=1), "utf-8")


def together(before: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return two measurements as one: numbers added up, lists one after the other, all commits named."""
    return {name: _both(name, before[name], value) for name, value in made.items()}


def kept(name: str) -> dict[str, Any] | None:
    """Return a measurement; None if it was not made."""
    file = KEPT / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _both(name: str, before: Any, made: Any) -> Any:
    if name in LARGEST:
        return max(before, made)
    if name in ("commit", "day"):
        return before if made in before.split(", ") else f"{before}, {made}"
    if isinstance(made, Mapping):
        return together(before, made)
    return before if isinstance(made, str) else before + made


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    said = subprocess.run(asked, cwd=PROJECT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"
