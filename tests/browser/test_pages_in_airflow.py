"""The pages in a real Airflow: nothing without a login, *LLMPrism* in the navigation, and a run's tab."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from served_pages import Culprit

from demo.__main__ import DAG, moment, runs
from demo.local_airflow import LocalAirflow, free_ports, shown
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

USERS = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,reader:viewer"}


@pytest.fixture(scope="module")
def airflow(platform: Path) -> Iterator[LocalAirflow]:
    """Airflow's API server over the demo's runs and warehouse, with an admin and a reader who may change nothing."""
    local = LocalAirflow(platform, free_ports(8300))
    with shown(local, USERS):
        yield local


def answered(asked: urllib.request.Request) -> str:
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return str(answer.read().decode())


def refused(asked: str | urllib.request.Request) -> int:
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(asked, timeout=60)
    error.value.close()
    return error.value.code


@pytest.mark.parametrize(
    "path",
    ["", "job?id=x", "timeline?job=x", "incident?id=x", "window", "flows", "assets/pages.css", f"run/{DAG}/x"],
)
def test_nothing_is_shown_without_a_login(airflow: LocalAirflow, path: str) -> None:
    assert refused(f"{airflow.address}/llmprism/{path}") == 401


def muting(airflow: LocalAirflow, culprit: Culprit, **headers: str) -> urllib.request.Request:
    form = urllib.parse.urlencode({"id": culprit.incident_id, "hours": 4, "reason": "because"}).encode()
    return urllib.request.Request(
        f"{airflow.address}/llmprism/mute", data=form, headers={"Origin": airflow.address} | headers
    )


def test_nothing_is_muted_without_a_login(airflow: LocalAirflow, culprit: Culprit, warehouse: Warehouse) -> None:
    before = query(warehouse, "SELECT count(*) FROM mutes").item()
    assert refused(muting(airflow, culprit)) == 401
    assert query(warehouse, "SELECT count(*) FROM mutes").item() == before


def test_who_may_only_read_sees_the_pages_and_mutes_nothing(
    airflow: LocalAirflow, culprit: Culprit, warehouse: Warehouse
) -> None:
    before = query(warehouse, "SELECT count(*) FROM mutes").item()
    password = json.loads(airflow.passwords.read_text(encoding="utf-8"))["reader"]
    asked = json.dumps({"username": "reader", "password": password}).encode()
    login = urllib.request.Request(
        f"{airflow.address}/auth/token", data=asked, headers={"Content-Type": "application/json"}
    )
    known = {"Authorization": f"Bearer {json.loads(answered(login))['access_token']}"}
    page = urllib.request.Request(f"{airflow.address}/llmprism/", headers=known)
    assert culprit.host in answered(page)
    assert refused(muting(airflow, culprit, **known)) == 403
    assert query(warehouse, "SELECT count(*) FROM mutes").item() == before


def test_the_pages_are_in_the_navigation_and_on_a_run(
    airflow: LocalAirflow, visitor: Page, culprit: Culprit, warehouse: Warehouse
) -> None:
    user, password = airflow.login()
    visitor.goto(airflow.address)
    visitor.fill("input[name=username]", user)
    visitor.fill("input[name=password]", password)
    visitor.keyboard.press("Enter")
    visitor.get_by_role("link", name="LLMPrism", exact=True).click()
    pages = visitor.frame_locator("iframe[title=LLMPrism]")
    pages.get_by_role("link", name=culprit.host).first.click()
    pages.get_by_label("because").fill("ticket 8")
    pages.get_by_role("button", name="Mute").click()
    expect(pages.get_by_text("by admin: ticket 8")).to_be_visible()
    muted = query(warehouse, "SELECT incident_id, muted_by FROM mutes WHERE reason = 'ticket 8'").rows()
    assert muted == [(culprit.incident_id, "admin")]
    pages.get_by_role("button", name="Unmute").click()
    expect(pages.get_by_role("button", name="Mute")).to_be_visible()

    worst = culprit.worst_window_start_ns
    (run,) = [
        one["dag_run_id"]
        for one in runs(airflow, "backfill")
        if moment(one["data_interval_start"]).timestamp() * 1e9 == worst
    ]
    visitor.goto(f"{airflow.address}/dags/{DAG}/runs/{urllib.parse.quote(run)}/plugin/llmprism-window")
    window = visitor.frame_locator("iframe[title='LLMPrism window']")
    (row,) = query(
        warehouse,
        "SELECT strftime(window_start, '%Y-%m-%d %H:%M') AS start, rows_landed FROM window_bookkeeping "
        f"WHERE window_start_ns = {worst}",
    ).to_dicts()
    expect(window.locator("h1")).to_have_text(f"Window {row['start']} UTC")
    assert culprit.host in window.locator("tr.suspect").first.inner_text()
    records = window.locator("section[aria-labelledby=records]").inner_text()
    assert f"landed\n{row['rows_landed']:,}" in records
    stages = window.locator("section[aria-labelledby=time] tbody tr")
    assert {"recognition", "diagnosis"} <= set(stages.locator("th").all_text_contents())
