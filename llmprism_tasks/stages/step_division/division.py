"""A job's flows divided into its steps, before its pairs are judged: what both the judging and the figures look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division import completion, joint_steps
from llmprism_tasks.stages.step_division.joint_steps import Stepping
from llmprism_tasks.stages.step_division.restarts import runs
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.remembered import remembered


@dataclass(frozen=True)
class Division:
    """Bulk flows in steps. A job that ended in the window and came back has two runs, counted in `run`; its steps are
    counted through.

    Attributes
    ----------
    flows : all bulk flows of the runs
    rhythms : of the pairs of each run, as `Stepping.pairs` has them, with `run`
    endpoints, job_steps : the steps, as `completion` returns them
    stepped : all bulk flows, with the `step` they belong to, NULL for those after the last one
    shown : of each run its number, the steps that its streams show, and `job_id`, `before` (steps of runs before it)
    """

    flows: pl.DataFrame
    rhythms: pl.DataFrame
    endpoints: pl.DataFrame
    job_steps: pl.DataFrame
    stepped: pl.DataFrame
    shown: Sequence[tuple[int, Stepping, pl.DataFrame]] = field(kw_only=True)

    @property
    def pairs(self) -> pl.DataFrame:
        """Return the pairs of the bulk flows: `pair`, `job_id`, `src_addr`, `dst_addr`."""
        return nic_pairs.pairs_of(nic_pairs.in_order(self.stepped), ["job_id", *nic_pairs.PAIR])

    @cached_property
    def in_steps(self) -> pl.DataFrame:
        """Return `pair`, `step` and the times and bytes of the bulk flows that belong to a step, in the order of
        `nic_pairs.numbered`."""
        return nic_pairs.in_order(self.stepped).select("pair", "step", *nic_pairs.TIMES).drop_nulls("step")

    @property
    def numbered(self) -> pl.DataFrame:
        """Return the flows of periodic streams alone, with the `step` that these show."""
        flows = pl.concat([_counted_on(stepping.numbered, told, run) for run, stepping, told in self.shown])
        return flows.join(
            nic_pairs.as_coded(self.endpoints, flows), on=["job_id", "run"], how="semi", maintain_order="left"
        )

    @property
    def periodic(self) -> pl.Series:
        """Return the numbers of the pairs of which a stream is periodic."""
        return self.rhythms.filter("periodic")["pair"]

    @cached_property
    def periods(self) -> pl.DataFrame:
        """Return `job_id`, `period_ns`: of the rhythm that the steps were found by."""
        known = self.rhythms.select("job_id", "run", "period_ns").drop_nulls()
        shown: pl.DataFrame = known.join(self.endpoints, on=["job_id", "run"], how="semi")
        return shown.group_by("job_id").agg(pl.col("period_ns").first())

    def by_run(self) -> tuple[Division, Division | None]:
        """Return of each job the run that ended most steps in the window, and its other one; None where there is none.

        Of runs with equally many it is the later one.
        """
        counts = self.job_steps.group_by("job_id", "run").agg(ended=completion.IN_WINDOW.sum())
        most = counts.sort("ended", "run").group_by("job_id", maintain_order=True).last().select("job_id", "run")
        if most.height == counts.height:
            return self, None
        frames = (self.flows, self.rhythms, self.endpoints, self.job_steps, self.stepped)
        main = Division(*(_of_runs(frame, most, "semi") for frame in frames), shown=self.shown)
        return main, Division(*(_of_runs(frame, most, "anti") for frame in frames), shown=self.shown)


@remembered
def divide(
    bulk: pl.DataFrame, window: Window, settings: Settings, *, pairs: pl.DataFrame | None = None
) -> Division | None:
    """Divide the bulk flows of jobs into steps, run by run; None where no job shows any.

    Parameters
    ----------
    bulk : with `job_id`, those of the look-back among them
    pairs : as for `joint_steps.of_jobs`
    """
    parts: list[tuple[pl.DataFrame, ...]] = []
    shown = []
    told = pl.DataFrame(schema={"job_id": pl.String, "before": pl.Int64})
    for run, flows in enumerate(runs(bulk, window, settings.traffic)):
        if flows.is_empty():
            continue
        stepping = joint_steps.steps_of_jobs(
            flows, settings.rhythm, pairs=pairs, until_ns=window.end_ns, before_ns=window.start_ns
        )
        endpoints = completion.endpoint_steps(stepping, window, settings)
        job_steps = completion.job_steps(endpoints, window, settings)
        stepped = completion.step_of_flows(flows, endpoints, job_steps)
        counted = (_counted_on(frame, told, run) for frame in (endpoints, job_steps, stepped))
        parts.append((*(frame.with_columns(run=pl.lit(run)) for frame in (flows, stepping.pairs)), *counted))
        shown.append((run, stepping, told))
        told = endpoints.group_by("job_id").agg(before=pl.col("step").max() + 1)
    if not any(part[-1]["step"].count() for part in parts):
        return None
    return Division(*(pl.concat(frames) for frames in zip(*parts, strict=True)), shown=shown)


def _counted_on(frame: pl.DataFrame, told: pl.DataFrame, run: int) -> pl.DataFrame:
    """Count the steps of a run on from those of the run before it."""
    if told.is_empty():
        return frame.with_columns(run=pl.lit(run))
    counted = frame.join(nic_pairs.as_coded(told, frame), on="job_id", how="left", maintain_order="left")
    step = pl.col("step") + pl.col("before").fill_null(0)
    return counted.with_columns(step=step, run=pl.lit(run)).drop("before")


def _of_runs(frame: pl.DataFrame, runs_: pl.DataFrame, how: Literal["semi", "anti"]) -> pl.DataFrame:
    """Keep what is of some runs of jobs (`job_id`, `run`), or what is of others."""
    return frame.join(nic_pairs.as_coded(runs_, frame), on=["job_id", "run"], how=how, maintain_order="left")
