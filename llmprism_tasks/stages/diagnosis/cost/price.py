"""Price: the GPU-seconds that a job lost to a fault, and those that a repair would give back.

A job loses what its steps take longer than usual, times its GPUs. The gain of a repair is computed by replaying the
dependency graph of the steps twice: with measured durations, and with the subject's durations replaced by those of its
peers or of its own past. Both replays have the same error, so the gain is their difference, and not the difference from
the measured time.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract.fault_catalogue import HIDDEN
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.diagnosis.compute.wait_excuse import layer_exchanging_jobs
from llmprism_tasks.stages.diagnosis.cost.counterfactual import COMPUTE_KINDS, Trouble, counterfactual_durations
from llmprism_tasks.stages.diagnosis.cost.step_graph import step_graph
from llmprism_tasks.stages.diagnosis.evidence import HEALTHY_STEP_QUANTILE, Evidence, slowdown
from llmprism_tasks.stages.diagnosis.ranking import KINDS_OF_EFFECT
from llmprism_tasks.stages.timeline.breakdown import account

MOST_STEPS = 32
"""Most steps of a window that are replayed; in longer windows they represent all steps."""

MOST_FLOWS = 400_000
"""Most flows that are replayed; above it, fewer steps are. A price then takes seconds even in the largest jobs."""

LEAST_STEPS = 2
"""Steps that are always replayed, however many flows they have."""

PAST_STEPS = 8
"""Healthy steps of the look-back that show the usual durations; enough for a median that jitter does not move."""

PRICED_BY_SEVERITY = ("checkpoint_stall", "stalls", "uneven_micro_batches")
"""Kinds whose severity already adds up what they cost: no operation of the step graph is longer in every step."""


def price(evidence: Evidence, diagnoses: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the diagnoses with `lost_gpu_s` and `recoverable_gpu_s`.

    Parameters
    ----------
    diagnoses : `job_id`, `kind`, `subject_type`, `subject`, `start_ns`, `end_ns`, `severity`, and any other columns
    jobs : the window's jobs: `job_id`, `tp`, `sharded`

    Returns
    -------
    both columns in GPU-seconds, NULL where unknown. `recoverable_gpu_s` is also NULL for slow computing in jobs that
    exchange data in every layer.
    """
    lost, given_back, waiting = [], [], set(layer_exchanging_jobs(evidence))
    for job_id, kind, subject_type, subject, start_ns, end_ns, severity, lost_s in diagnoses.select(
        "job_id", "kind", "subject_type", "subject", "start_ns", "end_ns", "severity", "lost_s"
    ).iter_rows():
        trouble = Trouble(job_id, kind, subject_type, subject, max(start_ns, evidence.window.start_ns), end_ns)
        if lost_s is not None:
            cost: tuple[float | None, float | None]
            known_cost = lost_s * trouble.of_job(evidence.members).height
            cost = (known_cost, None if kind in KINDS_OF_EFFECT else known_cost)
        elif kind == "ended":
            cost = (None, None)
        elif kind == "hang":
            cost = (_silence_cost(trouble, evidence),) * 2
        elif kind == "stopped":
            cost = (_silence_cost(trouble, evidence) if _has_come_back(trouble, evidence) else None, None)
        elif kind in HIDDEN:  # what the job loses in all is not lost to it
            cost = (None if job_id in waiting else _recoverable_gpu_s(trouble, evidence, jobs, past=True),) * 2
        elif kind in KINDS_OF_EFFECT or (kind in COMPUTE_KINDS and job_id in waiting):
            # No repair is named that would give time back, or the replay does not know the waits in every layer.
            cost = (_lost_gpu_s(trouble, evidence), None)
        elif kind in PRICED_BY_SEVERITY or (
            kind == "pipeline_imbalance" and _is_usual_step_hidden(trouble, evidence, severity)
        ):
            cost = _loss_and_gain(
                _lost_gpu_s(trouble, evidence), _cost_by_severity(trouble, evidence, severity), hides=True
            )
        else:
            hides = _is_usual_step_hidden(trouble, evidence, severity)
            cost = _loss_and_gain(
                _lost_gpu_s(trouble, evidence), _recoverable_gpu_s(trouble, evidence, jobs, past=not hides), hides=hides
            )
        lost.append(cost[0])
        given_back.append(cost[1])
    return diagnoses.with_columns(
        lost_gpu_s=pl.Series(lost, dtype=pl.Float64), recoverable_gpu_s=pl.Series(given_back, dtype=pl.Float64)
    )


def _loss_and_gain(lost: float | None, given_back: float | None, *, hides: bool) -> tuple[float | None, float | None]:
    """Return the loss and the gain of a repair, which cannot exceed the loss even if the replay errs.

    Parameters
    ----------
    hides : whether the fault has lasted so long that the look-back no longer shows the job's usual step. The peers
        still show what a repair gives back, and at least as much was lost.
    """
    if lost is None or given_back is None:
        return lost, given_back
    return (max(lost, given_back), given_back) if hides else (lost, min(lost, given_back))


def _silence_cost(trouble: Trouble, evidence: Evidence) -> float:
    """Return the cost of a silence: all of its time, for all GPUs of the job."""
    until_ns = min(trouble.end_ns, evidence.window.end_ns)
    return max(until_ns - trouble.start_ns, 0) / NANOSECONDS_PER_SECOND * trouble.of_job(evidence.members).height


def _cost_by_severity(trouble: Trouble, evidence: Evidence, severity: float) -> float:
    """Return the GPU-seconds lost in total by a fault that lengthens the window's steps by `severity`."""
    steps = trouble.of_job(evidence.history).filter("current")
    length = float(steps.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item())
    return severity / (1 + severity) * length / NANOSECONDS_PER_SECOND * trouble.of_job(evidence.members).height


def _is_usual_step_hidden(trouble: Trouble, evidence: Evidence, severity: float) -> bool:
    """Return whether the fault has lasted so long that the look-back no longer shows the job's usual step.

    Slow transfers were compared with healthy steps of the look-back, so there is always one for them.
    """
    history = trouble.of_job(evidence.history)
    # Where most of it does not show against the job's past, this contains the fault, too, and is not usual.
    return trouble.kind in COMPUTE_KINDS and slowdown(history, trouble.start_ns, trouble.end_ns) < MAJORITY * severity


def _has_come_back(trouble: Trouble, evidence: Evidence) -> bool:
    """Return whether a stopped job went on later; the GPUs of a job that did not are free."""
    return any(silence.over for silence in evidence.silences if silence.gap.job_id == trouble.job_id)


def _lost_gpu_s(trouble: Trouble, evidence: Evidence) -> float | None:
    """Return by how much the job's steps exceed its usual step, times its GPUs.

    The usual step is the lower quartile of look-back and window, a healthy step unless the fault lasted for most of it.
    """
    history = trouble.of_job(evidence.history).with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    usual = history["length"].quantile(HEALTHY_STEP_QUANTILE)
    if usual is None:
        return None
    longer = history.filter("current", trouble.hit).select((pl.col("length") - usual).clip(lower_bound=0).sum()).item()
    return float(longer) / NANOSECONDS_PER_SECOND * trouble.of_job(evidence.members).height


def _recoverable_gpu_s(trouble: Trouble, evidence: Evidence, jobs: pl.DataFrame, *, past: bool) -> float | None:
    """Return how much earlier the replay ends with the subject as quick as its peers, times the job's GPUs.

    Parameters
    ----------
    past : whether steps before the fault may show what is usual, besides the peers
    """
    steps = trouble.of_job(evidence.steps).with_columns(hit=trouble.hit & pl.col("current"))
    numbers = steps.filter("hit")["step_index"].unique().sort()
    if numbers.is_empty():
        return None
    flows = trouble.of_job(evidence.flows)
    affordable = MOST_FLOWS * steps["step_index"].n_unique() // max(flows.height, 1) // 2
    chosen = numbers.head(min(max(affordable, LEAST_STEPS), MOST_STEPS))
    healthy_steps = _healthy_steps(steps)[: max(affordable, LEAST_STEPS)] if past else []
    known = steps.filter(pl.col("step_index").is_in([*chosen, *healthy_steps]))
    members = trouble.of_job(evidence.members).join(evidence.groups, on=["job_id", "addr"], how="left")
    seen = evidence.with_paths(_flows_of_steps(flows, known))
    found = account(seen, known, jobs, members.rename({"component": "dp_group"}))
    graph = step_graph(found)
    healthy = counterfactual_durations(trouble, found, graph, members, jobs, since=int(numbers[0]))
    if healthy is None:
        return None
    measured = graph.operations["duration_ns"].cast(pl.Float64)
    before, after = (
        graph.step_ends(durations.to_numpy(), found.parts)
        .filter(pl.col("step_index").is_in(chosen.implode()))
        .select(pl.col("end_ns").max())
        .item()
        for durations in (measured, healthy)
    )
    saved: float = before - after
    return max(saved, 0.0) / NANOSECONDS_PER_SECOND * members.height * len(numbers) / len(chosen)


def _flows_of_steps(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Keep the flows that start in one of the steps, of whichever NIC."""
    spans = steps.group_by("step_index").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")
    starts, until = spans["start_ns"].to_numpy(), np.maximum.accumulate(spans["end_ns"].to_numpy())
    begins = flows["flow_start_ns"].to_numpy()
    step = np.searchsorted(starts, begins, side="right") - 1
    return flows.filter(pl.Series((step >= 0) & (begins < until[step])))


def _healthy_steps(steps: pl.DataFrame) -> list[int]:
    """Return the steps before the fault whose length is nearest to the lower quartile.

    The look-back may contain the fault already, in up to three quarters of its steps.
    """
    lengths = (
        steps.filter(pl.col("step_index") < pl.col("step_index").filter("hit").min())
        .group_by("step_index")
        .agg(length=(pl.col("end_ns") - pl.col("start_ns")).median())
    )
    far = (pl.col("length") - pl.col("length").quantile(HEALTHY_STEP_QUANTILE)).abs()
    return lengths.sort(far, "step_index")["step_index"].head(PAST_STEPS).to_list()
