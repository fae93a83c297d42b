"""The report reads well: worst first, numbers with units, at most 100 columns, and no need of colour."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from small_windows import FIRST, SECOND, Minute, diagnosis, frame, refused, training

from llmprism_tasks.reports.picture import save_svg
from llmprism_tasks.reports.summary import summarise
from llmprism_tasks.reports.terminal import proofs, render
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query, replace


def shown(warehouse: Warehouse, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    console.print(render(summarise(warehouse)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= min(width, 100) for line in text.splitlines())
    return str(text)


def words(text: str) -> str:
    """Undo the wrapping of lines."""
    return " ".join(text.split())


def test_an_empty_warehouse_says_so_and_what_to_do(warehouse: Warehouse) -> None:
    assert words(shown(warehouse)).startswith("The warehouse is empty: no window was landed. Next: llmprism analyze")


def test_a_healthy_warehouse_says_that_nothing_is_wrong(warehouse: Warehouse, minute: Minute) -> None:
    minute(0)
    minute(1)
    text = words(shown(warehouse))
    assert "2026-01-01 00:00 to 00:02 UTC, 2 jobs on 48 GPUs" in text
    assert "Nothing is wrong: no fault was found in 2 windows." in text
    assert "gpt 32 4 tp8 pp2 dp2 58 2.00 s 2.00 s 97% gpt-[00-03]" in text
    assert "2 windows (2 done) in 1.50 s each; 2,000 records: 2,000 landed, 0 quarantined." in text


def test_minutes_that_are_missing_are_told_and_that_prices_are_of_the_others(
    warehouse: Warehouse, minute: Minute
) -> None:
    """Before, an incident seen in one of three minutes had a third of its price, and the report did not say so."""
    seen = minute(0, [diagnosis(0)])
    starts = [seen.shifted(number).start_ns for number in range(3)]
    warehouse.write(lambda connection: minutes.expect(connection, starts, 0, by=minutes.RUN))
    warehouse.write(lambda connection: minutes.begin_run(connection, seen, minutes.Run(0, 0)))
    assert (
        "Not complete: 3 minutes expected: 1 done, 2 due (2 skipped). Costs are of the 1 of 3 expected minutes that "
        "are done. llmprism due lists them."
    ) in words(shown(warehouse))


@pytest.mark.parametrize("width", [80, 100])
def test_hosts_have_room_beside_a_long_layout(warehouse: Warehouse, minute: Minute, width: int) -> None:
    window = minute(0)
    long = {"sharded": True, "cp": 2, "ep": 16}
    rows = [training("bert", endpoints=16, hosts=2), training("gpt-of-everybody", endpoints=2048, hosts=256) | long]
    replace(warehouse, window, {"jobs": frame("jobs", window, rows)})
    lines = shown(warehouse, width).splitlines()
    (heading,) = (line for line in lines if line.startswith("job"))
    assert width - heading.index("where") >= len("node0008-node0011")


@pytest.mark.parametrize(
    ("addrs", "said"),
    [
        (["10.9.0.1"], "1 address (10.9.0.1) trains with gpt but is missing from the topology. The"),
        (
            [f"10.9.0.{i}" for i in range(1, 7)],
            "6 addresses (10.9.0.1, 10.9.0.2, 10.9.0.3, 10.9.0.4, 10.9.0.5, …) train with gpt but are missing from the",
        ),
    ],
)
def test_who_trains_without_being_in_the_topology_is_told(
    warehouse: Warehouse, minute: Minute, addrs: list[str], said: str
) -> None:
    window = minute(0)
    rows = [training("bert", endpoints=16, hosts=2), training("gpt", endpoints=32, hosts=4) | {"unlisted": addrs}]
    replace(warehouse, window, {"jobs": frame("jobs", window, rows)})
    text = words(shown(warehouse))
    assert "No fault was found in 1 window; some jobs could not be checked completely." in text
    assert f"Warning: {said}" in text


def test_a_job_that_trains_without_a_step_was_not_seen(warehouse: Warehouse, minute: Minute) -> None:
    """Half of the records may be sampled away, and with them every sign of its steps."""
    window = minute(0)
    steps = store.query(warehouse, "SELECT * FROM steps WHERE job_id <> 'gpt'").drop("window_start_ns")
    replace(warehouse, window, {"steps": frame("steps", window, steps.to_dicts())})
    text = words(shown(warehouse))
    assert "No fault was found in 1 window; some jobs could not be checked completely." in text


def test_windows_that_were_not_run_to_their_end_are_not_called_healthy(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, status="stopped", reason="flows.unique broken by 7 rows")
    text = words(shown(warehouse))
    assert "Nothing could be diagnosed: no window was run to its end." in text
    assert "Stopped: 2026-01-01 00:00 UTC, flows.unique broken by 7 rows" in text


@pytest.mark.parametrize("read", [0, 1])
def test_a_window_without_a_record_is_told(warehouse: Warehouse, minute: Minute, read: int) -> None:
    minute(0)
    minute(1, rows_read=read, rows_landed=read)
    told = "Without records: 1 window, the latest 2026-01-01 00:01 UTC." in words(shown(warehouse))
    assert told == (read == 0)


@pytest.mark.parametrize("read", [0, 7], ids=["nothing was read", "all was refused"])
def test_a_window_in_which_nothing_was_landed_is_not_called_healthy(
    warehouse: Warehouse, minute: Minute, read: int
) -> None:
    nothing = {"rows_read": read, "rows_landed": 0, "rows_quarantined": read}
    minute(0, **nothing)
    assert "Nothing could be diagnosed: no record was landed for a window that was run to its end." in words(
        shown(warehouse)
    )
    minute(1)
    minute(2)
    text = words(shown(warehouse))
    assert "No fault was found in 2 windows; 1 window had no records." in text
    minute(3, status="stopped", reason="flows.unique broken by 7 rows")
    minute(4, aside="gpt")
    rest = "1 window could not be checked, 1 window had no records, some jobs could not be checked completely."
    assert f"No fault was found in 3 windows; {rest}" in words(shown(warehouse))


def test_no_job_was_seen_only_where_there_was_a_record(warehouse: Warehouse, minute: Minute) -> None:
    for number, landed in enumerate((1_000, 0)):
        window = minute(number, rows_read=landed, rows_landed=landed)
        replace(warehouse, window, {name: frame(name, window, []) for name in ("jobs", "job_members", "steps")})
    assert "No job was seen in 1 window, so there was nothing to diagnose." in words(shown(warehouse))


def test_a_window_that_was_stopped_is_not_called_healthy(warehouse: Warehouse, minute: Minute) -> None:
    minute(0)
    minute(1, status="stopped", reason="flows.unique broken by 7 rows")
    text = shown(warehouse)
    assert "No fault was found in 1 window; 1 window could not be checked." in text
    assert "Nothing is wrong" not in text


@pytest.mark.parametrize(("expectation", "doubtful"), [("windows.refused_share", True), ("jobs.explained", False)])
def test_a_window_of_which_many_records_were_refused_is_not_called_healthy(
    warehouse: Warehouse, minute: Minute, expectation: str, doubtful: bool
) -> None:
    minute(0)
    second = minute(1)
    row = {"expectation": expectation, "column": "", "severity": "warning", "success": False}
    replace(warehouse, second, {"validation_results": frame("validation_results", second, [row])})
    text = words(shown(warehouse))
    hides = "many records of 1 window were refused or came twice, which may hide faults."
    assert (f"No fault was found in 2 windows; {hides}" in text) is doubtful
    assert ("Nothing is wrong" in text) is not doubtful


def test_windows_that_are_not_run_to_the_end_are_told_unless_some_are_under_way_as_ever(
    warehouse: Warehouse, minute: Minute
) -> None:
    """Before, an analysis that was interrupted after four of ten windows said that nothing was wrong."""
    for number in range(4):
        minute(number)
    for number in range(4, 7):
        minute(number, status="landed")
    assert "Nothing is wrong" in words(shown(warehouse))
    minute(7, status="landed")
    assert "No fault was found in 4 windows; 4 windows are not run to the end." in words(shown(warehouse))


def test_a_job_that_ended_is_not_told_to_have_steps_of_usual_length(warehouse: Warehouse, minute: Minute) -> None:
    ended = {"kind": "ended", "subject_type": "job", "subject": "gpt", "severity": 0.0, "confidence": 0.82}
    window = minute(0)
    minute(0, [diagnosis(0, **ended, end_ns=window.end_ns)])
    text = words(shown(warehouse))
    assert "Job gpt has ended, or hangs: no step ends" in text
    assert "82% sure" in text
    assert "times as long" not in text


def test_a_job_that_was_set_aside_is_told_with_why_and_what_to_do(warehouse: Warehouse, minute: Minute) -> None:
    minute(0)
    minute(1, aside="gpt")
    minute(2, aside="gpt")
    text = words(shown(warehouse))
    assert "No fault was found in 3 windows; some jobs could not be checked completely." in text
    assert "Set aside: gpt in 2 windows, the last 2026-01-01 00:02 UTC (pairs.kind). Their" in text
    assert "please report it" in text


def test_where_every_job_was_set_aside_it_is_not_said_that_none_was_seen(warehouse: Warehouse, minute: Minute) -> None:
    window = minute(0, aside="gpt")
    replace(warehouse, window, {name: frame(name, window, []) for name in ("jobs", "job_members", "steps")})
    text = words(shown(warehouse))
    assert "No job was seen" not in text
    assert "No fault was found in 1 window; some jobs could not be checked completely." in text


@pytest.mark.parametrize(("jobs", "said"), [(12, "job11 in 1 window"), (13, "; and 1 more.")])
def test_of_many_jobs_that_were_set_aside_some_are_named(
    warehouse: Warehouse, minute: Minute, jobs: int, said: str
) -> None:
    window = minute(0)
    observed = json.dumps({"set_aside": {f"job{number:02}": 1 for number in range(jobs)}})
    rows = [refused("gpt") | {"observed": observed}]
    replace(warehouse, window, {"validation_results": frame("validation_results", window, rows)})
    text = words(shown(warehouse))
    assert said in text
    assert "job12" not in text


@pytest.mark.parametrize(
    ("severities", "said"),
    [
        (
            ["warning", "warning"],
            "2 checks failed (2 warning): none is critical, so nothing was withheld. To list them: ",
        ),
        (["critical", "warning"], "2 checks failed (1 critical, 1 warning): a critical one withheld results. To list "),
    ],
)
def test_checks_that_failed_are_told_by_severity_with_the_query_that_lists_them(
    warehouse: Warehouse, minute: Minute, severities: list[str], said: str
) -> None:
    window = minute(0)
    rows = [
        refused("gpt") | {"expectation": f"pairs.kind{number}", "severity": severity}
        for number, severity in enumerate(severities)
    ]
    replace(warehouse, window, {"validation_results": frame("validation_results", window, rows)})
    text = words(shown(warehouse))
    assert said in text
    sql = text.partition('llmprism sql "')[2].partition('"')[0]
    listed = query(warehouse, sql)
    assert sorted(listed["severity"]) == severities
    assert listed.select("windows", "rows").rows() == [(1, 3)] * len(severities)  # and nothing that is JSON


def test_what_is_not_plain_in_the_table_of_jobs_is_said_below_it(warehouse: Warehouse, minute: Minute) -> None:
    minute(0)
    table, _, below = words(shown(warehouse)).partition("median, 95 %: ")
    assert "median 95 % sure where" in table
    assert "sure: how likely it is that the row is right." in below


def test_flows_without_jobs_are_not_called_healthy(warehouse: Warehouse, minute: Minute) -> None:
    window = minute(0)
    replace(warehouse, window, {name: frame(name, window, []) for name in ("jobs", "job_members", "steps")})
    text = words(shown(warehouse))
    assert "No job was seen in 1 window, so there was nothing to diagnose. If jobs are running," in text


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            {
                "kind": "hang",
                "subject_type": "job",
                "subject": "gpt",
                "severity": 50.0,
                "end_ns": FIRST.shifted(3).end_ns,
            },
            "Job gpt has gone quiet: no step ends",
        ),
        ({"subject_type": "job", "subject": "gpt"}, "Next: check what changed in the job and on its hosts"),
    ],
    ids=["silence has no length of steps", "a job is no device"],
)
def test_what_is_told_fits_the_subject(
    warehouse: Warehouse, minute: Minute, found: dict[str, object], told: str
) -> None:
    for number in range(3):
        minute(number, [diagnosis(number, **found)])
    assert told in words(shown(warehouse))


def test_a_lasting_incident_is_told_with_numbers_and_what_to_do(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(3):
        slow = diagnosis(number, kind="cross_step", subject_type="job", subject="gpt", severity=0.29)
        minute(number, [diagnosis(number), slow])
    text = words(shown(warehouse))
    assert "1 incident, open." in text
    assert "1 GPU 10.3.1.5 on gpt-01 holds up its job: steps 1.30 times as long in the worst window" in text
    assert "Job gpt, since 2026-01-01 00:00:05, still at 00:02:55 UTC; in 3 windows" in text
    assert str(query(warehouse, "SELECT incident_id FROM incidents WHERE effect_of IS NULL").item()) in text
    assert "It starts its sends 0.60 s after its peers, in 28 of 29 steps." in text
    assert "Also: Job gpt has slow steps: steps 1.29 times as long in the worst window." in text
    assert "Next: check its clocks, temperature and errors, and what else runs there" in text


def test_a_single_window_advises_to_wait(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0)])
    assert "Next: wait for a second window" in words(shown(warehouse))
    minute(1)
    minute(2)
    text = words(shown(warehouse))
    assert "1 incident, closed." in text
    assert "Next: nothing; only one window showed it" in text
    assert "check" not in text


def test_what_is_over_needs_no_hurry(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(4):
        minute(number, [diagnosis(number)] if number < 2 else [])
    assert "Next: it is over, or has become the normal state; if it comes back, check its clocks" in words(
        shown(warehouse)
    )


def test_who_went_quiet_needs_no_second_window(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, kind="hang", end_ns=FIRST.end_ns)])
    assert "Next: check its processes" in words(shown(warehouse))
    minute(1, [diagnosis(1, kind="stopped", severity=0.0, end_ns=FIRST.shifted(4).end_ns)])
    minute(2)
    minute(3)
    text = words(shown(warehouse))
    assert "1 incident, closed." in text
    assert "no step ends" in text
    assert "Next: it is over, or longer than the look-back. Check its logs" in text
    assert "% sure" in text


@pytest.mark.parametrize(
    ("until", "said", "not_said"),
    [
        (50, ["had stopped: no step ended during it", "until 00:00:50 UTC", "hosts' logs of that time"], "still at"),
        (60, ["has stopped: no step ends", "still at 00:01:00 UTC", "check its hosts' logs."], "ended"),
    ],
)
def test_what_goes_on_after_a_silence_is_not_told_to_stand_still(
    warehouse: Warehouse, minute: Minute, until: int, said: list[str], not_said: str
) -> None:
    """Steps end until second 58."""
    window = minute(0)
    job = {"kind": "stopped", "subject_type": "job", "subject": "gpt", "severity": 0.0}
    minute(0, [diagnosis(0, **job, end_ns=window.start_ns + until * SECOND)])
    text = words(shown(warehouse))
    assert all(words_ in text for words_ in said)
    assert not_said not in text


@pytest.mark.parametrize(("lost", "said"), [(1234.0, "1,234 GPU-seconds lost"), (36_000.0, "10.0 GPU-hours lost")])
def test_what_it_costs_is_told_in_units(warehouse: Warehouse, minute: Minute, lost: float, said: str) -> None:
    minute(0, [diagnosis(0, lost_gpu_s=lost, recoverable_gpu_s=7200.0)])
    assert f"{said}, 2.0 GPU-hours of it recoverable" in words(shown(warehouse))


def test_the_queries_can_be_run_one_after_another(warehouse: Warehouse, minute: Minute) -> None:
    sql = "-- one\nSELECT 1 AS n"
    minute(
        0,
        [
            diagnosis(0, evidence_sql=sql),
            diagnosis(0, subject="10.3.2.1", evidence_sql=sql),
            diagnosis(0, subject="10.3.3.1"),
        ],
    )
    assert proofs(summarise(warehouse)) == f"{sql};\n\n{sql};"


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"cp": 2, "ep": 4, "sharded": True}, "tp8 pp2 dp2 cp2 ep4 sharded"),
        ({"cp": 1, "ep": 1, "sharded": False}, "tp8 pp2 dp2 "),
        ({"tp": None, "pp": None, "dp": None}, "unknown"),
    ],
)
def test_the_layout_is_told_as_far_as_it_is_known(
    warehouse: Warehouse, minute: Minute, layout: dict[str, object], said: str
) -> None:
    window = minute(0)
    replace(warehouse, window, {"jobs": frame("jobs", window, [training("gpt", endpoints=32, hosts=4) | layout])})
    assert f"gpt 32 4 {said}" in words(shown(warehouse))
    assert "cp1" not in words(shown(warehouse))


def test_a_kind_the_report_has_no_words_for_is_named(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, kind="gone_quiet", subject_type="rack", subject="r7", severity=float("inf"))])
    assert "rack r7 gone quiet: the loss is unknown" in words(shown(warehouse))


def test_of_many_incidents_the_worst_are_shown_and_the_others_counted(warehouse: Warehouse, minute: Minute) -> None:
    minute(
        0,
        [diagnosis(0, kind="slow_nic", subject=f"10.3.{n}.0", subject_type="host", severity=n / 10) for n in range(15)],
    )
    text = words(shown(warehouse))
    assert text.count("sends or receives slowly") == 12
    assert "10.3.14.0 " in text
    assert "10.3.2.0 " not in text
    assert "And 3 lesser incidents" in text


def test_markup_in_a_name_is_text(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, subject_type="host", subject="[bold]h[/]", explanation="[red]0.5 s[/red]")])
    assert "Host [bold]h[/] holds up" in shown(warehouse)
    assert "[red]0.5 s[/red]" in shown(warehouse)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_any_width_of_screen_is_kept_to(warehouse: Warehouse, minute: Minute, width: int) -> None:
    minute(0, [diagnosis(0, explanation="word " * 60)], rows_read=1_001)
    assert "The record counts do not add up" in words(shown(warehouse, width))


def test_the_picture_is_the_report_loads_nothing_and_is_the_same_each_time(
    warehouse: Warehouse, minute: Minute, tmp_path: Path
) -> None:
    minute(0, [diagnosis(0)])
    report = render(summarise(warehouse))
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    save_svg(report, first)
    save_svg(report, second)
    assert first.read_bytes() == second.read_bytes()
    svg = first.read_text(encoding="utf-8")
    assert "10.3.1.5" in svg
    assert "url(http" not in svg
