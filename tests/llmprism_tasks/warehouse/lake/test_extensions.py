"""DuckDB's extensions are put beside the code once, from installed packages, and loaded from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.lake import extensions


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the one beside the code."""
    monkeypatch.setattr(extensions, "FOLDER", tmp_path / "extensions")
    return tmp_path / "extensions"


def kept(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.rglob("*.duckdb_extension"))


def test_the_command_puts_them_there(folder: Path) -> None:
    extensions.main()
    assert f"{extensions.LAKE}.duckdb_extension" in kept(folder)


def test_whoever_opens_a_lake_first_puts_them_there_and_mends_what_is_damaged(folder: Path, tmp_path: Path) -> None:
    location = f"ducklake:{tmp_path / 'w.ducklake'}"
    open_warehouse(Warehouse(location, lock_wait_s=5))
    assert kept(folder) == [f"{extensions.LAKE}.duckdb_extension"]
    extension = next(folder.rglob("*.duckdb_extension"))
    extension.unlink()  # this process still has it loaded
    extension.write_bytes(b"")
    with open_warehouse(Warehouse(location, lock_wait_s=5)).reading() as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def test_who_may_not_write_there_is_told_the_command(folder: Path, tmp_path: Path) -> None:
    folder.write_text("a file, which is no folder", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        open_warehouse(Warehouse(f"ducklake:{tmp_path / 'w.ducklake'}", lock_wait_s=5))
    assert str(folder) in caught.value.found
    assert extensions.COMMAND in caught.value.todo


def test_a_package_that_is_not_installed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extensions.PACKAGES, "spatial", "duckdb-extension-spatial")
    with extensions.connect() as connection, pytest.raises(InputError) as caught:
        extensions.load(connection, "spatial")
    assert "duckdb_extension_spatial" in caught.value.found
    assert "Install duckdb-extension-spatial" in caught.value.todo
