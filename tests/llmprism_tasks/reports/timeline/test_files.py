"""Which lanes are shown, and where they are written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl
import pytest

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.reports.timeline import files, picture
from llmprism_tasks.warehouse.connect import Warehouse


def test_without_a_time_the_last_steps_are_shown(captured: Warehouse, job: str) -> None:
    last = files.lanes_to_show(captured, job).steps.filter(pl.col("addr").is_null())
    assert last.height == files.LAST_STEPS
    earlier = files.lanes_to_show(captured, job, end_ns=last["start_ns"][0]).steps.filter(pl.col("addr").is_null())
    assert earlier.height == files.LAST_STEPS
    assert earlier["end_ns"].max() == last["start_ns"][0]


@pytest.mark.parametrize(
    ("asked", "found"),
    [({"job_id": "nobody"}, "no steps of nobody in this time"), ({"addrs": ["1.1.1.1"]}, "on 1.1.1.1 in this time")],
)
def test_what_is_not_there_is_said_with_what_is(
    captured: Warehouse, job: str, asked: dict[str, object], found: str
) -> None:
    with pytest.raises(InputError, match=f"{found}.*jobs? with steps: {job}"):
        files.lanes_to_show(captured, **({"job_id": job} | asked))  # type: ignore[arg-type]


def test_csv_has_every_slice_with_its_nic(captured: Warehouse, job: str, tmp_path: Path) -> None:
    lanes = files.lanes_to_show(captured, job)
    files.write(lanes, "csv", tmp_path / "t.csv")
    rows = pl.read_csv(tmp_path / "t.csv")
    assert rows.height == lanes.slices.height
    assert {"addr", "host", "pp_stage", "kind", "start_ns", "end_ns", "inferred"} <= set(rows.columns)


def test_a_place_that_cannot_be_written_is_named(captured: Warehouse, job: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lanes = files.lanes_to_show(captured, job)
    for form in files.ENDINGS:
        with pytest.raises(InputError, match=r"cannot be written .*Name another with --out"):
            files.write(lanes, form, tmp_path / "file" / "t")


def test_a_picture_has_no_more_bands_than_can_be_looked_at(captured: Warehouse, job: str, tmp_path: Path) -> None:
    lanes = files.lanes_to_show(captured, job)
    fitting = dataclasses.replace(lanes, nics=pl.concat([lanes.nics] * (picture.MOST_NICS // 8)))
    files.write(fitting, "svg", tmp_path / "t.svg")
    too_many = dataclasses.replace(lanes, nics=pl.concat([fitting.nics, lanes.nics[:1]]))
    with pytest.raises(InputError, match=r"65 NICs for one picture; expected at most 64\. Name some with --nics"):
        files.write(too_many, "svg", tmp_path / "u.svg")
    assert not (tmp_path / "u.svg").exists()
