"""`python -m bench.start`: a process that imports and loads what an analysis does, as it does, and does nothing."""

from __future__ import annotations

import importlib

from llmprism_tasks import cli
from llmprism_tasks.plan import READIES, STAGES
from llmprism_tasks.postponed import hide


def main() -> None:
    hide("pandas")  # as the command does
    importlib.import_module("llmprism_tasks.pipeline")
    importlib.import_module("llmprism_tasks.validation").prepare()
    for path in (*(stage.function for stage in STAGES), READIES):
        module, _, name = path.partition(":")
        function = getattr(importlib.import_module(module), name)
    function()


if __name__ == "__main__":
    main()
    cli.leave(0)
