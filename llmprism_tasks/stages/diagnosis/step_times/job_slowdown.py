"""Job slowdown: whether a job's steps are longer when one member is late, as they are if all others wait for it."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY


def is_delay_felt(late: pl.Expr, *, cost_ns: pl.Expr, length_ns: pl.Expr) -> pl.Expr:
    """Return whether the steps with a late member are longer than the others by most of what the delay costs.

    Parameters
    ----------
    late : whether a member is late, in each step
    cost_ns, length_ns : the delay's expected cost in the step, and the step's length

    Returns
    -------
    one value for all steps, or for each group of them; NULL if all steps are late, or none
    """
    more, longer = (value.filter(late).median() - value.filter(~late).median() for value in (cost_ns, length_ns))
    # The remainder may be hidden behind something else.
    return longer >= MAJORITY * more
