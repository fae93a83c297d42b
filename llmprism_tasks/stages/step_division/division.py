"""A job's flows divided into its steps, before its pairs are judged: what both the judging and the figures look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division import completion
from llmprism_tasks.stages.step_division.joint import gradient_ends
from llmprism_tasks.stages.step_division.joint.job_steps import SEVERAL_PERIODS, steps_of_jobs
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS
from llmprism_tasks.stages.step_division.periodicity import PairRhythms
from llmprism_tasks.stages.step_division.restarts import runs
from llmprism_tasks.stages.traffic import nic_pairs


@dataclass(frozen=True)
class Run:
    """A job runs until it ends or is restarted: the steps of all jobs that have a run of this number.

    Attributes
    ----------
    number : 0, or 1 for the second run of jobs that came back
    joint : the steps, counted from 0
    before : `job_id`, `before`: how many steps the run before had
    """

    number: int
    joint: JointSteps
    before: pl.DataFrame

    def counted(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Count the `step` of rows with `job_id` on from those of the run before, and add `run`."""
        if self.before.is_empty():
            return frame.with_columns(run=pl.lit(self.number))
        counted = frame.join(nic_pairs.as_coded(self.before, frame), on="job_id", how="left", maintain_order="left")
        step = pl.col("step") + pl.col("before").fill_null(0)
        return counted.with_columns(step=step, run=pl.lit(self.number)).drop("before")


@dataclass(frozen=True)
class Division:
    """The steps of jobs: divided once, and used by all phases.

    A job that ended in the window and came back has two runs, counted in `run`; its steps are counted through.

    Attributes
    ----------
    runs : the steps of each run
    flows : all bulk flows of the runs, with `job_id` and `run`
    endpoints, job_steps : the steps, as `completion` returns them, with `run`
    first_steps : the step of each job that the window counts as 0: `job_id`, `base`
    window, settings : what the steps were found for
    """

    runs: Sequence[Run]
    flows: pl.DataFrame
    endpoints: pl.DataFrame
    job_steps: pl.DataFrame
    first_steps: pl.DataFrame
    window: Window
    settings: Settings

    @cached_property
    def stepped(self) -> pl.DataFrame:
        """Return all bulk flows with the `step` they belong to, NULL for those after the last one."""
        frames = (self.flows, self.endpoints, self.job_steps)
        if len(self.runs) == 1:
            return completion.step_of_flows(*frames)
        of_runs = [[frame.filter(run=run.number) for frame in frames] for run in self.runs]
        return pl.concat([completion.step_of_flows(*each) for each in of_runs if not each[0].is_empty()])

    @property
    def rhythms(self) -> pl.DataFrame:
        """Return the rhythms of the pairs of each run that shows steps, as `JointSteps.pairs` has them, with `run`."""
        every = pl.concat([run.joint.pairs.with_columns(run=pl.lit(run.number)) for run in self.runs])
        return every.join(self.endpoints, on=["job_id", "run"], how="semi", maintain_order="left")

    @property
    def pairs(self) -> pl.DataFrame:
        """Return the pairs of the bulk flows: `pair`, `job_id`, `src_addr`, `dst_addr`."""
        return nic_pairs.pairs_of(nic_pairs.in_order(self.flows), ["job_id", *nic_pairs.PAIR])

    @cached_property
    def in_steps(self) -> pl.DataFrame:
        """Return `pair`, `step` and the times and bytes of the bulk flows that belong to a step, in the order of
        `nic_pairs.numbered`."""
        return nic_pairs.in_order(self.stepped).select("pair", "step", *nic_pairs.TIMES).drop_nulls("step")

    @property
    def numbered(self) -> pl.DataFrame:
        """Return the flows of periodic streams alone, with the `step` that these show."""
        flows = pl.concat([run.counted(run.joint.numbered) for run in self.runs])
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
        return self.rhythms.drop_nulls("period_ns").group_by("job_id").agg(pl.col("period_ns").first())

    def by_run(self) -> tuple[Division, Division | None]:
        """Return of each job the run that ended most steps in the window, and its other one; None where there is none.

        Of runs with equally many it is the later one.
        """
        counts = self.job_steps.group_by("job_id", "run").agg(ended=completion.IN_WINDOW.sum())
        most = counts.sort("ended", "run").group_by("job_id", maintain_order=True).last().select("job_id", "run")
        if most.height == counts.height:
            return self, None
        return self._select_runs(most, "semi"), self._select_runs(most, "anti")

    def latest_run(self) -> Division:
        """Return of each job its last run that shows steps."""
        return self._select_runs(self.job_steps.group_by("job_id").agg(pl.col("run").max()), "semi")

    def _select_runs(self, some: pl.DataFrame, how: Literal["semi", "anti"]) -> Division:
        flows, endpoints, job_steps = (
            frame.join(nic_pairs.as_coded(some, frame), on=["job_id", "run"], how=how, maintain_order="left")
            for frame in (self.flows, self.endpoints, self.job_steps)
        )
        return replace(self, flows=flows, endpoints=endpoints, job_steps=job_steps)

    def ended_by(self, pairs: pl.DataFrame) -> Division | None:
        """Return the same steps, which end with the traffic of some pairs instead of all; None where these show none.

        Parameters
        ----------
        pairs : `src_addr`, `dst_addr`, `kind`
        """
        if pairs.is_empty():
            return None

        def ended(run: Run) -> JointSteps:
            last = run.number == self.runs[-1].number
            return gradient_ends.steps_ended_by(run.joint, pairs, self.settings.rhythm, last_run=last)

        endpoints, job_steps = _nic_and_job_steps(self.runs, self.window, self.settings, ended)
        if endpoints.is_empty():
            return None
        # A step that only others had ended before the window is told in it, too.
        first = pl.concat([self.first_steps, completion.first_indices(endpoints, job_steps)])
        first = first.group_by("job_id").agg(pl.col("base").min())
        return replace(self, endpoints=endpoints, job_steps=job_steps, first_steps=first)


def divide(
    bulk: pl.DataFrame, window: Window, settings: Settings, *, known: PairRhythms | None = None
) -> Division | None:
    """Divide the bulk flows of jobs into steps, run by run; None where no job shows any.

    A run that is too short for steps as long as those before shows none, if it seems to show shorter ones.

    Parameters
    ----------
    bulk : with `job_id`, those of the look-back among them
    known : rhythms that were found in the same traffic index
    """
    found: list[Run] = []
    before = pl.DataFrame(schema={"job_id": pl.String, "before": pl.Int64})
    for number, flows in enumerate(runs(bulk, window, settings.traffic)):
        if flows.is_empty():
            continue
        bounds = {"until_ns": window.end_ns, "before_ns": window.start_ns}
        joint = steps_of_jobs(flows, settings.rhythm, known=known, **bounds)
        in_parts = _runs_in_parts(joint, found[-1].joint) if found else []
        if in_parts:
            others = flows.filter(~pl.col("job_id").is_in(in_parts))
            joint = steps_of_jobs(others, settings.rhythm, known=known, **bounds)
        found.append(Run(number, joint, before))
        before = _step_counts(joint)
    if not found:
        return None
    endpoints, job_steps = _nic_and_job_steps(found, window, settings)
    if endpoints.is_empty():
        return None
    every = pl.concat([run.joint.flows.with_columns(run=pl.lit(run.number)) for run in found])
    first = completion.first_indices(endpoints, job_steps)
    return Division(found, every, endpoints, job_steps, first, window, settings)


def _runs_in_parts(joint: JointSteps, former: JointSteps) -> list[str]:
    """Return the jobs whose run has not yet lasted for a few steps of the run before it, and whose steps are much
    shorter than these: they are layers or micro-batches, for in so short a run only these come again."""
    periods = _periods(joint).join(_periods(former), on="job_id", suffix="_before")
    starts = pl.col("flow_start_ns")
    lasts = joint.flows.group_by(pl.col("job_id").cast(pl.String)).agg(lasts=starts.max() - starts.min())
    parts = SEVERAL_PERIODS * pl.col("period_ns") <= pl.col("period_ns_before")
    short = pl.col("lasts") < FEW_BURSTS * pl.col("period_ns_before")
    return periods.join(lasts, on="job_id").filter(parts & short)["job_id"].to_list()


def _periods(joint: JointSteps) -> pl.DataFrame:
    """Return `job_id`, `period_ns`: of the rhythm that the steps of each job were found by."""
    return joint.pairs.drop_nulls("period_ns").group_by("job_id").agg(pl.col("period_ns").first())


def _nic_and_job_steps(
    found: Sequence[Run],
    window: Window,
    settings: Settings,
    ended: Callable[[Run], JointSteps] = lambda run: run.joint,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the steps of NICs and of jobs, as `completion` does, with `run`."""
    of_runs = []
    for run in found:
        endpoints = completion.endpoint_steps(ended(run), window, settings)
        of_runs.append([run.counted(steps) for steps in (endpoints, completion.job_steps(endpoints, window, settings))])
    of_nics, of_jobs = zip(*of_runs, strict=True)
    return pl.concat(of_nics), pl.concat(of_jobs)


def _step_counts(joint: JointSteps) -> pl.DataFrame:
    """Return how many steps each job has: `job_id`, `before`."""
    known = joint.steps >= 0
    count = np.zeros(joint.periods.size, np.int64)
    np.maximum.at(count, joint.places[known], joint.steps[known] + 1)
    return joint.pairs.select("job_id", before=count).group_by("job_id").agg(pl.col("before").max())
