"""All that a window's run imports and loads, at once: for who wants to wait for it now, not when it is needed.

Such as a process that others are forked from, which find it there: nothing here starts a thread that would be missed.
"""

from __future__ import annotations

from llmprism_tasks import deriving, validation


def checks() -> None:
    """Import what holds tables against their suites."""
    validation.prepare()


def stages(method: str = "joint") -> None:
    """Import the stages, and load their machine code as far as it was compiled before."""
    deriving.prepare(method)
