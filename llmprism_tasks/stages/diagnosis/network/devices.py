"""Network: find the NIC, link or switch that moves the same bytes more slowly while the job loses time.

The pace of each path in the job's slow steps is compared with its pace in healthy steps. The device that all slow paths
share and no quick path crosses is named. Jobs that lose no time help to tell devices apart by their best pace.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, Integers
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.network import best_pace, cross_group
from llmprism_tasks.stages.diagnosis.network.hop_comparison import compared
from llmprism_tasks.stages.diagnosis.network.localisation import (
    MOST_NAMED,
    alternatives,
    certainty,
    listed,
    subject,
    subject_type,
    suspect,
)
from llmprism_tasks.stages.diagnosis.network.losses import Losses
from llmprism_tasks.stages.diagnosis.network.path_pace import extra, paces, placed, timed
from llmprism_tasks.stages.diagnosis.network.shared_nics import is_shared
from llmprism_tasks.stages.diagnosis.ranking import KINDS_OF_EFFECT
from llmprism_tasks.stages.diagnosis.step_times.duration_model import chance_of_so_many
from llmprism_tasks.stages.diagnosis.step_times.slow_steps import mark_slow_steps

Row = dict[str, Any]

DEVICE_FAULTS = {
    "addr": ("slow_nic", "and traffic that avoids it is not slower"),
    "sends": ("slow_nic", "and what it receives is less slow"),
    "receives": ("slow_nic", "and what it sends is less slow"),
    "link": ("degraded_link", "and traffic that avoids it is not slower"),
    "one_way": ("congestion", "and the opposite direction is not slower"),
    "host": ("slow_nic", "at all its NICs, and traffic that avoids it is not slower"),
    "switch": ("degraded_switch", "and traffic that avoids it is not slower"),
}
"""For each type of device: the kind of fault if it is slow all the time, and the words that say how it shows."""


SUBJECT_NOUNS = {"dp_group": "The data-parallel group of {}", "job": "Traffic between the members of {}"}
"""The subject of a sentence, for the types of subjects that traffic does not cross."""

NAMED_ALONE = 0.8
"""Probability from which one device is named alone. Of a NIC and its only link, the NIC is nine times as likely; of two
devices of one type that cannot be told apart, neither is."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the NICs, links and switches that cost jobs time; where no device can be told, the slow groups.

    `score` is the ratio of time per byte in slow steps to that in healthy ones. `severity` is the ratio by which slow
    steps are longer. `confidence` is the share of that which the subject's own delay makes up.
    """
    hops = evidence.once(hops_in_trouble, settings)
    if not hops["slow"].any():
        return pl.DataFrame(schema=FINDING_SCHEMA)
    steps = mark_slow_steps(evidence.history, settings)
    every = placed(evidence, steps)
    records = timed(every, settings)
    by_step = paces(every, settings)
    elsewhere = evidence.once(best_pace.verdicts, settings).filter(
        ~pl.col("job_id").is_in(steps["job_id"].implode()), ~pl.col("slow") | best_pace.became_slow(settings)
    )
    known = pl.concat([hops, elsewhere.select(hops.columns)])
    losses = Losses(records, by_step, extra(every, hops), steps, suspect(known, evidence.members, settings))
    rows: list[Row] = []
    passing: set[str] = set()
    for culprit in losses.suspicion.culprits.iter_rows(named=True):
        for job_id in losses.jobs(culprit):
            row = losses.row(job_id, losses.slow(culprit, job_id), settings)
            if row is None:
                continue
            if is_shared(losses.slow(culprit, job_id), losses, evidence, settings):
                passing.add(job_id)
            elif row["confidence"] < MAJORITY:
                continue  # most of the loss is something else's
            elif (fault := _fault(culprit, job_id, losses, settings)) is None:
                continue
            elif _stretches(culprit, job_id, losses, settings) and (
                row["score"] < settings.latent_rate  # what is slower by a third now and then was not lost
                or _are_usual(losses.felt_ns(culprit, job_id, settings), job_id, evidence, settings)
            ):
                passing.add(job_id)
            else:
                rows.append(row | alternatives(culprit) | fault)
    unexplained = hops.filter(~pl.col("job_id").is_in([*passing, *(row["job_id"] for row in rows)]))
    rows.extend(cross_group.rows(unexplained, losses, evidence, settings))
    return pl.DataFrame([_with_explanation(row) for row in rows], schema=FINDING_SCHEMA)


def hops_in_trouble(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the hops of jobs that lose time in some steps, as `compared` does.

    If none of them is `slow`, no device can be at fault, for these jobs or for others.
    """
    steps = mark_slow_steps(evidence.history, settings)
    if steps.is_empty():
        return pl.DataFrame(schema={"slow": pl.Boolean})
    return compared(paces(placed(evidence, steps), settings), settings)


def _fault(culprit: Row, job_id: str, losses: Losses, settings: DiagnosisSettings) -> Row | None:
    """Return the kind of fault of a device, and how it shows; of several devices, if these are few. None otherwise."""
    device_type = culprit["device_type"]
    if certainty(culprit) >= NAMED_ALONE:
        kind, how = DEVICE_FAULTS[device_type]
        if stretches := _stretches(culprit, job_id, losses, settings):
            kind, how = "link_flap", f"in {stretches} stretches of steps with healthy steps between them"
    elif _is_parted(culprit) and len(culprit["candidates"]) <= MOST_NAMED:
        kind, how = "slow_network", f"and the fault may be that of any one of {listed(culprit)}"
    else:
        return None
    return {
        "kind": kind,
        "subject_type": subject_type(culprit),
        "subject": subject(culprit["device"]),
        "how": how,
    }


def _stretches(culprit: Row, job_id: str, losses: Losses, settings: DiagnosisSettings) -> int:
    """Return in how many stretches of steps a NIC or link is slow; 0 below 2, and for what many links share."""
    shared = culprit["device_type"] in ("switch", "host")
    return 0 if shared else losses.stretches(job_id, losses.slow(culprit, job_id), settings)


def _are_usual(felt_ns: Integers, job_id: str, evidence: Evidence, settings: DiagnosisSettings) -> bool:
    """Return whether a job has so many steps as long as some slow ones by chance: then that is how it runs."""
    spans = evidence.history.filter(pl.col("job_id") == job_id)
    every_ns = (spans["end_ns"] - spans["start_ns"]).to_numpy()
    return chance_of_so_many(felt_ns, every_ns) > settings.chance_within(float(every_ns.sum()))


def _is_parted(culprit: Row) -> bool:
    """Return whether the data part the devices at all. That a ring is slow alike does not part its NICs, unless the
    paces of its hops make one of them likelier than not."""
    return bool(culprit["transfers"] > 1 or culprit["own"] or certainty(culprit) > MAJORITY)


def _with_explanation(row: Row) -> Row:
    """Return the row of `FINDING_SCHEMA` with its explanation."""
    what = SUBJECT_NOUNS.get(row["subject_type"], "Traffic through {}").format(row["subject"])
    said = (
        f"{what} takes {row['score']:.2f} times the usual time per byte ({row['gbps']:.2f} Gbit/s), "
        f"{row['how']}, in steps of {row['slow_s']:.2f} s instead of {row['quick_s']:.2f} s. "
        f"This explains {row['confidence']:.0%} of the loss."
    )
    effect = row["kind"] in KINDS_OF_EFFECT
    return {name: row.get(name) for name in FINDING_SCHEMA} | {
        "explanation": said,
        "confidence": None if effect else row["confidence"],
    }
