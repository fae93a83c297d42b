"""Still sending: a NIC that sends slowly begins its next messages late, and so seems to compute slowly.

A transfer that takes longer for the same bytes is measured. That a GPU computes is inferred from what its NIC does not
begin to send, and a NIC begins nothing while what it sent before is under way.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.diagnosis.ranking import DIAGNOSIS_KEY, KINDS_OF_SLOW_COMPUTE


def not_still_sending(found: pl.DataFrame, hops: pl.DataFrame) -> pl.DataFrame:
    """Drop NICs that seem to compute slowly if all that they send is slow, and that takes most of their job's loss.

    Both stand if their shares of the loss do not add up to more than all of it, or if the NIC seemed to compute slowly
    for most of its time before it sent slowly, or after. What a NIC sends in a ring says nothing
    of it, for it may wait for the slow hop there; nor does what it receives, for that waits for its GPU.

    Parameters
    ----------
    found : rows of `evidence.FINDING_SCHEMA`
    hops : as `devices.hops_in_trouble` returns
    """
    if not hops["slow"].any():
        return found
    alone = pl.col("slow") & ~pl.col("ring_bound")
    senders = hops.group_by("job_id", subject="src_addr").agg(alone.all().alias("alone")).filter("alone")
    slow_nics = found.filter(
        pl.col("kind") == "slow_nic", pl.col("subject_type") == "addr", pl.col("confidence") >= MAJORITY
    )
    sending = slow_nics.join(senders, on=["job_id", "subject"], how="semi").select(
        "job_id", "subject_type", "subject", since_ns="start_ns", until_ns="end_ns", share="confidence"
    )
    together = pl.min_horizontal("end_ns", "until_ns") - pl.max_horizontal("start_ns", "since_ns")
    late = (
        found.filter(pl.col("kind").is_in(KINDS_OF_SLOW_COMPUTE))
        .join(sending, on=["job_id", "subject_type", "subject"])
        .filter(
            together >= MAJORITY * (pl.col("end_ns") - pl.col("start_ns")),
            pl.col("confidence").fill_null(0) + pl.col("share") > 1,
        )
    )
    return found.join(late, on=DIAGNOSIS_KEY, how="anti", maintain_order="left")
