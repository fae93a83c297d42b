"""What is handed over is found once it is complete, only by those who ask for the same, and never if it is damaged."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import polars as pl
import pytest

from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.plan import stage_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.handover import (
    Handover,
    HandoverLostError,
    delete_handovers,
    read_partition,
    write_partition,
    write_tables,
)
from llmprism_tasks.execution.partitions.partition import Partition

WINDOW = Window(60_000_000_000, 60_000_000_000)
DIVISION = stage_named("step_division")
FLOWS = pl.DataFrame({"src_addr": ["a", "b"], "bytes": [1, 2]}, schema_overrides={"src_addr": pl.Categorical})
STARTS = pl.DataFrame({"flow_start_ns": [7]})
NICS = pl.DataFrame({"addr": ["a"], "partition": [0]})
TOPOLOGY = pl.DataFrame({"addr": ["a"], "host": ["h"]})
TABLES = {"jobs": pl.DataFrame({"job_id": ["j"]}), "job_members": pl.DataFrame({"job_id": ["j"], "addr": ["a"]})}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"llmprism-{os.getuid()}"


def handed_over(made_of: str = "flows", warehouse: str = "w", *, complete: bool = True) -> Handover:
    """Return a hand-over with one partition."""
    handover = Handover(warehouse, WINDOW, made_of)
    handover.begin(TOPOLOGY)
    write_partition(handover.partition_folder(0), Partition(FLOWS, STARTS))
    if complete:
        handover.complete(1, FLOWS.clear(), NICS)
    return handover


def test_a_partition_comes_out_as_it_went_in() -> None:
    folder = handed_over().partition_folder(0)
    write_tables(folder, DIVISION, TABLES)
    found = read_partition(folder, DIVISION)
    assert found.flows.equals(FLOWS)
    assert found.other_starts is not None
    assert found.other_starts.equals(STARTS)
    assert {name: rows.to_dict(as_series=False) for name, rows in found.tables.items()} == {
        name: rows.to_dict(as_series=False) for name, rows in TABLES.items()
    }


def test_the_whole_platform_has_no_other_flows() -> None:
    folder = handed_over().folder / "whole"
    write_partition(folder, Partition(FLOWS))
    assert read_partition(folder, stage_named("recognition")).other_starts is None


def test_flows_are_found_by_those_who_ask_for_the_same() -> None:
    handed_over("these flows")
    assert Handover("w", WINDOW, "these flows").count == 1
    assert Handover("w", WINDOW, "other flows").count is None
    assert Handover("another warehouse", WINDOW, "these flows").count is None
    assert Handover("w", WINDOW.shifted(1), "these flows").count is None


def test_flows_are_not_found_before_all_are_there() -> None:
    assert handed_over(complete=False).count is None


def test_tables_are_found_once_their_stage_ended_and_not_while_it_is_run_again() -> None:
    handover, recognition = handed_over(), stage_named("recognition")
    assert handover.has_tables_for(recognition)
    assert not handover.has_tables_for(DIVISION)
    handover.end_stage(recognition)
    assert handover.has_tables_for(DIVISION)
    assert not handover.has_tables_for(stage_named("timeline"))
    handover.begin_stage(recognition)
    assert not handover.has_tables_for(DIVISION)


def test_a_stage_run_again_leaves_what_came_before_it() -> None:
    handover = handed_over()
    for name in ("recognition", "step_division", "parallelism"):
        handover.end_stage(stage_named(name))
    handover.begin_stage(DIVISION)
    assert handover.has_tables_for(DIVISION)
    assert not handover.has_tables_for(stage_named("timeline"))


@pytest.mark.parametrize("damage", [None, b"", b"not an Arrow file"])
@pytest.mark.parametrize("name", ["flows", "flows.texts", "recognition.jobs"])
def test_files_that_are_gone_or_damaged_are_said_to_be(name: str, damage: bytes | None) -> None:
    folder = handed_over().partition_folder(0)
    write_tables(folder, DIVISION, TABLES)
    if damage is None:
        (folder / f"{name}.arrow").unlink()
    else:
        (folder / f"{name}.arrow").write_bytes(damage)
    with pytest.raises(HandoverLostError, match="gone or damaged"):
        read_partition(folder, DIVISION)


def test_a_damaged_note_is_none() -> None:
    handover = handed_over()
    (handover.folder / "partitions.json").write_text("")
    assert handover.count is None


def test_a_done_window_leaves_nothing_whatever_it_was_made_of(place: Path) -> None:
    handed_over("these flows")
    handed_over("other flows")
    kept = handed_over(warehouse="another warehouse")
    delete_handovers("w", WINDOW)
    assert list(place.iterdir()) == [kept.folder]


def test_where_nothing_can_be_written_it_says_what_to_do(place: Path) -> None:
    handover = Handover("w", WINDOW, "flows")
    place.rmdir()
    place.touch()
    with pytest.raises(TransientError, match="set TMPDIR to another folder"):
        write_partition(handover.partition_folder(0), Partition(FLOWS))
