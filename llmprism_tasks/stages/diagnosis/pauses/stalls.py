"""Stalls: steps in which one rank, a different one each time, keeps all others waiting.

A slow data loader or a garbage collection stops one rank for a moment, now and then, and all other ranks wait.
Micro-batches of uneven length do so in every step: each time another replica has drawn the longest.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.robust import MAJORITY, relative_sigma
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.later_work import late_at_first, later_work, length_ns
from llmprism_tasks.stages.diagnosis.compute.slow_compute import slow_nics
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, HEALTHY_STEP_QUANTILE, Evidence
from llmprism_tasks.stages.diagnosis.step_times.job_slowdown import is_delay_felt
from llmprism_tasks.stages.diagnosis.step_times.slow_run import NOW_AND_THEN_QUANTILE
from llmprism_tasks.stages.diagnosis.step_times.work_spread import OUTLYING_SIGMAS, spread_of_work
from llmprism_tasks.stages.timeline.placement import NIC

JOB = "job_id"

WORK_COLUMNS = ["own_ns", "first_ns", "first_excess", "behind_ns", "later_ns", "later_excess", "last_stage"]

STALLS_BY_CHANCE = 0.01
"""Probability below which it is no chance that one host has so many of the stalls, if every host is equally likely."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that lose time to a different late rank in each step.

    If most of the stalls are one host's, the host is named instead. `severity` is the ratio by which the stalls
    lengthen the window's steps. `score` is the loss over the smallest loss that counts. `confidence` is the share of
    the long steps' excess that the late ranks explain.
    """
    steps = _latest_nics(evidence, settings).join(
        evidence.once(slow_nics, settings).select(JOB).unique(), on=JOB, how="anti"
    )
    found = []
    for (job_id,), mine in steps.group_by(JOB, maintain_order=True):
        finders = (_stall_row, _late_start_row, _uneven_row)
        rows = (row for find_one in finders if (row := find_one(str(job_id), mine, settings)) is not None)
        found += [*rows][:1]
    return pl.DataFrame(found, schema=FINDING_SCHEMA)


def _latest_nics(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the latest NIC of each step of the window.

    Sorted, with `job_id`, `step_index`, `start_ns`, `end_ns`, `length_ns`, `host`, `late_ns`, the NIC's columns of
    `later_work`, `hosts` (number of candidates), `whole` (whether all computing of the step was measured), `beyond` and
    `beyond_at_first` (whether the NIC is later than others ever are, in total and at the beginning of the step).
    """
    late = pl.col("excess") / (1 + pl.col("excess")) * pl.col("own_ns")
    together = pl.struct(JOB, "host", "pp_stage").rank("dense")
    work = (
        evidence.once(later_work, settings)
        .join(evidence.members.select(*NIC, "host", together=together), on=NIC, maintain_order="left")
        .with_columns(late_ns=late.clip(lower_bound=0), whole=pl.col("last_stage").is_null())
    )
    latest = (
        _confirm_by_tensor_peers(work)
        .sort(JOB, "step_index", "late_ns", "host", "addr")
        .group_by(JOB, "step_index", maintain_order=True)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("host", "late_ns", *WORK_COLUMNS).last(),
            pl.col("host").n_unique().alias("hosts"),
            pl.col("whole").all(),
        )
        .with_columns(length_ns=length_ns())
    )
    return _mark_outliers(latest, work)


def _confirm_by_tensor_peers(work: pl.DataFrame) -> pl.DataFrame:
    """Return one NIC per step and stage of a host: the one that most of its tensor-parallel group is as late as.

    The ranks of the group work in lock step, each in another data-parallel group; a rank that is late alone has lost a
    record.

    Parameters
    ----------
    work : with `late_ns` and `together` (a number for each job's stage in a host), sorted; of equally late NICs the
        first counts as the later one
    """
    most = pl.col("component").n_unique() // 2
    place = pl.col("late_ns").rank("ordinal", descending=True) - 1
    return work.filter((place == most).over("together", "step_index"))


def _mark_outliers(latest: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Add whether the latest NIC was later than others ever are, as `beyond` (in total) and `beyond_at_first`."""
    others = work.join(latest.select(JOB, "step_index", "host"), on=[JOB, "step_index", "host"], how="anti")
    noise = spread_of_work(others, "own_ns", "first_ns").select(JOB, own_noise="own_ns", first_noise="first_ns")
    in_all = pl.col("late_ns") >= OUTLYING_SIGMAS * pl.col("own_noise") * (pl.col("own_ns") - pl.col("late_ns"))
    at_first = pl.col("behind_ns") >= OUTLYING_SIGMAS * pl.col("first_noise") * (
        pl.col("first_ns") - pl.col("behind_ns")
    )
    return latest.join(noise, on=JOB, how="left", maintain_order="left").with_columns(
        beyond=(in_all | at_first).fill_null(value=True), beyond_at_first=at_first.fill_null(value=True)
    )


def _stall_row(job_id: str, steps: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, Any] | None:
    """Return the row of steps in which one rank is far later than in other steps; None if they cost too little."""
    usual_ns, ordinary_ns = (steps[name].quantile(HEALTHY_STEP_QUANTILE) for name in ("length_ns", "late_ns"))
    longer = pl.col("length_ns") - pl.lit(usual_ns)
    later = pl.col("late_ns") - pl.lit(ordinary_ns)
    long = steps.filter(longer > settings.least_stall * pl.lit(usual_ns))
    if long.height < settings.least_steps:
        return None
    others = steps.join(long, on="step_index", how="anti")
    explained = long.filter((later >= MAJORITY * longer) & pl.col("beyond"))
    if explained.height < max(settings.least_steps, MAJORITY * long.height) or others.height < settings.least_steps:
        return None
    if not apart(explained, others):
        return None
    lost_ns = float(explained.select(pl.min_horizontal(later, longer).sum()).item())
    loss = lost_ns / float(steps["length_ns"].sum())
    if loss < settings.least_effect:
        return None
    host = _one_host(explained, steps.filter("beyond", pl.col("late_ns") > 0))
    who = "a different rank each time" if host is None else _host_words(host, explained)
    said = (
        f"{explained.height} of {steps.height} steps stall for {lost_ns / explained.height / 1e6:.0f} "
        f"ms on average, while all other ranks wait for {who}. Check data loading and garbage collection. The stalls "
        f"cost {100 * loss:.0f} % of the window."
    )
    return finding_row(job_id, explained, said, loss, explained.height / long.height, settings.least_effect, host=host)


def _late_start_row(job_id: str, steps: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, Any] | None:
    """Return the row of a rank that begins most steps late and then works as quickly as others; None if cheap.

    If another rank is late each time, uneven samples may be the cause, unless all other ranks are alike. If one host is
    late by a different amount each time and its later work is not seen, the cause is not known. Who waits for data is
    late by next to nothing now and then: of one host that is later than others ever are, the mean delay counts.
    """
    least = max(settings.least_steps, settings.persistence * steps.height)
    long = steps.filter(pl.col("behind_ns") > settings.least_stall * pl.col("length_ns"))
    later = steps.filter("beyond_at_first", pl.col("behind_ns") > 0)
    much = float(later["behind_ns"].sum()) > settings.least_stall * float(later["length_ns"].sum())
    some = [struck for struck in (long, later if much else long) if struck.height >= least]
    named = [(struck, host) for struck in some if (host := _one_host(struck)) is not None]
    struck, host = named[0] if named else (long.filter("beyond_at_first"), None)
    if struck.height < least:
        return None
    if not _has_longer_steps(steps, settings, one_host=host is not None):
        return None
    mine = struck if host is None else struck.filter(pl.col("host") == host)
    known = host is None or mine.select(late_at_first(settings)).item()
    varies = known is None and mine.select(relative_sigma(pl.col("first_ns")) >= settings.least_effect).item()
    span = _span(struck)
    if not (known or varies) or span["end_ns"] - span["start_ns"] < settings.least_lasting_s * 1e9:
        return None
    lost_ns = float(struck["behind_ns"].sum())
    loss = lost_ns / float(steps["length_ns"].sum())
    who = "one rank, a different one each time," if host is None else _host_words(host, struck)
    said = (
        f"In {struck.height} of {steps.height} steps {who} begins late, by "
        f"{lost_ns / struck.height / 1e6:.0f} ms on average, {_cause_words(host, known=bool(known))} "
        f"This costs {100 * loss:.0f} % of the window."
    )
    kind = "stalls" if known else "straggler"
    return finding_row(
        job_id, struck, said, loss, struck.height / steps.height, settings.least_effect, kind=kind, host=host
    )


def _host_words(host: str, steps: pl.DataFrame) -> str:
    """Return the words for a host. In a pipeline, flows do not show which end of a late message was not ready."""
    return f"host {host}" if steps["whole"].all() else f"host {host} (or the receiver of its first message)"


def _cause_words(host: str | None, *, known: bool) -> str:
    """Return the words that say why this is late at the beginning, and not slow computing."""
    if not known:
        return "by a different time in each; its later work was not seen."
    others = "while all other ranks take equally long" if host is None else "and then works as quickly as the others"
    return f"{others}. Check data loading, storage and garbage collection."


def _has_longer_steps(steps: pl.DataFrame, settings: DiagnosisSettings, *, one_host: bool) -> bool:
    """Return whether steps are longer for the late rank, as far as a comparison of more and less late steps shows it.

    If all steps are alike, one late host is enough. A different rank each time, late by the same, results from lost
    records: a rank whose first record is lost seems to begin one micro-batch later.
    """
    late, length = pl.col("behind_ns"), pl.col("length_ns")
    splits = (late > settings.least_stall * length, late > late.median())
    more = [(late.filter(split).median() - late.filter(~split).median()).fill_null(0) for split in splits]
    longer = [is_delay_felt(split, cost_ns=late, length_ns=length) for split in splits]
    least = settings.least_effect * length.median()
    shown = steps.select(
        contradicted=pl.any_horizontal((by >= least) & ~one for by, one in zip(more, longer, strict=True)),
        proven=pl.any_horizontal((by >= least) & one for by, one in zip(more, longer, strict=True)),
    )
    contradicted, proven = shown.row(0)
    return not contradicted and bool(proven or one_host)


def apart(stalls: pl.DataFrame, others: pl.DataFrame) -> bool:
    """Return whether the stalls differ from the tail of ordinary delays: twice as late as other steps ever are."""
    least = stalls["late_ns"].quantile(1 - NOW_AND_THEN_QUANTILE)
    usual = others["late_ns"].quantile(NOW_AND_THEN_QUANTILE)
    return float(usual) <= MAJORITY * float(least)  # type: ignore[arg-type]


def _one_host(stalls: pl.DataFrame, late: pl.DataFrame | None = None) -> str | None:
    """Return the host with most of the stalls, unless it has them by chance.

    Parameters
    ----------
    late : stalls and shorter delays. Of few stalls they may tell; who has most of the stalls must have most of them
    """
    (host,) = stalls["host"].value_counts().sort("count", "host", descending=[True, False])["host"].head(1)
    counts = [((steps["host"] == host).sum(), steps.height) for steps in (stalls, late) if steps is not None]
    chances = [binomial.any_value_bound(count, of, int(stalls["hosts"][0])) for count, of in counts]
    mostly = all(count > MAJORITY * of for count, of in counts)
    return str(host) if mostly and min(chances) < STALLS_BY_CHANCE else None


def _uneven_row(job_id: str, steps: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, Any] | None:
    """Return the row of a job in which another replica is latest in every step; None if that costs too little.

    Pipelines are left out: only their first micro-batch is measured, which says nothing about the sum. The job's steps
    must be longer for it: a step with a later rank is longer by most of the delay.
    """
    hosts = steps["host"].value_counts()["count"]
    loss = float((steps["late_ns"] / steps["length_ns"]).median())  # type: ignore[arg-type]
    same = float(hosts.max()) > MAJORITY * steps.height  # type: ignore[arg-type]
    if not steps["whole"].all() or steps.height < settings.least_steps or same or loss < settings.least_uneven:
        return None
    later = pl.col("late_ns") > pl.col("late_ns").median()
    if not steps.select(is_delay_felt(later, cost_ns=pl.col("late_ns"), length_ns=pl.col("length_ns"))).item():
        return None
    said = (
        f"In each of {steps.height} steps the slowest replica, a different one each time, computes for "
        f"{100 * loss:.0f} % of the step while all others wait: micro-batches are uneven. Packing samples, or "
        "distributing them by length, would recover most of this time."
    )
    return finding_row(job_id, steps, said, loss, 1.0, settings.least_uneven, kind="uneven_micro_batches")


def finding_row(
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
    """Return the row of a fault that is not a device's, or that is one host's.

    Parameters
    ----------
    steps : the affected steps: `start_ns`, `end_ns`
    loss, least : the cost, and the smallest cost that counts, as ratios of the window's steps
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
