"""Imports inside the simulator point one way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmprism_tasks import simulate

HOUSE = Path(simulate.__file__).parent
ORDER = ("arrays", "scenario", "network", "workload", "steps", "traffic", "collector", "truth", "simulation")
IMPORT = re.compile(r"^\s*from llmprism_tasks\.simulate\.(\w+)", re.MULTILINE)


@pytest.mark.parametrize("part", ORDER)
def test_a_part_imports_itself_and_the_parts_before_it(part: str) -> None:
    files = [*(HOUSE / part).rglob("*.py")] or [HOUSE / f"{part}.py"]
    found = {name for file in files for name in IMPORT.findall(file.read_text(encoding="utf-8"))}
    assert found <= {*ORDER[: ORDER.index(part) + 1]}


def test_the_order_names_every_part() -> None:
    assert {path.stem for path in HOUSE.iterdir() if not path.name.startswith("__")} == {*ORDER}
