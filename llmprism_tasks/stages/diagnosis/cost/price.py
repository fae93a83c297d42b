"""Price: the GPU-seconds that a job lost to a trouble, and those that a repair would give back.

What a job lost is what its steps took longer than usual, times its GPUs. What a repair gives back is told by a replay
of the steps' graph: once as it was, once with the subject's durations replaced by those of its peers, or by its own
from before. Both replays err alike, so their difference counts, not the one to what was measured.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.stages.diagnosis.compute.wait_excuse import exchanging
from llmprism_tasks.stages.diagnosis.cost.counterfactual import COMPUTING, Trouble, repaired
from llmprism_tasks.stages.diagnosis.cost.step_graph import step_graph
from llmprism_tasks.stages.diagnosis.evidence import QUICK, Evidence, slowdown
from llmprism_tasks.stages.diagnosis.ranking import EFFECTS
from llmprism_tasks.stages.timeline.breakdown import account

MOST_STEPS = 32
"""Steps of a window that are replayed; where there are more, these stand for them."""

MOST_FLOWS = 400_000
"""Flows that are replayed at most, so that a price takes seconds in the largest jobs: fewer steps stand for all."""

LEAST_STEPS = 2
"""Steps that are replayed however many flows they have."""

PAST_STEPS = 8
"""Healthy steps of the look-back that show what was usual: enough for a median that jitter does not move."""

NOW_AND_THEN = ("checkpoint_stall", "stalls", "uneven_micro_batches")
"""Kinds that add up what they cost themselves: no operation of the steps' graph takes longer each time."""

SEEN = 0.5
"""Ratio of a trouble's severity that the job's own past must show to tell what is usual; else it is full of it."""

NANOSECONDS = 1e9


def price(evidence: Evidence, diagnoses: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the diagnoses with `lost_gpu_s` and `recoverable_gpu_s`, both NULL where they are not known: the latter
    also of slow computing in jobs that exchange in every layer.

    Parameters
    ----------
    diagnoses : `job_id`, `kind`, `subject_type`, `subject`, `start_ns`, `end_ns`, `severity`, and whatever else
    jobs : the window's: `job_id`, `tp`, `sharded`
    """
    lost, given_back, waiting = [], [], set(exchanging(evidence))
    for job_id, kind, subject_type, subject, start_ns, end_ns, severity in diagnoses.select(
        "job_id", "kind", "subject_type", "subject", "start_ns", "end_ns", "severity"
    ).iter_rows():
        trouble = Trouble(job_id, kind, subject_type, subject, max(start_ns, evidence.window.start_ns), end_ns)
        if kind == "hang":
            cost: tuple[float | None, float | None] = (_silent(trouble, evidence),) * 2
        elif kind == "stopped":
            cost = (_silent(trouble, evidence) if _came_back(trouble, evidence) else None, None)
        elif kind in EFFECTS or (kind in COMPUTING and job_id in waiting):
            # Nobody is named whose repair would give any of it back, or the replay knows no waits in every layer.
            cost = (_lost(trouble, evidence), None)
        elif kind in NOW_AND_THEN or (kind == "pipeline_imbalance" and _hides(trouble, evidence, severity)):
            cost = _agreed(_lost(trouble, evidence), _share(trouble, evidence, severity), hides=True)
        else:
            hides = _hides(trouble, evidence, severity)
            cost = _agreed(_lost(trouble, evidence), _recoverable(trouble, evidence, jobs, past=not hides), hides=hides)
        lost.append(cost[0])
        given_back.append(cost[1])
    return diagnoses.with_columns(
        lost_gpu_s=pl.Series(lost, dtype=pl.Float64), recoverable_gpu_s=pl.Series(given_back, dtype=pl.Float64)
    )


def _agreed(lost: float | None, given_back: float | None, *, hides: bool) -> tuple[float | None, float | None]:
    """Return what was lost and what a repair gives back, which is no more, though the replay may err.

    Parameters
    ----------
    hides : whether the trouble has lasted for so long that the look-back does not show the job's usual step any more;
        peers still show what a repair gives back, and that was lost
    """
    if lost is None or given_back is None:
        return lost, given_back
    return (max(lost, given_back), given_back) if hides else (lost, min(lost, given_back))


def _silent(trouble: Trouble, evidence: Evidence) -> float:
    """Return what silence costs: all of it, for all GPUs of the job."""
    until_ns = min(trouble.end_ns, evidence.window.end_ns)
    return max(until_ns - trouble.start_ns, 0) / NANOSECONDS * trouble.of_job(evidence.members).height


def _share(trouble: Trouble, evidence: Evidence, severity: float) -> float:
    """Return what a trouble costs that lengthens the window's steps by so much, all in all."""
    steps = trouble.of_job(evidence.history).filter("current")
    length = float(steps.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item())
    return severity / (1 + severity) * length / NANOSECONDS * trouble.of_job(evidence.members).height


def _hides(trouble: Trouble, evidence: Evidence, severity: float) -> bool:
    """Say whether the trouble has lasted for so long that the look-back does not show the job's usual step any more.

    What carries slowly was compared with healthy steps that it shows, be there quick ones now in between.
    """
    history = trouble.of_job(evidence.history)
    return trouble.kind in COMPUTING and slowdown(history, trouble.start_ns, trouble.end_ns) < SEEN * severity


def _came_back(trouble: Trouble, evidence: Evidence) -> bool:
    """Say whether a job that was stopped went on later; the GPUs of one that did not are free."""
    return any(silence.over for silence in evidence.silences if silence.gap.job_id == trouble.job_id)


def _lost(trouble: Trouble, evidence: Evidence) -> float | None:
    """Return what the job's steps took longer than its usual step, times its GPUs.

    The usual step is the lower quartile of look-back and window: a healthy one, as long as the trouble has not lasted
    for most of it.
    """
    history = trouble.of_job(evidence.history).with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    usual = history["length"].quantile(QUICK)
    if usual is None:
        return None
    longer = history.filter("current", trouble.hit).select((pl.col("length") - usual).clip(lower_bound=0).sum()).item()
    return float(longer) / NANOSECONDS * trouble.of_job(evidence.members).height


def _recoverable(trouble: Trouble, evidence: Evidence, jobs: pl.DataFrame, *, past: bool) -> float | None:
    """Return how much earlier the replay ends with the subject like its peers, times the job's GPUs.

    Parameters
    ----------
    past : whether steps before the trouble may show what is usual, beside its peers
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
    seen = evidence.with_paths(_of_steps(flows, known))
    found = account(seen, known, jobs, members.rename({"component": "dp_group"}))
    graph = step_graph(found)
    healthy = repaired(trouble, found, graph, members, jobs, since=int(numbers[0]))
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
    return max(saved, 0.0) / NANOSECONDS * members.height * len(numbers) / len(chosen)


def _of_steps(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Leave out the flows that start in none of the steps, whoever's they are."""
    spans = steps.group_by("step_index").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")
    starts, until = spans["start_ns"].to_numpy(), np.maximum.accumulate(spans["end_ns"].to_numpy())
    begins = flows["flow_start_ns"].to_numpy()
    step = np.searchsorted(starts, begins, side="right") - 1
    return flows.filter(pl.Series((step >= 0) & (begins < until[step])))


def _healthy_steps(steps: pl.DataFrame) -> list[int]:
    """Return the steps before the trouble that are nearest to the lower quartile in length.

    Troubles are diagnosed in a window whose look-back may have them already, for all but a quarter of it.
    """
    lengths = (
        steps.filter(pl.col("step_index") < pl.col("step_index").filter("hit").min())
        .group_by("step_index")
        .agg(length=(pl.col("end_ns") - pl.col("start_ns")).median())
    )
    far = (pl.col("length") - pl.col("length").quantile(QUICK)).abs()
    return lengths.sort(far, "step_index")["step_index"].head(PAST_STEPS).to_list()
