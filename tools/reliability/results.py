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


def keep(name: str, measured: Mapping[str, Any]) -> None:
    """Write a measurement, with the commit and the day on which it was made."""
    KEPT.mkdir(exist_ok=True)
    made = {"commit": _commit(), "day": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"}
    (KEPT / f"{name}.json").write_text(json.dumps({**measured, **made}, indent=1), encoding="utf-8")


def kept(name: str) -> dict[str, Any] | None:
    """Return a measurement; None if it was not made."""
    file = KEPT / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty"]
    said = subprocess.run(asked, cwd=PROJECT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"
