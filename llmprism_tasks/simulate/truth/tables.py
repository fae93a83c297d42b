"""The truth about a run, in the tables a scorer reads: jobs, pairs, steps, faults, layouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from llmprism_tasks.simulate.network.rank_layout import KIND_OF_USE, host_and_gpu
from llmprism_tasks.simulate.network.topology import addr, host_name
from llmprism_tasks.simulate.scenario.faults import STALLS, Fault
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.traffic.bursts import together
from llmprism_tasks.simulate.traffic.runs import Run, step_ends
from llmprism_tasks.simulate.traffic.startup import startup_pairs
from llmprism_tasks.simulate.traffic.tenants import tenant_bursts
from llmprism_tasks.simulate.truth.fault_subjects import fault_subject

MINUTE_NS = 60 * 10**9
TIMES = {"start_ns": pl.Int64, "end_ns": pl.Int64}
SCHEMAS: dict[str, dict[str, pl.DataType | type[pl.DataType]]] = {
    "truth_jobs": {
        "job": pl.String,
        "addr": pl.String,
        "host": pl.String,
        **TIMES,
        "kind": pl.String,
        "visible": pl.Boolean,
    },
    "truth_pairs": {"job": pl.String, "src_addr": pl.String, "dst_addr": pl.String, "kind": pl.String},
    "truth_steps": {"job": pl.String, "step": pl.Int64, **TIMES, "grad_end_ns": pl.Int64},
    "truth_faults": {
        "kind": pl.String,
        "job": pl.String,
        "subject_type": pl.String,
        "subject": pl.String,
        **TIMES,
        "severity": pl.Float64,
        "accept": pl.List(pl.String),
    },
}


def truth(scenario: Scenario, runs: Sequence[Run], *, start_ns: int, end_ns: int, seed: int) -> dict[str, pl.DataFrame]:
    """Return the truth about `[start_ns, end_ns)`.

    `truth_pairs` has a row for each kind that a pair carries: `dp`, `pp`, `cp`, `ep`, and `other` for the gradients of
    tied embeddings; scalars and the like are `other` where the pair carries nothing else. A step of `truth_steps` ends
    with its optimizer, when its parameters are gathered (or before, where that overlaps the next step); its
    `grad_end_ns` is the end of the gradient synchronisation.
    `truth_faults` has the faults some job met, and its crashes and hangs; `severity` is how many times slower the
    subject is, and `accept` names all subjects that count as right.
    """
    others = _tenants(scenario, start_ns, end_ns, seed)
    rows = {
        "truth_jobs": [
            *(row for run in runs for row in _members(run, start_ns, end_ns)),
            *_tenant_members(scenario, others, start_ns, end_ns),
        ],
        "truth_pairs": [
            *dict.fromkeys(row for run in runs for row in _pairs(scenario, run)),
            *(row for name, ends in others.items() for row in _named(scenario, name, "other", ends)),
        ],
        "truth_steps": _numbered([row for run in runs for row in _steps(run, start_ns, end_ns)]),
        "truth_faults": [
            *(row for fault in scenario.faults for row in _faults(runs, fault, start_ns, end_ns)),
            *(_ending(run, runs) for run in runs if run.ending),
        ],
    }
    tables = {name: pl.DataFrame(rows[name], schema=schema, orient="row") for name, schema in SCHEMAS.items()}
    return tables | {"layouts": _layouts(runs, start_ns, end_ns)}


def _layouts(runs: Sequence[Run], start_ns: int, end_ns: int) -> pl.DataFrame:
    """Return each job's layout; one that grew has a row for each, from its first allocation to its last."""
    rows = [
        (j.name, j.dp, j.pp, j.tp, j.cp, j.ep, len(j.hosts), j.model, "yes" if j.sharded else "no", *span)
        for run in runs
        for j, span in [(run.model.job, _span(run, start_ns, end_ns))]
    ]
    key = ["job", "dp", "pp", "tp", "cp", "ep", "hosts", "model", "sharded"]
    allocations = pl.DataFrame(rows, schema=[*key, *TIMES], orient="row")
    return allocations.group_by(key, maintain_order=True).agg(pl.col("start_ns").min(), pl.col("end_ns").max())


def _span(run: Run, start_ns: int, end_ns: int) -> tuple[int, int]:
    """Return when a run's job is there, within the data."""
    return max(start_ns, run.arrived_ns), min(end_ns, run.left_ns)


def _members(run: Run, start_ns: int, end_ns: int) -> list[tuple[object, ...]]:
    job, visible = run.model.job, len(run.model.connections) > 0
    places = [host_and_gpu(job, rank) for rank in range(job.ranks)]
    span = _span(run, start_ns, end_ns)
    return [(job.name, addr(*nic), host_name(nic[0]), *span, "training", visible) for nic in places]


def _pairs(scenario: Scenario, run: Run) -> list[tuple[object, ...]]:
    ends: dict[str, set[tuple[int, int]]] = {kind: set() for kind in KIND_OF_USE.values()}
    for use, pairs in run.model.connections.by_use.items():
        ends[KIND_OF_USE[use]] |= set(zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True))
    if run.begin_ns > run.arrived_ns > 0:
        ends["other"] |= startup_pairs(scenario, run.model.job)
    if scenario.background.ack_packets:
        ends["other"] |= {(dst, src) for found in list(ends.values()) for src, dst in found}
    ends["other"] -= set().union(*(found for kind, found in ends.items() if kind != "other"))
    if tied := run.model.connections.by_use.get("embedding"):
        ends["other"] |= set(zip(tied.src.tolist(), tied.dst.tolist(), strict=True))
    name = run.model.job.name
    return [row for kind, pairs in ends.items() for row in _named(scenario, name, kind, pairs)]


def _named(scenario: Scenario, job: str, kind: str, ends: set[tuple[int, int]]) -> list[tuple[object, ...]]:
    width = scenario.fabric.gpus_per_host
    return [(job, addr(*divmod(src, width)), addr(*divmod(dst, width)), kind) for src, dst in sorted(ends)]


def _tenants(scenario: Scenario, start_ns: int, end_ns: int, seed: int) -> dict[str, set[tuple[int, int]]]:
    """Return the pairs between which each tenant that does not train sends in the span, and the ways back."""
    found: dict[str, set[tuple[int, int]]] = {}
    for tenant in scenario.tenants:
        minutes = range(start_ns // MINUTE_NS, -(-end_ns // MINUTE_NS))
        made = together([tenant_bursts(scenario, tenant, minute=minute, seed=seed) for minute in minutes])
        inside = made.filter(pl.col("start_ns").is_between(start_ns, end_ns, closed="left"))
        found[tenant.name] = set(inside.select("src", "dst").unique().iter_rows())
        if scenario.background.ack_packets and tenant.kind != "shuffle":
            found[tenant.name] |= {(dst, src) for src, dst in found[tenant.name]}
    return found


def _tenant_members(
    scenario: Scenario, others: dict[str, set[tuple[int, int]]], start_ns: int, end_ns: int
) -> list[tuple[object, ...]]:
    width = scenario.fabric.gpus_per_host
    return [
        (name, addr(host, gpu), host_name(host), start_ns, end_ns, "other", True)
        for name, ends in others.items()
        for host, gpu in sorted({divmod(end, width) for pair in ends for end in pair})
    ]


def _steps(run: Run, start_ns: int, end_ns: int) -> list[tuple[object, ...]]:
    """Return the steps that end in the span; a step is synchronised in its cycle and ends in the next."""
    done, synced = step_ends(run)
    spans = [
        (int(start), int(end), int(sync))
        for start, end, sync in zip(done[:-1], done[1:], synced[:-1], strict=True)
        if max(start_ns, run.begin_ns) < end <= min(end_ns, run.end_ns)
    ]
    return [(run.model.job.name, *span) for span in spans]


def _numbered(steps: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Count the steps of each job, over all its allocations."""
    counts: dict[object, int] = {}
    numbered = []
    for job, *span in steps:
        number = counts.get(job, 0)
        counts[job] = number + 1
        numbered.append((job, number, *span))
    return numbered


def _faults(runs: Sequence[Run], fault: Fault, start_ns: int, end_ns: int) -> list[tuple[object, ...]]:
    """Return the fault as the jobs met it: from the first cycle that suffers it to the end of the last."""
    met = [
        (int(begin), int(end), run)
        for run in runs
        for begin, end, faults in zip(run.start_ns[:-1], run.start_ns[1:], run.faults, strict=True)
        if fault in faults and begin < min(end_ns, run.end_ns) and end > max(start_ns, run.begin_ns)
    ]
    if not met:
        return []
    span = (max(start_ns, min(begin for begin, _, _ in met)), min(end_ns, max(end for _, end, _ in met)))
    job = met[0][2].model.job  # as it was placed when it met the fault first
    subject_type, subject, also = fault_subject(job, fault)
    severity = _severity(fault, [end - begin for begin, end, _ in met])
    accept = [f"{subject_type}:{subject}", *also]
    return [(fault.kind, fault.job or None, subject_type, subject, *span, severity, accept)]


def _ending(run: Run, runs: Sequence[Run]) -> tuple[object, ...]:
    """Return a crash, or a hang from the beginning of the cycle that never ends until the job is taken away.

    Who others have taken the place of when a crashed job comes back is as right as the job itself.
    """
    job = run.model.job
    if run.ending == "crash":
        later = [other.model.job for other in runs if other.model.job.name == job.name and other.begin_ns >= run.end_ns]
        gone = set(job.hosts) - set(later[0].hosts if later else job.hosts)
        nics = [host_and_gpu(job, rank) for rank in range(job.ranks)]
        left = {said for nic in nics if nic[0] in gone for said in (f"host:{host_name(nic[0])}", f"addr:{addr(*nic)}")}
        accept = [f"job:{job.name}", *sorted(left)]
        return ("crash", job.name, "job", job.name, run.end_ns, run.left_ns, 1.0, accept)
    begin_ns = int(run.start_ns[np.searchsorted(run.start_ns, run.left_ns) - 1])
    # Who hangs is no easier to tell from its TP peers than who is slow.
    _, subject, also = fault_subject(job, Fault(kind="slow_gpu", job=job.name, rank=run.hanging))
    return ("hang", job.name, "addr", subject, begin_ns, run.left_ns, 1.0, [f"addr:{subject}", *also])


def _severity(fault: Fault, lengths_ns: Sequence[int]) -> float:
    """Return how many times slower the subject is; for a job that stalls, how many times longer its steps are."""
    if fault.kind in STALLS:
        stalled_ns = fault.pause_s * 1e9 / fault.steps
        mean_ns = float(np.mean(lengths_ns))
        return mean_ns / max(mean_ns - stalled_ns, 1)
    return fault.factor if fault.factor >= 1 else 1 / fault.factor
