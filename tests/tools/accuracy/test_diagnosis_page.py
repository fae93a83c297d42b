"""The page on diagnosis: what was asked of, what was named, and what was said of nobody's fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from results import result

from accuracy.families.registry import DEVELOPMENT_SEEDS, FIRST_PUBLISHED_SEED, TROUBLES
from accuracy.pages.diagnosis_page import EXPLAINED, write_diagnosis
from accuracy.pages.run_totals import culprits
from accuracy.runs import results
from accuracy.runs.results import keep, keep_prices
from accuracy.runs.sources import family_sources
from llmprism_tasks.contract.fault_catalogue import KINDS
from llmprism_tasks.simulate import build_scenario


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")


def fault(**changes: Any) -> dict[str, Any]:
    row = {"kind": "slow_gpu", "subject": "addr:1", "named": True, "first": "addr:1", "first_right": True, "delay": 1}
    return row | {"kinds": ["slow_compute"], "kind_right": True, "effect": 0.2} | changes


@pytest.mark.parametrize(
    ("rows", "loud", "detected"),
    [
        ([fault()], 1, 1),
        ([fault(effect=0.04), fault(effect=0.039)], 1, 1),
        ([fault(effect=None)], 1, 1),
        ([fault(delay=2), fault(delay=3)], 2, 1),
        ([fault(named=False, delay=None, first=None, first_right=False)], 1, 0),
    ],
    ids=["named", "in the noise", "a hang", "late", "not named"],
)
def test_faults_above_the_noise_are_asked_for_in_time(rows: list[dict[str, Any]], loud: int, detected: int) -> None:
    counted = culprits([result(of_faults=rows)])["counts"]
    assert (counted["loud"], counted["detected"]) == (loud, detected)


def test_false_diagnoses_are_counted_over_the_hours_of_all_runs() -> None:
    tallied = culprits([result(false_diagnoses=1, job_hours=2.0), result(job_hours=3.0)])
    assert tallied["false_per_job_hour"] == pytest.approx(1 / 5)
    assert tallied["detected"] is None


def test_the_page_has_every_trouble_and_says_what_was_wrong(tmp_path: Path) -> None:
    missed = {"named": False, "first_right": False, "kind_right": False}
    rows = (fault(), fault(first="addr:2", **missed), fault(effect=0.01, first=None, **missed))
    for seed, row in enumerate(rows, FIRST_PUBLISHED_SEED):
        (source,) = family_sources(["slow_gpu_2"], [seed])
        keep(source, "joint", result(of_faults=[row], job_hours=0.5, false_diagnoses=1))
    text = write_diagnosis(tmp_path / "diagnosis.md", None).read_text(encoding="utf-8")
    assert all(f"| {name} |" in text for name in TROUBLES)
    assert (
        "| slow_gpu_2 | A GPU computes twice as long. | 3 | 2 | 1 of 2 ✗ | 1 of 2 ✗ | 1 of 2 ✗ | 3 in 1.5 h |" in text
    )
    assert "| dense jobs of 64 to 2,048 GPUs | 3 | 2 | 1 of 2 ✗ | 1 of 2 ✗ | 1 of 2 ✗ | 3 in 1.5 h |" in text
    assert f"slow_gpu_2 {FIRST_PUBLISHED_SEED + 2}" not in text
    assert f"- slow_gpu_2 {FIRST_PUBLISHED_SEED + 1} (+20%): slow_gpu of addr:1: not named, but addr:2 was" in text
    assert "not measured" in text


def test_the_page_has_prices_beside_the_truth(tmp_path: Path) -> None:
    row = {"job": "replicas", "fault": "slow_gpu", "slower": 1.3, "true_gpu_s": 100.0, "lost_gpu_s": 104.0}
    row |= {"share": 0.2, "recoverable_gpu_s": 98.0, "error": -0.02}
    none = {"recoverable_gpu_s": None, "error": None}
    stalls = row | {"fault": "stalls", "slower": None, "share": 0.0, "true_gpu_s": 0.0, "error": None}
    keep_prices(FIRST_PUBLISHED_SEED, [row, row | none, row | {"error": 0.051}, row | none | {"share": 0.039}, stalls])
    text = write_diagnosis(tmp_path / "diagnosis.md", None).read_text(encoding="utf-8")
    assert "| replicas | slow_gpu, 1.3 times | 3.9 to 20.0 % | 100.0 | 98.0, 2 not priced | -2.0 to +5.1 % |" in text
    assert "| replicas | stalls | 0.0 % | 0.0 | 98.0 | - |" in text
    assert "Within 5% of the truth: 1 of 3 that are diagnosed." in text
    assert "Measured by other code" not in text
    (results.KEPT / results.version()).rename(results.KEPT / "older")
    text = write_diagnosis(tmp_path / "diagnosis.md", None).read_text(encoding="utf-8")
    assert f"Measured by other code than the present {results.version()}: seeds {FIRST_PUBLISHED_SEED}." in text


@pytest.mark.parametrize("name", TROUBLES)
def test_every_seed_draws_a_platform_with_its_trouble(name: str) -> None:
    for seed in DEVELOPMENT_SEEDS[:4]:
        scenario = build_scenario(name, TROUBLES[name].content(seed))
        if name.startswith("healthy"):
            assert not scenario.faults
            assert {restart.stop for restart in scenario.restarts} == {"in_order"}
        else:
            assert len(scenario.faults) + len(scenario.restarts) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_diagnosis_is_explained(kind: str) -> None:
    assert f"`{kind}`" in EXPLAINED.read_text(encoding="utf-8")
