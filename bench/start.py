"""`python -m bench.start`: a process that imports and loads what an analysis does, as it does, and does nothing."""

from __future__ import annotations

import importlib


def main() -> None:
    importlib.import_module("llmprism_tasks.pipeline")
    warm = importlib.import_module("llmprism_tasks.warm")
    warm.checks()
    warm.stages()


if __name__ == "__main__":
    main()
