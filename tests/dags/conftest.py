"""A real Airflow in this process: its metadata database, and the project's DAGs as it sees them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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


@pytest.fixture(scope="session")
def minute(bag: BundleDagBag) -> Any:
    return bag.dags["llmprism_minute"]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for one test's flows, topology and warehouse, which the tasks' settings point to."""
    monkeypatch.setenv("LLMPRISM_PLACES__FLOWS", str(tmp_path / "flows" / "{window:%Y%m%dT%H%M}.parquet"))
    monkeypatch.setenv("LLMPRISM_PLACES__TOPOLOGY", str(tmp_path / "topology.csv"))
    monkeypatch.setenv("LLMPRISM_PLACES__WAREHOUSE", str(tmp_path / "llmprism.duckdb"))
    monkeypatch.setenv("LLMPRISM_DEMO_FOLDER", str(tmp_path))
    return tmp_path
