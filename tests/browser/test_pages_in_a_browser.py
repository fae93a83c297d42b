"""What a reader sees and does: pages open, the culprit is found, a slice leads to its flows, an incident is muted."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from paged_windows import Names
from playwright.sync_api import Page, expect
from served_pages import incident_of, job_of, run

from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

SERIOUS = ("serious", "critical")
SLOW = "node0002"  # rank 9 of the scenario: the second GPU of the third host
PAGES = ("", "job", "timeline", "incident", "window")


def path_of(page: str, warehouse: Warehouse) -> str:
    asked = {
        "job": {"id": job_of(warehouse)},
        "timeline": {"job": job_of(warehouse)},
        "incident": {"id": incident_of(warehouse)},
    }
    return f"{page}?{urllib.parse.urlencode(asked.get(page, {}))}"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_each_page_opens_and_can_be_read_by_everybody(
    page: Page, address: str, warehouse: Warehouse, name: str
) -> None:
    page.goto(address + path_of(name, warehouse))
    expect(page.locator("h1")).to_be_visible()
    for chart in page.locator(".chart").all():
        expect(chart.locator(".main-svg").first).to_be_visible()
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_from_the_first_page_to_the_culprit_in_the_timeline(page: Page, address: str) -> None:
    page.goto(address)
    first = page.locator(".incident").first
    expect(first).to_contain_text(SLOW)  # who, since when, what it cost and what to do: without scrolling
    for words in ("since 2026-01-01 00:0", "lost", "GPU-", "Next:"):
        expect(first).to_contain_text(words)
    expect(first).to_be_in_viewport(ratio=1)
    first.get_by_role("link", name=SLOW).click()
    expect(page.locator("h1")).to_contain_text(SLOW)
    expect(page.get_by_text("What to check next:")).to_be_visible()
    page.get_by_role("link", name="Show me the timeline").click()
    expect(page.locator("#timeline")).to_be_in_viewport(ratio=0.99)
    expect(page.locator("tr.suspect").first).to_contain_text(SLOW)
    lanes = page.evaluate("JSON.parse(document.getElementById('lanes').textContent).lanes")
    assert {lane["host"] for lane in lanes if lane["suspect"]} == {SLOW}


def view(page: Page) -> tuple[int, int]:
    data = page.locator("#timeline").evaluate("canvas => ({...canvas.dataset})")
    return int(data["from"]), int(data["to"])


def test_the_timeline_zooms_and_moves(page: Page, address: str, warehouse: Warehouse) -> None:
    page.goto(address + path_of("timeline", warehouse))
    canvas, (start, end) = page.locator("#timeline"), view(page)
    assert start == 0
    canvas.hover(position={"x": 700, "y": 200})
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function("before => Number(document.getElementById('timeline').dataset.to) < before", arg=end)
    nearer = view(page)
    assert nearer[1] - nearer[0] < end - start
    canvas.drag_to(canvas, source_position={"x": 700, "y": 200}, target_position={"x": 500, "y": 200})
    moved = view(page)
    assert moved[0] > nearer[0]
    assert moved[1] - moved[0] == pytest.approx(nearer[1] - nearer[0], abs=2)
    page.get_by_role("button", name="Zoom in").click()
    assert view(page)[1] - view(page)[0] == pytest.approx((moved[1] - moved[0]) / 2, abs=2)
    canvas.focus()
    page.keyboard.press("0")
    assert view(page) == (start, end)


WHERE = """phase => {
  const canvas = document.getElementById('timeline'), told = JSON.parse(document.getElementById('lanes').textContent);
  const data = canvas.dataset, slices = told.slices, wanted = told.phases.indexOf(phase);
  const one = slices.phase.findIndex((code, n) => code === wanted && slices.end[n] - slices.start[n] > 1e7);
  const share = ((slices.start[one] + slices.end[one]) / 2 - data.from) / (data.to - data.from);
  const low = phase === 'compute' ? 0.3 : 0.85;
  return {x: +data.gutter + share * (canvas.clientWidth - data.gutter),
          y: +data.axis + (slices.lane[one] + low) * data.lane, addr: told.lanes[slices.lane[one]].addr};
}"""


@pytest.mark.parametrize(("phase", "words"), [("dp_sync", "dp_sync"), ("compute", "computing (inferred)")])
def test_a_click_on_a_slice_shows_its_flows(
    page: Page, address: str, warehouse: Warehouse, phase: str, words: str
) -> None:
    page.goto(address + path_of("timeline", warehouse))
    place = page.evaluate(WHERE, phase)
    page.locator("#timeline").click(position={"x": place["x"], "y": place["y"]})
    expect(page.locator("#slice-title")).to_contain_text(words)
    expect(page.locator("#slice-flows tbody tr").first).to_contain_text(place["addr"])


def test_the_ranking_of_the_timeline_is_what_sql_says(page: Page, address: str, warehouse: Warehouse) -> None:
    page.goto(address + path_of("timeline", warehouse))
    told = page.evaluate("JSON.parse(document.getElementById('lanes').textContent)")
    steps = ", ".join(str(step["index"]) for step in told["steps"])
    cells = page.locator(".ranking tbody tr").first.locator("td").all_text_contents()
    expected = query(
        warehouse,
        "SELECT avg(compute_ns) / 1e6 FROM step_breakdown "
        "WHERE window_start_ns = (SELECT max(window_start_ns) FROM jobs) "
        f"AND addr = '{cells[0].removeprefix('▶ ')}' AND step_index IN ({steps})",
    ).item()
    assert cells[3] == f"{expected:.0f} ms"


def test_an_incident_is_muted_and_unmuted(page: Page, address: str, warehouse: Warehouse) -> None:
    page.goto(address + path_of("incident", warehouse))
    page.get_by_label("Mute for").select_option("4 hours")
    page.get_by_label("because").fill("ticket 7 <b>urgent</b>")
    page.get_by_role("button", name="Mute").click()
    expect(page.get_by_text("ticket 7 <b>urgent</b>")).to_be_visible()
    page.goto(address)
    expect(page.locator(".badge.muted").first).to_contain_text("muted until")
    page.goto(address + path_of("incident", warehouse))
    page.get_by_role("button", name="Unmute").click()
    expect(page.get_by_role("button", name="Mute")).to_be_visible()
    assert query(warehouse, "SELECT count(*) FROM mutes").item() == 1


@pytest.mark.parametrize("what", [[], ["--job"], ["--incident"]])
def test_a_page_as_a_file_needs_no_server(page: Page, warehouse: Warehouse, tmp_path: Path, what: list[str]) -> None:
    named = {"--job": job_of(warehouse), "--incident": incident_of(warehouse)}
    asked = [word for option in what for word in (option, named[option])]
    run("report", "--html", str(tmp_path / "page.html"), *asked, "--warehouse", warehouse.location)
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator("main").get_by_text(SLOW).first).to_be_visible()
    for chart in page.locator(".chart").all():
        expect(chart.locator(".main-svg").first).to_be_visible()
    assert page.locator("a[href]:not([href^='#'])").count() == 0


@pytest.mark.parametrize("name", PAGES)
def test_hostile_names_run_nothing_and_break_nothing(
    page: Page, hostile: tuple[str, Names, Warehouse], name: str
) -> None:
    address, _, warehouse = hostile
    page.goto(address + path_of(name, warehouse))
    expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
    for chart in page.locator(".chart").all():
        expect(chart.locator(".main-svg").first).to_be_visible()
    assert page.locator("img").count() == 0
    assert page.locator("a[href^='javascript:']").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if name == "timeline":
        place = page.evaluate(WHERE, "dp_sync")
        page.locator("#timeline").hover(position={"x": place["x"], "y": place["y"]})
        expect(page.locator("#tip")).to_contain_text("dp_sync")
        page.locator("#timeline").click(position={"x": place["x"], "y": place["y"]})
        expect(page.locator("#slice-flows tbody tr").first).to_contain_text("10.0.")
