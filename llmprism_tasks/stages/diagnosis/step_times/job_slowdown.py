"""Paid: whether a job's steps are longer when somebody is late, as they are when all others wait for it."""

from __future__ import annotations

import polars as pl

MOST = 0.5
"""Ratio of what being late costs by which steps must be longer: the rest may have been hidden by something else."""


def paid(late: pl.Expr, *, cost_ns: pl.Expr, length_ns: pl.Expr) -> pl.Expr:
    """Say whether the steps in which somebody is late are longer than the others by most of what it costs.

    Parameters
    ----------
    late : whether it is, in each step
    cost_ns, length_ns : by how much steps should be longer for it, and how long they are

    Returns
    -------
    one value for all steps, or for each group of them; NULL where all steps are alike late
    """
    more, longer = (value.filter(late).median() - value.filter(~late).median() for value in (cost_ns, length_ns))
    return longer >= MOST * more
