"""Losses: what slow transfers cost the jobs that wait for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.network.localisation import Suspicion
from llmprism_tasks.stages.diagnosis.network.path_pace import HOP, PLACE

Row = dict[str, Any]

AS_SLOW = 0.5
"""Ratio of what most slow steps have more that the slowest of a stretch must have, to be of the same trouble."""

HEALTHY = 0.1
"""Ratio of what slow steps have more up to which one between them is healthy: what is slow for good is so in all of
them, and hardly ever by a tenth of that."""


@dataclass(frozen=True)
class Losses:
    """What the kinds of network trouble share.

    Attributes
    ----------
    records, by_step, extra : as `hops.placed`, `hops.paces` and `hops.extra` return
    steps : of jobs in trouble, as `slow_steps.in_trouble` returns
    suspicion : who is slow
    """

    records: pl.DataFrame
    by_step: pl.DataFrame
    extra: pl.DataFrame
    steps: pl.DataFrame
    suspicion: Suspicion

    def row(self, job_id: str, slow: pl.DataFrame, settings: DiagnosisSettings) -> Row | None:
        """Return what a job loses by some slow hops, columns of `ROW` and figures that explain them.

        None when they are not slow in most of the window's slow steps: what was slow before it is no news; nor is one
        step alone long after it.

        Parameters
        ----------
        slow : the hops: `HOP`, `path`, `now`, `usual`, `ratio`
        """
        course = self.course(job_id, slow, settings)
        late = course.filter("slow", "current")
        felt = late.filter("felt")
        if 2 * felt.height <= late.height or (felt.height == 1 and _alone(course["felt"], settings)):
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
        """Return the steps of a job in which some hops moved data, with `excess` (of their time per byte over
        the usual, as a ratio) and `felt`: whether these were slow in it."""
        pace = (pl.col("pace") / pl.col("usual")).median()
        felt = (
            self.by_step.join(slow.select(*PLACE, "usual"), on=PLACE, nulls_equal=True)
            .group_by(end_ns="step_ns")
            .agg(excess=pace - 1, felt=pace >= settings.slow_rate)
        )
        return self.steps.filter(pl.col("job_id") == job_id).join(felt, on="end_ns").sort("end_ns")

    def jobs(self, culprit: Row) -> list[str]:
        """Return the jobs whose hops a culprit slows, in order."""
        slow = self.suspicion.crossings.filter(pl.col("hop").is_in(culprit["hops"]))
        return slow["job_id"].unique().sort().to_list()

    def slow(self, culprit: Row, job_id: str) -> pl.DataFrame:
        """Return a job's slow hops across a culprit."""
        device = [pl.col(name) == culprit[name] for name in ("device_type", "device")]
        hops = pl.col("hop").is_in(culprit["hops"])
        return self.suspicion.crossings.filter(pl.col("job_id") == job_id, hops, *device)

    def delay(self, hops: pl.DataFrame) -> float:
        """Return how much longer some hops keep a NIC busy in a slow step, ns, for the NIC that they hold up most.

        The hops of a ring are busy together, so its longest counts; pairs wait for each other.
        """
        slow = hops.select(HOP).unique().join(self.extra, on=HOP)
        nics = pl.concat([slow.with_columns(addr=end) for end in ("src_addr", "dst_addr")])
        units = nics.group_by("addr", "unit").agg(pl.col("extra_ns").max())
        longest = units.group_by("addr").agg(pl.col("extra_ns").sum())["extra_ns"].max()
        return float(longest or 0.0)  # type: ignore[arg-type]

    def stretches(self, job_id: str, slow: pl.DataFrame, settings: DiagnosisSettings) -> int:
        """Return in how many stretches of steps some hops are slow, when healthy steps lie between them; else 0.

        Stretches that are slow by far less than most are another trouble's.
        """
        since = self.course(job_id, slow, settings).filter(pl.col("felt").cum_max())
        usual = pl.col("excess").filter("felt").median()
        told = since.filter(pl.col("felt") | (pl.col("excess") <= HEALTHY * usual)).with_columns(
            usual=usual, stretch=pl.col("felt").rle_id()
        )
        slowest = told.filter("felt").group_by("stretch").agg(pl.col("excess").max(), pl.col("usual").first())
        begins = slowest.filter(pl.col("excess") >= AS_SLOW * pl.col("usual")).height
        return begins if begins > 1 else 0


def _alone(felt: pl.Series, settings: DiagnosisSettings) -> bool:
    """Tell whether the last step that felt it was the only one since healthy ones, and too few were so before."""
    felt = felt[: int(felt.arg_true()[-1]) + 1]
    begins = felt & ~felt.shift(fill_value=False)
    return bool(begins[-1]) and 1 < int(begins.sum()) < settings.least_steps
