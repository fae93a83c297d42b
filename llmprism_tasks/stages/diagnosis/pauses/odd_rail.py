"""Odd rail: the NIC whose pairs had sent less than their sisters when a job fell silent in the middle of a step.

The pairs of two hosts that move equal bytes in a step work in lock step, each on its own rail. When the link of one
NIC goes down, the other rails go on until they need what it owes: what it sends and what it is sent both lack a message
that all sisters have sent. A host or a rank that stops holds up all rails alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from llmprism_tasks.numerics.robust import LEAST_VOTERS, MAJORITY
from llmprism_tasks.stages.diagnosis.pauses.habit import SAME_WORK_RATIO
from llmprism_tasks.stages.step_division.periodicity import PAIR


def odd_nics(sent: pl.DataFrame, hosts: Mapping[str, str]) -> list[str]:
    """Return the NICs from and to which all that lacks something leads: one, or both ends of a link; none otherwise.

    Parameters
    ----------
    sent : `src_addr`, `dst_addr`, `usual` (bytes of the steps before), `sent` (bytes of the unfinished step), `message`
        (size of the record that a byte is in, on average)
    hosts : host of each member
    """
    between = [pl.col(end).replace_strict(hosts, default=None).alias(f"{end}_host") for end in PAIR]
    places = [f"{end}_host" for end in PAIR]
    placed = sent.with_columns(between).drop_nulls(places)
    alike = placed.filter((pl.col("usual") / pl.col("usual").median().over(places) - 1).abs() <= SAME_WORK_RATIO)
    of_sisters = pl.col("sent").median().over(places)
    # Early in a step a message is much of what was sent; later it is less than pairs that do the same work differ by.
    least = pl.min_horizontal(SAME_WORK_RATIO * of_sisters, MAJORITY * pl.col("message"))
    lacks = alike.filter(pl.len().over(places) >= LEAST_VOTERS, of_sisters - pl.col("sent") > least)
    common = set.intersection(*({*pair} for pair in lacks.select(PAIR).iter_rows())) if lacks.height > 1 else set()
    return sorted(addr for addr in common if addr in lacks["src_addr"] and addr in lacks["dst_addr"])
