"""`python -m pictures [--warehouse FILE]`: take the pictures of the README and the docs from the pages.

Without a warehouse it simulates six minutes of the demo and analyses them first: the slow GPU is in the last two.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

FOLDER = Path(__file__).parents[2] / "docs" / "images"
MINUTES, SEED = 6, 1
SIZE: ViewportSize = {"width": 1280, "height": 800}
BOTTOMS = {"timeline": "figure.timeline", "now": "#jobs ~ .key", "incident": "#chart-peers", "job": "#chart-heat"}
"""The pictures, and the element with which each ends."""


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pictures", description=__doc__)
    parser.add_argument("--warehouse", type=Path, help="of an earlier analysis; default: the demo's, made anew")
    asked = parser.parse_args().warehouse
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("No Chromium is installed. On Debian: apt-get install --no-install-recommends chromium\n")
        return 1
    with (
        tempfile.TemporaryDirectory() as scratch,
        served(asked or analysed(Path(scratch))) as (address, warehouse),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport=SIZE, device_scale_factor=1.5, color_scheme="light").new_page()
        for name, path in paths(warehouse).items():
            page.goto(address + path)
            take(page, name)
    return 0


def paths(warehouse: Warehouse) -> dict[str, str]:
    """Return the pages to take, of the most costly incident."""
    chosen = "SELECT incident_id, job_id FROM incidents WHERE effect_of IS NULL ORDER BY lost_gpu_s DESC LIMIT 1"
    incident, job = query(warehouse, chosen).row(0)
    return {
        "timeline": f"timeline?{urllib.parse.urlencode({'job': job})}",
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
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True, clip=clip)
    sys.stdout.write(f"Written: {FOLDER / name}.png\n")


def analysed(folder: Path) -> Path:
    """Simulate and analyse the demo's first minutes; returns the warehouse."""
    run("simulate", "--out", str(folder), "--minutes", str(MINUTES), "--seed", str(SEED))
    places = ["--flows", str(folder / "flows"), "--topology", str(folder / "topology.csv")]
    run("analyze", *places, "--warehouse", str(folder / "w.duckdb"))
    return folder / "w.duckdb"


@contextlib.contextmanager
def served(path: Path) -> Iterator[tuple[str, Warehouse]]:
    """Serve the pages of a warehouse; gives their address, and the warehouse."""
    serve = [*command("serve"), "--port", "0", "--warehouse", str(path)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as process:
        try:
            told = re.match(r"(http://\S+)", process.stdout.readline() if process.stdout else "")
            if told is None:
                raise SystemExit("The pages were not served; llmprism serve says why.")
            yield told[1], Warehouse(str(path), 30)
        finally:
            process.terminate()


def command(*words: str) -> list[str]:
    return [sys.executable, "-u", "-c", "from llmprism_tasks.cli import run; run()", *words]


def run(*words: str) -> None:
    subprocess.run(command(*words), check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
