"""Usual pause: whether a job fell silent where most of its steps pause, too, so that it may have ended in order there.

Which of a step's pauses is the one between two steps does not always show. At each of those that may be, no member
waits for another, so a job that ends, pauses or is cancelled there looks the same.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.step_division.periodicity import PAIR


def is_at_usual_pause(begun: pl.DataFrame, pauses: pl.DataFrame, steps: int, same_size: float) -> bool:
    """Return whether the unfinished step has as many bytes as most others have at a pause where a job may end.

    Parameters
    ----------
    begun : flows of the unfinished step
    pauses : as `usual_pauses` returns them
    steps : how many steps they are of
    same_size : ratio of a step's bytes by which two steps differ without meaning
    """
    sent = int(begun["bytes"].sum())
    there = pauses.filter(pl.col("usual") & ((pl.col("before") - sent).abs() <= same_size * pl.col("bytes")))
    return 2 * there["step"].n_unique() >= steps


def pauses_alike(pauses: pl.DataFrame) -> tuple[float, float]:
    """Return at how many pauses of a step a job may end, and their share of the step's time.

    The one between two steps is one of these. Where a job exchanges data in every layer they are many, and a job that
    hangs is at one of them for most of its time.

    Parameters
    ----------
    pauses : as `usual_pauses` returns them
    """
    usual = pauses.filter("usual")
    each = usual.group_by("step").agg(places=pl.len(), share=pl.col("gap").sum() / pl.col("lasted").first())
    places, share = each.select(pl.col("places", "share").median()).row(0)
    return max(places or 1.0, 1.0), share or 0.0


def usual_pauses(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the pauses of steps in which no member sends.

    Parameters
    ----------
    steps : flows of whole steps, with `step` and `began_ns` (end of the step before)

    Returns
    -------
    `step`, `gap`, `lasted` (the step), both ns, `before` (bytes until then), `bytes` (of the step) and `usual`: whether
    a job may end there, for it is about the step's longest pause, one after which all NICs go on together, or the one
    after the last of what is sent once in each step
    """
    until = pl.max_horizontal(end_of_earlier("flow_end_ns").over("step"), "began_ns")
    pauses = (
        steps.sort("step", "flow_start_ns", "flow_end_ns")
        .select(
            "step",
            gap=pl.col("flow_start_ns") - until,
            before=(pl.col("bytes").cum_sum() - pl.col("bytes")).over("step"),
            bytes=pl.col("bytes").sum().over("step"),
            back_ns="flow_start_ns",
            lasted=(pl.col("flow_end_ns").max() - pl.col("began_ns").min()).over("step"),
        )
        .filter(pl.col("gap") > 0)
    )
    is_long = pl.col("gap") >= MAJORITY * pl.col("gap").max().over("step")
    usual = is_long | _go_on_together(pauses, steps) | _follow_what_is_sent_once(pauses, steps)
    return pauses.with_columns(usual=usual).drop("back_ns")


def _follow_what_is_sent_once(pauses: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return for each pause whether it is the first one after all pairs are done that send once in their step.

    In a pipeline, these synchronise gradients, and the others send micro-batches. A pair sends once if it is silent
    in between for less than half of the step's longest pause.

    Parameters
    ----------
    pauses : `step`, `gap` (ns), `back_ns` (when the first NIC sends again), in order of time
    steps : flows, with `step`
    """
    of_pair = ["step", *PAIR]
    silent = pl.col("flow_start_ns") - end_of_earlier("flow_end_ns").over(of_pair)
    pairs = (
        steps.sort("step", "flow_start_ns", "flow_end_ns")
        .with_columns(silent=silent.fill_null(0))
        .group_by(of_pair)
        .agg(pl.col("silent").max(), until_ns=pl.col("flow_end_ns").max())
    )
    longest = pauses.group_by("step").agg(pl.col("gap").max())
    once = pl.col("silent") < MAJORITY * pl.col("gap")
    done = pairs.join(longest, on="step").group_by("step").agg(done_ns=pl.col("until_ns").filter(once).max())
    after = pauses.join(done, on="step", how="left", maintain_order="left").with_columns(
        after=(pl.col("back_ns") >= pl.col("done_ns")).fill_null(value=False)
    )
    return after.select(pl.col("after") & ~pl.col("after").shift(fill_value=False).over("step")).to_series()


def _go_on_together(pauses: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return for each pause whether all NICs of its step send again sooner than half as long as it lasted.

    Where it is one stage's turn in a pipeline, the next can send only after that, and takes its own time for it.

    Parameters
    ----------
    pauses : `step`, `gap` (ns), `back_ns` (when the first NIC sends again)
    steps : flows, with `step`
    """
    nics = steps.select("step", "src_addr").unique()
    moments = pauses.select("step", "back_ns").with_row_index("pause").join(nics, on="step").sort("back_ns")
    sends = steps.select("step", "src_addr", again_ns="flow_start_ns").sort("again_ns")
    each = moments.join_asof(
        sends,
        left_on="back_ns",
        right_on="again_ns",
        by=["step", "src_addr"],
        strategy="forward",
        check_sortedness=False,  # both are sorted; Polars cannot check that within groups
    )
    last_ns = each.group_by("pause").agg(
        pl.col("again_ns").max() - pl.col("back_ns").first(), all=pl.col("again_ns").is_not_null().all()
    )
    found = last_ns.sort("pause")
    return found["all"] & (found["again_ns"] < MAJORITY * pauses["gap"])
