"""What is handed over is found once it is complete, only by those who ask for the same, and never if it is damaged."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
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
    handover_name,
    read_partition,
    results_left,
    tables_left,
    write_partition,
    write_tables,
)
from llmprism_tasks.execution.partitions.partition import Partition
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import load

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


def named(landed: str = "flows", warehouse: str = "w", window: Window = WINDOW, **settings: str) -> str:
    return handover_name(warehouse, window, load(overrides=settings) if settings else Settings(), TOPOLOGY, (landed,))


def handed_over(name: str | None = None, place: str = "") -> Handover:
    """Return a hand-over with one partition."""
    handover = Handover(place, name or named())
    assert handover.leave(TOPOLOGY, [Partition(FLOWS, STARTS)], FLOWS.clear(), NICS) == 1
    return handover


def test_a_partition_comes_out_as_it_went_in() -> None:
    folder = handed_over().partition_folder(0)
    found = read_partition(folder, write_tables(folder, TABLES))
    assert found.flows.equals(FLOWS)
    assert found.other_starts is not None
    assert found.other_starts.equals(STARTS)
    assert {name: rows.to_dict(as_series=False) for name, rows in found.tables.items()} == {
        name: rows.to_dict(as_series=False) for name, rows in TABLES.items()
    }


def test_the_whole_platform_has_no_other_flows() -> None:
    folder = handed_over().folder / "whole"
    write_partition(folder, Partition(FLOWS))
    assert read_partition(folder).other_starts is None


def test_flows_are_found_by_those_who_ask_for_the_same() -> None:
    handed_over(named("these flows"))
    assert Handover("", named("these flows")).count == 1
    for other in (
        named("other flows"),
        named("these flows", "another"),
        named("these flows", window=WINDOW.shifted(1)),
    ):
        assert Handover("", other).count is None


def test_where_a_machine_has_its_things_does_not_matter_and_what_stages_depend_on_does() -> None:
    assert named(**{"places.flows": "/mnt/flows", "places.handover": "/mnt/h"}) == named()
    assert named(**{"notify.webhook": "https://elsewhere", "warehouse.lock_wait_s": "7"}) == named()
    assert named(**{"batches.spread": "4"}) != named()
    assert named(**{"diagnosis.persistence": "0.5"}) != named()


def test_flows_are_not_found_before_all_are_there() -> None:
    handover = Handover("", named())

    def half() -> Iterator[Partition]:
        yield Partition(FLOWS)
        assert handover.count is None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        handover.leave(TOPOLOGY, half(), FLOWS.clear(), NICS)
    assert handover.count is None
    assert not list(handover.folder.parent.iterdir())


def test_whoever_comes_second_takes_what_is_there() -> None:
    first = handed_over()
    flows = first.partition_folder(0) / "flows.arrow"
    before = flows.stat().st_ino
    second = Handover("", first.folder.name)
    assert second.leave(TOPOLOGY, [Partition(FLOWS), Partition(FLOWS)], FLOWS.clear(), NICS) == 1
    assert flows.stat().st_ino == before
    assert list(first.folder.parent.iterdir()) == [first.folder]


def test_machines_with_folders_of_their_own_find_it_in_the_shared_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = str(tmp_path / "shared" / "handover")
    name = handed_over(place=shared).folder.name
    for host in ("a", "b"):
        (tmp_path / host).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / host))
        assert Handover(shared, name).count == 1
        assert Handover("", name).count is None
    delete_handovers(shared, "w", WINDOW)
    assert Handover(shared, name).count is None


def test_tables_are_found_once_their_stage_noted_them() -> None:
    folder, recognition = handed_over().partition_folder(0), stage_named("recognition")
    write_tables(folder, TABLES)
    assert tables_left(folder, recognition) == {}
    assert tables_left(folder, DIVISION) is None
    (folder / "recognition.json").write_text('{"run": "r", "ns": 3}')
    assert tables_left(folder, DIVISION) == {"jobs": "r.recognition.jobs", "job_members": "r.recognition.job_members"}
    assert tables_left(folder, stage_named("timeline")) is None
    left = results_left(folder, recognition)
    assert left is not None
    assert (left.stages, left.stage_ns) == (("recognition",), {"recognition": 3})


@pytest.mark.parametrize("damage", [None, b"", b"not an Arrow file"])
@pytest.mark.parametrize("name", ["flows", "flows.texts", "jobs"])
def test_files_that_are_gone_or_damaged_are_said_to_be(name: str, damage: bytes | None) -> None:
    folder = handed_over().partition_folder(0)
    tables = write_tables(folder, TABLES)
    file = folder / f"{tables.get(name, name)}.arrow"
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    with pytest.raises(HandoverLostError, match="gone or damaged"):
        read_partition(folder, tables)


def test_what_is_damaged_is_made_again() -> None:
    handover = handed_over()
    (handover.folder / "partitions.json").write_text("")
    assert handover.count is None
    assert handed_over().count == 1


def test_a_done_window_leaves_nothing_whatever_it_was_made_of(place: Path) -> None:
    handed_over(named("these flows"))
    handed_over(named("other flows"))
    (place / f".{named('flows of a killed process')}.1234").mkdir()
    kept = handed_over(named(warehouse="another warehouse"))
    delete_handovers("", "w", WINDOW)
    assert list(place.iterdir()) == [kept.folder]


def test_where_nothing_can_be_written_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TransientError, match=r"set TMPDIR, or places\.handover, to another folder"):
        Handover(str(tmp_path / "file" / "inside"), named())
