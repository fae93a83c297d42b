"""An incident's members are drawn beside those that do the same work, and the words say who these are."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from llmprism_tasks.reports.pages.charts import Chart
from llmprism_tasks.reports.pages.incident import beside_peers

HOSTS = {"a0": "node-a", "a1": "node-a", "b0": "node-b", "b1": "node-b", "c0": "node-c"}
SAME, ALL = "of the same pipeline stage,", "elsewhere in the job, whatever their pipeline stage,"


def drawn(stages: Mapping[str, int | None], *, subject_type: str = "host", subject: str = "node-a") -> Chart | None:
    rows = {"addr": list(stages), "host": [HOSTS[addr] for addr in stages], "pp_stage": list(stages.values())}
    members = pl.DataFrame(rows, schema_overrides={"pp_stage": pl.Int64}).with_columns(dp_group=pl.lit(0))
    splits = members.with_columns(
        window_start_ns=pl.lit(0),
        step_index=pl.lit(0),
        end_ns=pl.lit(1),
        compute_ns=pl.lit(1_000_000_000),
        communication_ns=pl.lit(1_000_000_000),
    )
    incident = {"kind": "slow_compute", "subject_type": subject_type, "subject": subject}
    return beside_peers({"members": members, "splits": splits}, incident)


@pytest.mark.parametrize(
    ("stages", "peers", "whose"),
    [
        ({"a0": 0, "a1": 0, "b0": 0, "b1": 1, "c0": 1}, "1 NIC", SAME),
        ({"a0": 0, "a1": 1, "b0": 0, "b1": 1, "c0": 2}, "2 NICs", SAME),
        ({"a0": None, "a1": None, "b0": None, "b1": None, "c0": None}, "3 NICs", ALL),
        ({"a0": None, "a1": 1, "b0": 0, "b1": 1, "c0": 2}, "3 NICs", ALL),  # one unknown stage, wherever it is
        ({"a0": 1, "a1": None, "b0": 0, "b1": 1, "c0": 2}, "3 NICs", ALL),
        ({"a0": 0, "a1": 0, "b0": 1, "b1": 1, "c0": None}, "3 NICs", ALL),  # nobody else is in the stage
    ],
)
def test_peers_are_of_the_same_stage_or_where_that_is_not_known_all_others(
    stages: Mapping[str, int | None], peers: str, whose: str
) -> None:
    chart = drawn(stages)
    assert chart is not None
    assert f"beside {peers} {whose}" in chart.tells


def test_a_pipeline_stage_is_drawn_beside_the_others() -> None:
    chart = drawn({"a0": 0, "a1": 0, "b0": 1, "b1": 1}, subject_type="pp_stage", subject="0")
    assert chart is not None
    assert f"beside 2 NICs {ALL}" in chart.tells


def test_a_job_without_others_is_not_drawn() -> None:
    assert drawn({"a0": 0, "a1": 0}) is None
