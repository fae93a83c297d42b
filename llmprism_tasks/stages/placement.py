"""Placement: each flow in the steps of both its ends."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages import traffic

NIC = ["job_id", "addr"]
STEP = [*NIC, "step_index"]


def placed(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return each flow once for each of its ends, cut to the end's step in which it starts.

    Parameters
    ----------
    flows : with `job_id`
    steps : of NICs: `job_id`, `addr`, `start_ns`, `end_ns` and whatever else is to be known of them

    Returns
    -------
    flows with `addr`, `peer`, `sends`, `start_ns` and `end_ns`, and with the steps' columns, whose times are
    `step_start_ns` and `step_end_ns`; flows outside all steps are absent
    """
    spans = steps.rename({"start_ns": "step_start_ns", "end_ns": "step_end_ns"}).sort("step_end_ns")
    return (
        traffic.by_endpoint(flows)
        .sort("flow_start_ns")
        .join_asof(
            spans, left_on="flow_start_ns", right_on="step_end_ns", by=NIC, strategy="forward", check_sortedness=False
        )
        .filter(pl.col("flow_end_ns") > pl.col("step_start_ns"))
        .with_columns(
            start_ns=pl.max_horizontal("flow_start_ns", "step_start_ns"),
            end_ns=pl.min_horizontal("flow_end_ns", "step_end_ns"),
        )
    )
