"""First backward pass: how long a pipeline stage works on the first gradient of a step.

A stage that receives its first gradient of a step is idle, and the stage before it waits for the gradient that this
stage computes from it. This holds in 1F1B and in GPipe. So the time until that gradient leaves is one backward pass,
and contains no waiting. The first stage sends no gradient. In 1F1B it next sends an activation, after one backward and
one forward pass; the activation leaves later if its receiver is busy for longer. Its gradient comes back in the same
step. If none comes any more, all micro-batches were sent before, and the activation is of the next step: it waited for
the optimizer.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.kernels import first_reply
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import without_logs
from llmprism_tasks.stages.timeline.kernels.step_lookup import Series
from llmprism_tasks.stages.timeline.placement import NIC
from llmprism_tasks.stages.traffic import nic_pairs


def with_first_backward(evidence: Evidence, _: DiagnosisSettings) -> pl.DataFrame:
    """Return the own work of the NICs in the window's steps, with the columns that `first_backward_times` returns."""
    work = evidence.work.filter("current")
    return work.with_columns(first_backward_times(evidence.flows, work, evidence.members.drop_nulls("pp_stage")))


def first_backward_times(flows: pl.DataFrame, steps: pl.DataFrame, stages: pl.DataFrame) -> list[pl.Series]:
    """Measure the time from a NIC's first gradient of a step to the message it sends in reply.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : steps of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`
    stages : `job_id`, `addr`, `pp_stage`

    Returns
    -------
    one value (ns) for each row of `steps`: `gradient_ns`, when the first gradient begins to come, and `answer_ns`. NULL
    for the last stage, and for interleaved pipelines, whose stages do not form a line; the second also for steps in
    which no reply was seen.
    """
    if steps.is_empty():
        return [pl.Series(name, [], pl.Int64) for name in ("gradient_ns", "answer_ns")]
    flows = nic_pairs.in_order(without_logs(flows))
    hops, backward = _pipeline_hops(flows, stages), pl.col("way") == -1
    spans = steps.select(*NIC, "start_ns", "end_ns", row=pl.int_range(pl.len())).sort(*NIC, "start_ns")
    nics = spans.select(NIC).unique(maintain_order=True).with_row_index("nic")
    first = spans.select(pl.struct(NIC).is_first_distinct().arg_true()).to_series().to_numpy()
    came, left = (
        _hop_series(hops.filter(some), nics, end)
        for some, end in ((backward, "dst_addr"), (backward | (pl.col("src_stage") == 0), "src_addr"))
    )
    starts, ends = (flows[name].to_numpy() for name in nic_pairs.TIMES[:2])
    bounds = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    first_stage = nics.join(stages.filter(pp_stage=0), on=NIC, how="left", maintain_order="left")["pp_stage"]
    returns = first_stage.is_not_null().cast(pl.Int64).to_numpy()
    offsets = np.append(first, spans.height).astype(np.int64)
    found = first_reply.first_replies(starts, ends, came, left, returns, bounds, offsets)
    of_steps = np.empty((len(found), spans.height), np.int64)
    of_steps[:, spans["row"].to_numpy()] = found
    return [
        pl.Series(name, one).replace(first_reply.NO_REPLY, None)
        for name, one in zip(("gradient_ns", "answer_ns"), of_steps, strict=True)
    ]


def _pipeline_hops(flows: pl.DataFrame, stages: pl.DataFrame) -> pl.DataFrame:
    """Return the pipeline pairs of jobs whose stages form a line.

    Columns: `begin` and `until` (first row of the pair's flows, and the row after the last), `src_stage`, `dst_stage`
    and `way` (1 forward, -1 backward).
    """
    offsets = nic_pairs.starts_of_pairs(flows)
    pairs = nic_pairs.pairs_of(flows, ["job_id", "kind", *nic_pairs.PAIR])
    hops = pairs.with_columns(begin=offsets[:-1], until=offsets[1:]).filter(pl.col("kind") == "pp")
    for end in ("src", "dst"):
        names = {"addr": f"{end}_addr", "pp_stage": f"{end}_stage"}
        hops = hops.join(stages.select("job_id", *names).rename(names), on=["job_id", f"{end}_addr"])
    ways = hops.with_columns(way=pl.col("dst_stage") - pl.col("src_stage"))
    return ways.filter((pl.col("way").abs() == 1).all().over("job_id"))


def _hop_series(hops: pl.DataFrame, nics: pl.DataFrame, end: str) -> Series:
    """Return the flows of each hop as a series that belongs to the NIC at one end."""
    owned = hops.join(nics, left_on=["job_id", end], right_on=NIC)
    return Series(*(owned[name].cast(pl.Int64).to_numpy() for name in ("begin", "until", "nic")))
