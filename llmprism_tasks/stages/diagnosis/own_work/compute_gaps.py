"""Compute gaps: how long a NIC is silent, because it computes, between one exchange with its group and the next.

No member of a collective goes on before the last one has arrived. A member that arrives early fills the buffers of its
neighbours and then stalls, so all members of a group are silent for about as long in a step. But the gaps of the slow
member are whole, while those of the others end early, with a little data that is sent too soon.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.stages.diagnosis.own_work.kept_leads import kept_leads
from llmprism_tasks.stages.diagnosis.own_work.kernels import step_gaps
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import NicArrays

EARLY_BURST = 0.1
"""Share of a NIC's mean burst of a kind below which a burst was sent early: buffers hold 4 MB a channel
(NCCL_BUFFSIZE), and gradients come in buckets of 25 MB (PyTorch) or 40 million parameters (Megatron-LM)."""


def compute_gap_work(
    flows: NicArrays, jobs: pl.Series, *, early: float = EARLY_BURST, sent_only: bool = False
) -> pl.DataFrame:
    """Measure each NIC's compute gaps in its steps.

    A gap after an early burst is a stall, and is left out. Where ranks keep their leads, they computed meanwhile for
    what comes next: that counts. Gaps beside a pipeline message, where a NIC waits, are left out.

    Parameters
    ----------
    jobs : `job_id` of the jobs to measure
    early : share of a NIC's mean burst of a kind below which a burst was sent early
    sent_only : whether a gap goes on until the NIC sends, whatever it receives: buffers of a NIC that is late fill
        without it

    Returns
    -------
    the steps with compute gaps, in their order, with

    - `own_ns`: sum of the gaps
    - `later_ns`: the same without the longest gap, which holds all work before the first exchange
    - `pace`: root of the sum of squared gaps. It grows with the gaps as their sum does, but not if a stall cuts a gap
      in two, and hardly with pauses inside a burst. Where ranks keep their leads, no stall does, and a lead is work
      between any two exchanges: the sum itself
    - `share`: ratio of the step that is silent
    - `exchanges`: how many bursts with gaps between them were seen
    """
    found = step_gaps.exchanges(
        flows.transfers, flows.numbers, flows.of(jobs), early=early, piped=flows.number("pp"), sent_only=sent_only
    )
    leads = kept_leads(found, flows)
    gaps = (found.computed + leads).astype(np.float64)
    length, squares, longest, led = (np.zeros(flows.steps.height) for _ in range(4))
    np.add.at(length, found.step, gaps)
    np.add.at(squares, found.step, gaps * gaps)
    np.maximum.at(longest, found.step, gaps)
    np.add.at(led, found.step, leads)
    many = np.bincount(found.step, minlength=flows.steps.height)
    return (
        flows.steps.with_columns(
            own_ns=length, pace=np.sqrt(squares), later_ns=length - longest, exchanges=many, led=led
        )
        .filter(pl.Series(length > 0))
        .with_columns(
            pace=pl.when(pl.col("led").sum().over("job_id") > 0).then("own_ns").otherwise("pace"),
            share=pl.col("own_ns") / (pl.col("end_ns") - pl.col("start_ns")),
        )
        .drop("led")
    )
