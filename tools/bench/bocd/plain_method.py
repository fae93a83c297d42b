"""The plain published method on one minute, with a change-point loop in Python.

Run as `python -m bench.bocd.plain_method FOLDER FILE`.

The published stages run as they are (`llmprism_tasks/stages/published`), in memory, with no table written. In them
the compiled kernel answers, so that the stages go on as they would; its time is taken out, and that of
`bench.bocd.library` put in: measured on some of the very series that the stages asked about, and scaled up by
observations. The same for `bench.bocd.textbook`, for comparison.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.bocd import library, textbook
from llmprism_tasks.contract import frames
from llmprism_tasks.contract.plan import STAGES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import MethodSettings, Settings
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.stages.published import diagnosis, parallelism, recognition, step_division, timeline
from llmprism_tasks.stages.published.kernels import bocpd

FUNCTIONS = {
    module.__name__.rpartition(".")[2]: getattr(module, module.__name__.rpartition(".")[2])
    for module in (recognition, step_division, parallelism, timeline, diagnosis)
}
SAMPLED = 20
"""Series of each call that the Python loop is measured on, drawn at random."""


@dataclass
class Counted:
    """What the stages asked of change-point detection, and what a sample of it costs in Python.

    Attributes
    ----------
    observations, kernel_s : all of them, and the compiled kernel's processor time
    sampled, library_s, textbook_s : observations of the sample, and the processor time of both loops on them
    marks, agreed : of the sample, those that the kernel or the library marked, and that both did
    """

    observations: int = 0
    kernel_s: float = 0.0
    sampled: int = 0
    library_s: float = 0.0
    textbook_s: float = 0.0
    marks: int = 0
    agreed: int = 0
    _kernel: Any = field(default=bocpd.change_points, repr=False)

    def change_points(
        self, values: npt.ArrayLike, offsets: npt.ArrayLike, *, prior: bocpd.Prior, hazard: float, **kwargs: Any
    ) -> npt.NDArray[np.bool_]:
        """Answer as `bocpd.change_points` does, and count."""
        began = time.process_time()
        marked: npt.NDArray[np.bool_] = self._kernel(values, offsets, prior=prior, hazard=hazard, **kwargs)
        self.kernel_s += time.process_time() - began
        series, bounds = np.asarray(values, dtype=np.float64), np.asarray(offsets)
        self.observations += len(series)
        drawn = np.random.default_rng(0).permutation(len(bounds) - 1)[:SAMPLED]
        for one in drawn:
            part = slice(int(bounds[one]), int(bounds[one + 1]))
            self._compare(series[part], marked[part], prior, hazard, kwargs.get("threshold", 0.95))
        return marked

    def _compare(
        self,
        series: npt.NDArray[np.float64],
        marked: npt.NDArray[np.bool_],
        prior: bocpd.Prior,
        hazard: float,
        threshold: float,
    ) -> None:
        began = time.process_time()
        textbook.start_posterior(series, hazard=hazard, prior=prior)
        done = time.process_time()
        theirs = library.start_posterior(series, hazard=hazard, prior=prior) > threshold
        self.textbook_s += done - began
        self.library_s += time.process_time() - done
        self.sampled += len(series)
        self.marks += int((theirs | marked).sum())
        self.agreed += int((theirs & marked).sum())


def published(folder: Path, file: Path) -> dict[str, Any]:
    """Run the published stages on a minute's file.

    Returns
    -------
    `wall_s`, `cpu_s` : of reading and of the stages, without change-point detection, which is on one core
    `bocd_s` : what the library would have taken for all observations
    `textbook_bocd_s` : what the loop over arrays would have
    and what `Counted` counted
    """
    counted = Counted()
    setattr(bocpd, "change_points", counted.change_points)  # noqa: B010 - where the stages look it up
    settings = Settings(method=MethodSettings(name="published"))
    began, wall = time.process_time(), time.monotonic()
    flows = pl.read_parquet(file).with_columns(pl.lit(None, pl.Int64).alias("window_start_ns"))
    window = Window.containing(int(flows["flow_start_ns"].min()), settings.window.length_ns)  # type: ignore[arg-type]
    tables = {
        "flows": frames.conform(flows.with_columns(window_start_ns=pl.lit(window.start_ns)), "flows"),
        "topology": read_topology(str(folder / "topology.csv")),
    }
    for stage in STAGES:
        results = FUNCTIONS[stage.name](
            **{name: tables[name] for name in stage.reads}, window=window, settings=settings
        )
        tables |= dict(zip(stage.writes, results, strict=True))
    apart_s = counted.kernel_s + counted.library_s + counted.textbook_s
    times = counted.observations / counted.sampled
    return {
        "wall_s": time.monotonic() - wall - apart_s,
        "cpu_s": time.process_time() - began - apart_s,
        "bocd_s": counted.library_s * times,
        "textbook_bocd_s": counted.textbook_s * times,
        "jobs": tables["jobs"].height,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        **{name: value for name, value in vars(counted).items() if not name.startswith("_")},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(published(Path(sys.argv[1]), Path(sys.argv[2]))))
