"""Cross-group: data-parallel groups that are slow, where no device can be told to be at fault."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence, as_likely, candidate_columns
from llmprism_tasks.stages.diagnosis.network import best_pace
from llmprism_tasks.stages.diagnosis.network.localisation import MOST_NAMED
from llmprism_tasks.stages.diagnosis.network.losses import Losses
from llmprism_tasks.stages.diagnosis.network.path_pace import ring_of_unit
from llmprism_tasks.stages.diagnosis.network.shared_nics import is_shared
from llmprism_tasks.stages.traffic import nic_pairs

Row = dict[str, Any]


def rows(hops: pl.DataFrame, losses: Losses, evidence: Evidence, settings: DiagnosisSettings) -> Iterator[Row]:
    """Yield one row for each job whose slow groups explain most of its loss: the group, or the network if several are.

    Each group is compared with its own healthy steps, so even of two groups the slower one is known. The subject is the
    group's lowest address; the NICs at the ends of its slow hops are the candidates, if they are few. If several groups
    are slow, or the only one, and most pairs are slower at best than before, they suffer from something they share.
    A slow device makes all hops of its ring slow: if only some are, their senders came early and waited. What is slower
    by less than a `latent_rate` now and then has lost no link, and what others slow by their traffic is well.

    Parameters
    ----------
    hops : as `hop_comparison.compared` returns, for jobs in which no device is named
    """
    verdicts = evidence.once(best_pace.verdicts, settings)
    of_rings = hops.filter(pl.col("kind") == "dp").with_columns(pl.col("slow") & pl.col("ring_bound"))
    groups = of_rings.group_by("job_id", ring=ring_of_unit()).agg(pl.col("slow").any()).sort("job_id", "ring")
    for (job_id,), mine in groups.group_by("job_id", maintain_order=True):
        slow, others = (mine.filter(which)["ring"].to_list() for which in (pl.col("slow"), ~pl.col("slow")))
        alone = len(slow) == 1 and bool(others)
        if not slow or not (alone or _has_slower_rings(verdicts.filter(pl.col("job_id") == job_id), settings)):
            continue
        inside = (pl.col("job_id") == job_id) & pl.col("slow")
        slow_hops = of_rings.filter(inside)
        row = losses.row(str(job_id), slow_hops, settings)
        if row is None or row["confidence"] < MAJORITY:
            continue
        if is_shared(slow_hops, losses, evidence, settings):
            continue
        if row["score"] < settings.latent_rate and losses.stretches(str(job_id), slow_hops, settings):
            continue
        how = f"and {len(others)} of {mine.height} groups are not slower"
        if alone:
            subject = {"kind": "cross_group", "subject_type": "dp_group", "subject": slow[0], "peers": others}
            subject |= candidate_columns(as_likely(_ends(slow_hops), MOST_NAMED))
        else:
            subject = {"kind": "slow_network", "subject_type": "job", "subject": job_id}
            how += "; flows do not tell which device the others share"
        yield row | subject | {"how": how}


def name_groups(found: pl.DataFrame) -> pl.DataFrame:
    """Replace the cause of a job that became slower, if it is unknown or inferred, by the one slow group that explains
    most of what the job lost.

    A transfer that takes longer for the same bytes is measured. Who waits for it begins late.

    Parameters
    ----------
    found : rows of `evidence.FINDING_SCHEMA` from all other detectors

    Returns
    -------
    the same rows; a `straggler` of a job is `slow_network` where one `cross_group` of its time explains most of it
    """
    groups = found.filter(pl.col("kind") == "cross_group")  # which explain most of the loss: see `rows`
    measured = ("score", "confidence", "peers", "candidates", "odds", "explanation")
    group = groups.select(
        "job_id", *(pl.col(name).alias(f"{name}_of_group") for name in (*measured, "start_ns", "end_ns"))
    )
    unknown = (pl.col("kind") == "straggler") & (pl.col("subject_type") == "job")
    together = (pl.col("start_ns") < pl.col("end_ns_of_group")) & (pl.col("end_ns") > pl.col("start_ns_of_group"))
    joined = found.join(group.unique("job_id", keep="none"), on="job_id", how="left", maintain_order="left")
    known = (unknown & together).fill_null(value=False)
    named = joined.with_columns(
        pl.when(known).then(pl.lit("slow_network")).otherwise("kind").alias("kind"),
        *(pl.when(known).then(f"{name}_of_group").otherwise(name).alias(name) for name in measured),
    )
    return named.select(found.columns)


def _ends(hops: pl.DataFrame) -> set[str]:
    """Return the NICs at the ends of some hops."""
    return {addr for hop in hops.select(nic_pairs.PAIR).iter_rows() for addr in hop}


def _has_slower_rings(verdicts: pl.DataFrame, settings: DiagnosisSettings) -> bool:
    """Return whether most pairs of a job's rings take longer per byte at best than before."""
    slower = verdicts.filter(pl.col("kind") == "dp")["by_past"].median()
    return slower is not None and float(slower) >= math.log(settings.slow_rate)  # type: ignore[arg-type]
