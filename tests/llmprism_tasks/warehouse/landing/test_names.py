"""Names of switches with control characters: cleaned and told, or refused where that makes two of them one."""

from __future__ import annotations

from pathlib import Path

import pytest
from flowfiles import WINDOW, flow, write

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing.landing import land

HOSTILE = ["leaf\x1b[31m7", "\u202espine7", "leaf8\x9b"]


def path_in(ending: str, names: list[str]) -> list[str] | str:
    return "|".join(names) if ending == "csv" else names


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_names_reach_the_warehouse_without_control_characters(
    warehouse: Warehouse, tmp_path: Path, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    records = [flow(0, switch_path=path_in(ending, HOSTILE)), flow(1, switch_path=None), flow(2)]
    counts = land(warehouse, WINDOW, str(write(tmp_path / f"f.{ending}", records)), lateness_ns=0)
    assert (counts["read"], counts["landed"]) == (3, 3)
    paths = store.read(warehouse, "flows", WINDOW)["switch_path"].to_list()
    assert paths == [["leaf[31m7", "spine7", "leaf8"], None, ["leaf0", "spine0", "leaf1"]]
    assert "removed control characters from 3 names of switches, such as" in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("twin", ["leaf\x1b0", "\x1b"])
def test_a_name_that_becomes_another_or_nothing_is_refused(
    warehouse: Warehouse, tmp_path: Path, ending: str, twin: str
) -> None:
    file = write(tmp_path / f"f.{ending}", [flow(0), flow(1, switch_path=path_in(ending, [twin, "spine0"]))])
    with pytest.raises(
        InputError, match=r"record 2: switch '.*x1b.*'.* expected names that differ in what can be seen"
    ):
        land(warehouse, WINDOW, str(file), lateness_ns=0)
    assert store.read(warehouse, "windows", WINDOW).is_empty()
