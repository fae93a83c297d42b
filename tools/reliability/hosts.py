"""Kill a worker of two in the midst of backfills, and compare all tables with those of an undisturbed `analyze`."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distributed.cluster import NOTICED_WITHIN_S, cluster
from distributed.trial import Disturbed, backfill_with_kills, differing, leftovers, prepare, starts

AT_A_TIME = 20
"""Kills in a backfill: a task that is killed more than five times fails its run, as it should."""


def measure(kills: int, windows: int, *, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Kill workers so many times; returns how many tasks died with them, when that was noticed, and what differed."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="llmprism-hosts-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL's own user has to reach its folder
        with cluster(folder, "first", "second") as running:
            expected = prepare(running, windows)
            minutes = starts(windows)
            running.backfill(minutes[0], minutes[-1])
            running.wait_for_runs(windows, 600 + 120.0 * windows)
            undisturbed = differing(running, expected, windows)
            found: list[Disturbed] = []
            while (done := sum(one.kills for one in found)) < kills:
                found.append(backfill_with_kills(running, expected, windows, draw, min(kills - done, AT_A_TIME)))
                say(f"{done + found[-1].kills} of {kills} kills: {found[-1]}")
            left = len(leftovers(running))
    return {
        "seeds": [seed],
        "kills": kills,
        "backfills": len(found),
        "windows": [windows],
        "tasks": sum(one.tasks for one in found),
        "noticed_s": [seconds for one in found for seconds in one.noticed_s],
        "differ": [*undisturbed, *(table for one in found for table in one.differ)],
        "left": left,
    }


def is_sound(found: Mapping[str, Any]) -> bool:
    """Tell whether tables were the same, nothing was left behind, and each death was noticed in time."""
    return not found["differ"] and not found["left"] and max(found["noticed_s"], default=0) <= NOTICED_WITHIN_S


def sentence(found: Mapping[str, Any]) -> str:
    """Say what was found in one line."""
    noticed, differ = max(found["noticed_s"], default=0), found["differ"] or "none"
    return (
        f"{found['kills']} kills in {found['backfills']} backfills of {found['windows'][-1]} windows: "
        f"{found['tasks']} tasks died and were done again, noticed after at most {noticed:.0f} s; "
        f"tables that differ: {differ}; left behind: {found['left']}"
    )
