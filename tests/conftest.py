"""Fixtures for all tests. Airflow reads its home when it is imported, so that is set here, before anything else."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

PROJECT = Path(__file__).resolve().parent.parent
AIRFLOW_HOME = tempfile.mkdtemp(prefix="llmprism-airflow-")
os.environ |= {
    "AIRFLOW_HOME": AIRFLOW_HOME,
    "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "GX_ANALYTICS_ENABLED": "false",
}
if "PYTEST_XDIST_WORKER" in os.environ:  # tests side by side have a processor each; a second thread costs a tenth more
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
for name in [name for name in os.environ if name.startswith("LLMPRISM_")]:
    del os.environ[name]  # a developer's own settings would change what is tested

# The same examples every time, so that a failure means a change; no deadline, since a kernel's first call compiles it.
hypothesis.settings.register_profile("llmprism", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("llmprism")


def pytest_unconfigure() -> None:
    shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def project() -> Path:
    """The top of the repository."""
    return PROJECT
