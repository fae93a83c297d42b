"""Kills: what is sound, and digests that tell rows that differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from sound_window import WINDOW, changed, sound

from llmprism_tasks.warehouse import store
from reliability.kills import is_sound
from reliability.tables import digests


def test_one_changed_row_is_told_by_its_table_and_run_times_are_not(tmp_path: Path) -> None:
    def of(name: str, **changes: object) -> dict[str, str]:
        warehouse = empty_warehouse(tmp_path / name)
        rows = sound()
        if changes:
            rows["windows"] = changed("windows", **changes)(rows)
        store.replace(warehouse, WINDOW, rows)
        return digests(warehouse.location)

    before = of("one")
    assert of("same") == before
    assert of("times", stage_ns='{"timeline": 7}') == before
    assert [name for name, digest in of("other", rows_read=8).items() if digest != before[name]] == ["windows"]


@pytest.mark.parametrize(
    ("what", "sound_so"), [({}, True), ({"differ": ["run 1: jobs"]}, False), ({"failed": 1}, False)]
)
def test_a_table_that_differs_or_a_run_that_fails_is_not_sound(what: dict[str, object], sound_so: bool) -> None:
    assert is_sound({"differ": [], "left": [], "failed": 0, **what}) is sound_so
