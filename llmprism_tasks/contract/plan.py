"""Plan of the stages: their names and the tables they read and write. The DAG, the commands, docs and tests use it.

A *window* is one minute. A *step* is a training iteration. A *stage* is a phase of llmprism; a stage of a pipeline is
always called `pp_stage`.
"""

from __future__ import annotations

from dataclasses import dataclass

NEEDED_OF_FLOWS = ("window_start_ns", "flow_start_ns", "flow_end_ns", "src_addr", "dst_addr", "protocol", "bytes")


@dataclass(frozen=True)
class Stage:
    """One phase of the method: a pure function from the frames of `reads` to the frames of `writes`.

    Attributes
    ----------
    name : name of the phase, of its folder in `stages/` and of its task in the DAG
    reads : tables passed to the function as keyword arguments of these names. `flows` include the look-back before the
        window, `topology` is whole, all other tables have the rows of the window only
    writes : tables that the function returns, in this order, for the window only
    per_job : whether the stage can run for some of the window's jobs at a time
    flow_columns : columns of `flows` that the stage needs; other columns are not read, to save time and memory
    sees_others : whether the stage needs to know when other partitions send, if `flows` are those of one partition
    takes : values of `stages.partition_values` that the joint method's function is passed in place of `flows`
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    per_job: bool = False
    flow_columns: tuple[str, ...] = NEEDED_OF_FLOWS
    sees_others: bool = False
    takes: tuple[str, ...] = ("job_traffic", "division")


STAGES: tuple[Stage, ...] = (
    Stage(
        "recognition",
        reads=("flows", "topology"),
        writes=("jobs", "job_members"),
        sees_others=True,
        takes=("traffic", "gpu_traffic"),
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
        flow_columns=(*NEEDED_OF_FLOWS, "src_port", "dst_port", "switch_path"),
        sees_others=True,
        takes=("job_traffic", "step_ends"),
    ),
)

LANDED = ("flows", "flows_quarantine")
DERIVED: tuple[str, ...] = tuple(dict.fromkeys(table for stage in STAGES for table in stage.writes))


def stage_named(name: str) -> Stage:
    """Return the stage of that name; KeyError if the plan has none."""
    return {stage.name: stage for stage in STAGES}[name]


def stages_after(name: str) -> list[str]:
    """Return the names of the stages that come after a stage."""
    names = [stage.name for stage in STAGES]
    return names[names.index(name) + 1 :]


def tables_after(name: str) -> tuple[str, ...]:
    """Return the tables that only later stages write, which a rerun of this stage makes stale."""
    names = [stage.name for stage in STAGES]
    position = names.index(name) + 1
    written = {table for stage in STAGES[:position] for table in stage.writes}
    return tuple(dict.fromkeys(table for stage in STAGES[position:] for table in stage.writes if table not in written))
