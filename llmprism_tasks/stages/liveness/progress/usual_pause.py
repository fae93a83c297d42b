"""Usual pause: whether a job fell silent where most of its steps pause, too, so that it may have ended in order there.

Which of a step's pauses is the one between two steps does not always show. At each of those that may be, no member
waits for another, so a job that ends, pauses or is cancelled there looks the same.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.numerics.robust import MAJORITY


def is_at_usual_pause(begun: pl.DataFrame, steps: pl.DataFrame, same_size: float) -> bool:
    """Return whether the unfinished step has as many bytes as most others have at a pause where a job may end.

    That is about their longest pause, or one after which all NICs go on together.

    Parameters
    ----------
    begun : flows of the unfinished step
    steps : flows of earlier steps, with `step` and `began_ns` (end of the step before)
    same_size : ratio of a step's bytes by which two steps differ without meaning
    """
    sent = int(begun["bytes"].sum())
    pauses = _pauses(steps)
    there = (
        pauses.filter(pl.col("gap") > 0, (pl.col("before") - sent).abs() <= same_size * pl.col("bytes"))
        .sort("step", "gap", "back_ns")
        .group_by("step", maintain_order=True)
        .last()
    )
    is_pause = (pl.col("gap") >= MAJORITY * pl.col("longest")) | _go_on_together(there, steps)
    return 2 * there.filter(is_pause).height >= steps["step"].n_unique()


def pauses_alike(steps: pl.DataFrame) -> tuple[float, float]:
    """Return how many pauses of a step are at least half as long as its longest, and their share of its time.

    The one between two steps is one of these. Where a job exchanges data in every layer they are many, and a job that
    hangs is at one of them for most of its time.

    Parameters
    ----------
    steps : as for `is_at_usual_pause`
    """
    alike = _pauses(steps).filter(pl.col("gap") >= MAJORITY * pl.col("longest"))
    each = alike.group_by("step").agg(places=pl.len(), share=pl.col("gap").sum() / pl.col("lasted").first())
    places, share = each.select(pl.col("places", "share").median()).row(0)
    return max(places or 1.0, 1.0), share or 0.0


def _pauses(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the time before each flow in which its step is silent: `step`, `gap`, `longest` (of its step), `lasted`
    (the step), all ns, `before` (bytes until then), `bytes` (of the step) and `back_ns`."""
    until = pl.max_horizontal(end_of_earlier("flow_end_ns").over("step"), "began_ns")
    return (
        steps.sort("step", "flow_start_ns", "flow_end_ns")
        .select(
            "step",
            gap=pl.col("flow_start_ns") - until,
            before=(pl.col("bytes").cum_sum() - pl.col("bytes")).over("step"),
            bytes=pl.col("bytes").sum().over("step"),
            back_ns="flow_start_ns",
            lasted=(pl.col("flow_end_ns").max() - pl.col("began_ns").min()).over("step"),
        )
        .with_columns(longest=pl.col("gap").max().over("step"))
    )


def _go_on_together(pauses: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return for each pause whether all NICs of its step send again sooner than half as long as it lasted.

    Where it is one stage's turn in a pipeline, the next can send only after that, and takes its own time for it.

    Parameters
    ----------
    pauses : `step`, `gap` (ns), `back_ns` (when the first NIC sends again)
    steps : flows, with `step`
    """
    nics = steps.group_by("step").agg(nics=pl.col("src_addr").n_unique())
    again = (
        steps.join(pauses.select("step", "back_ns"), on="step")
        .filter(pl.col("flow_start_ns") >= pl.col("back_ns"))
        .group_by("step", "src_addr")
        .agg(after_ns=(pl.col("flow_start_ns") - pl.col("back_ns")).min())
        .group_by("step")
        .agg(again=pl.len(), last_ns=pl.col("after_ns").max())
    )
    return (
        pauses.join(nics, on="step", maintain_order="left")
        .join(again, on="step", maintain_order="left")
        .select((pl.col("again") == pl.col("nics")) & (pl.col("last_ns") < MAJORITY * pl.col("gap")))
        .to_series()
    )
