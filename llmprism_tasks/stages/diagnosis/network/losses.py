"""Losses: the time that slow transfers cost the jobs that wait for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, Integers
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.network.localisation import Suspicion
from llmprism_tasks.stages.diagnosis.network.path_pace import HOP, HOP_ON_PATH

Row = dict[str, Any]


@dataclass(frozen=True)
class Losses:
    """What the detectors of network faults share.

    Attributes
    ----------
    records, by_step, extra : as `path_pace.placed`, `path_pace.paces` and `path_pace.extra` return
    steps : steps of jobs in trouble, as `slow_steps.in_trouble` returns
    suspicion : the slow transfers, and the devices at fault
    """

    records: pl.DataFrame
    by_step: pl.DataFrame
    extra: pl.DataFrame
    steps: pl.DataFrame
    suspicion: Suspicion

    def row(self, job_id: str, slow: pl.DataFrame, settings: DiagnosisSettings) -> Row | None:
        """Return what a job loses to some slow hops: columns of a finding, and figures for the explanation.

        None if the hops are slow in at most half of the window's slow steps (a fault before the window is no news), or
        only in one step long after the others.

        Parameters
        ----------
        slow : the hops: `HOP`, `path`, `now`, `usual`, `ratio`
        """
        course = self.course(job_id, slow, settings)
        late = course.filter("slow", "current")
        felt = late.filter("felt")
        if 2 * felt.height <= late.height or (felt.height == 1 and _is_lone_step(course["felt"], settings)):
            return None
        length = course.select(length=(pl.col("end_ns") - pl.col("start_ns")).filter("slow")).to_series()
        quick_ns = float(course["quick_ns"][0])
        lost_ns = float(length.median()) - quick_ns  # type: ignore[arg-type]
        ratio, pace = slow.select(pl.col("ratio", "now").median()).row(0)
        return {
            "job_id": job_id,
            "start_ns": felt["start_ns"].min(),
            "end_ns": felt["end_ns"].max(),
            "score": ratio,
            "severity": lost_ns / quick_ns,
            "confidence": min(self.delay(slow) / lost_ns, 1.0),
            "peers": None,
            "gbps": 8 / pace,
            "quick_s": quick_ns / 1e9,
            "slow_s": (quick_ns + lost_ns) / 1e9,
        }

    def course(self, job_id: str, slow: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
        """Return the steps of a job in which some hops moved data.

        `excess` is the hops' time per byte over the usual, minus 1; `felt` says whether they were slow in the step.
        """
        pace = (pl.col("pace") / pl.col("usual")).median()
        felt = (
            self.by_step.join(slow.select(*HOP_ON_PATH, "usual"), on=HOP_ON_PATH, nulls_equal=True)
            .group_by(end_ns="step_ns")
            .agg(excess=pace - 1, felt=pace >= settings.slow_rate)
        )
        return self.steps.filter(pl.col("job_id") == job_id).join(felt, on="end_ns").sort("end_ns")

    def jobs(self, culprit: Row) -> list[str]:
        """Return the jobs in trouble whose hops are slowed by a culprit, sorted."""
        in_trouble = pl.col("job_id").is_in(self.steps["job_id"].unique().implode())
        slow = self.suspicion.crossings.filter(pl.col("hop").is_in(culprit["hops"]), in_trouble)
        return slow["job_id"].unique().sort().to_list()

    def slow(self, culprit: Row, job_id: str) -> pl.DataFrame:
        """Return a job's slow hops that cross a culprit."""
        device = [pl.col(name) == culprit[name] for name in ("device_type", "device")]
        hops = pl.col("hop").is_in(culprit["hops"])
        return self.suspicion.crossings.filter(pl.col("job_id") == job_id, hops, *device)

    def delay(self, hops: pl.DataFrame) -> float:
        """Return how much longer some hops keep a NIC busy in a slow step, ns, for the NIC with the longest delay.

        What a NIC sends and receives in a ring moves at the same time, so the longer counts; what it sends to several
        others, as in two rings, adds up. Pairs wait for each other and add up.
        """
        slow = hops.select(HOP).unique().join(self.extra, on=HOP)
        nics = pl.concat([slow.with_columns(addr=end, way=pl.lit(end)) for end in ("src_addr", "dst_addr")])
        ways = nics.group_by("addr", "unit", "way").agg(pl.col("extra_ns").sum())
        units = ways.group_by("addr", "unit").agg(pl.col("extra_ns").max())
        longest = units.group_by("addr").agg(pl.col("extra_ns").sum())["extra_ns"].max()
        return float(longest or 0.0)  # type: ignore[arg-type]

    def stretches(self, job_id: str, slow: pl.DataFrame, settings: DiagnosisSettings) -> int:
        """Return in how many stretches of steps some hops are slow, with healthy steps in between; 0 below 2.

        Stretches that are far less slow than most belong to another fault.
        """
        since = self.course(job_id, slow, settings).filter(pl.col("felt").cum_max())
        usual = pl.col("excess").filter("felt").median()
        stretches = since.with_columns(usual=usual, stretch=pl.col("felt").rle_id())
        slowest = stretches.filter("felt").group_by("stretch").agg(pl.col("excess").max(), pl.col("usual").first())
        begins = slowest.filter(pl.col("excess") >= MAJORITY * pl.col("usual")).height
        return begins if begins > 1 else 0

    def felt_ns(self, culprit: Row, job_id: str, settings: DiagnosisSettings) -> Integers:
        """Return the lengths of a job's slow steps in which its slow hops that cross a culprit were slow, ns."""
        felt = self.course(job_id, self.slow(culprit, job_id), settings).filter("slow", "felt")
        return (felt["end_ns"] - felt["start_ns"]).to_numpy()


def _is_lone_step(felt: pl.Series, settings: DiagnosisSettings) -> bool:
    """Return whether the last slow step stands alone since healthy ones, with too few slow stretches before it."""
    felt = felt[: int(felt.arg_true()[-1]) + 1]
    begins = felt & ~felt.shift(fill_value=False)
    return bool(begins[-1]) and 1 < int(begins.sum()) < settings.least_steps
