"""Which bandwidth tests part devices that flows do not tell apart."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from small_windows import Minute, diagnosis

from llmprism_tasks.reports.probes import parting, probes, text
from llmprism_tasks.warehouse.connect import Warehouse

SCHEMA = {"src_addr": pl.String, "dst_addr": pl.String, "switch_path": pl.List(pl.String)}


def seen(*rows: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame([(src, dst, path.split()) for src, dst, path in rows], schema=SCHEMA, orient="row")


def found(paths: pl.DataFrame, *candidates: str) -> list[tuple[str | None, str | None, list[str] | None]]:
    odds = [1 / len(candidates)] * len(candidates)
    return [(one["src_addr"], one["dst_addr"], one["switch_path"]) for one in parting(paths, candidates, odds)]


def test_a_third_leaf_parts_two_links_of_a_spine() -> None:
    """No flow went from the first or second leaf to the third; but each of them reaches the spine."""
    paths = seen(("a1", "b1", "A s B"), ("b2", "a2", "B s A"), ("c1", "d1", "C s D"))
    assert found(paths, "A - s", "B - s") == [("a1", "c1", ["A", "s", "C"]), ("b1", "c1", ["B", "s", "C"])]


def test_two_leaves_and_a_spine_cannot_be_parted() -> None:
    paths = seen(("a1", "b1", "A s B"), ("b1", "a1", "B s A"))
    assert found(paths, "A - s", "B - s", "s") == [(None, None, None)] * 3


def test_a_nic_is_parted_from_its_leaf_by_two_others() -> None:
    paths = seen(("a1", "a2", "A"), ("a2", "a3", "A"), ("a1", "b1", "A s B"))
    nic, leaf = found(paths, "a2", "A")
    assert nic == (None, None, None)
    assert leaf == ("a1", "a3", ["A"])


def test_without_candidates_there_is_nothing_to_probe(tmp_path: Path) -> None:
    assert probes(empty_warehouse(tmp_path / "warehouse.duckdb")) == []
    assert "nothing to probe" in text([])


@pytest.mark.parametrize(("kind", "tests"), [("slow_network", 2), ("ended", 0), ("hang", 0)])
def test_a_silent_job_is_not_probed(warehouse: Warehouse, minute: Minute, kind: str, tests: int) -> None:
    """Before, there was a line that told to compare the counters of the ports of `ended`."""
    row = diagnosis(0, kind=kind, subject_type="job", subject="gpt", candidates=["one", "other"], odds=[0.8, 0.2])
    minute(0, [row])
    assert len(probes(warehouse)) == tests


@pytest.mark.parametrize(("src", "words"), [("a", "bandwidth test from a to b across A, s, C."), (None, "counters")])
def test_a_line_tells_what_to_do(src: str | None, words: str) -> None:
    test = {"src_addr": src, "dst_addr": "b", "switch_path": ["A", "s", "C"]}
    line = text([{"incident_id": "incident-1", "candidate": "A - s", "odds": 0.5} | test])
    assert line.startswith("incident-1  A - s (50%): ")
    assert words in line
