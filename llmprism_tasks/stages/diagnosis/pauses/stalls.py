"""Stalls: steps in which some rank, another one each time, keeps all others waiting.

A data loader that does not keep up, or a garbage collector, stops one rank for a moment, now and then: everybody waits.
Micro-batches of uneven length do it in every step: another replica has drawn the longest each time.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.robust import relative_sigma
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.later_work import late_at_first, later_work, length_ns
from llmprism_tasks.stages.diagnosis.compute.slow_compute import MOST, slow_nics
from llmprism_tasks.stages.diagnosis.evidence import QUICK, ROW, Evidence
from llmprism_tasks.stages.diagnosis.step_times.job_slowdown import paid
from llmprism_tasks.stages.diagnosis.step_times.work_spread import BEYOND, spread_of_work
from llmprism_tasks.stages.timeline.placement import NIC

JOB = "job_id"

WORK = ["own_ns", "first_ns", "first_excess", "behind_ns", "later_ns", "later_excess", "last_stage"]

USUAL = 0.9
"""Quantile of the other steps up to which somebody is as late now and then, by the length of its samples, and of stalls
above which all but a few lie."""

BY_CHANCE = 0.01
"""Probability below which so many stalls are not one host's by chance, while any host might have them."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that lose time to somebody else in each step.

    Where most of the stalls are one host's, it is named instead. `severity` is the ratio by which the window's steps
    are longer for it; `score` the loss over the least that counts; `confidence` the share of the long steps' excess
    that who is late explains.
    """
    steps = _latest(evidence, settings).join(
        evidence.once(slow_nics, settings).select(JOB).unique(), on=JOB, how="anti"
    )
    found = []
    for (job_id,), mine in steps.group_by(JOB, maintain_order=True):
        finders = (_stalled, _late_at_first, _uneven)
        rows = (row for find_one in finders if (row := find_one(str(job_id), mine, settings)) is not None)
        found += [*rows][:1]
    return pl.DataFrame(found, schema=ROW)


def _latest(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return who was latest in each step of the window.

    Sorted: `job_id`, `step_index`, `start_ns`, `end_ns`, `length_ns`, `host`, `late_ns`, its columns of `later_work`,
    `hosts` (how many might have been), `whole` (whether all of the step's computing was measured), `beyond` and
    `beyond_at_first` (whether it is later than others ever are, in all it computes and at the beginning).
    """
    late = pl.col("excess") / (1 + pl.col("excess")) * pl.col("own_ns")
    together = pl.struct(JOB, "host", "pp_stage").rank("dense")
    work = (
        evidence.once(later_work, settings)
        .join(evidence.members.select(*NIC, "host", together=together), on=NIC, maintain_order="left")
        .with_columns(late_ns=late.clip(lower_bound=0), whole=pl.col("last_stage").is_null())
    )
    latest = (
        _confirmed(work)
        .sort(JOB, "step_index", "late_ns", "host", "addr")
        .group_by(JOB, "step_index", maintain_order=True)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("host", "late_ns", *WORK).last(),
            pl.col("host").n_unique().alias("hosts"),
            pl.col("whole").all(),
        )
        .with_columns(length_ns=length_ns())
    )
    return _beyond(latest, work)


def _confirmed(work: pl.DataFrame) -> pl.DataFrame:
    """Return of each step and host's stage the NIC as late as which most of a tensor-parallel group are.

    Its ranks work in lock step, each in another data-parallel group: one that is late alone has lost a record.

    Parameters
    ----------
    work : with `late_ns` and `together`, a number for each job's stage in a host, sorted; of NICs that are equally late
        the first counts as later
    """
    most = pl.col("component").n_unique() // 2
    place = pl.col("late_ns").rank("ordinal", descending=True) - 1
    return work.filter((place == most).over("together", "step_index"))


def _beyond(latest: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Add whether who was latest in a step was later than others ever are, as `beyond` and `beyond_at_first`."""
    others = work.join(latest.select(JOB, "step_index", "host"), on=[JOB, "step_index", "host"], how="anti")
    noise = spread_of_work(others, "own_ns", "first_ns").select(JOB, own_noise="own_ns", first_noise="first_ns")
    in_all = pl.col("late_ns") >= BEYOND * pl.col("own_noise") * (pl.col("own_ns") - pl.col("late_ns"))
    at_first = pl.col("behind_ns") >= BEYOND * pl.col("first_noise") * (pl.col("first_ns") - pl.col("behind_ns"))
    return latest.join(noise, on=JOB, how="left", maintain_order="left").with_columns(
        beyond=(in_all | at_first).fill_null(value=True), beyond_at_first=at_first.fill_null(value=True)
    )


def _stalled(job_id: str, steps: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, Any] | None:
    """Return what is lost to steps in which one rank is late by far more than in others; None if too little."""
    usual_ns, ordinary_ns = (steps[name].quantile(QUICK) for name in ("length_ns", "late_ns"))
    longer = pl.col("length_ns") - pl.lit(usual_ns)
    later = pl.col("late_ns") - pl.lit(ordinary_ns)
    long = steps.filter(longer > settings.least_stall * pl.lit(usual_ns))
    if long.height < settings.least_steps:
        return None
    others = steps.join(long, on="step_index", how="anti")
    explained = long.filter((later >= MOST * longer) & pl.col("beyond"))
    if explained.height < max(settings.least_steps, MOST * long.height) or others.height < settings.least_steps:
        return None
    if not apart(explained, others):
        return None
    lost_ns = float(explained.select(pl.min_horizontal(later, longer).sum()).item())
    loss = lost_ns / float(steps["length_ns"].sum())
    if loss < settings.least_effect:
        return None
    host = _one_host(explained)
    who = "another rank each time" if host is None else _who(host, explained)
    said = (
        f"{explained.height} of {steps.height} steps stall for {lost_ns / explained.height / 1e6:.0f} "
        f"ms on average while all wait for {who}: look at data loading and garbage collection. They cost "
        f"{100 * loss:.0f} % of the window."
    )
    return told(job_id, explained, said, loss, explained.height / long.height, settings.least_effect, host=host)


def _late_at_first(job_id: str, steps: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, Any] | None:
    """Return what is lost where somebody begins most steps late, but works as quickly afterwards; None if too little.

    Where it is another one each time, samples of uneven length do as much, unless all others are alike. Of one host
    that is late by another amount each time, and whose later work nobody sees, the cause is not known.
    """
    least = max(settings.least_steps, settings.persistence * steps.height)
    struck = steps.filter(pl.col("behind_ns") > settings.least_stall * pl.col("length_ns"))
    if struck.height < least:
        return None
    host = _one_host(struck)
    struck = struck if host else struck.filter("beyond_at_first")
    if struck.height < least:
        return None
    if not _pays(steps, settings, one_host=host is not None):
        return None
    mine = struck if host is None else struck.filter(pl.col("host") == host)
    known = host is None or mine.select(late_at_first(settings)).item()
    varies = known is None and mine.select(relative_sigma(pl.col("first_ns")) >= settings.least_effect).item()
    span = _span(struck)
    if not (known or varies) or span["end_ns"] - span["start_ns"] < settings.least_lasting_s * 1e9:
        return None
    lost_ns = float(struck["behind_ns"].sum())
    loss = lost_ns / float(steps["length_ns"].sum())
    who = "some rank, another one each time," if host is None else _who(host, struck)
    said = (
        f"In {struck.height} of {steps.height} steps {who} begins late, by "
        f"{lost_ns / struck.height / 1e6:.0f} ms on average, {_then(host, known=bool(known))}. "
        f"This costs {100 * loss:.0f} % of the window."
    )
    kind = "stalls" if known else "straggler"
    return told(job_id, struck, said, loss, struck.height / steps.height, settings.least_effect, kind=kind, host=host)


def _who(host: str, steps: pl.DataFrame) -> str:
    """Name a host; of a pipeline it is the one that sends late, and nothing shows which end of that was not ready."""
    return f"host {host}" if steps["whole"].all() else f"host {host} (or who takes what it sends first)"


def _then(host: str | None, *, known: bool) -> str:
    """Say what tells those who begin late from those who compute slowly."""
    if not known:
        return "by another time in each; what it works on later was not seen"
    others = "while all others take equally long" if host is None else "and then works as quickly as others"
    return f"{others}: look at data loading, storage and garbage collection"


def _pays(steps: pl.DataFrame, settings: DiagnosisSettings, *, one_host: bool) -> bool:
    """Say whether the job pays for who is late, as far as steps in which it is later than in others can show it.

    Where steps are all alike, one host that is late in them is enough. Another one each time, by the same, is what
    comes of lost records: whose first is not seen seems to begin one micro-batch later.
    """
    late, length = pl.col("behind_ns"), pl.col("length_ns")
    splits = (late > settings.least_stall * length, late > late.median())
    more = [(late.filter(split).median() - late.filter(~split).median()).fill_null(0) for split in splits]
    told = [paid(split, cost_ns=late, length_ns=length) for split in splits]
    least = settings.least_effect * length.median()
    shown = steps.select(
        contradicted=pl.any_horizontal((by >= least) & ~one for by, one in zip(more, told, strict=True)),
        proven=pl.any_horizontal((by >= least) & one for by, one in zip(more, told, strict=True)),
    )
    contradicted, proven = shown.row(0)
    return not contradicted and bool(proven or one_host)


def apart(stalls: pl.DataFrame, others: pl.DataFrame) -> bool:
    """Tell stalls from the tail of what every step has: they are twice as late as other steps ever are."""
    least, usual = stalls["late_ns"].quantile(1 - USUAL), others["late_ns"].quantile(USUAL)
    return float(usual) <= MOST * float(least)  # type: ignore[arg-type]


def _one_host(stalls: pl.DataFrame) -> str | None:
    """Return the host that most of the stalls are of, unless that is chance."""
    host, count = stalls["host"].value_counts(sort=True).sort("count", "host", descending=[True, False]).row(0)
    chance = binomial.any_value_bound(count, stalls.height, int(stalls["hosts"][0]))
    return host if count > MOST * stalls.height and chance < BY_CHANCE else None


def _uneven(job_id: str, steps: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, Any] | None:
    """Return what is lost where another replica is the latest in every step; None if as much is normal.

    Not in pipelines, of which the first micro-batch is measured alone: it says nothing of their sum. And the job must
    pay for it: a step in which somebody is later is longer by most of that.
    """
    hosts = steps["host"].value_counts()["count"]
    loss = float((steps["late_ns"] / steps["length_ns"]).median())  # type: ignore[arg-type]
    same = float(hosts.max()) > MOST * steps.height  # type: ignore[arg-type]
    if not steps["whole"].all() or steps.height < settings.least_steps or same or loss < settings.least_uneven:
        return None
    later = pl.col("late_ns") > pl.col("late_ns").median()
    if not steps.select(paid(later, cost_ns=pl.col("late_ns"), length_ns=pl.col("length_ns"))).item():
        return None
    said = (
        f"In each of {steps.height} steps the slowest replica, another one each time, computes for "
        f"{100 * loss:.0f} % of the step while all others wait: micro-batches are uneven. Packing samples, or "
        "dealing them out by length, would give most of it back."
    )
    return told(job_id, steps, said, loss, 1.0, settings.least_uneven, kind="uneven_micro_batches")


def told(
    job_id: str,
    steps: pl.DataFrame,
    explanation: str,
    loss: float,
    confidence: float,
    least: float,
    *,
    kind: str = "stalls",
    host: str | None = None,
) -> dict[str, Any]:
    """Return the row of a trouble that is nobody's device, or one host's.

    Parameters
    ----------
    steps : those that it struck: `start_ns`, `end_ns`
    loss, least : what it costs, and the least that counts, as ratios of the window's steps
    """
    return {
        "job_id": job_id,
        "kind": kind,
        "subject_type": "job" if host is None else "host",
        "subject": host or job_id,
        **_span(steps),
        "score": loss / least,
        "severity": loss / (1 - loss),
        "explanation": explanation,
        "confidence": confidence,
    }


def _span(steps: pl.DataFrame) -> dict[str, Any]:
    return {"start_ns": steps["start_ns"].min(), "end_ns": steps["end_ns"].max()}
