"""A browser, and the pages of what `make demo` left, served as a reader would have them.

Whatever a test opens: no error in the console, no dialog, and no request to another machine.
"""

from __future__ import annotations

import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from paged_windows import HOSTILE, Names, write_windows
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from served_pages import Culprit, served, worst_of

from demo.__main__ import FIRST, FOLDER, MINUTES
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.store import query

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
LOOPBACK = {"127.0.0.1", "localhost", ""}  # a file has no host
SIZE = {"width": 1400, "height": 900}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        pytest.exit("No Chromium is installed. On Debian: apt-get install --no-install-recommends chromium", 1)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # root has no other way
        yield launched
        launched.close()


@pytest.fixture(params=["light"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(viewport=SIZE, color_scheme=request.param)
    page, wrong = context.new_page(), []
    page.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda one: wrong.append(one.url) if host_of(one.url) not in LOOPBACK else None)
    yield page
    context.close()
    assert wrong == []


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Page]:
    """A page of Airflow's own: what the console says of its code is not ours, but it asks no other machine either."""
    context = browser.new_context(viewport=SIZE)
    page, wrong = context.new_page(), []
    page.set_default_timeout(60_000)
    page.on("console", lambda one: wrong.append(one.text) if one.type == "error" and ours(one) else None)
    page.on("request", lambda one: wrong.append(one.url) if host_of(one.url) not in LOOPBACK else None)
    yield page
    context.close()
    assert wrong == []


def ours(message: ConsoleMessage) -> bool:
    return urllib.parse.urlsplit(message.location["url"]).path.startswith("/llmprism/")


def host_of(url: str) -> str:
    return "" if url.startswith(("data:", "blob:")) else urllib.parse.urlsplit(url).hostname or ""


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folder that `make demo` left: its warehouse, topology, truth and Airflow."""
    folder = tmp_path_factory.mktemp("demo") / "copy"
    if not (FOLDER / "llmprism.duckdb").exists():
        pytest.exit("The tests open pages of the demo's data. First: make demo", 1)
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("flows", "logs", "results.*", "*.log"))
    found = query(Warehouse(str(folder / "llmprism.duckdb"), 30), "SELECT window_start, status FROM window_bookkeeping")
    if found["status"].to_list() != ["done"] * MINUTES or f"{found['window_start'].min():%FT%T}" != FIRST:
        pytest.exit("The demo's folder holds other minutes, or a run that failed. First: make demo", 1)
    return folder


@pytest.fixture(scope="session")
def warehouse(platform: Path) -> Warehouse:
    return open_warehouse(Warehouse(str(platform / "llmprism.duckdb"), 30))


@pytest.fixture(scope="session")
def culprit(platform: Path, warehouse: Warehouse) -> Culprit:
    faults = pl.read_parquet(platform / "truth" / "truth_faults.parquet")
    (fault,) = faults.filter(kind="slow_gpu").to_dicts()
    asked = f"SELECT DISTINCT host FROM job_members WHERE addr = '{fault['subject']}'"
    host = str(query(warehouse, asked).item())
    incident_id, job_id, worst = worst_of(warehouse)
    return Culprit(fault["subject"], host, fault["start_ns"], job_id, incident_id, worst)


@pytest.fixture(scope="session")
def address(warehouse: Warehouse) -> Iterator[str]:
    with served(warehouse) as address:
        yield address


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Names, Warehouse]]:
    """Pages of a warehouse in which every name would run a script, if it could; some are 10 kB long."""
    warehouse = empty_warehouse(tmp_path_factory.mktemp("hostile") / "w.duckdb")
    long = HOSTILE + "x" * 10_000
    names = write_windows(warehouse, Names(job=f"j{HOSTILE}", host=f"h{HOSTILE}", addr=f"a{long}", words=f"w{long}"))
    with served(warehouse) as address:
        yield address, names, warehouse
