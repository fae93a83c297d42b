"""Resumption: whether a job that comes back goes on where it stood, or where it would be had it worked meanwhile.

Where nothing else is seen while a job is silent, the collector may have stopped instead. Then the records of that time
are lost, and the job comes back at any other place of its steps: the step around the silence lacks bytes, or has too
many. A job that stood still goes on at the same place, and the step has the bytes of any other. A collector may be back
at the same place by chance: for as long of a step as no more is sent there.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.liveness.quiet_times import Gap
from llmprism_tasks.stages.step_division.division import divide

TIMES = ("flow_start_ns", "flow_end_ns")


@dataclass(frozen=True)
class Resumption:
    """How a job came back.

    Attributes
    ----------
    in_place : probability that it stood still, where either that or the collector stopped, as likely as not
    shown_ns : end of the step around the silence, which shows it
    """

    in_place: float
    shown_ns: int


def resumption(bulk: pl.DataFrame, gap: Gap, window: Window, settings: Settings) -> Resumption | None:
    """Return how a job came back; None while the step around its silence is not over, or where no other is known.

    Parameters
    ----------
    bulk : the job's bulk flows in the window and its look-back, with `job_id`
    gap : its silence, which is over
    """
    if gap.back_ns is None:
        return None
    # With the silence cut out, the steps of a job that stood still run on as before.
    silent_ns = gap.back_ns - gap.since_ns
    cut_ns = silent_ns - min(silent_ns, gap.longest_ns)
    later = pl.col("flow_start_ns") >= gap.back_ns
    closed = bulk.with_columns(pl.when(later).then(pl.col(TIMES) - cut_ns).otherwise(pl.col(TIMES)))
    division = divide(closed, Window(window.start_ns - cut_ns, window.length_ns), settings)
    if division is None:
        return None
    own = _of_steady_pairs(division.stepped, settings.rhythm.same_size)
    steps = _whole_steps(division.job_steps, own)
    around = steps.filter(pl.col("end_ns") > gap.since_ns).head(1)
    others = steps.join(around, on="step", how="anti").drop_nulls("began_ns")
    if around["began_ns"].is_null().all() or others.is_empty():
        return None
    flows = own.select("step", "flow_start_ns", "bytes")
    chance = _chance_in_place(flows, around, others, gap.since_ns, settings.rhythm.same_size)
    return Resumption(chance, int(around["end_ns"].item()) + cut_ns)


def _of_steady_pairs(flows: pl.DataFrame, same_size: float) -> pl.DataFrame:
    """Return the flows of pairs that move the same bytes in most steps; all, if none does.

    A copy beside the job is more in one step than in the next.

    Parameters
    ----------
    flows : `pair`, `step`, `bytes`
    """
    each = flows.drop_nulls("step").group_by("pair", "step").agg(pl.col("bytes").sum())
    usual = pl.col("bytes").median().over("pair")
    alike = ((pl.col("bytes") - usual).abs() <= same_size * usual).sum()
    steady = each.filter(alike.over("pair") >= MAJORITY * pl.lit(each["step"].n_unique()))["pair"].unique()
    return flows if steady.is_empty() else flows.filter(pl.col("pair").is_in(steady.implode()))


def _whole_steps(job_steps: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Return the job's steps that are over, in order: `step`, `began_ns` (NULL for the first), `end_ns`, `total`
    (bytes)."""
    total = flows.group_by("step").agg(total=pl.col("bytes").sum())
    steps = job_steps.sort("step").with_columns(began_ns=pl.col("end_ns").shift())
    return (
        steps.filter("ended")
        .join(total, on="step", maintain_order="left")
        .select("step", "began_ns", "end_ns", "total")
    )


def _chance_in_place(
    flows: pl.DataFrame, around: pl.DataFrame, others: pl.DataFrame, since_ns: int, same_size: float
) -> float:
    """Return the probability that a job stood still.

    The step around the silence is compared with what it would be in either case. A job that stood still makes it like
    each other step. A collector makes it what was sent until it stopped, and what comes after any moment of a step.

    Parameters
    ----------
    flows : `step`, `flow_start_ns`, `bytes`
    around, others : the step around the silence, and the others, as `_whole_steps` returns
    same_size : ratio of a step's bytes by which two steps differ without meaning
    """
    usual = others["total"].median()
    number, total = around.select("step", "total").row(0)
    near = pl.lit(same_size * usual)  # type: ignore[operator]
    as_usual = others.select(((pl.col("total") - total).abs() <= near).mean()).item()
    stood = flows.filter(pl.col("step") == number, pl.col("flow_start_ns") <= since_ns)["bytes"].sum()
    began = others.select("step", "began_ns", "end_ns", "total", flow_start_ns="began_ns", bytes=pl.lit(0, pl.Int64))
    sent = flows.join(others.select("step", "began_ns", "end_ns", "total"), on="step").select(began.columns)
    moments = (
        pl.concat([began, sent])
        .sort("step", "flow_start_ns")
        .with_columns(
            left=pl.col("total") - pl.col("bytes").cum_sum().over("step"),
            lasts=pl.col("flow_start_ns").shift(-1).over("step").fill_null(pl.col("end_ns")) - pl.col("flow_start_ns"),
        )
        .with_columns(pl.col("lasts").clip(lower_bound=0))
    )
    alike = (stood + pl.col("left") - total).abs() <= near
    share = moments.select(pl.col("lasts").filter(alike).sum() / pl.col("lasts").sum()).item()
    # Of few steps nobody knows what all may be like (Laplace's rule of succession).
    by_chance = (share * others.height + 1) / (others.height + 2)
    return float(as_usual / (as_usual + by_chance))
