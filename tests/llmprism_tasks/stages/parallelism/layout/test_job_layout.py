"""How sure a job's row is: what else its flows could mean takes off."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from llmprism_tasks.numerics.robust import EVEN_ODDS
from llmprism_tasks.stages.parallelism.layout.job_layout import (
    HIDDEN_CONTEXT,
    confidence,
    if_most_is_explained,
    stages_of_known_pipelines,
)
from llmprism_tasks.stages.parallelism.layout.job_profile import brevity

DEGREES = ("tp", "pp", "dp", "cp", "ep")


def of(
    kind: str = "training",
    *,
    evenness: float | None = 1.0,
    brevity: float | None = None,
    crosses_rails: bool | None = None,
    **degrees: Any,
) -> float:
    """Return the confidence in a job all of whose pairs agree, of degree 1 but for those given."""
    row = {"kind": kind, "recognition_confidence": 0.8, "agreement": 1.0, "sureness": 1.0}
    row |= {"evenness": evenness, "brevity": brevity, "crosses_rails": crosses_rails}
    jobs = pl.DataFrame(
        [row | dict.fromkeys(DEGREES, 1) | degrees],
        schema_overrides=dict.fromkeys((*DEGREES, "peers"), pl.Int32) | {"crosses_rails": pl.Boolean},
    )
    return float(jobs.select(confidence(jobs.columns)).item())


@pytest.mark.parametrize(
    ("degrees", "left"),
    [
        ({"tp": 1, "dp": 16}, 1.0),
        ({"tp": 2, "dp": 8}, EVEN_ODDS),
        ({"tp": 2, "dp": 4, "pp": 2}, 1.0),
        ({"tp": 2, "dp": 4, "ep": 2}, EVEN_ODDS),
        ({"tp": 2, "pp": 2, "dp": 2, "ep": 2}, EVEN_ODDS),
        ({"tp": 2, "dp": 4, "ep": 2, "crosses_rails": True}, 1.0),
        ({"tp": 2, "dp": 4, "cp": 2}, 1.0),
        ({"tp": 2, "dp": 4, "pp": 2, "cp": None}, HIDDEN_CONTEXT),
        ({"tp": 2, "dp": 8, "cp": None, "ep": None}, HIDDEN_CONTEXT * EVEN_ODDS),
        ({"tp": None, "dp": None}, EVEN_ODDS),
    ],
)
def test_what_looks_the_same_takes_off(degrees: dict[str, Any], left: float) -> None:
    """One ring, or one exchange of tokens, through all GPUs of hosts looks like one for each place in them, unless
    something else is seen."""
    assert of(**degrees) == pytest.approx(0.8 * left)


@pytest.mark.parametrize(("tp", "peers", "left"), [(8, 8, 1.0), (8, None, HIDDEN_CONTEXT**2), (1, None, 1.0)])
@pytest.mark.parametrize("cp", [1, None])
def test_replicas_and_context_may_share_a_host_where_no_lock_step_was_seen(
    tp: int, peers: int | None, left: float, cp: int | None
) -> None:
    """Once it is seen who is in lock-step, only context may hide."""
    hides = HIDDEN_CONTEXT if cp is None and left == 1.0 else 1.0
    assert of(tp=tp, pp=2, dp=2, peers=peers, cp=cp) == pytest.approx(0.8 * left * hides)


def test_a_job_that_does_not_train_has_no_layout_to_doubt() -> None:
    assert of("other", tp=None, dp=None) == pytest.approx(0.8)


def test_what_pairs_move_unevenly_takes_off() -> None:
    assert of(dp=16, evenness=0.7) == pytest.approx(0.8 * 0.7)
    assert of(dp=16, evenness=None) == pytest.approx(0.8)


def test_what_is_in_records_as_long_as_steps_takes_off() -> None:
    assert of(dp=16, brevity=0.1) == pytest.approx(0.8 * 0.1)


@pytest.mark.parametrize(("lasts", "left"), [(49, 1.0), (51, 0.6)])
def test_a_record_of_half_a_step_says_little_of_when(lasts: int, left: float) -> None:
    """Steps of 100 ns; the first of two records is of 40 MB of 100."""
    flows = pl.DataFrame(
        {"pair": [7, 7], "flow_start_ns": [0, 200], "flow_end_ns": [lasts, 210], "bytes": [40, 60]},
    )
    pairs, periods = pl.DataFrame({"pair": [7], "job_id": ["j"]}), pl.DataFrame({"job_id": ["j"], "period_ns": [100.0]})
    assert brevity(flows, pairs, periods).rows() == [("j", pytest.approx(left))]


@pytest.mark.parametrize(("explained", "found"), [(0.5, 2), (0.49, None), (None, 2)])
def test_a_layout_in_which_most_bytes_have_no_place_is_not_told(explained: float | None, found: int | None) -> None:
    row = dict.fromkeys(("tp", "pp", "dp", "cp", "ep"), 2) | {"explained_bytes": explained}
    jobs = if_most_is_explained(pl.DataFrame([row], schema_overrides={"explained_bytes": pl.Float64}))
    assert set(jobs.drop("explained_bytes").row(0)) == {found}


@pytest.mark.parametrize(("pp", "stages"), [(2, [0, 1]), (None, [None, None])])
def test_no_stages_are_told_where_nobody_knows_how_many_there_are(pp: int | None, stages: list[int | None]) -> None:
    members = pl.DataFrame({"job_id": ["j", "j"], "pp_stage": [0, 1]})
    jobs = pl.DataFrame({"job_id": ["j"], "pp": pl.Series([pp], dtype=pl.Int32)})
    assert stages_of_known_pipelines(members, jobs)["pp_stage"].to_list() == stages
    assert stages_of_known_pipelines(members.drop("pp_stage"), jobs).columns == ["job_id"]
