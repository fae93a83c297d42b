"""Modules that are run when something in them is first used, not when they are imported."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


def postpone(name: str) -> None:
    """Let a module be empty until somebody asks for something in it; do nothing where it was imported already.

    For a module that a library imports on its way in, at great cost, and needs only for what we do not do. Python's own
    `importlib.util.LazyLoader` does not help: to it, another import is a use.
    """
    try:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
    except ModuleNotFoundError:  # nor is the package there that it would be in
        return
    if spec is not None:
        sys.modules[name] = importlib.util.module_from_spec(spec)
        sys.modules[name].__class__ = _Postponed


class _Postponed(ModuleType):
    def __getattr__(self, name: str) -> Any:
        """Run the module; it is asked here only for what it does not have yet."""
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)
