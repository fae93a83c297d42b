"""The page: what was measured stands in it, what misses its bound is marked, what was not measured is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.measure import result_store as keeping
from bench.measure.result_store import keep, kept, machine
from bench.page.costs_svg import fitted
from bench.page.performance_page import write_page


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "FOLDER", tmp_path / "kept")


def result(gpus: int, flows: int, seconds: float, *, mix: str = "tenants", published: bool = False) -> dict[str, Any]:
    run = {"wall_s": seconds, "cpu_s": seconds * 1.5, "peak_bytes": flows * 300}
    run |= {"watched": {"wall_s": seconds * 1.1, "cpu_s": seconds * 1.6}}
    spans = [{"name": "landing", "wall_s": seconds / 2, "cpu_s": seconds / 2, "peak_bytes": flows * 200}]
    plain = {"wall_s": 10.0, "bocd_s": 400.0, "observations": 3 * flows, "sampled": 100}
    plain |= {"library_s": 0.01, "textbook_s": 0.005, "textbook_bocd_s": 200.0}
    return {
        "gpus": gpus,
        "mix": mix,
        "holds": {"flows": flows, "pairs": 7000, "jobs": 12, "bytes": 10**12},
        "runs": [{**run, "spans": spans, "stages_s": {"timeline": seconds / 4}}] * 3,
        "starts": [{"wall_s": 1.2, "cpu_s": 1.2, "peak_bytes": 10**8}] * 3,
        "scans": [{"wall_s": 0.1, "cpu_s": 0.2, "pairs": 7000}] * 3,
        "published": {**plain, "agreed": 9, "marks": 10} if published else None,
    }


def text_of(tmp_path: Path) -> str:
    page, *pictures = write_page(tmp_path / "performance.md")
    for picture in pictures:
        ElementTree.parse(picture)
    return page.read_text(encoding="utf-8")


def row(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {start}"))


def test_without_results_all_is_said_to_be_missing(tmp_path: Path) -> None:
    text = text_of(tmp_path)
    assert text.count("Not measured") == 3


def test_what_was_measured_stands_there_and_misses_are_marked(tmp_path: Path) -> None:
    keep("platform-tenants-2880", result(2_880, 1_400_000, 2.5, published=True))
    keep("platform-small-2880", result(2_880, 1_300_000, 3.5, mix="small"))
    keep("platform-tenants-32768", result(32_768, 16_000_000, 14.0))
    keep(
        "kernel",
        {
            "cases": [
                {"case": "one", "per_s": 2.5e6, "best_per_s": 3e6, "python_per_s": 2e4, "marks": 3, "other_marks": 0}
            ]
        },
    )
    text = text_of(tmp_path)
    assert row(text, "2,880 GPUs, wall").endswith("3.5 s ✗ |")  # the worst of the mixes
    assert row(text, "32,768 GPUs, wall").endswith("14 s |")
    assert row(text, "against the bare scan").endswith("140 times ✗ |")
    assert row(text, "faster than").endswith("164 times |")
    assert row(text, "change points").endswith("2.5 million a second |")
    assert row(text, "Airflow, window's end").endswith("not measured |")
    assert row(text, "slope of memory").split("|")[3].strip() == "1"
    assert row(text, "of them timeline").endswith("| 0.62 | 0.88 |")
    for line in text.splitlines():
        assert len(line) == len(line.rstrip())


def test_airflows_share_is_told_task_by_task(tmp_path: Path) -> None:
    run = {"created_s": 1.0, "working_s": 6.0, "between_s": 2.0, "written_s": 9.0, "computing_s": 4.0}
    run |= {"tasks_s": {"landing": 2.0, "diagnosis": 4.0}}
    result_of = {"gpus": 2_880, "mix": "tenants", "runs": [run] * 3}
    keep("airflow-2880-5", {**result_of, "lookback": 5, "median_s": 9.0})
    keep("airflow-2880-0", {**result_of, "lookback": 0, "median_s": 16.0})
    keep("platform-tenants-2880", result(2_880, 1_400_000, 2.5))
    text = text_of(tmp_path)
    assert row(text, "Airflow, window's end to diagnoses, 2,880 GPUs |").endswith("9 s |")
    assert row(text, "Airflow, window's end to diagnoses, 2,880 GPUs, look-back of 0").endswith("16 s ✗ |")
    assert "| 2,880 tenants | 5 | 3 | 9.0 | 9.0 | 1.0 | 6.0 | 2.0 | 4.0 |" in text
    assert "`landing` 2.0, `diagnosis` 4.0" in text


def test_the_machine_is_described_without_its_name(tmp_path: Path) -> None:
    import platform

    assert platform.node() not in str(machine())
    keep(
        "cold",
        {"help_s": 0.1, "warm_s": 1, "warm_cpu_s": 1, "empty_s": 9, "empty_cpu_s": 9, "imports_ms": {"polars": 80.0}},
    )
    found = kept("cold")
    assert found is not None
    assert found["version"] == keeping.version()
    assert "polars 80" in text_of(tmp_path)


def test_the_code_that_measured_is_named_when_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("platform-tenants-2880", result(2_880, 1_400_000, 2.5))
    monkeypatch.setattr(keeping, "version", lambda: "other")
    monkeypatch.setattr("bench.page.performance_page.version", lambda: "other")
    assert "by other code than the present other" in text_of(tmp_path)


def test_slopes_are_those_of_powers() -> None:
    slope, _ = fitted([(10.0**at, 3 * 10 ** (1.5 * at)) for at in range(1, 5)]) or (0.0, 0.0)
    assert slope == pytest.approx(1.5)
    assert fitted([(1e6, 1.0), (1.1e6, 2.0)]) is None
