"""Modules that are run when something in them is first used, not when they are imported, and some that are hidden."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any


def postpone(name: str) -> None:
    """Let a module be empty until somebody asks for something in it; do nothing where it was imported already.

    For a module that a library imports on its way in, at great cost, and needs only for what we do not do. Of a package
    that gathers names from modules of its own, who asks for such a name gets it from where it is defined, and the
    package's other modules are not run. Python's own `importlib.util.LazyLoader` does not help: to it, another import
    is a use.
    """
    spec = None if name in sys.modules else _found(name)
    if spec is not None:
        sys.modules[name] = module_from_spec(spec)
        sys.modules[name].__class__ = _Postponed


def is_postponed(name: str) -> bool:
    """Tell whether a module has been postponed and has not run since."""
    return isinstance(sys.modules.get(name), _Postponed)


def hide(name: str) -> None:
    """Let a library be as if it were not installed, unless it was imported already.

    For one that others look for at great cost, and can do without.
    """
    if _hidden not in sys.meta_path:
        sys.meta_path.insert(0, _hidden)
    _hidden.names.add(name)


def show(name: str) -> None:
    """Let a library be there again."""
    _hidden.names.discard(name)


class _Hidden(MetaPathFinder, Loader):
    """Finds what is hidden, for others may want to know whether it is there, and fails to load it."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self.names else None

    def exec_module(self, module: ModuleType) -> None:
        raise ModuleNotFoundError(f"No module named {module.__name__!r}", name=module.__name__)


_hidden = _Hidden()


def _found(name: str) -> ModuleSpec | None:
    """Find a module without running the packages that it is in."""
    spec, path = None, None
    for end, sign in enumerate(name + "."):
        if sign == ".":
            spec = PathFinder.find_spec(name[:end], path)
            if spec is None:
                return None
            path = spec.submodule_search_locations
    return spec


class _Postponed(ModuleType):
    def __getattr__(self, name: str) -> Any:
        """Find what the module does not have yet, and run it if need be."""
        if name.startswith("__"):
            raise AttributeError(name)
        gathered, part = _gathered(self.__name__, self.__file__ or ""), f"{self.__name__}.{name}"
        if name in gathered:
            return getattr(importlib.import_module(gathered[name]), name)
        if part in sys.modules or _found(part) is not None:
            return importlib.import_module(part)
        _run(self)
        return getattr(self, name)


def _run(module: ModuleType) -> None:
    module.__class__ = ModuleType
    if module.__spec__ is not None and module.__spec__.loader is not None:
        module.__spec__.loader.exec_module(module)


@cache
def _gathered(package: str, file: str) -> dict[str, str]:
    """Return the names that a package imports from modules of its own, each with its module."""
    if Path(file).name != "__init__.py":
        return {}
    gathered: dict[str, str] = {}
    for statement in ast.parse(Path(file).read_bytes()).body:
        if isinstance(statement, ast.ImportFrom):
            module = resolve_name("." * statement.level + (statement.module or ""), package)
            names = [alias.name for alias in statement.names if alias.asname is None]
            gathered |= dict.fromkeys(names, module) if module.startswith(f"{package}.") else {}
    return gathered
