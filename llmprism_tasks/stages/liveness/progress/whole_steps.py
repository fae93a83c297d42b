"""Whole steps: which steps of a job were over when it fell silent.

The unfinished step may look like anything, and spoil the division of the others with it. What it has sent may be taken
for the end of the step before.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.numerics.robust import LEAST_RECURRENCES, MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division.division import Division, divide

LEAST_STEPS, LEAST_STEPS_NS = 6, 120 * NANOSECONDS_PER_SECOND
"""Steps that a job must have shown, or three steps over this time: a job's first steps are unlike the others."""
DISSIMILARITY_RATIO = 2.0
"""Factor on the difference of the most similar steps. Half of those differ by more than their median, hardly any by
twice as much."""
UNFINISHED_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Steps that are left out before the silence if the unfinished step spoils the others; each is tried in turn."""
SAME_RHYTHM = 2**0.5
"""Largest factor between two periods of one rhythm. If micro-batches are mistaken for steps, a step is at least two of
them long, so the period is off by a factor of two or more."""


def division_of_whole_steps(bulk: pl.DataFrame, silent_ns: int, settings: Settings) -> tuple[Division, bool] | None:
    """Return the steps of a job that fell silent, and whether they have the period of one window before; None without
    steps.

    The unfinished step may look like anything, and spoil the others with it. If the steps with it have another period,
    more and more of it is left out, up to a whole step, until the rest has the same period again.
    Where the last run of the job shows enough steps, its earlier runs say nothing of these.
    """

    def steps_until(end_ns: int) -> Division | None:
        """Return the steps of the flows that had ended by a time."""
        moment = Window(end_ns + 1 - settings.window.length_ns, settings.window.length_ns)
        found = divide(bulk.filter(pl.col("flow_end_ns") <= end_ns), moment, settings)
        latest = None if found is None else found.latest_run()
        return found if latest is None or whole_steps(latest.endpoints, bulk, settings) is None else latest

    whole, earlier = steps_until(silent_ns), steps_until(silent_ns - settings.window.length_ns)
    if earlier is None or earlier.job_steps.height < LEAST_RECURRENCES:
        return None if whole is None else (whole, True)
    before_ns = _period_ns(earlier)
    for share in (0.0, *UNFINISHED_SHARES):
        found = steps_until(silent_ns - int(share * before_ns)) if share else whole
        if found is None or whole_steps(found.endpoints, bulk, settings) is None:
            continue
        if _has_kept_period(found, earlier):
            return found, True
    return None if whole is None else (whole, False)


def whole_steps(endpoints: pl.DataFrame, bulk: pl.DataFrame, settings: Settings) -> pl.DataFrame | None:
    """Return the steps up to the last whole one; None if there are too few to decide.

    The last step is whole if it has the bytes of a typical step or of the smallest other step (records get lost), if
    no more NICs lack their part in it than in the worst other step, and if they are as even as in other steps. Where
    most NICs send again after its end, it is over, and the records of a NIC that lacks its part were lost.
    """
    nics = endpoints["addr"].n_unique()
    part = pl.col("part").drop_nans()
    steps = (
        endpoints.with_columns(part=pl.col("bytes") / pl.col("bytes").median().over("addr"))
        .group_by("step")
        .agg(
            pl.col("bytes").sum(),
            pl.col("end_ns").max(),
            missing=nics - pl.len() + (part < MAJORITY).sum(),
            uneven=unevenness(part),
        )
        .sort("step")
    )
    others, last = steps[1:-1], steps[-1:]
    if others.is_empty() or (steps.height < LEAST_STEPS and np.ptp(steps["end_ns"].to_numpy()) < LEAST_STEPS_NS):
        return None
    usual, least = float(others["bytes"].median()), float(others["bytes"].min())  # type: ignore[arg-type]
    complete = last["bytes"].item() >= min(settings.rhythm.least_whole * usual, least)
    even = last["missing"].item() <= others["missing"].max()
    even &= is_as_even(last["uneven"].item(), others["uneven"], settings)
    again = bulk.filter(
        pl.col("flow_start_ns") > last["end_ns"].item(), pl.col("src_addr").is_in(endpoints["addr"].implode())
    )
    complete &= even or again["src_addr"].n_unique() > MAJORITY * nics
    return steps.select("step") if complete else steps[:-1].select("step")


def ended_together(
    endpoints: pl.DataFrame, job_steps: pl.DataFrame, settings: Settings
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """End the last step of NICs that have moved more in it than in others, and end it far later, where the others do.

    The beginning of an unfinished step may be taken for the end of the step before. In other steps NICs end as far from
    each other as they may: twice that is far.

    Parameters
    ----------
    endpoints, job_steps : whole steps, as `Division` has them
    """
    is_last = pl.col("step") == pl.col("step").max()
    spread_ns = endpoints.filter(~is_last).group_by("step").agg(pl.col("end_ns").max() - pl.col("end_ns").min())
    usual = pl.col("bytes").median().over("addr")
    as_usual = is_last & (pl.col("bytes") <= (1 + settings.rhythm.same_size) * usual)
    far_ns = DISSIMILARITY_RATIO * spread_ns["end_ns"].cast(pl.Float64).to_numpy().max()
    until_ns = endpoints.select(pl.col("end_ns").filter(as_usual).max()).item()
    late = is_last & (pl.col("end_ns") - until_ns > far_ns)
    end_ns = pl.when(late).then(until_ns).otherwise("end_ns")
    return endpoints.with_columns(end_ns=end_ns), job_steps.with_columns(end_ns=end_ns)


def unevenness(part: pl.Expr) -> pl.Expr:
    """Return by how much the NIC with the smallest share of its usual bytes lacks what others have; more is no lack."""
    whole = part.clip(upper_bound=1)
    return whole.max() - whole.min()


def is_as_even(uneven: float, others: pl.Series, settings: Settings) -> bool:
    """Return whether the NICs' shares of a step differ as they may.

    In lock step all NICs end together. Where all have moved their whole share in every other step, a NIC that lacks
    clearly more than any did before has stopped. Where shares differ in other steps, they say nothing: records are
    lost, or the stages of a pipeline are not cut at one moment.
    """
    same, worst = settings.rhythm.same_size, float(others.max() or 0)  # type: ignore[arg-type]
    return uneven <= max(same, DISSIMILARITY_RATIO * worst) or worst > same


def _period_ns(division: Division) -> float:
    """Return the length of a typical step."""
    return float(division.job_steps["end_ns"].sort().diff().median() or 0.0)  # type: ignore[arg-type]


def _has_kept_period(division: Division, earlier: Division) -> bool:
    """Return whether steps have about the same period as earlier ones, or those do not show one.

    The messages of a pipeline alone show its steps poorly: for a while its micro-batches, or repeats of a size, may
    look like steps. Being in the middle of such a step means nothing. What was seen for less than some of the present
    steps, such as the beginning of a job, does not show another period.
    """
    period_ns, before_ns, ends = _period_ns(division), _period_ns(earlier), earlier.job_steps["end_ns"]
    if int(ends.max()) - int(ends.min()) < LEAST_RECURRENCES * period_ns:  # type: ignore[arg-type]
        return True
    return max(period_ns, before_ns) <= SAME_RHYTHM * min(period_ns, before_ns)
