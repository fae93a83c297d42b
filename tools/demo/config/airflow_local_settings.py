"""Imports and loads all that tasks need once, in the scheduler or a Celery worker: tasks are forked from it.

Nothing here may start a thread, such as a connection or a query would: threads do not survive a fork.
"""

from __future__ import annotations

import importlib
import sys

if "scheduler" in sys.argv or {"celery", "worker"} <= {*sys.argv}:
    from llmprism_tasks.execution import analyze

    # DuckDB looks for these with the first value, and the first frame, that it is given.
    for library in ("pandas", "pyarrow.dataset", "llmprism_tasks.execution.stage_task"):
        importlib.import_module(library)
    analyze.preload("joint")
