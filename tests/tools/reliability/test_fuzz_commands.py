"""Commands on damaged files: what is sound, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from sound_window import WINDOW, changed, sound

from llmprism_tasks.warehouse import store
from reliability import fuzz_commands

SENTENCE = "llmprism: found no column bytes. Expected one. Add it."


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return Path(empty_warehouse(tmp_path / "w.duckdb").location)


@pytest.mark.parametrize(
    ("code", "errors", "outcome"),
    [
        (0, "WARNING: ignored unknown columns", "done"),
        (1, f"WARNING: something\n{SENTENCE}", "refused"),
        (1, "", "unsaid"),
        (0, SENTENCE, "unsaid"),
        (1, f"{SENTENCE}\n{SENTENCE}", "unsaid"),
        (1, f"{SENTENCE}\nTraceback (most recent call last):", "unsaid"),
        (-9, "", "unsaid"),
    ],
)
def test_a_command_ends_with_0_or_with_1_and_one_sentence(location: Path, code: int, errors: str, outcome: str) -> None:
    assert fuzz_commands.judged(code, errors, location)[0] == outcome


def test_a_record_that_is_not_counted_is_found(tmp_path: Path) -> None:
    warehouse = empty_warehouse(tmp_path / "w.duckdb")
    rows = sound()
    rows["windows"] = changed("windows", rows_read=8)(rows)
    store.replace(warehouse, WINDOW, rows)
    assert fuzz_commands.judged(0, "", Path(warehouse.location))[0] == "miscounted"


def test_commands_on_such_files_are_sound() -> None:
    said: list[str] = []
    found = fuzz_commands.measure(3, seed=1, say=said.append)
    assert fuzz_commands.is_sound(found), said
    assert sum(found["counts"].values()) == 3
    assert found["peak_mb"] > 100
