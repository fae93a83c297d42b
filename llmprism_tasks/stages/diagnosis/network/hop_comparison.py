"""Hop comparison: which hops are slow, by their pace in slow steps and in healthy ones.

All hops of a ring have the pace of its slowest hop. What parts them is a gap between their paces, what a member sends
before its ring is complete, and where bytes wait.
"""

from __future__ import annotations

import math

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.network.path_pace import HOP, HOP_ON_PATH, RING, is_seen_often

INNOCENT_QUANTILE = 0.25
"""Quantile of the steps in which a hop's early sending was at its usual pace, so that it is not the slow hop of its
ring. Not all steps can count: the member that arrives last sends nothing early, and a flapping link may go down after
the early sending."""

NEAR, FAINT = 0.75, 0.25
"""Shares of the longest time for which bytes wait before a hop of a ring. Hops before which they wait about as long are
slow; as buffers fill, bytes also wait before the hops that lead there, each time less. Hops that send before they have
received, by more than a faint share of that time, are quick."""

LEAST_SIGMA = 0.05
"""Least deviation of the logarithm of a pace: healthy paths differ by a few percent permanently."""

JUDGED = ["slow", "ring_bound", "innocent", "proven", "near"]
"""What a hop is found to be in its unit, as `compared` returns it."""

IS_RING = pl.col("kind") == "dp"


def compared(by_step: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Compare the pace of each path of each hop in slow steps with that in healthy ones.

    Parameters
    ----------
    by_step : as `path_pace.paces` returns

    Returns
    -------
    sorted by `HOP_ON_PATH`, with `switch_path`, `now` and `usual` (ns per byte in slow and in healthy steps), `ratio`,
    `slow`, `ring_bound` (all hops of its ring are slow, so its pace may be that of the slowest), `innocent`, `proven`
    and `near` (logarithm of how likely a slow hop of its ring would be as quick as it is, over that at the pace of the
    slowest one). All hops of a ring wait for its slowest hop. If some are slower than others, even if only in what they
    send early, those alone are `slow` and the others `innocent`. Hops that were slow in what they sent early are
    `proven`. A hop that never sends early is neither. Paths seen in too few slow steps or too few healthy ones are
    absent.
    """
    slow, waited_for = _is_slow(settings), _is_waited_for(settings)
    held_up = _is_held_up(slow, settings) & ~waited_for
    by_itself = (slow & ~held_up).any().over(RING)
    pushed_slowly = (pl.col("pushes") >= settings.least_steps) & pl.col("proves").fill_null(value=False)
    # Its usual pace may have varied: what is as slow as the slowest is near it, however quick it was before.
    behind = pl.max_horizontal(
        pl.col(name).log() - pl.col(name).filter("slow").max().log().over(RING) for name in ("quick", "quick_ratio")
    )
    return (
        _figures_by_place(by_step, settings)
        .with_columns(
            ring_bound=IS_RING & slow.all().over(RING), slow=slow & ~(held_up & by_itself), innocent=held_up & by_itself
        )
        .with_columns(
            proven=pl.col("slow") & IS_RING & (pushed_slowly | waited_for), near=-((behind / LEAST_SIGMA) ** 2) / 2
        )
        .select(*HOP_ON_PATH, "switch_path", "now", "usual", "ratio", *JUDGED)
        .sort(HOP_ON_PATH)
    )


def _figures_by_place(by_step: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the typical pace of each place in slow steps and in healthy ones, and what it sent early."""
    slow = pl.col("slow")
    return (
        _with_own_ratio(by_step, settings)
        .group_by("place")
        .agg(
            pl.col(*HOP_ON_PATH, "switch_path").first(),
            now=pl.col("pace").filter(slow).median(),
            usual=pl.col("pace").filter(~slow).median(),
            quick=pl.col("pace").filter(slow).quantile(INNOCENT_QUANTILE, "lower"),
            own_ratio=pl.col("own_ratio").quantile(INNOCENT_QUANTILE, "lower"),
            own_usual=pl.col("own").filter(~slow).median(),
            pushes=pl.col("own_ratio").filter("pushed").count(),
            pushed=pl.col("own_ratio").filter("pushed").median(),
            proves=pl.col("least_ratio").filter("pushed").median() >= settings.slow_rate,
            wait_ns=pl.col("wait_ns").filter(slow).median() - pl.col("wait_ns").filter(~slow).median(),
            enough=is_seen_often(settings),
        )
        .filter("enough")
        .with_columns(ratio=pl.col("now") / pl.col("usual"), quick_ratio=pl.col("quick") / pl.col("usual"))
    )


def _is_slow(settings: DiagnosisSettings) -> pl.Expr:
    """Return whether a place is slow, and as slow as its ring's others; a ring with pauses, only where bytes wait."""
    worst = pl.when(IS_RING).then(pl.col("ratio").max().over(RING)).otherwise("ratio")
    slow = (pl.col("ratio") >= settings.slow_rate) & (pl.col("ratio") * settings.slow_rate >= worst)
    # A ring has one pace. What has it may be what the ring waits for, however quick the others were before.
    behind = pl.col("now").log() - pl.col("now").filter(slow).max().log().over(RING)
    slow |= IS_RING & (pl.col("ratio") >= settings.slow_rate) & (behind.abs() <= LEAST_SIGMA)
    # A hop that waits for the slow one has any pace up to that one's, so its ring parts them only if there is a gap.
    gap = pl.col("ratio").log().sort().diff().max().over(RING).fill_null(0.0) >= math.log(settings.slow_rate)
    slow |= IS_RING & (pl.col("ratio") >= settings.slow_rate).all().over(RING) & ~gap
    # Where bytes wait before no hop, a ring with pauses waits for its members.
    return slow & (pl.col("wait_ns").is_null().all().over(RING) | _is_waited_for(settings).any().over(RING))


def _is_waited_for(settings: DiagnosisSettings) -> pl.Expr:
    """Return whether bytes wait before a hop about as long as before any of its ring."""
    longest, clocks_ns = pl.col("wait_ns").max().over(RING), settings.least_work_ms * 1e6
    return (pl.col("wait_ns") >= pl.max_horizontal(NEAR * longest, clocks_ns)).fill_null(value=False)


def _is_held_up(slow: pl.Expr, settings: DiagnosisSettings) -> pl.Expr:
    """Return whether a hop is at its usual pace in what it sends early, or sends before it has received."""
    longest, clocks_ns = pl.col("wait_ns").max().over(RING), settings.least_work_ms * 1e6
    waits_itself = pl.col("wait_ns") <= -pl.max_horizontal(FAINT * longest, clocks_ns)
    # Paces vary: the quick ones of what is sent early are compared with the quick ones of the rest.
    often = pl.col("pushes") >= settings.least_steps
    own_ratio, pace = (
        pl.when(often).then("pushed").otherwise("own_ratio"),
        pl.when(often).then("now").otherwise("quick"),
    )
    # Where another hop of a ring is at its usual pace, the ring stretches nothing, and who is slow is so by itself:
    # a queue before the slow link may take at once what is sent early.
    # One channel may be slow and another not, on another path: a hop is at its usual pace if all of its paths are.
    stretched = (pl.col("ratio").max().over(HOP) >= settings.slow_rate).all().over(RING)
    # What it sent early no quicker than the slow hops of its ring, as ever, something else limits.
    tells = own_ratio * pl.col("own_usual") * settings.slow_rate <= pace
    early = slow & stretched & tells & (own_ratio < settings.slow_rate)
    return IS_RING & (early | waits_itself).fill_null(value=False)


def _with_own_ratio(by_step: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Add `own_ratio`, a hop's own pace over its usual one, and `least_ratio`, of `own_least`.

    Only slow steps count in which the hop's unit was slow and some hop of the unit was slow by itself; anything else
    that is slow in a step does not tell which hop it was. NULL otherwise.
    """
    rate, own_ratio, least_ratio = (
        pl.col(name) / pl.col(usual).filter(~pl.col("slow")).median().over("place")
        for name, usual in (("pace", "pace"), ("own", "own"), ("own_least", "own"))
    )
    rated = by_step.with_columns(rate=rate, own_ratio=own_ratio, least_ratio=least_ratio)
    felt, shown = (
        (pl.col(name) >= settings.slow_rate).any().over("job_id", "kind", "unit", "step_ns")
        for name in ("rate", "own_ratio")
    )
    ratios = pl.col("own_ratio", "least_ratio")
    return rated.with_columns(pl.when(pl.col("slow") & felt & shown).then(ratios)).drop("rate")
