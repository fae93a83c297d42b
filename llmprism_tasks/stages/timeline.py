"""Timeline reconstruction: flows and pairs -> each NIC's steps, what it did in them, and what they went to.

LLMPrism (arXiv 2505.00342), stage 4: the end of a burst of data-parallel flows ends a step; pipeline and
data-parallel flows are placed in it, and what is left is computing or waiting.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks import frames
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages import completion, layout, streams, traffic
from llmprism_tasks.stages.breakdown import breakdown
from llmprism_tasks.stages.division import divide
from llmprism_tasks.stages.placement import NIC, placed
from llmprism_tasks.windows import Window

PHASES = {"pp": ("pp_send", "pp_recv"), "dp": ("dp_sync", "dp_sync")}
"""What a pair's kind is called in the timeline of its sender and of its receiver; `other` for all other kinds."""


def timeline(
    *,
    flows: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    pairs: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Reconstruct the steps that ended in the window.

    Parameters
    ----------
    flows : the window's flows and those of its look-back
    jobs, job_members, pairs : the window's; pairs of kind `dp` end the steps

    Returns
    -------
    steps : of each NIC with data-parallel traffic, and of each job (`addr` NULL)
    timeline : of the same NICs and steps, without gaps: messages of one pair that overlap are one row, gradient
        synchronisation with one peer is one row, and between them it is `compute` before the NIC sends and `idle`
        before it receives
    step_breakdown : what each of the NICs' steps went to
    """
    inside = traffic.inside_jobs(flows, job_members)
    every = traffic.bulk(inside, settings.traffic)
    synchronising = layout.ending(pairs)
    division = None if synchronising.is_empty() else divide(every, window, settings, pairs=synchronising)
    if division is None:
        return frames.empty("steps"), frames.empty("timeline"), frames.empty("step_breakdown")
    known = division.flows.join(pairs.select(*streams.PAIR, "kind"), on=streams.PAIR)
    of_runs = _of_runs(inside, every, division.flows)
    steps, rows = tables(division.endpoints, division.job_steps, of_runs, known, window)
    return steps, rows, breakdown(known, steps.drop_nulls("addr"), jobs, job_members, window)


def _of_runs(inside: pl.DataFrame, every: pl.DataFrame, bulk: pl.DataFrame) -> pl.DataFrame:
    """Return all flows of jobs with their `run`, but of a job that came back only its bulk flows."""
    runs = bulk.group_by("job_id").agg(pl.len(), runs=pl.col("run").max())
    counts = every.group_by("job_id").agg(all=pl.len()).join(runs, on="job_id", how="left")
    returned = counts.filter((pl.col("len").fill_null(0) < pl.col("all")) | (pl.col("runs") > 0))
    known = inside.with_columns(run=pl.lit(0, bulk.schema["run"])).join(returned, on="job_id", how="anti")
    return pl.concat([known, bulk.join(returned, on="job_id", how="semi").select(known.columns)])


def tables(
    endpoints: pl.DataFrame, job_steps: pl.DataFrame, inside: pl.DataFrame, known: pl.DataFrame, window: Window
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `steps` and `timeline`.

    Parameters
    ----------
    endpoints, job_steps, inside : as for `step_spans`
    known : the flows to be placed in the steps, with `job_id` and `kind`
    """
    own, common = step_spans(endpoints, job_steps, inside)
    steps = pl.concat([own, common.with_columns(addr=pl.lit(None, dtype=pl.String)).select(own.columns)])
    rows = phases(known, own)
    return tuple(  # type: ignore[return-value]
        frames.conform(frame.with_columns(window_start_ns=pl.lit(window.start_ns)), table)
        for table, frame in (("steps", steps), ("timeline", rows))
    )


def step_spans(
    endpoints: pl.DataFrame, job_steps: pl.DataFrame, inside: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give the steps that ended in the window a start and an index.

    Parameters
    ----------
    endpoints, job_steps : as `completion` returns them, with their `run`
    inside : all flows between members of jobs, for the start of a run's first step

    Returns
    -------
    steps of NICs (`job_id`, `addr`, `step_index`, `start_ns`, `end_ns`) and of jobs (without `addr`)
    """
    base = completion.first_indices(endpoints, job_steps)
    first = traffic.by_endpoint(inside).group_by(*NIC, "run").agg(first_ns=pl.col("flow_start_ns").min())
    spans = []
    for steps, key, earliest in (
        (endpoints, NIC, first),
        (job_steps, ["job_id"], first.group_by("job_id", "run").agg(pl.col("first_ns").min())),
    ):
        previous = pl.col("end_ns").shift().over(*key, "run", order_by="step")
        spans.append(
            steps.drop("first_ns")
            .with_columns(start_ns=previous)
            .filter(completion.IN_WINDOW)
            .join(earliest, on=[*key, "run"])
            .join(base, on="job_id")
            .select(
                *key,
                step_index=pl.col("step") - pl.col("base"),
                start_ns=pl.col("start_ns").fill_null(pl.min_horizontal("first_ns", pl.col("end_ns") - 1)),
                end_ns="end_ns",
            )
        )
    return spans[0], spans[1]


def phases(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Place flows in the steps of both their ends, and fill what is between them.

    Parameters
    ----------
    flows : with `job_id` and `kind`
    steps : of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`

    Returns
    -------
    rows of the timeline
    """
    events = _merged(_placed(flows, steps))
    step = [*NIC, "step_index"]
    # where several begin at once, one of the NIC's own says that it was at work until then
    in_order = events.sort(*step, "start_ns", "own", "end_ns", descending=[False] * 4 + [True, False])
    busy = in_order.with_columns(
        free_ns=pl.max_horizontal(
            pl.col("end_ns").cum_max().shift().over(step).fill_null(pl.col("step_start_ns")), "step_start_ns"
        )
    )
    between = busy.filter(pl.col("free_ns") < pl.col("start_ns")).select(
        *step,
        start_ns="free_ns",
        end_ns="start_ns",
        phase=pl.when("own").then(pl.lit("compute")).otherwise(pl.lit("idle")),
        peer=pl.lit(None, dtype=pl.String),
        bytes=pl.lit(0, dtype=pl.Int64),
    )
    return pl.concat([events.select(between.columns), between])


def _placed(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut flows to the step of each end in which they start."""
    sender, receiver = (
        pl.col("kind").replace_strict({kind: names[i] for kind, names in PHASES.items()}, default="other")
        for i in (0, 1)
    )
    return placed(flows, steps).select(
        *NIC,
        "peer",
        "step_index",
        "step_start_ns",
        "bytes",
        "start_ns",
        "end_ns",
        phase=pl.when("sends").then(sender).otherwise(receiver),
        own=pl.col("sends") | (pl.col("kind") == "dp"),
    )


def _merged(events: pl.DataFrame) -> pl.DataFrame:
    """Make one row of messages that overlap, and of a step's whole synchronisation with one peer."""
    key = [*NIC, "step_index", "phase", "peer"]
    apart = pl.col("start_ns") > pl.col("end_ns").cum_max().shift().over(key)
    return (
        events.sort(*key, "start_ns", "end_ns")
        .with_columns(apart=apart.fill_null(value=False) & (pl.col("phase") != "dp_sync"))
        .with_columns(message=pl.col("apart").cast(pl.Int64).cum_sum().over(key))
        .group_by(*key, "message")
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("bytes").sum(),
            pl.col("own").any(),
            pl.col("step_start_ns").first(),
        )
        .drop("message")
    )
