"""Checkpoint stalls: the whole job pauses between steps now and then, while its members write to storage.

A checkpoint is written between two steps. A job that waits for it is silent from the end of one step until its next
forward passes can begin, all members alike. A slow data loader or a garbage collection holds up one member only, and
the others show it by what they send early. If storage traffic cannot be seen, pauses after equal numbers of steps are
checkpoints or evaluations, which the data do not tell apart: they are told with an even chance at most.

How often to save is the users' choice. So pauses that a job has always had are its habit, and no fault, as long as each
takes about as long as the others. They are told if the job ran without them before, if they take far longer now, or if
they write and take more of its time than any choice explains. How long to evaluate is a choice of its own: a small
model may do so for longer than it trains in between.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.numerics.robust import EVEN_ODDS, LEAST_RECURRENCES, MAJORITY, sigma
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, HEALTHY_STEP_QUANTILE, Evidence
from llmprism_tasks.stages.diagnosis.pauses import late_host
from llmprism_tasks.stages.diagnosis.pauses.habit import CHECKPOINT_BYTES, SLOW_STORAGE_RATIO
from llmprism_tasks.stages.diagnosis.step_times.duration_model import WORTH_A_ROW

PAUSE_BEGINS_WITHIN = 0.25
"""Share of the usual step within which the pause must begin after the step before; parameters may be gathered first."""
LEAST_STALLS = 2
"""Pauses needed if writes to storage or their equal length confirm them, not only their interval."""
MISSED_PAUSES = 2
"""Distances between pauses that a job must have run without one before the first, if it began to pause only then: one
of a habit may have been missed."""
LONGEST_HABIT = 0.4
"""Ratio of pauses to the time between them from which a job saves for longer than by choice."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that lose more to pauses between steps than saving checkpoints may cost, and than they used to.

    A job that pauses after every few seconds of work does not save: it computes, and its bursts were taken for steps.
    `severity` is the ratio by which the pauses lengthen the window's steps. `score` is the median pause in robust
    deviations of the job's steps. `confidence` is the share of the window's loss that the pauses make up.
    """
    hung = {silence.gap.job_id for silence in evidence.silences}
    rows = []
    for job_id, theirs in _jobs_with_longer_steps(evidence, settings):
        row = None if job_id in hung else _stall_row(job_id, theirs, evidence, settings)
        if row is not None:
            rows.append(row)
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def saving_jobs(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return `job_id`: the jobs that write to storage while they pause between steps, whatever that costs them."""
    saving = []
    for job_id, steps in _jobs_with_longer_steps(evidence, settings):
        pauses = _with_pauses(job_id, steps, evidence).filter("longer", "pauses")
        if not pauses.is_empty() and _pauses_with_writes(job_id, pauses, steps, evidence) is not None:
            saving.append(job_id)
    return pl.DataFrame({"job_id": saving}, schema={"job_id": pl.String})


def _jobs_with_longer_steps(evidence: Evidence, settings: DiagnosisSettings) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the jobs of which enough steps exceed their noise, with all of their steps."""
    steps = _mark_longer_steps(evidence.history, settings)
    several = pl.col("longer").sum().over("job_id") >= LEAST_STALLS
    for (job_id,), theirs in steps.filter(several).group_by("job_id", maintain_order=True):
        yield str(job_id), theirs


def _stall_row(
    job_id: str, steps: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings
) -> dict[str, object] | None:
    if not steps.filter("longer")["current"].any():
        return None
    every_pause = _with_pauses(job_id, steps, evidence).filter("pauses")
    pauses = every_pause.filter("longer")
    if pauses.is_empty():
        return None
    written = _pauses_with_writes(job_id, pauses, steps, evidence)
    if written is not None:
        # What else the job pauses for, as for a longer sample, is no checkpoint. And a checkpoint is one whether its
        # step holds short samples or long ones: only the long ones stand out, later and more seldom than the job saves.
        as_much = pl.col("bytes") >= MAJORITY * pl.lit(written["bytes"].median())
        written = _written_during(job_id, every_pause, evidence).filter(as_much)
        pauses = every_pause.join(written, on="index", how="semi", maintain_order="left")
    now = pauses.filter("current")
    usual_ns = float(steps["usual_ns"][0])
    if not now["longer"].any() or pauses.height < LEAST_STALLS:
        return None
    pause_s, every = (float(column.median()) for column in (now["excess_ns"] / 1e9, pauses["index"].diff()))  # type: ignore[arg-type]
    if pause_s * 1e9 < settings.least_checkpoint * every * usual_ns:
        return None
    computes = written is None and (
        not _is_periodic(steps, pauses) or every * usual_ns < settings.least_lasting_s * 1e9
    )
    longest = np.inf if written is None else LONGEST_HABIT * every * usual_ns
    if computes or _is_habit(pauses, pause_s * 1e9, every, longest):
        return None
    row = _row(job_id, steps, now, written, (pause_s, every))
    return row if written is not None else _or_one_host(row, job_id, pauses, evidence)


def _or_one_host(
    row: dict[str, object], job_id: str, pauses: pl.DataFrame, evidence: Evidence
) -> dict[str, object] | None:
    """Return the row of a job, or that of the one host that it waits for in its pauses.

    None if it waits for one host, but so seldom that another may be late each time: who has begun does not save.
    """
    awaited = late_host.awaited_in(job_id, pauses, MAJORITY * pauses["excess_ns"].to_numpy(), evidence)
    if awaited is None:
        return row
    told = {
        "kind": "stalls",
        "subject_type": "host",
        "subject": awaited.host,
        "confidence": awaited.times / pauses.height,
        "explanation": f"In {awaited.times} of {pauses.height} steps that stand still, host {awaited.host} begins "
        f"late: all others had begun and waited for it, for {awaited.waited_ns / 1e9:.1f} s at the median. Check data "
        "loading, storage and garbage collection.",
    }
    return None if awaited.by_chance else row | told


def _row(
    job_id: str,
    steps: pl.DataFrame,
    now: pl.DataFrame,
    written: pl.DataFrame | None,
    typical: tuple[float, float],
) -> dict[str, object]:
    """Return the row of a job.

    Parameters
    ----------
    now : the window's pauses
    typical : pause of the window, s, and steps from one to the next
    """
    pause_s, every = typical
    usual_ns = float(steps["usual_ns"][0])
    loss = float(steps.filter("current")["excess_ns"].clip(lower_bound=0).sum())
    often = "once" if now.height == 1 else f"{now.height} times"
    # An evaluation, which is no fault, pauses in the same way and writes nothing.
    certainty = EVEN_ODDS if written is None else 1.0
    written_words = ". No write to storage is seen, so it may be an evaluation as well as a checkpoint"
    if written is not None:
        written_words = f", and write {int(written['bytes'].median()) / 1e6:,.0f} MB to storage each time"  # type: ignore[arg-type]
    return {
        "job_id": job_id,
        "kind": "checkpoint_stall",
        "subject_type": "job",
        "subject": job_id,
        "start_ns": now["pause_ns"].min(),
        "end_ns": now["back_ns"].max(),
        "score": pause_s * 1e9 / float(steps["noise_ns"][0]),
        "severity": float(now["excess_ns"].sum()) / (usual_ns * int(steps["current"].sum()) or 1),
        "explanation": f"All members pause for {pause_s:.1f} s after one in {every:.0f} steps of "
        f"{usual_ns / 1e9:.1f} s, {often} in this window{written_words}.",
        "confidence": min(certainty, float(now["excess_ns"].sum()) / loss),
        "peers": None,
    }


def _mark_longer_steps(history: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Add `usual_ns`, `noise_ns`, `excess_ns`, and `longer`: whether the step exceeds the job's noise by far."""
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    steps = history.with_columns(
        length=length, usual_ns=length.quantile(HEALTHY_STEP_QUANTILE).over("job_id")
    ).with_columns(
        excess_ns=pl.col("length") - pl.col("usual_ns"), index=pl.int_range(pl.len(), dtype=pl.Int64).over("job_id")
    )
    deviation = sigma(pl.col("length")).over("job_id")
    noise = pl.max_horizontal(deviation, settings.least_noise * pl.col("usual_ns"))
    margin = pl.max_horizontal(settings.sigmas * pl.col("noise_ns"), WORTH_A_ROW * pl.col("usual_ns"))
    return steps.with_columns(noise_ns=noise).with_columns(longer=pl.col("excess_ns") > margin)


def _with_pauses(job_id: str, steps: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Add to each step its longest silence, `pause_ns` to `back_ns`, and whether that is a pause (`pauses`).

    A silence is a pause if it begins right after the step before, and makes up most of the step's excess.
    """
    flows = evidence.flows.filter(pl.col("job_id") == job_id).select("flow_start_ns", "flow_end_ns")
    silent = (
        flows.sort("flow_start_ns")
        .select(pause_ns=end_of_earlier("flow_end_ns"), back_ns="flow_start_ns")
        .filter(pl.col("back_ns") > pl.col("pause_ns"))
        .join_asof(
            steps.select("end_ns", "index").sort("end_ns"),
            left_on="back_ns",
            right_on="end_ns",
            strategy="forward",
            check_sortedness=False,
        )
        .with_columns(pause=(pl.col("back_ns") - pl.col("pause_ns")).cast(pl.Float64))
        .sort("index", "pause", "pause_ns")
        .group_by("index", maintain_order=True)
        .agg(pl.col("pause_ns", "back_ns", "pause").last())
    )
    joined = steps.join(silent, on="index", how="left", maintain_order="left")
    usual = joined.filter(~pl.col("longer"))["pause"].median() or 0.0
    soon = pl.col("pause_ns") - pl.col("start_ns") <= PAUSE_BEGINS_WITHIN * pl.col("usual_ns")
    is_pause = pl.col("pause") - pl.lit(usual, dtype=pl.Float64) >= MAJORITY * pl.col("excess_ns")
    return joined.with_columns(pauses=(soon & is_pause).fill_null(value=False))


def _pauses_with_writes(
    job_id: str, pauses: pl.DataFrame, steps: pl.DataFrame, evidence: Evidence
) -> pl.DataFrame | None:
    """Return the pauses in which members write to storage: `index`, `bytes`; None if they are too few for a habit, or
    most of what is written falls outside pauses."""
    since, until = pauses["pause_ns"].min(), steps["end_ns"].max()
    written = evidence.storage.filter(
        pl.col("job_id") == job_id,
        pl.col("flow_start_ns").is_between(pl.lit(since), pl.lit(until)),
    )
    each = _written_during(job_id, pauses, evidence)
    most = int(each["bytes"].sum()) >= MAJORITY * int(written["bytes"].sum())
    return each if each.height >= LEAST_STALLS and most else None


def _written_during(job_id: str, pauses: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Return what members write to storage in each pause in which they write a checkpoint: `index`, `bytes`."""
    during = (
        evidence.storage.filter(pl.col("job_id") == job_id)
        .sort("flow_start_ns")
        .join_asof(
            pauses.select("pause_ns", "back_ns", "index").sort("pause_ns"),
            left_on="flow_start_ns",
            right_on="pause_ns",
            check_sortedness=False,
        )
        .filter(pl.col("flow_start_ns") < pl.col("back_ns"))
    )
    return during.group_by("index").agg(pl.col("bytes").sum()).filter(pl.col("bytes") >= CHECKPOINT_BYTES)


def _is_habit(pauses: pl.DataFrame, now_ns: float, every: float, longest_ns: float) -> bool:
    """Return whether a job has paused ever since it was seen, for as long each time, and for no longer than by choice.

    Parameters
    ----------
    pauses : `index` (number of the step), `excess_ns`
    now_ns : typical pause of the window
    every : steps from one pause to the next
    longest_ns : how long a pause may be by choice
    """
    always = pauses["index"][0] < MISSED_PAUSES * every
    alike = now_ns < SLOW_STORAGE_RATIO * float(pauses["excess_ns"].quantile(HEALTHY_STEP_QUANTILE) or 0.0)
    return bool(always and alike and now_ns < longest_ns)


def _is_periodic(steps: pl.DataFrame, pauses: pl.DataFrame) -> bool:
    """Return whether the pauses come after equal numbers of steps.

    Two pauses are enough if they are equally long: saving the same state takes as long each time.
    """
    every = np.diff(pauses["index"].to_numpy())
    alike = np.ptp(pauses["excess_ns"].to_numpy()) <= steps["noise_ns"][0]
    enough = pauses.height >= (LEAST_STALLS if alike else LEAST_RECURRENCES)
    return bool(enough and every.min() > 1 and np.ptp(every) == 0 and steps.height > every[0])
