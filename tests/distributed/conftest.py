"""A cluster on this machine: PostgreSQL, Redis, Airflow, two Celery workers with names and folders of their own."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distributed.cluster import Cluster, cluster
from distributed.services import PostgreSQL, postgresql


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=1, help="how often a worker is killed in the midst of a backfill")
    parser.addoption("--windows", type=int, default=6, help="windows of the backfills")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a measured figure at once."""

    def print_now(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return print_now


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that PostgreSQL's own user can reach, which pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="llmprism-hosts-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(open_folder: Path) -> Iterator[PostgreSQL]:
    with postgresql(open_folder / "catalogs", "a pass'word of ours") as found:
        yield found


@pytest.fixture(scope="session")
def running(open_folder: Path) -> Iterator[Cluster]:
    folder = open_folder / "cluster"
    folder.mkdir(mode=0o755)
    with cluster(folder, "first", "second") as found:
        yield found
