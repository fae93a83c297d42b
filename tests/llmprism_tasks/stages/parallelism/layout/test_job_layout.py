"""How sure a job's row is: what else its flows could mean takes off."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.stages.parallelism.layout.job_layout import HIDDEN, RINGED, UNSURE, confidence

DEGREES = ("tp", "pp", "dp", "cp", "ep")


def of(kind: str = "training", *, evenness: float | None = 1.0, **degrees: int | None) -> float:
    """Return the confidence in a job all of whose pairs agree, of degree 1 but for those given."""
    row = {"kind": kind, "recognition_confidence": 0.8, "agreement": 1.0, "sureness": 1.0, "evenness": evenness}
    jobs = pl.DataFrame([row | dict.fromkeys(DEGREES, 1) | degrees], schema_overrides=dict.fromkeys(DEGREES, pl.Int32))
    return float(jobs.select(confidence(jobs.columns)).item())


@pytest.mark.parametrize(
    ("degrees", "left"),
    [
        ({"tp": 1, "dp": 16}, 1.0),
        ({"tp": 2, "dp": 8}, RINGED),
        ({"tp": 2, "dp": 4, "pp": 2}, 1.0),
        ({"tp": 2, "dp": 4, "ep": 2}, 1.0),
        ({"tp": 2, "dp": 4, "cp": 2}, 1.0),
        ({"tp": 2, "dp": 4, "pp": 2, "cp": None}, HIDDEN),
        ({"tp": 2, "dp": 8, "cp": None, "ep": None}, HIDDEN * RINGED),
        ({"tp": None, "dp": None}, UNSURE),
    ],
)
def test_what_looks_the_same_takes_off(degrees: dict[str, int | None], left: float) -> None:
    """One ring through all GPUs of hosts looks like one for each place in them, unless something else is seen."""
    assert of(**degrees) == pytest.approx(0.8 * left)


def test_a_job_that_does_not_train_has_no_layout_to_doubt() -> None:
    assert of("other", tp=None, dp=None) == pytest.approx(0.8)


def test_what_pairs_move_unevenly_takes_off() -> None:
    assert of(dp=16, evenness=0.7) == pytest.approx(0.8 * 0.7)
    assert of(dp=16, evenness=None) == pytest.approx(0.8)
