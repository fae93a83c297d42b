"""Numba as this package uses it: functions of arrays and numbers, compiled to machine code that is kept on disk.

A *kernel* is called from Python and states its argument types. Importing its module loads its machine code from Numba's
cache in some milliseconds, or compiles it in about a second and writes the cache. A *subroutine* is called by kernels
only. Its machine code becomes part of theirs, so that nothing of its own has to be loaded. It must be defined before
the kernels that call it.

`python -m llmprism_tasks.cli.compile_kernels` compiles all kernels. Numba compiles a kernel again when its own file has
changed, but not when a subroutine in another file has: run the command again then. `make setup` and `make test` do so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numba import types

P = ParamSpec("P")
R = TypeVar("R")
Type: TypeAlias = Any
"""A Numba type, such as those below; Numba brings no annotations."""

INT64, FLOAT64, BOOLEAN = types.int64, types.float64, types.boolean


def array(dtype: Type, dimensions: int = 1) -> Type:
    """Return the type of a contiguous array that is only read, as every array that a kernel is given."""
    return types.Array(dtype, dimensions, "C", readonly=True)


INT8S, INT32S, INT64S = array(types.int8), array(types.int32), array(types.int64)
UINT32S, UINT64S, FLOAT64S, BOOLEANS = array(types.uint32), array(types.uint64), array(types.float64), array(BOOLEAN)


def named_tuple(kind: type[tuple[Any, ...]], *fields: Type) -> Type:
    """Return the type of a named tuple with fields of these types."""
    if len(set(fields)) == 1:
        return types.NamedUniTuple(fields[0], len(fields), kind)
    return types.NamedTuple(fields, kind)


def kernel(
    *arguments: Type, also: Sequence[tuple[Type, ...]] = (), vectors: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function that is called from Python, not by other compiled functions.

    It runs without Python's global lock. A division by zero is infinite or NaN, as in NumPy. Keep what is compiled
    small: loops over numbers, and `sorting`, for Numba takes long to compile NumPy's functions.

    Parameters
    ----------
    arguments : the type of each argument
    also : types of the arguments for which the function is compiled as well
    vectors : as for `vector_subroutine`

    Returns
    -------
    a decorator. The compiled function takes arrays that lie in memory in any way, and copies those that are not
    contiguous. It raises TypeError for an array of another type or number of dimensions than stated. Arguments may be
    given by their names.
    """

    def compiled(function: Callable[P, R]) -> Callable[P, R]:
        """Return the function that runs a function's machine code."""
        machine_code = numba.njit([arguments, *also], cache=True, **_options(vectors=vectors))(function)

        @wraps(function)
        def call(*given: object, **named: object) -> R:
            by_name = {name: _read_only(argument) for name, argument in named.items()}
            return cast(R, machine_code(*map(_read_only, given), **by_name))

        return cast(Callable[P, R], call)

    return compiled


def subroutine(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that kernels call, for the types that they give it."""
    return cast(Callable[P, R], numba.njit(**_options(vectors=False))(function))


def vector_subroutine(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a subroutine whose loops become instructions that take several numbers at once, where possible.

    For that, a product and a sum may be rounded once, and no number may be NaN.
    """
    return cast(Callable[P, R], numba.njit(**_options(vectors=True))(function))


def _options(*, vectors: bool) -> dict[str, Any]:
    return {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nnan", "nsz"} if vectors else False}


def _read_only(argument: object) -> object:
    """Return a view of an array, or of those of a named tuple, that is contiguous and cannot be written to.

    To Numba, an array that may be written to is of another type than one that may not, such as a column of Polars.
    """
    if isinstance(argument, tuple):
        return type(argument)(*map(_read_only, argument))  # type: ignore[arg-type]
    if not isinstance(argument, np.ndarray):
        return argument
    view = np.ascontiguousarray(argument).view()
    view.flags.writeable = False
    return view
