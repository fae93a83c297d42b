"""The pages in a real Airflow: nothing without a login, *LLMPrism* in the navigation, and a run's tab."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from demo.local_airflow import LocalAirflow, free_ports, shown
from llmprism_tasks.warehouse.connect import Warehouse

DAG = "llmprism_minute"
WINDOW = "2026-01-01T00:02:00+00:00"  # of the simulated minutes, one with the slow GPU


@pytest.fixture(scope="module")
def airflow(platform: Path, warehouse: Warehouse) -> Iterator[LocalAirflow]:
    """Airflow's API server over the platform's warehouse, and one run that nobody executes."""
    local = LocalAirflow(platform, free_ports(8300))
    local.prepare()
    local.command("airflow", "dags", "trigger", DAG, "--run-id", "by_hand", "--conf", f'{{"window_start": "{WINDOW}"}}')
    with shown(local, {"LLMPRISM_PLACES__WAREHOUSE": warehouse.location}):
        yield local


@pytest.mark.parametrize(
    "path",
    ["", "job?id=x", "timeline?job=x", "incident?id=x", "window", "flows", "assets/pages.css", f"run/{DAG}/x"],
)
def test_nothing_is_shown_without_a_login(airflow: LocalAirflow, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{airflow.address}/llmprism/{path}", timeout=60)


def test_nothing_is_muted_without_a_login(airflow: LocalAirflow) -> None:
    form = urllib.request.Request(f"{airflow.address}/llmprism/mute", data=b"id=x", headers={"Origin": airflow.address})
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(form, timeout=60)


def test_the_pages_are_in_the_navigation_and_on_a_run(airflow: LocalAirflow, visitor: Page) -> None:
    user, password = airflow.login()
    visitor.goto(airflow.address)
    visitor.fill("input[name=username]", user)
    visitor.fill("input[name=password]", password)
    visitor.keyboard.press("Enter")
    visitor.get_by_role("link", name="LLMPrism", exact=True).click()
    pages = visitor.frame_locator("iframe[title=LLMPrism]")
    expect(pages.get_by_role("link", name="node0002").first).to_be_visible()
    pages.get_by_role("link", name="node0002").first.click()
    pages.get_by_label("because").fill("ticket 8")
    pages.get_by_role("button", name="Mute").click()
    expect(pages.get_by_text("by admin: ticket 8")).to_be_visible()
    pages.get_by_role("button", name="Unmute").click()
    visitor.goto(f"{airflow.address}/dags/{DAG}/runs/by_hand/plugin/llmprism-window")
    window = visitor.frame_locator("iframe[title='LLMPrism window']")
    expect(window.locator("h1")).to_contain_text("Window 2026-01-01 00:02 UTC")
