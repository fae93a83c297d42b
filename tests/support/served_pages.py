"""Pages served by the command, as a reader would have them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query


class Culprit(NamedTuple):
    """The GPU that the demo makes slow, by the simulator's truth, and the incident that the tables tell of it."""

    addr: str
    host: str
    start_ns: int
    job_id: str
    incident_id: str
    worst_window_start_ns: int


@contextlib.contextmanager
def served(warehouse: Warehouse) -> Iterator[str]:
    """Serve pages as `llmprism serve` does; gives their address."""
    serve = [*command("serve"), "--port", "0", "--warehouse", warehouse.location]
    known = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=known) as process:
        try:
            found = re.match(r"(http://127\.0\.0\.1:\d+/) ", process.stdout.readline() if process.stdout else "")
            assert found is not None
            yield found[1]
        finally:
            process.terminate()


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from llmprism_tasks.cli import run; run()", *words]


def run(*words: str) -> None:
    subprocess.run(command(*words), check=True, capture_output=True)


def worst_of(warehouse: Warehouse) -> tuple[str, str, int]:
    """Return the most expensive incident that is no effect of another: its id, its job and its worst window's start."""
    asked = "SELECT incident_id, job_id, worst_window_start_ns FROM incidents WHERE effect_of IS NULL "
    incident_id, job_id, worst = query(warehouse, f"{asked} ORDER BY lost_gpu_s DESC LIMIT 1").row(0)
    return str(incident_id), str(job_id), int(worst)
