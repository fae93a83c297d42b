"""Imports what an analysis needs, before runs are forked from the process that imports this."""

from llmprism_tasks.execution.analyze import preload

preload("joint")
