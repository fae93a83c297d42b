"""By which steps pairs are judged when somebody becomes slow."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from handmade import MS, WINDOW, flows, ring, settings

from llmprism_tasks.stages.parallelism.pair_kinds.typical_steps import in_these, undisturbed
from llmprism_tasks.stages.step_division.division import Division, divide
from llmprism_tasks.stages.traffic import nic_pairs


def division(lengths: Sequence[float]) -> Division:
    begins = [sum(lengths[:step]) for step in range(len(lengths))]
    inside = nic_pairs.in_order(flows(ring("ab", begins)).with_columns(job_id=pl.lit("j")))
    found = divide(nic_pairs.bulk(inside, settings().traffic), WINDOW, settings())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("lengths", "told", "period"),
    [
        ([1000] * 20 + [1190] * 20, 0, None),
        ([1000] * 20 + [1210] * 20, 20, 1000),
        ([1000] * 31 + [2000] * 9, 0, None),
        ([1000] * 29 + [2000] * 11, 29, 1000),
        ([1000] * 8 + [2000] * 20, 8, 1000),
        ([1000] * 7 + [2000] * 20, 0, None),
        ([1000] * 40, 0, None),
    ],
    ids=["a fifth longer", "longer", "less than a quarter", "a quarter", "enough", "too few", "as ever"],
)
def test_the_quick_steps_tell_where_a_quarter_has_become_a_fifth_longer(
    lengths: Sequence[float], told: int, period: float | None
) -> None:
    found = division(lengths)
    steps, periods = undisturbed(found)
    assert steps.height == told
    usual = found.periods["period_ns"].item() if period is None else period * MS
    assert periods.rows() == [("j", pytest.approx(usual, rel=1e-6))]


def test_rows_of_other_jobs_stay() -> None:
    rows = pl.DataFrame({"pair": [0, 0, 1, 1], "step": [0, 1, 0, 1], "at": [4, 3, 2, 1]})
    pairs = pl.DataFrame({"pair": [0, 1], "job_id": ["j", "k"]})
    told = pl.DataFrame({"job_id": ["j"], "step": [1]})
    assert in_these(rows, told, pairs)["at"].to_list() == [3, 2, 1]
    assert in_these(rows, told.clear(), pairs).equals(rows)
