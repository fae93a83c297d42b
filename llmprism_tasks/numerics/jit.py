"""How a loop over numbers is compiled to machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from llmprism_tasks.postponed import postpone

postpone("scipy.linalg")  # Numba looks for BLAS in a part of it, and would run all of it to get there
postpone("yaml")  # for a file of settings, which may not be there

import numba  # noqa: E402
from numba import types  # noqa: E402

from llmprism_tasks.numerics.loading import Kept, codegen_of  # noqa: E402

P = ParamSpec("P")
R = TypeVar("R")


class Kernel:
    """A compiled function that sees every array, alone or in a tuple, as contiguous and read-only when Python calls it.

    Machine code is made for each combination of argument types, and to Numba an array that may be written is of another
    type than one that may not, such as Polars' own memory: without this, everything would be compiled again and again.
    Other kernels call the compiled function itself, and may pass it arrays to write to.
    """

    def __init__(self, function: Callable[..., Any], **options: object) -> None:
        self._dispatcher = numba.njit(nogil=True, no_cfunc_wrapper=True, error_model="numpy", **options)(function)
        self._dispatcher._cache = Kept(function)
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
        cache, codegen = self._dispatcher._cache, codegen_of(self._dispatcher.targetctx)
        for key in cache.kept():
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
    if isinstance(argument, tuple):  # a named one
        return type(argument)(*map(_read_only, argument))  # type: ignore[arg-type]
    if not isinstance(argument, np.ndarray):
        return argument
    view = np.ascontiguousarray(argument).view()
    view.flags.writeable = False
    return view
