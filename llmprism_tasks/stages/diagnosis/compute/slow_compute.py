"""Slow compute: a GPU or host computes longer than its peers, or than it used to, while the job waits for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.numerics.max_subarray import best_runs
from llmprism_tasks.numerics.robust import LEAST_VOTERS, MAJORITY, Integers, sigma, sigma_about_zero
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.held_up import held_up
from llmprism_tasks.stages.diagnosis.compute.later_work import at_first
from llmprism_tasks.stages.diagnosis.compute.nvlink_peers import joined_unseen, one_of
from llmprism_tasks.stages.diagnosis.compute.own_baseline import against_past, lone_against_past
from llmprism_tasks.stages.diagnosis.compute.wait_excuse import excuse_waiting, in_lock_step
from llmprism_tasks.stages.diagnosis.evidence import (
    FINDING_SCHEMA,
    Evidence,
    as_likely,
    candidate_columns,
    slowdown,
)
from llmprism_tasks.stages.diagnosis.step_times.job_slowdown import is_delay_felt
from llmprism_tasks.stages.diagnosis.step_times.work_spread import OUTLYING_SIGMAS, spread_of_work
from llmprism_tasks.stages.timeline.placement import NIC

QUARTILE_PER_SIGMA = 0.3186
"""Lower quartile of the absolute value of a standard normal deviate."""

QUARTILE_OF_PAIRS = 0.5 + 0.25 / 2
"""Quantile of the excesses among two peers, half of which are 0, that is the lower quartile of the other half. With two
stages of two replicas, half of that half may be a slow NIC's."""

UNEVEN_SAMPLES_RATIO = 4.0
"""Ratio of a slow NIC's deviation to its job's up to which samples of uneven length explain it. The deviation of the
peers is uncertain, too: in a ring it is too small by a third, because a waiting NIC begins with the NIC it waits for;
and of a dozen steps a deviation is known to a third. Of peers that do not vary, samples are even."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the NICs and hosts whose own work is too long in most steps, by enough to slow the job.

    A NIC is compared with its replicas; without replicas, or if half of them are slow, with its own past. Jobs in lock
    step, in which the compute gaps of all NICs are alike, are left to `last_arrival`.

    `score` is the excess in robust deviations of the job's NICs over as many steps (0 is normal). `severity` is the
    ratio by which the job's steps are longer than its quick ones or, where that is more, than they would be without the
    loss: a job whose quick steps were never seen has the same severity as one whose were. `confidence` is the share of
    it that the excess explains. The kind is `straggler` where the excess explains less than half, or where either end
    of a late transfer may be at fault; it is `stalls` where only the beginning of the steps is late.
    """
    suspects = evidence.once(slow_nics, settings)
    if suspects.is_empty():
        return pl.DataFrame(schema=FINDING_SCHEMA)
    suspects = suspects.filter(~in_lock_step(evidence))
    suspects, undecided = (
        some.join(_mostly_slow_jobs(some, evidence), on="job_id", how="anti")
        for some in excuse_waiting(suspects, evidence)
    )
    return finding_rows(suspects, undecided.join(suspects, on="job_id", how="anti"), evidence)


def finding_rows(suspects: pl.DataFrame, undecided: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Return a row for each NIC or host to blame, and one for each job in which the slow NIC cannot be told.

    Whoever is slower than before, but by less than half of what the job lost, is not named: most of it is another's.
    Hosts that wait for each other over NVLink are the candidates of one row.

    Parameters
    ----------
    suspects, undecided : as `slow_nics` returns, of different jobs
    """
    rows: list[dict[str, Any]] = []
    for (job_id,), worst in _worst_subjects(suspects, evidence).group_by("job_id", maintain_order=True):
        since_ns: int = worst["start_ns"].min()  # type: ignore[assignment]
        for hosts in joined_unseen(worst["host"].unique().sort().to_list(), str(job_id), since_ns, evidence):
            found = worst.filter(pl.col("host").is_in(hosts)).to_dicts()
            told = [(_row(row, evidence), row["by_past"]) for row in found]
            sure = [row for row, by_past in told if not by_past or row["confidence"] >= MAJORITY]
            rows += sure if len(hosts) == 1 else [one_of(hosts, row) for row in sure[:1]]
    rows += [_undecided_row(some, evidence) for _, some in undecided.group_by("job_id", maintain_order=True)]
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def slow_nics(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the NICs that are slow for long enough, by enough; one row per NIC, sorted.

    `at_first` says whether a NIC is late only at the beginning of its steps; it then costs only that delay. Who is
    slower than before has cost nothing as long as the job's steps are as short as before. Whom its peers do not wait
    for is none of them.
    """
    past = evidence.once(against_past, settings)
    work = lone_against_past(evidence.work).join(past, on="job_id", how="anti").drop_nulls("excess")
    lasting = pl.col("excess").median().over(NIC)
    theirs = work.with_columns(noise=_noise(pl.col("excess")), lasting_noise=_noise(lasting), common=False)
    work = pl.concat([theirs, past.with_columns(lasting_noise="noise", by_past=True)], how="diagonal")
    work = work.filter(pl.col("own_ns") >= settings.least_work_ms * 1e6).with_columns(
        pl.col("noise", "lasting_noise").clip(lower_bound=settings.least_noise),
        seen_noise="noise",
        loss=_lost(pl.col("excess")) * pl.col("share"),
    )
    if work.is_empty():
        return work
    persistent = _persistent_runs(work, settings)
    persistent = persistent.filter(
        pl.Series([_is_felt(row, evidence) for row in persistent.to_dicts()], dtype=pl.Boolean)
    )
    if persistent.is_empty():
        return persistent
    found = _beyond_chance(persistent, work)
    # Several slow NICs make all others wait. The waiting NICs are excused before slow NICs are counted.
    crowded = _mostly_slow_jobs(found, evidence).join(past, on="job_id", how="anti")
    few = found.join(crowded, on="job_id", how="anti")
    judged = few.join(at_first(few, evidence, settings), on=NIC, how="left").with_columns(
        pl.col("at_first").fill_null(value=False)
    )
    counted = judged.with_columns(loss=pl.when("at_first").then("behind").otherwise("loss")).drop("behind")
    found = counted.filter(pl.col("loss") >= settings.least_effect).sort(NIC)
    costs = [not row["by_past"] or _slowdown(row, evidence) >= settings.least_effect for row in found.to_dicts()]
    return held_up(found.filter(pl.Series(costs, dtype=pl.Boolean)), evidence)


def _is_felt(run: dict[str, Any], evidence: Evidence) -> bool:
    """Return whether the job's steps are longer by most of a NIC's loss while it is slow; true if that is not known.

    In steps before that, its own work may not be known. If these are more, and as long, it costs nothing: its gap
    between two exchanges is long because others make it wait.
    """
    steps = evidence.history.filter(pl.col("job_id") == run["job_id"])
    if (steps["end_ns"] <= run["start_ns"]).sum() <= run["steps"]:
        return True
    return longer_by(MAJORITY * run["loss"]) <= _slowdown(run, evidence)


def _noise(excess: pl.Expr) -> pl.Expr:
    """Return the spread of the excess among a job's NICs, as a standard deviation.

    Of two peers the quicker is the reference, so half of the excesses are 0.
    """
    excess, pairs = excess.abs(), pl.col("members") == LEAST_VOTERS - 1
    of_pairs = (
        pl.when(pairs).then(excess).quantile(QUARTILE_OF_PAIRS, interpolation="lower").over("job_id")
        / QUARTILE_PER_SIGMA
    )
    return pl.when(pairs).then(of_pairs).otherwise(sigma_about_zero(excess).over("job_id"))


def _mostly_slow_jobs(found: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Return the jobs in which most NICs were found slow."""
    nics = evidence.work.group_by("job_id").agg(nics=pl.col("addr").n_unique())
    return found.group_by("job_id").len().join(nics, on="job_id").filter(pl.col("len") > MAJORITY * pl.col("nics"))


def _persistent_runs(work: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Find for each NIC the run of steps up to now in which it is slow, and keep runs that are long and slow enough.

    Differences by chance, such as samples of uneven length, average out over more steps. If no run is long enough, the
    result has no rows and only the columns `NIC`, `first` and `last`.
    """
    work = work.sort(*NIC, "step_index").with_columns(
        least=pl.max_horizontal(settings.least_effect, settings.noise_margin * pl.col("lasting_noise"))
    )
    by_chance = (settings.least_steps / pl.col("slow")).sqrt()
    series = work.group_by(NIC, maintain_order=True).agg(pl.len())
    first, last = _runs_up_to_now(work, series["len"].to_numpy().astype(np.int64), settings)
    bounds = series.select(NIC).with_columns(first=pl.Series(first), last=pl.Series(last))
    bounds = bounds.filter(pl.col("last") - pl.col("first") + 1 >= settings.least_steps)
    if bounds.is_empty():
        return bounds
    marked = (
        work.with_row_index("row")
        .join(bounds, on=NIC)
        .with_columns(in_run=pl.col("row").cast(pl.Int64).is_between(pl.col("first"), pl.col("last")))
    )
    return (
        marked.filter("in_run")
        .join(_own_variation(marked, settings), on=NIC)
        .group_by(NIC)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("component", "by_past", "common", "paid").first(),
            pl.col("excess", "loss", "own_ns").median(),
            pl.col("noise", "lasting_noise", "seen_noise", "own_noise", "otherwise").first(),
            slow=(pl.col("excess") > pl.col("least")).sum(),
            steps=pl.len(),
            ringed=pl.col("last_stage").is_null().all(),
        )
        .with_columns(more=pl.when("by_past").then((1 + pl.col("excess")) / (1 + pl.col("otherwise")) - 1))
        .with_columns(
            excess=pl.coalesce("more", "excess"),
            loss=pl.col("loss") * (_lost(pl.col("more")) / _lost(pl.col("excess"))).fill_null(1.0),
        )
        .drop("otherwise", "more")
        .with_columns(
            score=pl.col("excess") / pl.max_horizontal("lasting_noise", by_chance * pl.col("noise")),
            uneven=pl.col("own_noise") <= UNEVEN_SAMPLES_RATIO * (1 + pl.col("excess")) * pl.col("seen_noise"),
        )
        .filter(
            pl.col("paid"),
            pl.col("slow") >= settings.least_steps,
            pl.col("end_ns") - pl.col("start_ns") >= settings.least_lasting_s * 1e9,
            pl.col("slow") >= settings.persistence * pl.col("steps"),
            pl.col("loss") >= settings.least_effect,
            pl.col("score") >= settings.sigmas,
            pl.col("excess")
            >= settings.noise_margin * pl.col("own_noise") * pl.when("uneven").then(by_chance).otherwise(1.0),
        )
    )


def _runs_up_to_now(work: pl.DataFrame, lengths: Integers, settings: DiagnosisSettings) -> tuple[Integers, Integers]:
    """Return the first and the last step of each NIC's run of slow steps, of those that reach the window; -1 without.

    Quick steps lose next to nothing, and would join the run to an earlier trouble. A trouble is over once the NIC was
    well for as long as one has to last.

    Parameters
    ----------
    work : by NIC and step, with `least`, the excess above which it is slow
    lengths : shape (NICs,), steps of each
    """
    well = pl.struct(*NIC, pl.col("excess") <= pl.col("least")).rle_id()
    lasts = (pl.col("end_ns") - pl.col("start_ns")).sum().over(well) >= settings.least_lasting_s * 1e9
    is_over = pl.col("excess").le(pl.col("least")) & lasts & (pl.len().over(well) >= settings.least_steps)
    above = work["excess"].to_numpy() - work["least"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    slow, before = (np.append(0, np.cumsum(some)) for some in (above > 0, ~work["current"].to_numpy()))
    since = offsets[:-1] + np.diff(before[offsets])
    first, last, _ = best_runs(above, offsets, since)
    spotty = slow[last + 1] - slow[first] < settings.persistence * (last + 1 - first)
    apart = np.repeat(spotty, lengths) & work.select(is_over).to_series().to_numpy()
    first, last, _ = best_runs(np.where(apart, np.nan, above), offsets, since)
    return first, last


def _beyond_chance(found: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Keep the NICs that are slower than uneven sample lengths explain; over more steps, a smaller excess is enough.

    A waiting NIC begins with the NIC it waits for, so the NICs of a ring seem more alike than their samples are.
    Compute gaps that only some steps have make own work vary, too, but not the work before the first exchange. So the
    smaller spread of the two counts.
    """
    lasting = found.group_by("job_id").agg(since_ns=pl.col("start_ns").min(), until_ns=pl.col("end_ns").max())
    slowed = (pl.col("start_ns") < pl.col("until_ns")) & (pl.col("end_ns") > pl.col("since_ns"))
    others = (
        work.join(found.select(NIC), on=NIC, how="anti")
        .join(lasting, on="job_id")
        .with_columns(pl.col("own_ns", "later_ns") / pl.col("samples").fill_null(1.0), slowed=slowed)
        .with_columns(first_ns=pl.col("own_ns") - pl.col("later_ns").fill_null(0))
    )
    noise = spread_of_work(others, "own_ns", "first_ns", apart=["slowed"]).select(
        "job_id", varies=pl.min_horizontal("own_ns", "first_ns")
    )
    beyond = pl.col("excess") * pl.col("slow").sqrt() >= OUTLYING_SIGMAS * pl.col("varies")
    return found.join(noise, on="job_id", how="left").filter(beyond.fill_null(value=True)).drop("varies")


def _lost(excess: pl.Expr) -> pl.Expr:
    """Return the share of a longer time by which it is longer."""
    return excess / (1 + excess)


def _own_variation(marked: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return how much each NIC varies, as `own_noise`, and whether the job's steps are longer for it, as `paid`.

    `otherwise` is the excess outside the run: a NIC whose work varies lies above its own lower quartile in most steps.

    `own_noise` is the larger of the deviations within the NIC's run of slow steps and outside it. A NIC that is slow
    now and then, or by very different amounts, has no fault that began and lasts. A NIC that is slow while steps are as
    quick as ever is no fault either: no NIC waited for it, or a record is missing.
    """
    excess = pl.col("excess")
    noise = marked.group_by(*NIC, "in_run").agg(own_noise=sigma(excess)).group_by(NIC).agg(pl.col("own_noise").max())
    otherwise = excess.filter(~pl.col("in_run")).median().fill_null(0.0).clip(lower_bound=0)
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    late = excess > pl.max_horizontal(settings.least_effect, settings.noise_margin * pl.col("noise"))
    pays = is_delay_felt(late, cost_ns=pl.col("loss") * length, length_ns=length) | (
        (~late).sum() < settings.least_steps
    )
    return noise.join(marked.group_by(NIC).agg(otherwise=otherwise, paid=pays), on=NIC)


def _worst_subjects(suspects: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Merge the slow NICs of one host, and keep NICs and hosts that cost at least half of the job's worst."""
    joined = suspects.join(evidence.members, on=NIC)
    in_host = evidence.members.group_by("job_id", "host").agg(nics=pl.len())
    slow_in_host = pl.len().over("job_id", "host")
    joined = joined.join(in_host, on=["job_id", "host"]).with_columns(
        whole=(slow_in_host > 1) & (2 * slow_in_host >= pl.col("nics"))
    )
    measures = ("excess", "loss", "own_ns", "score", "slow", "steps")
    return (
        joined.with_columns(device=pl.when("whole").then("host").otherwise("addr"))
        .group_by("job_id", "host", "device")
        .agg(
            pl.col("whole", "by_past").first(),
            pl.col("at_first").all(),
            pl.col("addr", "component"),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col(measures).cast(pl.Float64).median(),
        )
        .filter(2 * pl.col("loss") >= pl.col("loss").max().over("job_id"))
        .sort("job_id", "loss", "device", descending=[False, True, False])
    )


def longer_by(loss: float) -> float:
    """Return the ratio by which steps are longer than without a loss, which is a share of the longer step, below 1."""
    return loss / (1 - loss)


def _row(found: dict[str, Any], evidence: Evidence) -> dict[str, Any]:
    history = evidence.history.filter(pl.col("job_id") == found["job_id"])
    severity = _slowdown(found, evidence)
    if not found["by_past"]:
        severity = max(severity, longer_by(found["loss"]))
    explains = found["loss"] * (1 + severity) / severity
    if found["by_past"] and not found["at_first"]:
        # Work that takes a tenth longer than it used to makes steps longer by a tenth at most.
        explains = min(explains, found["excess"] / severity)
    confidence = min(explains, 1.0) * found["slow"] / found["steps"]
    nics = len(found["addr"])
    who = f"Host {found['host']} ({nics} NICs)" if found["whole"] else f"{found['addr'][0]} on {found['host']}"
    usual = "it used to" if found["by_past"] else "its peers"
    usual_ns = found["own_ns"] / (1 + found["excess"])
    at_first = found["at_first"]
    known = "stalls" if at_first else "slow_compute"
    kind = known if confidence >= MAJORITY else "straggler"
    times = f"({found['own_ns'] / 1e6:.0f} ms against {usual_ns / 1e6:.0f} ms)"
    what = f"computes {1 + found['excess']:.2f} times as long as {usual} before it sends {times}"
    if at_first:
        what = f"begins its steps later than {usual} {times}, and then works at the usual pace,"
    work = evidence.work.filter(pl.col("job_id") == found["job_id"])
    # In a pipeline the flows do not show which end of a late message was not ready.
    other = " except perhaps the one that it sends to" if at_first and work["last_stage"].count() else ""
    return {
        "job_id": found["job_id"],
        "kind": kind,
        "subject_type": "host" if found["whole"] else "addr",
        "subject": found["device"],
        "start_ns": found["start_ns"],
        "end_ns": found["end_ns"],
        "score": found["score"],
        "severity": _window_severity(severity, history, found) if kind == "stalls" else severity,
        "explanation": f"{who} {what} in {found['slow']:.0f} of {found['steps']:.0f} "
        f"steps, and was not waiting for any NIC{other}. "
        f"The job's steps take {1 + severity:.2f} times as long as they need to.",
        "confidence": confidence,
        "peers": _peers(found, evidence),
    }


def _slowdown(found: dict[str, Any], evidence: Evidence) -> float:
    history = evidence.history.filter(pl.col("job_id") == found["job_id"])
    return slowdown(history, found["start_ns"], found["end_ns"])


def _is_in_interval(found: dict[str, Any]) -> pl.Expr:
    within: pl.Expr = (pl.col("end_ns") > found["start_ns"]) & (pl.col("end_ns") <= found["end_ns"])
    return within


def _window_severity(severity: float, history: pl.DataFrame, found: dict[str, Any]) -> float:
    """Return the ratio by which the window's steps are longer in total; the severity of `stalls` is defined so."""
    length = pl.col("end_ns") - pl.col("start_ns")
    ratio = history.filter("current").select(length.filter(_is_in_interval(found)).sum() / length.sum()).item()
    loss = severity / (1 + severity) * ratio * found["slow"] / found["steps"]
    return float(loss / (1 - loss))


def _peers(found: dict[str, Any], evidence: Evidence) -> list[str] | None:
    """Return the other members of the groups of the subject's NICs."""
    if found["by_past"]:
        return None
    same = evidence.work.filter(
        pl.col("job_id") == found["job_id"],
        pl.col("component").is_in(found["component"]),
        ~pl.col("addr").is_in(found["addr"]),
    )
    return sorted(same["addr"].unique())


def _undecided_row(rows: pl.DataFrame, evidence: Evidence) -> dict[str, Any]:
    """Return the row of a job in which one of several NICs is slow and cannot be told from the others."""
    job_id, start_ns, end_ns = rows["job_id"][0], rows["start_ns"].min(), rows["end_ns"].max()
    history = evidence.history.filter(pl.col("job_id") == job_id)
    loss = float(rows["loss"].median())  # type: ignore[arg-type]
    severity = max(slowdown(history, int(start_ns), int(end_ns)), longer_by(loss))  # type: ignore[arg-type]
    suspects = sorted(rows["addr"].unique())
    among = ", ".join(suspects[:8])
    return candidate_columns(as_likely(suspects)) | {
        "job_id": job_id,
        "kind": "straggler",
        "subject_type": "job",
        "subject": job_id,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "score": float(rows["score"].median()),  # type: ignore[arg-type]
        "severity": severity,
        "explanation": f"{among} begin late together, step after step. One of them keeps the others waiting; the flows "
        f"do not show which. The job's steps take {1 + severity:.2f} times as long as they need to.",
        "confidence": None,
        "peers": None,
    }
