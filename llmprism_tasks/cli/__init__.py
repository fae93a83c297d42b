"""The command `llmprism`."""

from llmprism_tasks.cli.entry_point import main, run

__all__ = ["main", "run"]
