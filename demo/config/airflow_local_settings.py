"""Loads the heavy libraries once, in the scheduler: the task processes it forks find them there and start at once.

Imports only. A connection or a query would start threads, and threads do not survive a fork.
"""

from __future__ import annotations

import sys

if "scheduler" in sys.argv:
    import duckdb  # noqa: F401
    import great_expectations  # noqa: F401
    import numba  # noqa: F401
    import polars  # noqa: F401
