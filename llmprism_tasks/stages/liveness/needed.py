"""Needed: what a NIC had always received before it sent its next message, and how long after that it sent it.

A stage of a pipeline sends what it has computed from what it received. That the rest of its step takes longer, because
what it needs comes late, says nothing of itself. What had come to it in every earlier step it may need; what came
later in any of them, it does not. Nor does it need the little that an early sender pushes into its buffers.

When one has stopped, all others go on until they need what it owes. So all that does not depend on it comes in the end:
who stopped has received all that it needs. Who lacks some of that waited for another until the end.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import sigma

FROM_TO = ["src_addr", "addr"]
"""Columns of a pair, seen by the NIC that receives."""


def due_after_needed(nexts: pl.DataFrame, steps: pl.DataFrame, begun: pl.DataFrame, same_size: float) -> pl.DataFrame:
    """Return when each NIC was due to send next by when it had received what it needs, or no sooner than that.

    Parameters
    ----------
    nexts : `addr`, `step`, `next_ns` (when it sent the message in that step, since the step before ended; or NULL)
    steps : flows of earlier steps, with `step` and `since_ns`
    begun : flows of the unfinished step
    same_size : ratio of a step's bytes that tell nothing

    Returns
    -------
    `addr`, `needed_ns`, `needed_noise_ns` (robust deviation); only NICs that need something
    """
    sends = nexts.drop_nulls("next_ns").select("addr", "step", "next_ns")
    lasted = pl.col("flow_end_ns") - pl.col("flow_start_ns")
    arrived = steps.select("step", "src_addr", "bytes", addr="dst_addr", at_ns=pl.col("since_ns") + lasted)
    before = arrived.join(sends, on=["addr", "step"]).filter(pl.col("at_ns") <= pl.col("next_ns"))
    little = same_size * pl.col("bytes").sum() / pl.col("step").n_unique()
    needed = (
        before.group_by("step", *FROM_TO)
        .agg(pl.col("bytes").sum())
        .group_by(FROM_TO)
        .agg(steps=pl.len(), needed=pl.col("bytes").min())
        .join(sends.group_by("addr").agg(all_steps=pl.len()), on="addr")
        .filter(pl.col("steps") == pl.col("all_steps"))
        .join(arrived.group_by(FROM_TO).agg(little=little), on=FROM_TO)
        .select(*FROM_TO, needed=pl.col("needed") - pl.col("little"))
        .filter(pl.col("needed") > 0)
    )
    wait, silent_ns = pl.col("next_ns") - pl.col("at_ns"), pl.lit(begun["flow_end_ns"].max(), pl.Int64)
    waits = _times_of(needed, before, ["step"]).group_by("step", "addr").agg(pl.col("at_ns").max())
    usual = waits.join(sends, on=["addr", "step"]).group_by("addr").agg(wait=wait.median(), needed_noise_ns=sigma(wait))
    come = _times_of(needed, begun.select("src_addr", "bytes", addr="dst_addr", at_ns="flow_end_ns"), [])
    return (
        needed.join(come, on=FROM_TO, how="left")
        .group_by("addr")
        .agg(pl.col("at_ns").fill_null(silent_ns).max())
        .join(usual, on="addr")
        .select("addr", "needed_noise_ns", needed_ns=pl.col("at_ns") + pl.col("wait"))
    )


def _times_of(needed: pl.DataFrame, arrived: pl.DataFrame, of: list[str]) -> pl.DataFrame:
    """Return when what a NIC needs of another had come: the columns `of`, those of a pair, `at_ns`."""
    key = [*of, *FROM_TO]
    so_far = pl.col("bytes").cum_sum().over(key)
    reached = arrived.join(needed, on=FROM_TO).sort("at_ns").filter(so_far >= pl.col("needed"))
    return reached.group_by(key).agg(pl.col("at_ns").min())
