"""All that a window's run imports and loads, at once: for who wants to wait for it now, not when it is needed.

Such as a process that others are forked from, which find it there: nothing here starts a thread that would be missed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from llmprism_tasks import validation
from llmprism_tasks.plan import READIES, STAGES


def checks() -> None:
    """Import what holds tables against their suites."""
    validation.prepare()


def stages(method: str = "joint") -> None:
    """Import the stages, and load their machine code as far as it was compiled before."""
    for stage in STAGES:
        named(stage.function_of(method))
    named(READIES)()


def named(path: str) -> Callable[..., Any]:
    """Import what the plan names as `module:name`."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
