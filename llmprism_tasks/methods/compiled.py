"""How a loop over numbers is compiled to machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays and numbers on its first call.

    The machine code is kept on disk, since each task of the DAG is a process of its own and compiling takes a second.
    It runs without Python's global lock, so that threads may take a job each.
    """
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True)(function))
