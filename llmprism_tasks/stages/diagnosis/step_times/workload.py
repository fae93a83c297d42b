"""Workload: whether slower steps hold more work. They are longer on purpose, or are several steps told as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, Flags
from llmprism_tasks.stages.diagnosis.evidence import HEALTHY_STEP_QUANTILE, Evidence
from llmprism_tasks.stages.traffic import nic_pairs


def without_heavier(slower: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Leave out the runs of slow steps in which members send more, by at least half of what the steps are longer.

    Parameters
    ----------
    slower : as `slow_run.find` returns
    """
    return slower.filter(pl.Series([not _is_heavier_run(row, evidence) for row in slower.to_dicts()], dtype=pl.Boolean))


def _is_heavier_run(slower: dict[str, Any], evidence: Evidence) -> bool:
    steps = evidence.history.filter(pl.col("job_id") == slower["job_id"]).sort("end_ns")
    slow = (pl.col("start_ns") >= slower["start_ns"]) & (pl.col("end_ns") <= slower["end_ns"])
    return are_heavier(slower["job_id"], steps.with_columns(slow=slow), slower["severity"], evidence)


def are_heavier(job_id: str, steps: pl.DataFrame, longer: float, evidence: Evidence) -> bool:
    """Return whether members send more in a job's slow steps, by at least half of the ratio by which these are longer.

    A faulty device makes nobody send more. Of a member the link counts whose bytes grew most: a larger batch has more
    micro-batches, and the same gradients.

    Parameters
    ----------
    steps : `start_ns`, `end_ns`, `slow`, sorted
    longer : the ratio by which slow steps are longer
    """
    return _growth_of_bytes(job_id, steps, evidence) >= MAJORITY * longer


def _growth_of_bytes(job_id: str, steps: pl.DataFrame, evidence: Evidence) -> float:
    """Return by which ratio the typical member sends more in slow steps than in quick ones, over one of its links."""
    starts, ends = (steps[name].to_numpy() for name in ("start_ns", "end_ns"))
    slow: Flags = steps["slow"].to_numpy()
    quick: Flags = (ends - starts <= np.quantile(ends - starts, HEALTHY_STEP_QUANTILE)) & ~slow
    flows = evidence.of_jobs(pl.Series([job_id]))
    if flows.is_empty() or not quick.any():
        return 0.0
    named = flows.select(pl.struct(nic_pairs.PAIR).rank("dense") - 1, sender=pl.col("src_addr").rank("dense") - 1)
    pair, sender = (column.to_numpy().astype(np.int64) for column in named.get_columns())
    at = np.searchsorted(ends, flows["flow_start_ns"].to_numpy())
    each = np.zeros((pair.max() + 1, ends.size + 1))
    np.add.at(each, (pair, at), flows["bytes"].to_numpy())
    usual, now = (np.median(each[:, :-1][:, which], axis=1) for which in (quick, slow))
    of_pair = np.zeros(pair.max() + 1, np.int64)
    of_pair[pair] = sender
    most = np.ones(sender.max() + 1)
    np.maximum.at(most, of_pair[usual > 0], (now / np.maximum(usual, 1))[usual > 0])
    return float(np.median(most)) - 1
