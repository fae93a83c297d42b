"""How a loop over numbers is compiled to machine code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from llmprism_tasks.postponed import postpone

postpone("scipy.linalg")  # Numba looks for BLAS in a part of it, and would run all of it to get there

import llvmlite.binding as llvm  # noqa: E402
import numba  # noqa: E402
from numba import types  # noqa: E402
from numba.core import environment  # noqa: E402
from numba.core.caching import FunctionCache  # noqa: E402
from numba.core.codegen import JITCodeLibrary  # noqa: E402
from numba.core.runtime import rtsys  # noqa: E402

P = ParamSpec("P")
R = TypeVar("R")


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


@cache
def _codegen(target_context: Any) -> Any:
    """Return what loads machine code, once it is able to.

    Numba would learn first of all that it could compile, which takes as long as all kernels: that is done when
    something is compiled.
    """
    rtsys.initialize(target_context)
    environment._rebuild_env = _surroundings
    codegen = target_context.codegen()
    codegen._library_class = _Library
    codegen.magic_tuple = cache(codegen.magic_tuple)  # asks the processor its name, which may take it a while
    return codegen


class _Kept(FunctionCache):  # type: ignore[misc]
    """Machine code that was compiled before, on disk."""

    def load_overload(self, sig: object, target_context: Any) -> Any:
        """Load it."""
        _codegen(target_context)
        return self._load_overload(sig, target_context)


class Kernel:
    """A compiled function that sees every array as contiguous and read-only when Python calls it.

    Machine code is made for each combination of argument types, and to Numba an array that may be written is of another
    type than one that may not, such as Polars' own memory: without this, everything would be compiled again and again.
    Other kernels call the compiled function itself, and may pass it arrays to write to.
    """

    def __init__(self, function: Callable[..., Any], **options: object) -> None:
        self._dispatcher = numba.njit(nogil=True, no_cfunc_wrapper=True, error_model="numpy", **options)(function)
        self._dispatcher._cache = _Kept(function)
        # Numba would compile it again for each number that a kernel's variable begins with, for want of its type.
        resolve = self._dispatcher.get_call_template
        self._dispatcher.get_call_template = lambda given, named: resolve(
            [types.unliteral(each) for each in given], named
        )
        self._numba_type_ = self._dispatcher._numba_type_  # by which kernels know each other
        _kernels.append(self)

    def __call__(self, *arguments: object) -> Any:
        """Run it on these arrays and numbers; its first call compiles it, unless another process has."""
        return self._dispatcher(*map(_read_only, arguments))

    def load(self) -> None:
        """Load what was compiled of it for calls from Python, so that the first of them need not."""
        cache, codegen = self._dispatcher._cache, _codegen(self._dispatcher.targetctx)
        for key in cache._cache_file._load_index():
            written_to = any(isinstance(one, types.Array) and one.mutable for one in key[0])  # by other kernels
            if not written_to and key == cache._index_key(key[0], codegen):  # else it would be compiled
                self._dispatcher.compile(key[0])


_kernels: list[Kernel] = []


def load_all() -> None:
    """Load the kernels that were imported by now, as far as they were compiled before: aside, while others work."""
    for kernel in _kernels:
        kernel.load()


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays and numbers on its first call.

    The machine code is kept on disk, since each task of the DAG is a process of its own and compiling takes seconds.
    It runs without Python's global lock, so that threads may take a job each. A division by zero is infinite or NaN, as
    in NumPy.

    All of them are compiled when a machine's first analysis comes to them, so let that be little: loops over numbers
    and what is in `sorting`, rather than functions and expressions of NumPy on arrays. Numba compiles those anew for
    each kind of argument, and again into each kernel.
    """
    return cast(Callable[P, R], Kernel(function))


def compiled_vectors(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function likewise, its loops into instructions that take several numbers at once where they can.

    For that, a product and a sum may be rounded once, and no number may be NaN.
    """
    allowed = {"contract", "nnan", "nsz"}
    return cast(Callable[P, R], Kernel(function, fastmath=allowed))


def _read_only(argument: object) -> object:
    if not isinstance(argument, np.ndarray):
        return argument
    view = np.ascontiguousarray(argument).view()
    view.flags.writeable = False
    return view
