"""A process that imports and loads what an analysis does, as it does, and does nothing.

Run as `python -m bench.measure.imports_only`.
"""

from __future__ import annotations

import importlib


def main() -> None:
    """Import what an analysis imports, and end."""
    importlib.import_module("llmprism_tasks.execution.analyze").preload("joint")


if __name__ == "__main__":
    main()
