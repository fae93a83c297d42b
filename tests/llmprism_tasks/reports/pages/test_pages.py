"""The pages' numbers are the tables'; the culprit comes first; what went wrong with windows is told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from paged_windows import HOSTILE, SLOW_NS, STEP_NS, STEPS, WINDOWS, Names, rows, write_windows
from small_windows import SECOND, bookkept, frame

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.reports.pages import incident, job, now, timeline, window
from llmprism_tasks.reports.pages.ranges import Range, asked_range
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.asking import asking
from llmprism_tasks.warehouse.bookkeeping import minutes as minute_book
from llmprism_tasks.warehouse.bookkeeping.notifications import mute
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.storage import incidents
from llmprism_tasks.warehouse.store import query, replace

NOW_NS = WINDOWS[1].end_ns + 20 * SECOND


def the_incident(warehouse: Warehouse, kind: str = "slow_compute") -> str:
    return str(query(warehouse, f"SELECT incident_id FROM incidents WHERE kind = '{kind}'").item())


def text_of(page: str) -> str:
    """What a reader sees of a page: no elements, spaces as one."""
    without = re.sub(r"(?s)<(script|style|title)\b.*?</\1>|<[^>]+>", " ", page)
    return re.sub(r"\s+", " ", without)


def payload_of(page: str) -> dict[str, object]:
    found = re.search(r'(?s)<script type="application/json" id="lanes">(.*?)</script>', page)
    assert found is not None
    return dict(json.loads(found[1]))


def figure_of(page: str, name: str) -> dict[str, list[dict[str, list[object]]]]:
    found = re.search(rf'(?s)id="chart-{name}".*?<script type="application/json">(.*?)</script>', page)
    assert found is not None
    return dict(json.loads(found[1]))


def test_the_first_page_names_the_culprit_its_cost_and_what_to_do(filled: Warehouse) -> None:
    text = text_of(now.show(filled, {}, now_ns=NOW_NS))
    assert "1 incident open" in text
    assert "Host node-1 computes slowly" in text
    assert "120 GPU-seconds" in text
    assert "wait for a second window" in text  # one window showed it
    assert "ended 20 s ago" in text
    assert "1 address not in the topology trains with it" in text


def test_the_first_page_of_an_empty_warehouse_says_so(tmp_path: Path) -> None:
    page = now.show(empty_warehouse(tmp_path / "w.duckdb"), {}, now_ns=NOW_NS)
    assert "The warehouse is empty" in text_of(page)


def health(warehouse: Warehouse, *, after_s: float = 20, settings: Settings | None = None) -> dict[str, Any]:
    settings = settings or Settings()
    with asking(warehouse, longest_s=5) as ask:
        asked = asked_range(ask, {})
        now_ns = (asked.done_ns or 0) + int(after_s * SECOND)
        frames = {
            "totals": ask("totals", **asked.values),
            "states": now.states(ask, asked, settings, now_ns=now_ns),
            "troubled": ask("troubled_windows", **asked.values, most=10),
            "quarantine": ask("quarantine", **asked.values, most=10),
        }
    return now.health(frames, asked, now_ns=now_ns, lag_s=settings.catch_up.lag_s)


def expect(warehouse: Warehouse, minutes: list[Window]) -> None:
    """Have minutes expected by the schedule."""
    warehouse.write(lambda connection: minute_book.expect(connection, [one.start_ns for one in minutes], 0))


def cells(found: dict[str, Any]) -> list[str]:
    """The calendar's cells within the range."""
    return [cell["state"] for row in found["calendar"] for cell in row["cells"] if cell["state"]]


def test_missing_and_stopped_windows_are_counted_and_marked(own_copy: Warehouse) -> None:
    later = WINDOWS[1].shifted(2)
    stopped = bookkept(later, status="stopped", reason="pairs.kind broke")
    replace(own_copy, later, {"windows": frame("windows", later, [stopped])})
    found = health(own_copy)
    assert found["counts"] == {"stopped": 1, "missing": 1, "done": 2}
    assert found["rows_quarantined"] == 4
    assert cells(found) == ["done", "done", "missing", "stopped"]
    assert found["troubled"][0]["reason"] == "pairs.kind broke"


def test_a_minute_that_no_run_landed_is_late_and_then_skipped(own_copy: Warehouse) -> None:
    expect(own_copy, [WINDOWS[1].shifted(1)])
    settings = Settings()
    waits_s = 60 + settings.window.allowed_lateness_s
    assert cells(health(own_copy, after_s=waits_s - 1)) == ["done", "done", "expected"]
    assert cells(health(own_copy, after_s=waits_s)) == ["done", "done", "late"]
    assert cells(health(own_copy, after_s=waits_s + settings.catch_up.skipped_after_s)) == ["done", "done", "skipped"]


@pytest.mark.parametrize(("scheduled", "after_s", "late"), [(True, 300, False), (True, 301, True), (False, 301, False)])
def test_a_scheduled_pipeline_is_late_after_a_while(
    own_copy: Warehouse, scheduled: bool, after_s: float, late: bool
) -> None:
    assert Settings().catch_up.lag_s == 300
    if scheduled:
        expect(own_copy, list(WINDOWS))
    assert health(own_copy, after_s=after_s)["late"] is late


@pytest.mark.parametrize(
    ("length_s", "row_s", "cell_s"),
    [(900, 3_600, 60), (28_800, 3_600, 60), (28_801, 21_600, 300), (604_800, 86_400, 900), (2_592_000, 86_400, 3_600)],
)
def test_a_calendar_has_rows_of_hours_or_days(length_s: int, row_s: int, cell_s: int) -> None:
    asked = Range(0, length_s * SECOND, "", 60 * SECOND, None, None)
    assert asked.calendar == (row_s * SECOND, cell_s * SECOND)
    long = Range(0, length_s * SECOND, "", 7_200 * SECOND, None, None)
    assert long.calendar[1] == 7_200 * SECOND


def test_the_step_of_a_job_on_the_first_page_is_the_tables(filled: Warehouse) -> None:
    expected = query(filled, "SELECT median(end_ns - start_ns) / 1e9 FROM steps WHERE addr IS NULL").item()
    assert f"{expected:.2f} s" in text_of(now.show(filled, {}, now_ns=NOW_NS))


def test_the_step_of_a_job_now_is_that_of_its_newest_window(own_copy: Warehouse) -> None:
    own = {"job_id": "gpt", "addr": None, "step_index": 0, "start_ns": WINDOWS[1].start_ns}
    slow = frame("steps", WINDOWS[1], [own | {"end_ns": WINDOWS[1].start_ns + 25 * SECOND}])
    replace(own_copy, WINDOWS[1], {"steps": slow})
    assert '<td class="n">25.00 s</td>' in now.show(own_copy, {}, now_ns=NOW_NS)


def test_the_numbers_of_a_jobs_page_are_the_tables(filled: Warehouse) -> None:
    page = job.show(filled, {"id": "gpt"}, now_ns=NOW_NS)
    parts = ("compute", "communication", "bubble", "waiting", "unexplained")
    shares = ", ".join(f"sum({part}_ns) / sum(step_ns) AS {part}" for part in parts)
    (expected,) = query(filled, f"SELECT {shares} FROM step_breakdown").to_dicts()
    for part in parts:
        assert f'id="part-{part}">{100 * expected[part]:.1f} %<' in page
    steps = query(filled, "SELECT (end_ns - start_ns) / 1e9 AS s FROM steps WHERE addr IS NULL ORDER BY end_ns")["s"]
    assert figure_of(page, "steps")["data"][0]["y"] == steps.to_list()
    assert f'id="steps">{len(steps)}<' in page
    bits = query(filled, "SELECT sum(bytes) * 8 / 60 / 1e9 AS g FROM pairs GROUP BY window_start_ns ORDER BY ALL")["g"]
    assert figure_of(page, "pairs")["data"][0]["y"] == pytest.approx(bits.to_list())


def test_the_incident_is_shaded_in_the_steps_and_the_suspect_marked_in_the_heat_map(filled: Warehouse) -> None:
    page = job.show(filled, {"id": "gpt"}, now_ns=NOW_NS)
    (shade,) = figure_of(page, "steps")["layout"]["shapes"]  # type: ignore[call-overload]
    assert shade["x0"].startswith("2026-01-01T00:01:00")
    heat = figure_of(page, "heat")["data"][0]
    (box,) = [one for one in figure_of(page, "heat")["layout"]["shapes"] if one["type"] == "rect"]  # type: ignore[call-overload]
    framed = range(int(box["y0"] + 0.5), int(box["y1"] + 0.5))
    assert [str(heat["y"][row]).split()[0] for row in framed] == ["node-1", "node-1"]
    assert heat["z"][framed[0]][-1] == 50  # type: ignore[index]  # 9 s against 6 s
    assert text_of(page).count("framed") == 2  # the heat map and the layout


def test_computing_is_compared_within_a_stage() -> None:
    times = {"window_start_ns": 0, "step_index": 0, "end_ns": 1, "host": "h"}
    splits = pl.DataFrame(
        [
            times | {"addr": str(n), "pp_stage": n // 3, "compute_ns": ns}
            for n, ns in enumerate((10, 10, 15, 40, 40, 20))
        ]
    )
    assert job.longer(splits)["longer"].to_list() == [0, 0, 50, 0, 0, -50]


def test_over_a_long_range_typical_steps_are_drawn() -> None:
    short = Range(0, now.EACH_STEP_S * SECOND, "", 60 * SECOND, None, None)
    assert now.paces_of(short) == "job_paces"
    assert now.paces_of(Range(0, short.to_ns + 1, "", 60 * SECOND, None, None)) == "job_periods"


def test_a_job_that_is_not_there_is_told(filled: Warehouse) -> None:
    with pytest.raises(InputError, match="no job nobody in this range"):
        job.show(filled, {"id": "nobody"}, now_ns=NOW_NS)


def test_the_lanes_are_the_tables_and_the_suspect_is_marked(filled: Warehouse) -> None:
    told = payload_of(timeline.show(filled, {"job": "gpt", "steps": "2"}, now_ns=NOW_NS))
    lanes, slices = told["lanes"], pl.DataFrame(told["slices"])
    assert [lane["suspect"] for lane in lanes] == [lane["host"] == "node-1" for lane in lanes]
    computing = slices.filter(pl.col("phase") == told["phases"].index("compute"))
    for number, lane in enumerate(lanes):
        drawn = computing.filter(pl.col("lane") == number).select((pl.col("end") - pl.col("start")).sum()).item()
        shown = ", ".join(str(step["index"]) for step in told["steps"])
        expected = query(
            filled,
            f"SELECT sum(compute_ns)::BIGINT FROM step_breakdown WHERE window_start_ns = {WINDOWS[1].start_ns} "
            f"AND addr = '{lane['addr']}' AND step_index IN ({shown})",
        ).item()
        assert drawn == expected
    assert told["span_ns"] == 2 * STEP_NS
    assert slices["bytes"].sum() == 2 * 12 * 1_000_000


def test_who_computes_longest_comes_first_in_the_ranking(filled: Warehouse) -> None:
    page = timeline.show(filled, {"job": "gpt"}, now_ns=NOW_NS)
    ranking = page[page.index('id="ranking"') :]
    assert ranking.index("10.0.1.0") < ranking.index("10.0.1.1") < ranking.index("10.0.0.0")
    assert "+50.0 %" in ranking


@pytest.mark.parametrize(
    ("asked", "steps", "lanes"),
    [
        ({}, [1, 2, 3], 12),
        ({"step": "4", "steps": "1"}, [4], 12),
        ({"steps": "99"}, [0, 1, 2, 3, 4], 12),
        ({"host": "node-1"}, [1, 2, 3], 2),
        ({"stage": "0"}, [1, 2, 3], 6),
        ({"nics": "2"}, [1, 2, 3], 2),
        ({"nics": "5", "block": "2"}, [1, 2, 3], 2),
    ],
)
def test_a_reader_chooses_steps_and_nics(
    filled: Warehouse, asked: dict[str, str], steps: list[int], lanes: int
) -> None:
    told = payload_of(timeline.show(filled, {"job": "gpt"} | asked, now_ns=NOW_NS))
    assert [step["index"] for step in told["steps"]] == steps
    assert len(told["lanes"]) == lanes


def test_of_many_nics_the_block_with_the_suspect_is_drawn(filled: Warehouse) -> None:
    told = payload_of(timeline.show(filled, {"job": "gpt", "nics": "2"}, now_ns=NOW_NS))
    assert {lane["host"] for lane in told["lanes"]} == {"node-1"}


@pytest.mark.parametrize("text", ["x", "1e3", "１", "9" * 19, "1" * 20, "--1"])  # noqa: RUF001 - a digit, but no ASCII
def test_a_number_that_cannot_be_read_is_told(filled: Warehouse, text: str) -> None:
    with pytest.raises(InputError, match="expected a whole number"):
        timeline.show(filled, {"job": "gpt", "step": text}, now_ns=NOW_NS)


def test_a_slice_leads_to_its_flows(filled: Warehouse) -> None:
    start = WINDOWS[1].start_ns + 6 * SECOND + SLOW_NS
    asked = {"addr": "10.0.1.0", "peer": "10.0.3.0", "start": str(start), "end": str(WINDOWS[1].start_ns + STEP_NS)}
    found = timeline.flows(filled, asked)
    assert [(row[2], row[3], row[5], row[6]) for row in found["rows"]] == [
        ("10.0.1.0", "10.0.3.0", 1_000_000, "node-1")
    ]
    gap = {"addr": "10.0.1.0", "start": str(WINDOWS[1].start_ns), "end": str(start)}
    borders = timeline.flows(filled, gap)["rows"]
    assert {row[2] for row in borders} >= {"10.0.1.0"}  # the flow that ends the gap begins as it ends
    with pytest.raises(InputError, match="without addr, start or end"):
        timeline.flows(filled, {"addr": "10.0.1.0"})


def test_an_incidents_page_has_the_evidence_the_peers_and_the_flows(filled: Warehouse) -> None:
    page = incident.show(filled, {"id": the_incident(filled)}, now_ns=NOW_NS)
    text = text_of(page)
    assert "Host node-1 computes slowly" in text
    assert "What to check next:" in text
    assert "Compared with 10.0.1.0, 10.0.3.0." in text
    assert text.count("10.0.1.0") > STEPS  # in the flows
    assert "Show me the timeline of its worst minute" in text
    assert "One of these is at fault" not in text
    lines = {line["name"]: line["y"] for line in figure_of(page, "peers")["data"]}
    assert lines["node-1"] == [6.0] * STEPS + [9.0] * STEPS
    assert lines["its peers: median"] == [6.0] * 2 * STEPS


def test_what_cannot_be_told_apart_is_told_with_its_probability(own_copy: Warehouse) -> None:
    (told,) = rows(WINDOWS[1], Names(candidates=["node-1", "leaf-7"]), slow=True)["diagnoses"]
    replace(own_copy, WINDOWS[1], {"diagnoses": frame("diagnoses", WINDOWS[1], [told])}, then=incidents.renew)
    text = text_of(incident.show(own_copy, {"id": the_incident(own_copy)}, now_ns=NOW_NS))
    assert re.search("One of these is at fault .* node-1 70% leaf-7 30% ", text)
    assert "report --probes" in text


def test_the_readings_of_a_silence_are_no_devices_to_probe(own_copy: Warehouse) -> None:
    (told,) = rows(WINDOWS[1], Names(candidates=["ended", "hung"]), slow=True)["diagnoses"]
    told |= {"kind": "ended", "severity": 0.0, "confidence": 0.7}
    replace(own_copy, WINDOWS[1], {"diagnoses": frame("diagnoses", WINDOWS[1], [told])}, then=incidents.renew)
    text = text_of(incident.show(own_copy, {"id": the_incident(own_copy, "ended")}, now_ns=NOW_NS))
    assert re.search("steps take, at worst no end sure 70% .* It is one of these .* ended 70% hung 30% ", text)
    assert "report --probes" not in text


@pytest.fixture
def behind_a_switch(own_copy: Warehouse) -> Warehouse:
    """The pages' job whose suspect is the switch `leaf-1`: all that node-1 sends and receives crosses it."""
    for slow, one in enumerate(WINDOWS):
        found = rows(one, Names(), slow=bool(slow))
        for flow in found["flows"]:
            crosses = any(flow[end].startswith("10.0.1.") for end in ("src_addr", "dst_addr"))
            flow["switch_path"] = ["leaf-1"] if crosses else ["leaf-2"]
            if crosses and slow:
                flow["flow_start_ns"] = flow["flow_end_ns"] - 8 * SECOND
        told = [
            row | {"kind": "degraded_switch", "subject_type": "switch", "subject": "leaf-1"}
            for row in found["diagnoses"]
        ]
        frames = {"flows": frame("flows", one, found["flows"]), "diagnoses": frame("diagnoses", one, told)}
        replace(own_copy, one, frames, then=incidents.renew)
    return own_copy


def test_the_nics_that_are_connected_to_a_slow_switch_are_framed(behind_a_switch: Warehouse) -> None:
    """Not those that talk to them: half of what these move goes elsewhere."""
    shown = timeline.show(behind_a_switch, {"job": "gpt"}, now_ns=NOW_NS)
    lanes: list[dict[str, Any]] = payload_of(shown)["lanes"]  # type: ignore[assignment]
    assert [lane["addr"] for lane in lanes if lane["suspect"]] == ["10.0.1.0", "10.0.1.1"]


def test_pages_of_a_read_copy_go_without_flows(behind_a_switch: Warehouse) -> None:
    with behind_a_switch.writing() as connection:
        connection.execute("DROP VIEW flows; DROP VIEW timeline; DROP TABLE stored.flows; DROP TABLE stored.timeline")
    one = str(query(behind_a_switch, "SELECT incident_id FROM incidents WHERE kind = 'degraded_switch'").item())
    assert "leaf-1" in text_of(incident.show(behind_a_switch, {"id": one}, now_ns=NOW_NS))
    assert "leaf-1" in text_of(job.show(behind_a_switch, {"id": "gpt"}, now_ns=NOW_NS))
    with pytest.raises(InputError, match="a read copy, which has no timelines"):
        timeline.show(behind_a_switch, {"job": "gpt"}, now_ns=NOW_NS)


def test_a_switch_that_all_cross_frames_nobody(behind_a_switch: Warehouse) -> None:
    flows = [flow | {"switch_path": ["leaf-1"]} for flow in rows(WINDOWS[1], Names(), slow=True)["flows"]]
    replace(behind_a_switch, WINDOWS[1], {"flows": frame("flows", WINDOWS[1], flows)})
    lanes: list[dict[str, Any]] = payload_of(timeline.show(behind_a_switch, {"job": "gpt"}, now_ns=NOW_NS))["lanes"]  # type: ignore[assignment]
    assert not any(lane["suspect"] for lane in lanes)


def test_a_slow_switch_is_drawn_beside_the_paths_that_avoid_it(behind_a_switch: Warehouse) -> None:
    one = str(query(behind_a_switch, "SELECT incident_id FROM incidents WHERE kind = 'degraded_switch'").item())
    page = incident.show(behind_a_switch, {"id": one}, now_ns=NOW_NS)
    lines = {line["name"]: line["y"] for line in figure_of(page, "peers")["data"]}
    through, elsewhere = lines["through leaf-1"], lines["elsewhere"]
    assert through[0] == pytest.approx(elsewhere[0])
    assert through[-1] == pytest.approx(1_000_000 * 8 / (8 * SECOND), rel=1e-6)
    assert elsewhere[-1] == pytest.approx(1_000_000 * 8 / (4 * SECOND), rel=1e-6)


def test_of_a_pipeline_that_stands_still_the_first_page_says_what_to_look_at(own_copy: Warehouse) -> None:
    starts = [one.start_ns for one in WINDOWS]
    own_copy.write(lambda connection: minute_book.expect(connection, starts, starts[0]))
    assert "See that Airflow's scheduler" not in text_of(now.show(own_copy, {}, now_ns=NOW_NS))
    text = text_of(now.show(own_copy, {}, now_ns=NOW_NS + 10 * 60 * SECOND))
    assert "1 incident open, but the results are old" in text
    assert "About 10 windows have ended since and are not done. See that Airflow's scheduler" in text


def test_where_many_records_were_refused_the_first_page_does_not_say_that_nothing_is_wrong(tmp_path: Path) -> None:
    warehouse = empty_warehouse(tmp_path / "w.duckdb")
    for number, one in enumerate(WINDOWS):
        quiet = {name: frame(name, one, some) for name, some in rows(one, Names(), slow=False).items()}
        failed = {"expectation": "windows.refused_share", "column": "", "severity": "warning", "success": number == 0}
        checks = frame("validation_results", one, [failed])
        replace(warehouse, one, quiet | {"validation_results": checks}, then=incidents.renew)
    first = now.show(
        warehouse, {"from": WINDOWS[0].start.isoformat(), "to": WINDOWS[1].start.isoformat()}, now_ns=NOW_NS
    )
    assert "Nothing is wrong now" in text_of(first)
    text = text_of(now.show(warehouse, {}, now_ns=NOW_NS))
    assert "No incident is open, but many records were refused" in text
    assert "In 1 window many records were refused or came twice." in text
    assert "Nothing is wrong" not in text


def test_an_incident_that_the_latest_window_has_not_is_told_as_maybe_over(own_copy: Warehouse) -> None:
    later = WINDOWS[1].shifted(1)
    assert "not in the latest window" not in text_of(now.show(own_copy, {}, now_ns=NOW_NS))
    quiet = {name: frame(name, later, some) for name, some in rows(later, Names(), slow=False).items()}
    replace(own_copy, later, quiet, then=incidents.renew)
    assert "not in the latest window, so it may be over" in text_of(now.show(own_copy, {}, now_ns=NOW_NS))


def test_a_page_of_the_newest_time_asks_for_newer_results_and_one_of_the_past_does_not(filled: Warehouse) -> None:
    assert "fresh.js" in now.show(filled, {}, now_ns=NOW_NS)
    past = {"from": "2026-01-01T00:00", "to": "2026-01-01T00:02"}
    assert "fresh.js" not in now.show(filled, past, now_ns=NOW_NS)
    assert "fresh.js" not in now.show(filled, {}, now_ns=NOW_NS, alone=True)


def test_flows_are_told_in_times_of_day_and_those_of_the_subject_first() -> None:
    flows = pl.DataFrame(
        {
            "of_subject": [False, True],
            "window_start_ns": 0,
            "flow_start_ns": [1_000, SECOND],
            "bytes": [7, 8],
            "protocol": 17,
            "switch_path": [["leaf-1", "spine-0"], None],
        }
    )
    assert incident.flow_table(flows) == {
        "columns": ["flow_start", "bytes", "switch_path"],
        "rows": [(True, ["00:00:01.000000", 8, None]), (False, ["00:00:00.000001", 7, "leaf-1 → spine-0"])],
        "same": [("protocol", 17)],
    }


def test_of_hosts_whose_labels_would_overlap_the_first_has_one_and_a_suspect_always() -> None:
    places = pl.DataFrame({"addr": ["a", "b", "c", "d"], "host": ["w", "x", "y", "z"], "pp_stage": [0, 0, 1, 1]})
    apart = job._bands(places, {}, job.LABEL_PX)
    assert [band.label for band in apart] == ["w", "x", "y", "z"]
    assert [band.opens for band in apart] == [False, False, True, False]
    close = job._bands(places, {"d": "slow"}, job.LABEL_PX // 2)
    assert [band.label for band in close] == ["w", "", "y", "▶ z"]
    assert [band.suspect for band in close] == [False, False, False, True]


def test_flows_of_the_fault_come_before_those_that_were_normal(filled: Warehouse) -> None:
    asked = "FROM flows ORDER BY flow_start_ns"
    with asking(filled, longest_s=5) as ask:
        found = ask.of_text(asked, since_ns=WINDOWS[1].start_ns, most=1_000)["window_start_ns"].to_list()
    of_fault = found.count(WINDOWS[1].start_ns)
    assert found == [WINDOWS[1].start_ns] * of_fault + [WINDOWS[0].start_ns] * (len(found) - of_fault)
    assert 0 < of_fault < len(found)


@pytest.mark.parametrize(("endpoints", "most"), [(16, 2 * incident.REACH + 1), (2_880, 2 * incident.AROUND + 1)])
def test_a_long_incident_is_plotted_whole_and_of_a_large_job_around_its_worst_window(endpoints: int, most: int) -> None:
    minute = WINDOWS[0].length_ns
    long = {"first_window_start_ns": 0, "worst_window_start_ns": 60 * minute, "last_window_start_ns": 120 * minute}
    job = pl.DataFrame({"endpoints": [endpoints], "period_ns": [2 * SECOND]})
    assert len(incident.around(long, job, minute)) == most
    short = dict.fromkeys(long, 60 * minute)
    assert incident.around(short, job, minute) == [n * minute for n in range(58, 63)]


def test_steps_beyond_the_window_are_not_asked_for(filled: Warehouse) -> None:
    assert f"steps 0 to {STEPS - 1} of 0 to {STEPS - 1}" in text_of(
        timeline.show(filled, {"job": "gpt", "steps": "1000000"}, now_ns=NOW_NS)
    )


def test_suspects_come_first_in_the_table_of_a_timeline(behind_a_switch: Warehouse) -> None:
    page = timeline.show(behind_a_switch, {"job": "gpt"}, now_ns=NOW_NS)
    rows_of = re.findall(r'(?s)<tr( class=suspect)?><td class="nw">', page[page.index('class="ranking"') :])
    assert rows_of[:2] == [" class=suspect"] * 2
    assert not any(rows_of[2:])


def test_an_incident_that_is_not_there_is_told(filled: Warehouse) -> None:
    with pytest.raises(InputError, match="no incident incident-0"):
        incident.show(filled, {"id": "incident-0"}, now_ns=NOW_NS)


def test_a_stored_query_that_writes_is_not_run(own_copy: Warehouse) -> None:
    names = Names()
    told = rows(WINDOWS[1], names, slow=True)["diagnoses"][0] | {"evidence_sql": "DROP TABLE steps"}
    replace(own_copy, WINDOWS[1], {"diagnoses": frame("diagnoses", WINDOWS[1], [told])}, then=incidents.renew)
    with pytest.raises(InputError, match="a stored query of the kinds DROP"):
        incident.show(own_copy, {"id": the_incident(own_copy)}, now_ns=NOW_NS)


def test_a_windows_page_has_its_findings_checks_with_rows_and_stages(filled: Warehouse) -> None:
    text = text_of(window.show(filled, {"start_ns": str(WINDOWS[1].start_ns)}, now_ns=NOW_NS))
    assert "node-1" in text
    assert "0 of 1 expectation held" in text
    assert "1 row breaks it" in text
    assert "recognition 1.00 s" in text
    assert "2 no_bytes" in text


def test_a_window_that_is_not_there_is_told(filled: Warehouse) -> None:
    with pytest.raises(InputError, match="no window that starts at 1970"):
        window.show(filled, {"start_ns": "0"}, now_ns=NOW_NS)


def test_a_page_is_one_file_when_asked(filled: Warehouse) -> None:
    page = job.show(filled, {"id": "gpt"}, now_ns=NOW_NS, alone=True)
    assert "Plotly" in page
    assert not re.search(r"<script[^>]+src=|<link|<a href=\"(?!#)", re.sub(r"(?s)<script>.*?</script>", "", page))


LONG = HOSTILE + "x" * 10_000


def test_hostile_names_are_text(tmp_path: Path) -> None:
    warehouse = empty_warehouse(tmp_path / "w.duckdb")
    name = Names(f"j{LONG}", f"h{LONG}", f"a{LONG}", words=LONG, candidates=[f"h{LONG}", f"c{LONG}"])
    names = write_windows(warehouse, name)
    mute(warehouse, the_incident(warehouse), now_ns=1, until_ns=2**62, reason=HOSTILE, muted_by=f"m{LONG}")
    pages = [
        now.show(warehouse, {}, now_ns=NOW_NS),
        job.show(warehouse, {"id": names.job}, now_ns=NOW_NS),
        timeline.show(warehouse, {"job": names.job, "host": names.host}, now_ns=NOW_NS),
        incident.show(warehouse, {"id": the_incident(warehouse)}, now_ns=NOW_NS),
        window.show(warehouse, {}, now_ns=NOW_NS),
    ]
    for page in pages:
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "1530169" not in page
        seen = re.sub(r'(?s) value="[^"]*"', "", page)  # what forms send back is not shown
        assert not set("\x00\x1b\u202e") & set(seen)
    assert "&lt;script&gt;" in pages[0]
