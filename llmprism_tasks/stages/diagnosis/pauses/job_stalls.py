"""Job stalls: steps in which a whole job sends nothing for far longer than in others, now and then.

In a job in lock step, flows do not show for which rank the others wait: a data loader that stops one rank stops them
all. They do show that the job stalls, and that the stalls come at no fixed distance, as checkpoints would.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.numerics.robust import LEAST_RECURRENCES, MAJORITY
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.later_work import length_ns
from llmprism_tasks.stages.diagnosis.compute.slow_compute import slow_nics
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, HEALTHY_STEP_QUANTILE, Evidence
from llmprism_tasks.stages.diagnosis.network import devices
from llmprism_tasks.stages.diagnosis.pauses import checkpoints, habit, stalls
from llmprism_tasks.stages.diagnosis.pauses.one_host import find_one_host
from llmprism_tasks.stages.diagnosis.step_times import duration_model
from llmprism_tasks.stages.diagnosis.step_times.course import steps_of
from llmprism_tasks.stages.diagnosis.step_times.longer_throughout import longer_throughout
from llmprism_tasks.stages.diagnosis.step_times.workload import are_heavier
from llmprism_tasks.stages.traffic import nic_pairs

STEP = ["job_id", "step_index"]

REGULAR_FROM = 3
"""Steps from which on a regular distance between stalls is taken for something the job does on purpose."""

EACH_SECOND = 2
"""Distance at which only stalls at this very distance are regular: both halves of a step were told as steps, or the job
does something in each second one. Stalls that come by chance in half of the steps do not alternate."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that stall in some of their steps, if no late member is known.

    `severity` is the ratio by which the stalls lengthen the window's steps. `score` is the loss over the smallest loss
    that counts. `confidence` is the share of the long steps in which a stall makes up most of the excess. Steps in
    which members send more hold more work: they are no stalls.
    """
    known = [evidence.once(one, settings).select("job_id") for one in (checkpoints.find, slow_nics, stalls.find)]
    # A job that saves by habit waits for storage. It also sends nothing while a link is down.
    known.append(checkpoints.saving_jobs(evidence, settings))
    known.append(evidence.once(devices.find, settings).filter(pl.col("kind") == "link_flap").select("job_id"))
    steps = (
        evidence.work.filter(pl.col("last_stage").is_null())
        .join(pl.concat(known), on="job_id", how="anti")
        .group_by(STEP)
        .agg(
            # Median over members: if a few are cut elsewhere, the span of all members is longer than the step.
            pl.col("start_ns", "end_ns").median().cast(pl.Int64),
            pl.col("current").all(),
            silent_ns=pl.col("own_ns").max(),
            longest_ns=(pl.col("own_ns") - pl.col("later_ns")).max(),
        )
        .with_columns(length_ns=length_ns())
        .sort(STEP)
    )
    rows = []
    for (job_id,), mine in steps.group_by("job_id", maintain_order=True):
        judged = _mark_stalled_steps(_without_saves(str(job_id), mine, evidence), settings)
        row = None if judged is None else _row(str(job_id), judged, evidence, settings)
        if judged is None or row is None or _has_more_work(str(job_id), judged, evidence):
            continue
        if not _has_longer_samples(str(job_id), judged, evidence):
            rows.append(row)
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def _without_saves(job_id: str, steps: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Leave out the steps in which the job writes to storage: it may wait for that, and not for one of its ranks."""
    since, until = (steps[name].to_numpy() for name in ("start_ns", "end_ns"))
    return steps.filter(~pl.Series(habit.writes_in(job_id, since, until, evidence)))


def _mark_stalled_steps(steps: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame | None:
    """Return a job's steps with `longer` (ns), `late_ns`, `pause_ns`, and whether they are `long` and `still`.

    None if no step stalls, or their pauses may be chance.
    """
    usual_ns = pl.lit(steps["length_ns"].quantile(HEALTHY_STEP_QUANTILE))
    longer = pl.col("length_ns") - usual_ns
    # All gaps of a step, or the longest: a burst mistaken for an early one hides one or the other.
    silent, longest = (
        pl.col(name) - pl.col(name).quantile(HEALTHY_STEP_QUANTILE) for name in ("silent_ns", "longest_ns")
    )
    late_ns = pl.max_horizontal(silent, longest)
    steps = steps.with_columns(
        longer=longer,
        late_ns=late_ns.clip(lower_bound=0),
        pause_ns=pl.col("silent_ns").quantile(HEALTHY_STEP_QUANTILE) + late_ns,
        long=longer > settings.least_stall * usual_ns,
    ).with_columns(still=pl.col("long") & (pl.col("late_ns") >= MAJORITY * pl.col("longer")))
    long, still = steps.filter("long"), steps.filter("still")
    others = steps.join(long, on="step_index", how="anti")
    long_pauses = still.select(pl.col("late_ns").median() >= settings.least_single_s * 1e9).item()
    if still.height <= habit.TWO_HABITS and long_pauses:
        return None
    if still.height < max(settings.least_steps, MAJORITY * long.height) or others.height < settings.least_steps:
        return None
    pauses, every = (of["pause_ns"].cast(pl.Int64).to_numpy() for of in (still, steps))
    if duration_model.chance_of_so_many(pauses, every) > settings.chance_within(float(steps["length_ns"].sum())):
        return None
    return steps if stalls.apart(still, others) and _is_occasional(still) and not _goes_on(still, steps) else None


def _has_more_work(job_id: str, steps: pl.DataFrame, evidence: Evidence) -> bool:
    """Return whether the stalled steps hold more work than others."""
    ratio = (pl.col("longer") / (pl.col("length_ns") - pl.col("longer"))).filter("still").median()
    return are_heavier(job_id, steps.with_columns(slow="still"), float(steps.select(ratio).item()), evidence)


def _has_longer_samples(job_id: str, steps: pl.DataFrame, evidence: Evidence) -> bool:
    """Return whether steps that are longer in all their parts lose most of the time.

    Who waits for one rank stands still once.
    """
    flows = evidence.flows.filter(pl.col("job_id") == job_id).sort("flow_start_ns")
    usual = pl.col("bytes").sum().over(nic_pairs.PAIR)
    flows = flows.select("flow_start_ns", until=pl.col("flow_end_ns").cum_max(), share=pl.col("bytes") / usual)
    begins, until, sizes = (column.to_numpy() for column in flows.get_columns())
    starts, ends, long = (steps[name].to_numpy() for name in ("start_ns", "end_ns", "long"))
    steps = steps.with_columns(samples=longer_throughout(begins, until, sizes, starts, ends, ~long))
    lost = pl.col("longer").filter("still")
    return bool(steps.select(lost.filter(pl.col("samples").filter("still")).sum() > MAJORITY * lost.sum()).item())


def _row(job_id: str, steps: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> dict[str, Any] | None:
    long, still = steps.filter("long"), steps.filter("still")
    now, window = still.filter("current"), steps.filter("current")
    if now.is_empty() or now.height > MAJORITY * window.height:
        return None
    lost_ns = float(now.select(pl.min_horizontal("late_ns", "longer").sum()).item())
    loss = lost_ns / float(window["length_ns"].sum())
    if loss < settings.least_effect:
        return None
    course = steps_of(job_id, steps)
    one = None if course is None else find_one_host(course, steps["still"].to_numpy(), evidence)
    who = "for one rank; the flows do not show which" if one is None else f"for one host. {one.words}"
    said = (
        f"In {now.height} of {window.height} steps the whole job is silent for longer, by "
        f"{lost_ns / now.height / 1e6:.0f} ms on average, while it waits {who}. "
        f"Check data loading and garbage collection. The stalls cost {100 * loss:.0f} % of the window."
    )
    explained = still.height / long.height * (1.0 if one is None else one.steps.sum() / one.pauses)
    host = None if one is None else one.host
    return stalls.finding_row(job_id, now, said, loss, explained, settings.least_effect, host=host)


def _goes_on(still: pl.DataFrame, steps: pl.DataFrame) -> bool:
    """Return whether most steps have stalled since the first one that did: the job does other work now."""
    since = steps.filter(pl.col("step_index") >= still["step_index"].min()).height
    return still.height > MAJORITY * since


def _is_occasional(still: pl.DataFrame) -> bool:
    """Return whether the stalled steps come now and then.

    They do not if most follow each other (one member has become slow), come at about the same distance (checkpoints),
    or at distances that come again in the same order (parts of steps, which were told as steps).
    """
    distances = still["step_index"].diff().drop_nulls()
    least, most = (int(value) for value in (distances.min(), distances.max()))  # type: ignore[arg-type]
    longest = int(distances.rle().struct.unnest().filter(pl.col("value") == 1)["len"].max() or 0) + 1  # type: ignore[arg-type]
    # An end of a step that was told one step off makes one distance longer, and the next one shorter.
    usual = distances.mode().min()
    mostly = (distances == usual).sum() > MAJORITY * distances.len() and bool(((distances - usual).abs() <= 1).all())
    fixed = (least >= REGULAR_FROM and (mostly or most - least <= 1)) or least == most == EACH_SECOND
    return longest <= MAJORITY * still.height + 1 and not fixed and not _come_again(distances)


def _come_again(distances: pl.Series) -> bool:
    """Return whether several distances come again and again in the same order, and often enough to be no chance."""
    rounds = range(2, distances.len() // LEAST_RECURRENCES + 1)
    return any((distances == distances.shift(count)).all() for count in rounds)
