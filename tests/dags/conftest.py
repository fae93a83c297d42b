"""A real Airflow in this process: its metadata database, and the project's DAGs as it sees them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from captured_minutes import drop, places_in

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import BundleDagBag


@pytest.fixture(scope="session")
def bag() -> BundleDagBag:
    """All DAGs, parsed and stored as the DAG processor would."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.utils import db

    db.initdb()
    manager = DagBundlesManager()
    manager.sync_bundles_to_db()
    bundle = next(iter(manager.get_all_dag_bundles()))
    bundle.initialize()
    found = BundleDagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
    sync_bag_to_db(found, bundle.name, None)
    return found


@pytest.fixture
def minute(bag: BundleDagBag) -> Any:
    """The minute DAG, parsed anew: a run in this process leaves its parameters behind in the DAG."""
    bag.process_file(bag.dags["llmprism_minute"].fileloc, only_if_updated=False)
    return bag.dags["llmprism_minute"]


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small real capture, which the tasks' settings point to."""
    drop(tmp_path)
    for name, value in places_in(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path
