"""`python -m bench.start`: a process that imports and loads what an analysis does, as it does, and does nothing."""

from __future__ import annotations

import importlib

from llmprism_tasks import cli
from llmprism_tasks.postponed import hide


def main() -> None:
    hide("pandas")  # as the command does
    importlib.import_module("llmprism_tasks.execution.analyze").preload("joint")


if __name__ == "__main__":
    main()
    cli.leave(0)
