"""What the phases share of one partition: the traffic index, the flows of jobs, and their division into steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.step_division.division import Division, divide
from llmprism_tasks.stages.step_division.restarts import GpuTraffic
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.index import JobTraffic, TrafficIndex

Value = GpuTraffic | TrafficIndex | JobTraffic | Division | None


class PartitionValues:
    """Values that phases take beside tables. Each is made once, when the first phase that takes it runs.

    Parameters
    ----------
    flows : the window's flows and those of its look-back
    """

    def __init__(self, flows: pl.DataFrame, window: Window, settings: Settings) -> None:
        self._flows, self._window, self._settings = flows, window, settings
        self._traffic: TrafficIndex | None = None
        self._gpu_traffic: GpuTraffic | None = None
        self._job_traffic: JobTraffic | None = None
        self._divisions: dict[str, Division | None] = {}

    def named(self, names: Sequence[str], tables: Mapping[str, pl.DataFrame]) -> dict[str, Value]:
        """Return some values by their names in the plan.

        Parameters
        ----------
        tables : `topology`, and what the phases so far wrote: `job_members` once jobs are known, `pairs`
            once their kinds are
        """
        makers: dict[str, Callable[[], Value]] = {
            "traffic": self.traffic,
            "gpu_traffic": lambda: self.gpu_traffic(tables["topology"]),
            "job_traffic": lambda: self.job_traffic(tables["job_members"]),
            "division": lambda: self.division(tables["job_members"], tables["jobs"]),
            "step_ends": lambda: self.step_ends(tables["job_members"], tables["jobs"], tables["pairs"]),
        }
        return {name: makers[name]() for name in names}

    def traffic(self) -> TrafficIndex:
        """Return the flows sorted by pair."""
        if self._traffic is None:
            self._traffic = TrafficIndex.of(self._flows, self._settings.traffic)
        return self._traffic

    def gpu_traffic(self, topology: pl.DataFrame) -> GpuTraffic:
        """Return the bulk flows between GPUs, and the rhythms of their pairs."""
        if self._gpu_traffic is None:
            bulk = nic_pairs.between_gpus(self.traffic().bulk, topology.select("addr"))
            self._gpu_traffic = GpuTraffic.of(bulk, self._window, self._settings)
        return self._gpu_traffic

    def job_traffic(self, job_members: pl.DataFrame) -> JobTraffic:
        """Return the flows inside jobs."""
        if self._job_traffic is None:
            self._job_traffic = self.traffic().inside(job_members)
        return self._job_traffic

    def division(self, job_members: pl.DataFrame, jobs: pl.DataFrame) -> Division | None:
        """Return the steps of the jobs that train; None where there are none."""
        if "all" not in self._divisions:
            trains = jobs.filter(kind="training")["job_id"].implode()
            bulk = self.job_traffic(job_members).bulk.filter(pl.col("job_id").cast(pl.String).is_in(trains))
            known = None if self._gpu_traffic is None else self._gpu_traffic.running
            self._divisions["all"] = divide(bulk, self._window, self._settings, known=known)
        return self._divisions["all"]

    def step_ends(self, job_members: pl.DataFrame, jobs: pl.DataFrame, pairs: pl.DataFrame) -> Division | None:
        """Return the same steps, as the pairs that end them show them. The others are let go: they fill memory."""
        if "ends" not in self._divisions:
            division = self.division(job_members, jobs)
            self._divisions = {"ends": None if division is None else division.ended_by(pair_graph.ending(pairs))}
            self._gpu_traffic = None
        return self._divisions["ends"]
