"""Pages served by the command, as a reader would have them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query


@contextlib.contextmanager
def served(warehouse: Warehouse) -> Iterator[str]:
    """Serve pages as `llmprism serve` does; gives their address."""
    serve = [*command("serve"), "--port", "0", "--warehouse", warehouse.location]
    process = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    try:
        found = re.match(r"(http://127\.0\.0\.1:\d+/) ", process.stdout.readline() if process.stdout else "")
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.wait(20)


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from llmprism_tasks.cli import run; run()", *words]


def run(*words: str) -> None:
    subprocess.run(command(*words), check=True, capture_output=True)


def incident_of(warehouse: Warehouse) -> str:
    return str(query(warehouse, "SELECT incident_id FROM incidents WHERE effect_of IS NULL LIMIT 1").item())


def job_of(warehouse: Warehouse) -> str:
    return str(query(warehouse, "SELECT DISTINCT job_id FROM jobs").item())
