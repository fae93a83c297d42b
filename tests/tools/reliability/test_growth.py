"""A warehouse that is kept at some hours stops growing; one that keeps all does not, and it is said."""

from __future__ import annotations

import pytest

from llmprism_tasks.settings import RetentionSettings
from reliability import growth
from reliability.kills import SCENARIO


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("scenario") / "tiny.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    return str(file)


def test_a_warehouse_kept_at_some_minutes_stops_growing(scenario: str) -> None:
    """Of three "hours" of six minutes, one is kept: a window and its look-back, the least that can be."""
    kept = RetentionSettings(flows_h=0.1, timeline_h=0.1, results_d=0.1 / 24)
    said: list[str] = []
    found = growth.measure("file", scenario=scenario, hours=3, minutes_an_hour=6, retention=kept, say=said.append)
    assert len(found["bytes"]) == len(said) == 3
    assert growth.is_level(found)
    assert "it has stopped growing" in growth.sentence(found)


@pytest.mark.parametrize(("last", "level"), [(110, True), (111, False)])
def test_a_tenth_more_is_still_level(last: int, *, level: bool) -> None:
    found = {"bytes": [50, 80, 90, 100, 100, last], "warehouse": "file", "flows_per_window": 7}
    assert growth.is_level(found) is level
    assert ("it has not stopped" in growth.sentence(found)) is not level
