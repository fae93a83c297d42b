"""Data Docs: where they are, when they are built, what they show, and which are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from sound_window import WINDOW, changed, sound

from llmprism_tasks import validation
from llmprism_tasks.settings import PlaceSettings, Settings, ValidationSettings
from llmprism_tasks.validation import data_docs
from llmprism_tasks.warehouse import store

LAST_OF_HOUR = WINDOW.shifted(59)


@pytest.mark.parametrize(
    ("warehouse", "docs", "folder"),
    [
        ("a/w.duckdb", "", "a/w.duckdb.docs"),
        ("ducklake:a/w.ducklake", "", "a/w.ducklake.docs"),
        ("a/w.duckdb", "b", "b"),
    ],
)
def test_they_are_beside_the_warehouse_or_where_the_setting_says(warehouse: str, docs: str, folder: str) -> None:
    settings = Settings(places=PlaceSettings(warehouse=warehouse), validation=ValidationSettings(docs=docs))
    assert data_docs.folder(settings) == Path(folder)
    assert data_docs.pages(settings, WINDOW, "landed").parent == Path(folder)


def test_one_window_of_each_hour_is_its_last() -> None:
    hourly = [window for window in map(WINDOW.shifted, range(180)) if data_docs.is_hourly(window)]
    assert hourly == [LAST_OF_HOUR, LAST_OF_HOUR.shifted(60), LAST_OF_HOUR.shifted(120)]


def test_the_oldest_make_room_and_so_do_earlier_pages_of_the_window(tmp_path: Path) -> None:
    names = [f"{number:03}" for number in range(data_docs.KEPT + 2)]
    for name in names:
        (tmp_path / name).mkdir()
    data_docs.make_room(tmp_path / names[-1])
    assert sorted(path.name for path in tmp_path.iterdir()) == names[2:-1]
    data_docs.make_room(tmp_path / "nowhere" / "new")


def test_pages_are_built_when_a_critical_expectation_fails_and_show_the_rows(tmp_path: Path) -> None:
    warehouse, pages = empty_warehouse(tmp_path / "w.duckdb"), tmp_path / "docs" / "window"
    store.replace(warehouse, WINDOW, sound() | {"windows": changed("windows", rows_duplicate=0)(sound())})
    validation.validate(warehouse, WINDOW, ["windows"], docs=pages)
    assert not pages.exists()  # for it is a warning that fails
    store.replace(warehouse, WINDOW, sound() | {"windows": changed("windows", status="lost")(sound())})
    validation.validate(warehouse, WINDOW, ["windows"], docs=pages)
    assert "windows" in data_docs.index(pages).read_text(encoding="utf-8")
    results = [page.read_text(encoding="utf-8") for page in (pages / "validations").rglob("*.html")]
    assert any("lost" in page for page in results)
    store.replace(warehouse, WINDOW, sound())
    validation.validate(warehouse, WINDOW, ["windows"], docs=pages)
    assert not pages.exists()  # what it said is no longer so


def test_pages_may_be_beside_a_warehouse_that_a_relative_path_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = empty_warehouse(Path("w.duckdb"))
    store.replace(warehouse, WINDOW, sound() | {"windows": changed("windows", status="lost")(sound())})
    validation.validate(warehouse, WINDOW, ["windows"], docs=Path("w.duckdb.docs/window"))
    assert (tmp_path / "w.duckdb.docs" / "window" / "index.html").exists()


def test_pages_of_the_last_window_of_an_hour_are_built_whatever_it_holds(tmp_path: Path) -> None:
    warehouse, pages = empty_warehouse(tmp_path / "w.duckdb"), tmp_path / "docs" / "window"
    store.replace(warehouse, LAST_OF_HOUR, sound(LAST_OF_HOUR))
    validation.validate(warehouse, LAST_OF_HOUR, ["jobs"], docs=pages)
    assert data_docs.index(pages).is_file()
