"""The file of metrics, for the textfile collector of Prometheus' node-exporter."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.execution.notify.metrics import exposition
from llmprism_tasks.warehouse.connect import Warehouse

logger = logging.getLogger(__name__)


def write_metrics(warehouse: Warehouse, place: str, *, now_ns: int) -> bool:
    """Replace the file by the metrics of now, in one move: a reader sees the old file or the new one.

    Parameters
    ----------
    place : the file; empty for none
    now_ns : the time, nanoseconds since the Unix epoch

    Returns
    -------
    whether it was written; a failure is logged, and the file stays as it was
    """
    if not place:
        return False
    file = Path(place)
    new = file.with_name(f".{file.name}.{os.getpid()}")  # node-exporter reads what ends in .prom
    try:
        new.write_text(exposition(warehouse, now_ns=now_ns), encoding="utf-8")
        new.replace(file)
    except (OSError, TransientError) as error:
        new.unlink(missing_ok=True)
        logger.warning("places.metrics: %s was not written: %s", file, error)
        return False
    return True
