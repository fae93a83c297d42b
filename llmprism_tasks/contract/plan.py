"""The plan: each stage's name, the tables it reads and writes. Scheduler, command line, docs and tests loop over it.

Words: a *window* is a minute, a *step* a training iteration, a *stage* one of ours; a pipeline's is always `pp_stage`.
"""

from __future__ import annotations

from dataclasses import dataclass

ENDS_TIMES_AND_BYTES = ("window_start_ns", "flow_start_ns", "flow_end_ns", "src_addr", "dst_addr", "bytes")


@dataclass(frozen=True)
class Stage:
    """One phase of the method: a pure function from the frames of `reads` to the frames of `writes`.

    Attributes
    ----------
    name : the phase's name, also its module in `stages/`, its settings' section and its task in the DAG
    reads : tables handed to the function, in this order, as keyword arguments of these names.
        `flows` come with the look-back before the window, `topology` whole, all others for the window alone.
    writes : tables the function returns, in this order, for the window alone
    per_job : whether the stage can be run for some of the window's jobs at a time
    flow_columns : what it looks at of `flows`: the others are not read, for they take time and memory
    sees_others : whether it asks what others send, if `flows` are those of a part of the platform
    takes : what the joint method's function is handed in place of `flows`: values that phases share, by their names in
        `stages.partition_values`
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    per_job: bool = False
    flow_columns: tuple[str, ...] = ENDS_TIMES_AND_BYTES
    sees_others: bool = False
    takes: tuple[str, ...] = ("job_traffic", "division")


STAGES: tuple[Stage, ...] = (
    Stage(
        "recognition", reads=("flows", "topology"), writes=("jobs", "job_members"), sees_others=True, takes=("traffic",)
    ),
    Stage("step_division", reads=("flows", "jobs", "job_members"), writes=("pair_steps",), per_job=True),
    Stage(
        "parallelism",
        reads=("flows", "topology", "jobs", "job_members"),
        writes=("jobs", "job_members", "pairs"),
        per_job=True,
    ),
    Stage(
        "timeline",
        reads=("flows", "jobs", "job_members", "pairs"),
        writes=("steps", "timeline", "step_breakdown"),
        per_job=True,
        takes=("job_traffic", "step_ends"),
    ),
    Stage(
        "diagnosis",
        reads=("flows", "topology", "jobs", "job_members", "pairs", "steps"),
        writes=("diagnoses",),
        flow_columns=(*ENDS_TIMES_AND_BYTES, "switch_path"),
        sees_others=True,
        takes=("job_traffic", "step_ends"),
    ),
)

LANDED = ("flows", "flows_quarantine")
DERIVED: tuple[str, ...] = tuple(dict.fromkeys(table for stage in STAGES for table in stage.writes))


def stage_named(name: str) -> Stage:
    """Return the stage of that name; KeyError if the plan has none."""
    return {stage.name: stage for stage in STAGES}[name]


def tables_after(name: str) -> tuple[str, ...]:
    """Return the tables that only later stages write: what a rerun of this stage makes stale."""
    names = [stage.name for stage in STAGES]
    position = names.index(name) + 1
    written = {table for stage in STAGES[:position] for table in stage.writes}
    return tuple(dict.fromkeys(table for stage in STAGES[position:] for table in stage.writes if table not in written))
