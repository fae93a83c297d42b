"""Loads the heavy libraries once, in the scheduler: the task processes it forks find them there and start at once.

Nothing here may start a thread, such as a connection or a query would: threads do not survive a fork.
"""

from __future__ import annotations

import sys

if "scheduler" in sys.argv:
    import duckdb  # noqa: F401
    import great_expectations  # noqa: F401
    import numba
    import polars  # noqa: F401

    numba.njit(lambda value: value)(0)  # wakes the compiler, a third of a second that each task would need
