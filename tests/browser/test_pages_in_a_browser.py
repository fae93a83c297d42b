"""What a reader sees and does: pages open, the culprit is found, a slice leads to its flows, an incident is muted."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from paged_windows import HOSTILE, Names
from playwright.sync_api import Page, expect
from served_pages import Culprit, run, worst_of

from llmprism_tasks.reports import terminal
from llmprism_tasks.reports.pages.markup import PARTS
from llmprism_tasks.reports.pages.timeline import BORDER_NS, MOST_FLOWS
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

SERIOUS = ("serious", "critical")
PAGES = ("", "job", "timeline", "incident", "window")
LANES = "JSON.parse(document.getElementById('lanes').textContent)"
FITS = "document.documentElement.scrollWidth <= innerWidth"
A_STEP_NS = 6 * 10**9


def path_of(page: str, warehouse: Warehouse) -> str:
    """The address of a page: of the most expensive incident, of its job, and of its worst window."""
    incident_id, job_id, worst = worst_of(warehouse)
    asked = {
        "job": {"id": job_id},
        "timeline": {"job": job_id, "window": worst},
        "incident": {"id": incident_id},
        "window": {"start_ns": worst},
    }
    return f"{page}?{urllib.parse.urlencode(asked.get(page, {}))}"


def see_charts(page: Page) -> int:
    """Wait until each chart is drawn; returns how many there are."""
    charts = page.locator(".chart").all()
    for chart in charts:
        expect(chart.locator(".main-svg").first).to_be_visible()
        expect(
            chart.locator(".overplot .trace path, .overplot image").first
        ).to_be_attached()  # a line, an area or cells
    return len(charts)


@pytest.mark.parametrize(("name", "charts"), [("", 0), ("job", 4), ("timeline", 0), ("incident", 1), ("window", 0)])
@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_each_page_opens_and_can_be_read_by_everybody(
    page: Page, address: str, warehouse: Warehouse, name: str, charts: int
) -> None:
    page.goto(address + path_of(name, warehouse))
    assert page.locator("h1").inner_text().strip()
    assert see_charts(page) == charts
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS] == []
    assert page.evaluate(FITS)


def test_from_the_first_page_to_the_culprit_in_the_timeline(
    page: Page, address: str, warehouse: Warehouse, culprit: Culprit
) -> None:
    page.goto(address)
    first = page.locator(".incident").first  # who, since when, what it cost and what to do: without scrolling
    expect(first).to_be_in_viewport(ratio=1)
    told = first.inner_text()
    lost = query(warehouse, f"SELECT lost_gpu_s FROM incidents WHERE incident_id = '{culprit.incident_id}'").item()
    assert culprit.host in told
    assert f"lost\n{terminal.cost(lost)}" in told
    assert "Next: " in told
    since = first.locator("time").first.get_attribute("datetime")
    assert abs(page.evaluate("text => Date.parse(text)", since) * 1e6 - culprit.start_ns) < A_STEP_NS
    first.get_by_role("link", name=culprit.host).click()
    assert culprit.host in page.locator("h1").inner_text()
    assert page.get_by_text("What to check next:").is_visible()
    page.get_by_role("link", name="Show me the timeline").click()
    expect(page.locator("#timeline")).to_be_in_viewport(ratio=0.99)
    assert culprit.host in page.locator("tr.suspect").first.inner_text()
    marked = [lane for lane in page.evaluate(f"{LANES}.lanes") if lane["suspect"]]
    assert {lane["host"] for lane in marked} == {culprit.host}
    assert culprit.addr in {lane["addr"] for lane in marked}


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
  const one = slices.phase.findIndex((code, n) => code === wanted && slices.lane[n] >= 0 && slices.start[n] >= 0
    && slices.end[n] <= told.span_ns && slices.end[n] - slices.start[n] > 1e7);
  const share = ((slices.start[one] + slices.end[one]) / 2 - data.from) / (data.to - data.from);
  const low = phase === 'compute' ? 0.3 : 0.85;
  return {x: +data.gutter + share * (canvas.clientWidth - data.gutter),
          y: +data.axis + (slices.lane[one] + low) * data.lane, addr: told.lanes[slices.lane[one]].addr};
}"""


@pytest.mark.parametrize(("phase", "words"), [("dp_sync", "dp_sync"), ("compute", "computing (inferred)")])
def test_a_click_on_a_slice_shows_the_flows_that_the_tables_have(
    page: Page, address: str, warehouse: Warehouse, phase: str, words: str
) -> None:
    page.goto(address + path_of("timeline", warehouse))
    place = page.evaluate(WHERE, phase)
    with page.expect_response(lambda answer: "/flows?" in answer.url) as answer:
        page.locator("#timeline").click(position={"x": place["x"], "y": place["y"]})
    asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer.value.url).query))
    assert asked["addr"] == place["addr"]
    assert words in page.locator("#slice-title").inner_text()
    border = 0 if "peer" in asked else BORDER_NS
    of_pair = f"AND '{asked['peer']}' IN (src_addr, dst_addr)" if "peer" in asked else ""
    expected = query(
        warehouse,
        f"SELECT src_addr, dst_addr, bytes FROM flows WHERE '{asked['addr']}' IN (src_addr, dst_addr) {of_pair} "
        f"AND flow_start_ns <= {int(asked['end']) + border} AND flow_end_ns >= {int(asked['start']) - border} "
        f"ORDER BY flow_start_ns, src_addr, dst_addr, bytes LIMIT {MOST_FLOWS}",
    ).rows()
    rows = page.locator("#slice-flows tbody tr")
    expect(rows.first).to_be_visible()
    cells = [row.locator("td").all_text_contents() for row in rows.all()]
    assert [(row[2], row[3], int(row[5])) for row in cells if len(row) > 1] == expected != []


def test_the_ranking_of_the_timeline_is_what_sql_says(
    page: Page, address: str, warehouse: Warehouse, culprit: Culprit
) -> None:
    page.goto(address + path_of("timeline", warehouse))
    steps = ", ".join(str(step["index"]) for step in page.evaluate(f"{LANES}.steps"))
    parts = ("compute", "communication", "bubble", "waiting", "step")
    columns = ", ".join(f"avg({part}_ns) / 1e9" for part in parts)
    asked = f"SELECT addr, {columns} FROM step_breakdown WHERE step_index IN ({steps}) GROUP BY addr"
    of_window = f"window_start_ns = {culprit.worst_window_start_ns} AND job_id = '{culprit.job_id}'"
    expected = {
        addr: [terminal.duration(value) for value in values]
        for addr, *values in query(warehouse, asked.replace("WHERE", f"WHERE {of_window} AND")).rows()
    }
    rows = [row.locator("td").all_text_contents() for row in page.locator(".ranking tbody tr").all()]
    shown = {row[0].removeprefix("▶ "): [row[place] for place in (3, 5, 6, 7, 9)] for row in rows}
    assert len(shown) == len(page.evaluate(f"{LANES}.lanes")) > 1
    assert shown == {addr: expected[addr] for addr in shown}
    assert rows[0][1] == culprit.host


def test_the_figures_of_a_job_are_what_sql_says(
    page: Page, address: str, warehouse: Warehouse, culprit: Culprit
) -> None:
    page.goto(address + path_of("job", warehouse))
    shares = ", ".join(f"100 * sum({part}_ns) / sum(step_ns)" for part in PARTS)
    expected = query(warehouse, f"SELECT {shares} FROM step_breakdown WHERE job_id = '{culprit.job_id}'").row(0)
    assert [page.locator(f"#part-{part}").inner_text() for part in PARTS] == [f"{value:.1f} %" for value in expected]
    steps = f"SELECT count(*) FROM steps WHERE addr IS NULL AND job_id = '{culprit.job_id}'"
    assert page.locator("#steps").inner_text() == f"{query(warehouse, steps).item():,}"


def test_an_incident_is_muted_and_unmuted(page: Page, address: str, warehouse: Warehouse) -> None:
    page.goto(address + path_of("incident", warehouse))
    page.get_by_label("Mute for").select_option("4 hours")
    page.get_by_label("because").fill("ticket 7 <b>urgent</b>")
    page.get_by_role("button", name="Mute").click()
    expect(page.get_by_text("ticket 7 <b>urgent</b>")).to_be_visible()
    page.goto(address)
    assert "muted until" in page.locator(".incident .badge.muted").first.inner_text()
    page.goto(address + path_of("incident", warehouse))
    page.get_by_role("button", name="Unmute").click()
    expect(page.get_by_role("button", name="Mute")).to_be_visible()
    (row,) = query(warehouse, "SELECT incident_id, reason FROM mutes").rows()
    assert row == (worst_of(warehouse)[0], "ticket 7 <b>urgent</b>")


@pytest.mark.parametrize(("what", "charts"), [([], 0), (["--job"], 4), (["--incident"], 1)])
def test_a_page_as_a_file_needs_no_server(
    page: Page, warehouse: Warehouse, culprit: Culprit, tmp_path: Path, what: list[str], charts: int
) -> None:
    named = {"--job": culprit.job_id, "--incident": culprit.incident_id}
    asked = [word for option in what for word in (option, named[option])]
    run("report", "--html", str(tmp_path / "page.html"), *asked, "--warehouse", warehouse.location)
    page.goto((tmp_path / "page.html").as_uri())
    assert culprit.host in page.locator("main").inner_text()
    assert see_charts(page) == charts
    assert page.locator("a[href]:not([href^='#'])").count() == 0


@pytest.mark.parametrize("name", PAGES)
def test_hostile_names_run_nothing_and_break_nothing(
    page: Page, hostile: tuple[str, Names, Warehouse], name: str
) -> None:
    address, _, warehouse = hostile
    page.goto(address + path_of(name, warehouse))
    assert "<script>alert(1)</script>" in page.locator("main").inner_text()
    see_charts(page)
    assert page.locator("img").count() == 0
    assert page.locator("a[href^='javascript:']").count() == 0
    assert page.evaluate(FITS)
    if name == "timeline":
        place = page.evaluate(WHERE, "dp_sync")
        page.locator("#timeline").hover(position={"x": place["x"], "y": place["y"]})
        expect(page.locator("#tip")).to_contain_text("dp_sync")
        page.locator("#timeline").click(position={"x": place["x"], "y": place["y"]})
        expect(page.locator("#slice-flows tbody tr").first).to_contain_text("10.0.")


def test_a_hostile_reason_is_shown_as_it_was_written(page: Page, hostile: tuple[str, Names, Warehouse]) -> None:
    address, _, warehouse = hostile
    page.goto(address + path_of("incident", warehouse))
    page.get_by_label("because").fill(HOSTILE.replace("\x00", ""))  # a form's field takes no NUL
    page.get_by_role("button", name="Mute").click()
    expect(page.locator("section[aria-labelledby=mute] p").first).to_contain_text("<img src=x onerror=alert(1)>")
    page.goto(address)
    assert "onerror" in (page.locator(".badge.muted").first.get_attribute("title") or "")
    assert page.locator("img").count() == 0
