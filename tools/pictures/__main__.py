"""`python -m pictures`: take the pictures of the README and the docs: of the pages, the report, and a run in Airflow.

They show what `make demo` left: its warehouse, and the runs in its Airflow.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, FloatRect, Page, ViewportSize, sync_playwright

from demo.__main__ import DAG, FOLDER, runs
from demo.local_airflow import LocalAirflow, free_ports, shown
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZE: ViewportSize = {"width": 1280, "height": 860}
BOTTOMS = {"timeline": "figure.timeline", "now": "#jobs ~ .key", "incident": "#chart-peers", "job": "#chart-heat"}
"""The pictures of pages, and the element with which each ends."""

MARGIN = 12
"""Pixels around the tasks of a run."""


def main() -> int:
    """Run the command line; returns the exit code."""
    path, chromium = FOLDER / "llmprism.duckdb", shutil.which("chromium")
    if chromium is None or not path.exists():
        missing = "make demo" if chromium else "apt-get install --no-install-recommends chromium"
        sys.stderr.write(f"First: {missing}\n")
        return 1
    subprocess.run(
        [*command("report"), "--warehouse", path, "--picture", IMAGES / "report.svg"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with served(path) as address:
            page = opened(browser)
            for name, asked in paths(Warehouse(str(path), 30)).items():
                answer = page.goto(address + asked)
                if answer is None or not answer.ok:
                    raise SystemExit(f"{name}: {page.locator('main').text_content()}")
                take(page, name)
        airflow = LocalAirflow(FOLDER, free_ports())
        with shown(airflow):
            take_graph(opened(browser, scale=2.5), airflow)  # tasks are small there
    return 0


def opened(browser: Browser, *, scale: float = 1.5) -> Page:
    """Return a page of a new browser context; `scale` is pixels a CSS pixel."""
    page = browser.new_context(viewport=SIZE, device_scale_factor=scale, color_scheme="light").new_page()
    page.set_default_timeout(120_000)
    return page


def paths(warehouse: Warehouse) -> dict[str, str]:
    """Return the pages to take, of the most costly incident."""
    chosen = (
        "SELECT incident_id, job_id, worst_window_start_ns FROM incidents WHERE effect_of IS NULL "
        "ORDER BY lost_gpu_s DESC LIMIT 1"
    )
    incident, job, worst = query(warehouse, chosen).row(0)
    return {
        "timeline": f"timeline?{urllib.parse.urlencode({'job': job, 'window': worst})}",
        "now": "",
        "incident": f"incident?{urllib.parse.urlencode({'id': incident})}",
        "job": f"job?{urllib.parse.urlencode({'id': job})}",
    }


def take(page: Page, name: str) -> None:
    """Take a picture of a page from its top to the bottom of one of its elements."""
    page.wait_for_load_state("networkidle")
    for chart in page.locator(".chart").all():
        chart.locator(".main-svg").first.wait_for()
    box = page.locator(BOTTOMS[name]).first.bounding_box()
    height = SIZE["height"] if box is None else box["y"] + box["height"] + 20
    clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
    page.screenshot(path=IMAGES / f"{name}.png", full_page=True, clip=clip)
    sys.stdout.write(f"Written: {name}.png\n")


def take_graph(page: Page, airflow: LocalAirflow) -> None:
    """Take a picture of the tasks of the demo's last run."""
    user, password = airflow.login()
    page.goto(airflow.address)
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password)
    page.keyboard.press("Enter")
    page.get_by_role("link", name="LLMPrism", exact=True).wait_for()
    last = urllib.parse.quote(runs(airflow, "backfill")[-1]["dag_run_id"])
    page.goto(f"{airflow.address}/dags/{DAG}/runs/{last}")
    page.get_by_role("button", name="Show Graph").click()
    tasks = page.locator(".react-flow__node")
    tasks.filter(has_text="results_validation").first.wait_for()
    page.wait_for_load_state("networkidle")
    boxes = [box for task in tasks.all() if (box := task.bounding_box()) is not None]
    left, top = (min(box[side] for box in boxes) - MARGIN for side in ("x", "y"))
    right = max(box["x"] + box["width"] for box in boxes) + MARGIN
    bottom = max(box["y"] + box["height"] for box in boxes) + MARGIN
    clip: FloatRect = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    page.screenshot(path=IMAGES / "airflow_graph.png", clip=clip)
    sys.stdout.write("Written: airflow_graph.png\n")


@contextlib.contextmanager
def served(path: Path) -> Iterator[str]:
    """Serve the pages of a warehouse; gives their address."""
    serve = [*command("serve"), "--port", "0", "--warehouse", str(path)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as process:
        try:
            told = re.match(r"(http://\S+)", process.stdout.readline() if process.stdout else "")
            if told is None:
                raise SystemExit("The pages were not served; llmprism serve says why.")
            yield told[1]
        finally:
            process.terminate()


def command(*words: str) -> list[str]:
    """Return the words that run `llmprism` in a process of its own."""
    return [sys.executable, "-u", "-c", "from llmprism_tasks.cli import run; run()", *words]


if __name__ == "__main__":
    sys.exit(main())
