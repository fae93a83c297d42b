"""How long pages of a large warehouse take to open in a browser, alone and while minutes are run and written to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from bench.measure.airflow_latency import moved
from bench.measure.process_cost import ProcessFailed
from bench.platforms.minutes import FLOWS_PATTERN, Platform, Say, simulated
from bench.platforms.mixes import LOOP_MINUTES, MIXES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

Figures = dict[str, Any]

LONGEST_WAIT_S = 1.0
"""Longest that a run may wait for the warehouse: it is the run's `warehouse.lock_wait_s`, so one that waits longer
fails."""

DRAWN = "() => [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('.main-svg'))"
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
GPUS, MIX = 2_880, next(iter(MIXES))


def measured(path: Path, *, opens: int, say: Say) -> Figures:
    """Open each page `opens` times while nothing else is done, and again while minutes are run one after another.

    Returns
    -------
    `pages` : by what is opened, lists of `paint_ms`, `drawn_ms` and of each query's time, `queries_ms`, for `alone` and
        `beside`
    `runs` : of each minute that was run, its time on the clock `wall_s`, and what it said if it `failed`
    """
    warehouse = Warehouse(str(path), 60)
    paths = _paths(warehouse)
    platform = Platform(MIX, GPUS)
    simulated(platform, LOOP_MINUTES, say)
    found: Figures = {"gpus": GPUS, "bytes": path.stat().st_size, "opens": opens, "windows": _windows(warehouse)}
    with _served(path) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        _opened(
            browser, address, paths, 1, lambda line: None
        )  # so that the file is in the page cache, as when it is used
        alone = _opened(browser, address, paths, opens, say)
        with _minutes_run(warehouse, platform, path.parent / f"{path.stem}-minutes", say) as runs:
            beside = _opened(browser, address, paths, opens, say)
    return found | {"pages": {name: {"alone": alone[name], "beside": beside[name]} for name in paths}, "runs": runs}


def _paths(warehouse: Warehouse) -> dict[str, str]:
    """Return the pages to open, each by its address: of a week's end, its costliest incident and the job of that."""
    chosen = (
        "SELECT incident_id, job_id, worst_window_start_ns FROM incidents WHERE effect_of IS NULL "
        "ORDER BY last_seen_ns DESC, lost_gpu_s DESC LIMIT 1"
    )
    incident, job, worst = query(warehouse, chosen).row(0)
    newest = query(warehouse, f"SELECT max(window_start_ns) FROM jobs WHERE job_id = '{job}'").item()
    ended = query(
        warehouse, "SELECT strftime(make_timestamp(max(window_end_ns) // 1000), '%Y-%m-%dT%H:%M') FROM windows"
    )
    end = str(ended.item())
    asked: dict[str, tuple[str, dict[str, object]]] = {}
    for words, hours in {"an hour": 1, "6 hours": 6, "a day": 24, "a week": 168}.items():
        start = query(warehouse, f"SELECT strftime(TIMESTAMP '{end}' - INTERVAL {hours} HOUR, '%Y-%m-%dT%H:%M')").item()
        span = {"from": start, "to": end}
        asked[f"first page, {words}"] = ("", span)
        asked[f"job, {words}"] = ("job", {"id": job} | span)
    asked["timeline"] = ("timeline", {"job": job, "window": newest})
    asked["incident"] = ("incident", {"id": incident})
    asked["window"] = ("window", {"start_ns": worst})
    return {name: f"{path}?{urllib.parse.urlencode(values)}" for name, (path, values) in asked.items()}


def _windows(warehouse: Warehouse) -> int:
    return int(query(warehouse, "SELECT count(*) FROM windows").item())


def _opened(browser: Browser, address: str, paths: Mapping[str, str], opens: int, say: Say) -> dict[str, Figures]:
    found: dict[str, Figures] = {name: {"paint_ms": [], "drawn_ms": [], "queries_ms": {}} for name in paths}
    for turn in range(opens):
        for name, path in paths.items():
            page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()  # nothing is cached
            began = time.monotonic()
            answer = page.goto(address + path, timeout=120_000)
            if answer is None or not answer.ok:
                raise ProcessFailed(f"{name} was not shown: {page.locator('main').text_content()}")
            page.wait_for_function(DRAWN)
            found[name]["drawn_ms"].append(1000 * (time.monotonic() - began))
            found[name]["paint_ms"].append(page.wait_for_function(PAINTED).json_value())
            for line in page.locator("#queries li").all_text_contents():
                asked, took, _ = line.split()
                found[name]["queries_ms"].setdefault(asked, []).append(float(took))
            page.context.close()
        say(f"opened all pages, {turn + 1} of {opens}; load {os.getloadavg()[0]:.1f}")
    return found


@contextmanager
def _minutes_run(warehouse: Warehouse, platform: Platform, folder: Path, say: Say) -> Iterator[list[Figures]]:
    """Run a platform's minutes one after another, each as `llmprism analyze` does; lends what became of them."""
    ended = int(query(warehouse, "SELECT max(window_end_ns) FROM windows").item())
    first = Window(ended, ended - int(query(warehouse, "SELECT max(window_start_ns) FROM windows").item()))
    runs: list[Figures] = []
    over = threading.Event()

    def run_them() -> None:
        number = 0
        while not over.is_set():
            window = first.shifted(number)
            file = folder / FLOWS_PATTERN.format(window=window.start)
            file.parent.mkdir(parents=True, exist_ok=True)
            moved(platform, number % LOOP_MINUTES, window, file)
            began = time.monotonic()
            words = ["--flows", str(file), "--topology", str(platform.topology), "--warehouse", warehouse.location]
            patience = ["--set", f"warehouse.lock_wait_s={LONGEST_WAIT_S}"]
            done = subprocess.run(_command("analyze", *words, *patience), capture_output=True, text=True, check=False)
            failed = done.stderr[-2000:] if done.returncode else None
            runs.append({"window": str(window), "wall_s": time.monotonic() - began, "failed": failed})
            say(f"minute {window}: {'failed' if failed else 'done'} in {runs[-1]['wall_s']:.1f} s")
            file.unlink()
            number += 1

    working = threading.Thread(target=run_them)
    working.start()
    try:
        yield runs
    finally:
        over.set()
        working.join()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _served(path: Path) -> Iterator[str]:
    with subprocess.Popen(
        _command("serve", "--port", "0", "--warehouse", str(path)), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            told = re.match(r"(http://\S+)", process.stdout.readline() if process.stdout else "")
            if told is None:
                raise ProcessFailed("The pages were not served; `llmprism serve` says why.")
            yield told[1]
        finally:
            process.terminate()


def _command(*words: str) -> list[str]:
    return [sys.executable, "-u", "-c", "from llmprism_tasks.cli import run; run()", *words]


def _chromium() -> str:
    path = shutil.which("chromium")
    if path is None:
        raise ProcessFailed("No Chromium is installed. On Debian: apt-get install --no-install-recommends chromium")
    return path
