"""Next send: when each NIC of a job was due to send next when the job fell silent, by its own last and earlier steps.

A step's length varies, and all of its NICs are late together. How long a NIC waits between two of its own messages
varies far less. So its next message is due as long after its last as it was in earlier steps, at the same bytes. It
may need what others send it (`needed.py`): then it is due no sooner after that than in earlier steps.

Records get lost. Where a NIC lacks something but has begun what it sends after that, it does not owe it: the record was
lost, or was sent in the step before. Where it lacks the last of its step, nobody knows; how often NICs lack as much in
other steps says how likely that was lost, too.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import sigma
from llmprism_tasks.stages.liveness.needed import due_after_needed
from llmprism_tasks.stages.liveness.passed_on import with_lost
from llmprism_tasks.stages.step_division.periodicity import PAIR


def moments_of_pairs(begun: pl.DataFrame, steps: pl.DataFrame, pairs: pl.DataFrame, same_size: float) -> pl.DataFrame:
    """Return when each pair had sent in earlier steps what it has sent now, and when it sent more.

    What was sent now counts where its records were lost, too, if its receiver has sent it on.

    Parameters
    ----------
    begun : flows of the unfinished step
    steps : flows of earlier steps, with `step` and `since_ns` (since the step before ended), in order of time
    pairs : `src_addr`, `dst_addr`, `usual` (bytes per step) of those that take part in the steps
    same_size : ratio of a step's bytes by which two steps differ without meaning

    Returns
    -------
    `src_addr`, `dst_addr`, `step`, `bytes` (of the step), `sent` (bytes now), `reached_ns` (when the last of so many
    bytes was sent in that step) and `began_ns` (when its record began; both NULL if nothing is sent now), `more_ns`
    (when the next byte came; NULL if all was sent), `over_ns` (when the record that begins with it was over; as
    `more_ns` if a record of which a part was sent now holds it), `rest_ns` (when that record was over); times as
    `since_ns`
    """
    seen = begun.group_by(PAIR).agg(sent=pl.col("bytes").sum())
    sent = with_lost(
        pairs.select(*PAIR, "usual").join(seen, on=PAIR, how="left").with_columns(pl.col("sent").fill_null(0))
    )
    key = [*PAIR, "step"]
    before = pl.col("bytes").cum_sum().over(key) - pl.col("bytes")
    inside = ((pl.col("sent") - pl.col("before")) / pl.col("bytes")).clip(0, 1)
    lasted = pl.col("flow_end_ns") - pl.col("flow_start_ns")
    more = pl.col("before") + pl.col("bytes") > pl.col("sent") + same_size * pl.col("bytes").sum().over(key)
    return (
        steps.join(sent, on=PAIR, maintain_order="left")
        .with_columns(before=before)
        .with_columns(at=pl.col("since_ns") + inside * lasted, more=more)
        .group_by(key)
        .agg(
            pl.col("sent").first(),
            pl.col("bytes").sum(),
            began_ns=pl.col("since_ns").filter(pl.col("before") < pl.col("sent")).max(),
            reached_ns=pl.col("at").filter(pl.col("before") < pl.col("sent")).max(),
            more_ns=pl.col("at").filter("more").min(),
            over_ns=(pl.col("at") + pl.when(pl.col("before") >= pl.col("sent")).then(lasted).otherwise(0))
            .filter("more")
            .min(),
            rest_ns=(pl.col("since_ns") + lasted).filter("more").min(),
        )
        .sort(key)
    )


def next_sends(
    moments: pl.DataFrame, begun: pl.DataFrame, steps: pl.DataFrame, ended_ns: int, same_size: float
) -> pl.DataFrame:
    """Return when each NIC was due to send next.

    Parameters
    ----------
    moments : as `moments_of_pairs` returns, of pairs that take part in the steps
    begun : flows of the unfinished step
    steps, same_size : as for `moments_of_pairs`
    ended_ns : end of the last whole step

    Returns
    -------
    `addr`, `to` (whom it was due to send to), `due_ns` (NULL if it sends no more in most steps), `noise_ns` (robust
    deviation), `lasts_ns` (how long the record that it was due to begin lasts, or the rest of one whose beginning was
    sent ahead; 0 of another one of which a part is seen), `rest_ns` (the same, with the rest of such a one), `last_ns`
    and `heard_ns` (when it last sent and received in the step; NULL if it has not), `lost` (how likely what it lacks
    was lost, as `_chances_of_loss` returns)
    """
    taking_part = moments.select(PAIR).unique()
    mine, earlier = (flows.join(taking_part, on=PAIR, how="semi") for flows in (begun, steps))
    sent = mine.group_by(addr="src_addr", to="dst_addr").agg(until_ns=pl.col("flow_end_ns").max())
    last = mine.group_by(addr="src_addr").agg(last_ns=pl.col("flow_end_ns").max())
    heard = mine.group_by(addr="dst_addr").agg(heard_ns=pl.col("flow_end_ns").max())
    nexts = _next_of_steps(moments)
    due = (
        _usual_waits(nexts)
        .join(last, on="addr", how="full", coalesce=True)
        .join(heard, on="addr", how="full", coalesce=True)
        .join(_chances_of_loss(moments), on="addr", how="left")
        .with_columns(due_ns=pl.col("last_ns").fill_null(ended_ns) + pl.col("wait"))
        .drop("wait")
    )
    needed = due_after_needed(nexts, earlier, mine, same_size)
    return _after_needed(_with_rests(due, sent), needed).sort("addr")


def _after_needed(due: pl.DataFrame, needed: pl.DataFrame) -> pl.DataFrame:
    """Return when each NIC was due, no sooner than what it needs allows (`needed`, as `due_after_needed` returns)."""
    waits = pl.col("needed_ns") > pl.col("due_ns")
    return (
        due.join(needed, on="addr", how="left")
        .with_columns(
            due_ns=pl.when(waits).then("needed_ns").otherwise("due_ns"),
            noise_ns=pl.when(waits).then("needed_noise_ns").otherwise("noise_ns"),
        )
        .drop("needed_ns", "needed_noise_ns")
    )


def _with_rests(due: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Let a record whose beginning was sent ahead last as long as its rest.

    Who comes early sends a little into the buffers of a receiver that is not there yet, and waits. The rest is another
    record. The receiver was not there if it was due to begin what it owes only later.

    Parameters
    ----------
    sent : `addr`, `to`, `until_ns` (when one last sent to the other)
    """
    receivers = due.select(to="addr", begins_ns="due_ns", owes_ns="lasts_ns")
    ahead = (pl.col("owes_ns") > 0) & (pl.col("begins_ns") >= pl.col("until_ns"))
    joined = due.join(sent, on=["addr", "to"], how="left").join(receivers, on="to", how="left")
    rests = joined.with_columns(lasts_ns=pl.when(ahead).then("rest_ns").otherwise("lasts_ns"))
    return rests.drop("until_ns", "begins_ns", "owes_ns")


def _next_of_steps(moments: pl.DataFrame) -> pl.DataFrame:
    """Return what each NIC sent next in each step: `addr`, `step`, `next_ns` (when; NULL if it sent no more), `wait`
    (since what it has sent now), `to`, `lasts`, `rest` (as `next_sends` returns)."""
    later = pl.col("more_ns") >= pl.col("began_ns").max().over("src_addr", "step").fill_null(0)
    return (
        moments.with_columns(pl.when(later).then(pl.col("more_ns", "over_ns", "rest_ns")))
        .sort("more_ns", *PAIR, nulls_last=True)
        .group_by("step", addr="src_addr", maintain_order=True)
        .agg(
            next_ns=pl.col("more_ns").min(),
            wait=pl.col("more_ns").min() - pl.col("reached_ns").max().fill_null(0),
            to=pl.col("dst_addr").filter(pl.col("more_ns").is_not_null()).first(),
            lasts=(pl.col("over_ns") - pl.col("more_ns")).drop_nulls().first(),
            rest=(pl.col("rest_ns") - pl.col("more_ns")).drop_nulls().first(),
        )
    )


def _usual_waits(nexts: pl.DataFrame) -> pl.DataFrame:
    """Return how long each NIC usually waits from what it has sent now to what it sends next: `addr`, `wait` (ns; NULL
    if it sends no more in most steps), `noise_ns`, `lasts_ns`, `rest_ns`, `to` (as `next_sends` returns)."""
    return nexts.group_by("addr").agg(
        to=pl.col("to").drop_nulls().mode().sort().first(),
        wait=pl.when(2 * pl.col("wait").count() >= pl.len()).then(pl.col("wait").median().clip(lower_bound=0)),
        noise_ns=sigma(pl.col("wait")),
        lasts_ns=pl.col("lasts").median(),
        rest_ns=pl.col("rest").median(),
    )


def _chances_of_loss(moments: pl.DataFrame) -> pl.DataFrame:
    """Return how likely what each NIC lacks was lost: `addr`, `lost`.

    That is the share of all NICs' earlier steps, by the rule of succession, in which a pair of theirs lacks as much of
    its usual bytes as the pair of this NIC that lacks most.
    """
    usual = pl.col("bytes").median().over(PAIR)
    lacks = moments.with_columns(then=1 - pl.col("bytes") / usual, now=1 - pl.col("sent") / usual)
    each = lacks.group_by("step", addr="src_addr").agg(pl.col("then", "now").max()).sort("addr", "step")
    earlier = each["then"].sort().to_numpy()
    nics = each.group_by("addr").agg(pl.col("now").first()).sort("addr")
    as_much = earlier.size - np.searchsorted(earlier, nics["now"].to_numpy())
    return nics.select("addr", lost=pl.Series((as_much + 1) / (earlier.size + 2)))


def share_of_lost(moments: pl.DataFrame) -> float:
    """Return the share of a pair's steps of which every record is lost, by the rule of succession."""
    expected = moments.select(PAIR).n_unique() * moments["step"].n_unique()
    return (expected - moments.height + 1) / (expected + 2)
