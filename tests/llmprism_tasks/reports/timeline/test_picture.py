"""The picture shows each NIC, and who was diagnosed; whatever names hold, it is sound XML that loads nothing."""

from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree

import polars as pl
import pytest

from llmprism_tasks.reports.timeline import picture
from llmprism_tasks.reports.timeline.files import lanes_to_show
from llmprism_tasks.reports.timeline.lanes import Lanes
from llmprism_tasks.warehouse.connect import Warehouse

HOSTILE = '"><script>alert(1)</script>\x1b[31m\x00\ud800\u202e' + "x" * 10_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def some(captured: Warehouse, job: str) -> Lanes:
    return lanes_to_show(captured, job)


def accused(lanes: Lanes, subject_type: str, subject: str) -> Lanes:
    row = ("slow_compute", subject_type, subject, 0, 1, 0.4, 1.0, "It is slow.")
    return dataclasses.replace(lanes, faults=pl.DataFrame([row], schema=lanes.faults.schema, orient="row"))


def labels(drawn: str) -> list[str]:
    root = ElementTree.fromstring(drawn)
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def test_each_nic_and_step_has_its_place(some: Lanes) -> None:
    drawn = labels(picture.svg(some))
    assert all(any(f"{addr} " in label for label in drawn) for addr in some.nics["addr"])
    assert sum(label.startswith("step ") for label in drawn) == 5


@pytest.mark.parametrize(("subject_type", "subject", "marked"), [("addr", "10.0.3.1", 1), ("host", "host-3", 2)])
def test_who_was_diagnosed_stands_out(some: Lanes, subject_type: str, subject: str, marked: int) -> None:
    drawn = [label for label in labels(picture.svg(accused(some, subject_type, subject))) if "slow_compute" in label]
    assert len(drawn) == marked
    assert all(subject in label for label in drawn)
    assert not [label for label in labels(picture.svg(some)) if "slow_compute" in label]


def test_hostile_names_break_nothing(some: Lanes) -> None:
    nics = some.nics.with_columns(host=pl.lit(HOSTILE.replace("\ud800", "")))
    drawn = picture.svg(accused(dataclasses.replace(some, nics=nics), "addr", "10.0.3.1"))
    root = ElementTree.fromstring(drawn)
    assert {one.tag for one in root.iter()} == {f"{SVG}{tag}" for tag in ("svg", "rect", "text", "title", "path")}
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|<script", drawn)
    assert "\u202e" not in drawn
    assert max(len(line) for line in drawn.splitlines() if line.startswith("<text")) < 5_000
