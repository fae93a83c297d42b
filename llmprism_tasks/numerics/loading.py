"""Loading: machine code that was compiled before, in a fifth of the time that Numba takes for it.

What is kept on disk is as Numba keeps it. This relies on the insides of the Numba that `pyproject.toml` allows; whoever
raises it runs `tests/methods/test_compiled.py`, which holds what is loaded to what is compiled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any, cast

import llvmlite.binding as llvm
from numba.core import environment
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import rtsys

FOLDER = Path(__file__).parent
"""Of all kernels."""


class Kept(FunctionCache):  # type: ignore[misc]
    """Machine code that was compiled before, on disk, of a function and of those that it calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = (self._cache_file._source_stamp, stamp(FOLDER))

    def load_overload(self, sig: object, target_context: Any) -> Any:
        """Load it; None if there is none, or none that can be read."""
        codegen_of(target_context)
        try:
            return self._load_overload(sig, target_context)
        except Exception:  # spoilt, or of tuples that are gone since: whatever that raises, it is compiled anew
            self.flush()
            return None

    def kept(self) -> Mapping[Any, str]:
        """Return the files of machine code by what they were compiled for."""
        try:
            return cast(Mapping[Any, str], self._cache_file._load_index())
        except Exception:  # as above
            self.flush()
            return {}


@cache
def stamp(folder: Path) -> str:
    """Tell versions of a folder's kernels apart: Numba looks at a function's file alone, not at those that it calls."""
    files = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@cache
def codegen_of(target_context: Any) -> Any:
    """Return what loads machine code, once it is able to.

    Numba would learn first of all that it could compile, which takes as long as all kernels: that is done when
    something is compiled.
    """
    rtsys.initialize(target_context)
    environment._rebuild_env = _surroundings
    codegen = target_context.codegen()
    codegen._library_class = _Library
    codegen.magic_tuple = cache(codegen.magic_tuple)  # asks the processor its name, which may take it a while
    llvm.ffi.lib._lock._cblist.clear()  # events that nobody hears of, four for each call of LLVM
    return codegen


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """Machine code; what was kept on disk is loaded without a look at what it was made from, half of the time.

    That is for kernels that are compiled later, and call this one.
    """

    _made_from: bytes | None = None
    _shared_module: Any

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> _Library:
        name, _, (machine_code, made_from) = state
        self = cls(codegen, name)
        self.enable_object_caching()
        self._set_compiled_object(machine_code)
        self._made_from = made_from
        self._finalize_final_module()
        return self

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None and self._made_from is not None:
            self._shared_module = llvm.parse_bitcode(self._made_from)
        return super()._get_module_for_linking()

    def get_pointer_to_function(self, name: str) -> Any:
        """Return where a function begins: what is kept is known to have the one by which Python calls it."""
        if self._made_from is None:
            return super().get_pointer_to_function(name)
        return self._codegen._engine.get_function_address(name)


@wraps(environment._rebuild_env)  # by whose name it is found, when what is kept is loaded
def _surroundings(module: str, constants: list[object], name: str) -> Any:
    """Return what a function has around it, as Numba does, but for the names in its module.

    Only what is not compiled looks these up; to import all modules of Numba's that a kernel comes from takes as long as
    to load it.
    """
    found = environment.lookup_environment(name)
    if found is None:
        found = environment.Environment({"__name__": module})
        found.consts[:] = constants
        found.env_name = name
        environment.Environment._memo[name] = found
    return found
