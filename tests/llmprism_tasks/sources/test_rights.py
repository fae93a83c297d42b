"""Folders that may not be looked into are told: what is in them would be left out in silence."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmprism_tasks.sources.flows import find

NOBODY = 65_534


@pytest.fixture
def flows() -> Iterator[Path]:
    """A folder that everybody can reach, which pytest's are not; a folder in it is shut."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "shut").mkdir()
    for place in (folder, folder / "shut"):
        (place / "20261125T0000.csv").touch()
    (folder / "shut").chmod(0)
    yield folder
    (folder / "shut").chmod(0o755)
    shutil.rmtree(folder)


def found_as_nobody(source: str) -> str:
    """Return what a user without rights finds: root may look into everything."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setuid(NOBODY)
        try:
            said = " ".join(file.path for file in find(source, length_ns=60 * 10**9))
        except PermissionError as error:
            said = f"may not look into {error.filename}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


@pytest.mark.parametrize("source", ["{}", "{}/shut", "{}/shut/*.csv", "{}/shut/{{window:%Y%m%dT%H%M}}.csv"])
def test_a_folder_that_may_not_be_looked_into_is_named(flows: Path, source: str) -> None:
    assert found_as_nobody(source.format(flows)).startswith(f"may not look into {flows / 'shut'}")


def test_what_may_be_read_is_found(flows: Path) -> None:
    assert found_as_nobody(f"{flows}/*.csv") == str(flows / "20261125T0000.csv")
