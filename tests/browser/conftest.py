"""A browser, and pages of a small platform with a slow GPU, served as a reader would have them.

Whatever a test opens: no error in the console, no dialog, and no request to another machine.
"""

from __future__ import annotations

import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from paged_windows import Names, write_windows
from playwright.sync_api import Browser, Page, sync_playwright
from served_pages import run, served

from llmprism_tasks.warehouse.connect import Warehouse

HERE = Path(__file__).parent
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
LOOPBACK = {"127.0.0.1", "localhost", ""}  # a file has no host

HOSTILE = (
    '"><script>alert(1)</script><img src=x onerror=alert(1)><a href="javascript:alert(1)">\'{{7*7}}\x00\x1b[31m\u202e'
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        pytest.exit("No Chromium is installed. On Debian: apt-get install --no-install-recommends chromium", 1)
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # as root there is no other way


@pytest.fixture(params=["light"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=request.param)
    page, wrong = context.new_page(), []
    page.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda one: wrong.append(one.url) if host_of(one.url) not in LOOPBACK else None)
    yield page
    context.close()
    assert wrong == []


def host_of(url: str) -> str:
    return "" if url.startswith(("data:", "blob:")) else urllib.parse.urlsplit(url).hostname or ""


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with flows, topology, truth and warehouse of four minutes."""
    folder = tmp_path_factory.mktemp("platform")
    run("simulate", "--scenario", str(HERE / "slow_gpu.toml"), "--minutes", "4", "--out", str(folder))
    places = ["--flows", str(folder / "flows"), "--topology", str(folder / "topology.csv")]
    run("analyze", *places, "--warehouse", str(folder / "w.duckdb"))
    return folder


@pytest.fixture(scope="session")
def warehouse(platform: Path) -> Warehouse:
    return Warehouse(str(platform / "w.duckdb"), 30)


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
