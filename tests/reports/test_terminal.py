"""The report reads well: worst first, numbers with units, at most 100 columns, and no need of colour."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from small_windows import Minute, diagnosis, frame

from llmprism_tasks.reports.picture import save_svg
from llmprism_tasks.reports.summary import summarise
from llmprism_tasks.reports.terminal import render
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import replace


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
    assert words(shown(warehouse)).startswith("Nothing is here yet: no window was landed. Next: llmprism analyze")


def test_a_healthy_warehouse_says_that_nothing_is_wrong(warehouse: Warehouse, minute: Minute) -> None:
    minute(0)
    minute(1)
    text = words(shown(warehouse))
    assert "2026-01-01 00:00 to 00:02 UTC, 2 jobs on 48 GPUs" in text
    assert "Nothing is wrong: no trouble was found in 2 windows." in text
    assert "gpt 32 4 tp8 pp2 dp2 58 2.00 s 2.00 s 97% gpt-[00-03]" in text
    assert "2 windows (2 done) in 1.50 s each; 2,000 records: 2,000 landed, 0 quarantined." in text


def test_windows_that_were_not_run_to_their_end_are_not_called_healthy(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, status="stopped", reason="flows.unique broken by 7 rows")
    text = words(shown(warehouse))
    assert "Nothing can be said: no window was run to its end." in text
    assert "Stopped: 2026-01-01 00:00 UTC, flows.unique broken by 7 rows" in text


def test_a_window_that_was_stopped_is_not_called_healthy(warehouse: Warehouse, minute: Minute) -> None:
    minute(0)
    minute(1, status="stopped", reason="flows.unique broken by 7 rows")
    text = shown(warehouse)
    assert "No trouble was found in 1 window; 1 window could not be looked at." in text
    assert "Nothing is wrong" not in text


def test_flows_without_jobs_are_not_called_healthy(warehouse: Warehouse, minute: Minute) -> None:
    window = minute(0)
    replace(warehouse, window, {name: frame(name, window, []) for name in ("jobs", "job_members", "steps")})
    assert "No job was seen in 1 window, so there was nothing to diagnose." in words(shown(warehouse))


def test_a_lasting_trouble_is_told_with_numbers_and_what_to_do(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(3):
        slow = diagnosis(number, kind="cross_step", subject_type="job", subject="gpt", severity=0.29)
        minute(number, [diagnosis(number), slow])
    text = words(shown(warehouse))
    assert "1 trouble, still there in the last window." in text
    assert "1 GPU 10.3.1.5 on gpt-01 holds up its job: steps up to 1.30 times as long" in text
    assert "Job gpt, since 2026-01-01 00:00:05, still at 00:02:55 UTC; in 3 windows" in text
    assert "It starts its sends 0.60 s after its peers, in 28 of 29 steps." in text
    assert "Also: Job gpt has slow steps: steps up to 1.29 times as long." in text
    assert "Next: look at that GPU's clocks, temperature and errors, and at what else runs on gpt-01" in text


def test_a_single_window_advises_to_wait(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0)])
    minute(1)
    text = words(shown(warehouse))
    assert "1 trouble, over by the last window." in text
    assert "Next: wait for a second window" in text
    assert "look at" not in text


def test_nothing_is_advised_where_flows_name_no_device(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(2):
        minute(number, [diagnosis(number, kind="cross_step", subject_type="job", subject="gpt")])
    assert "Next:" not in shown(warehouse)


def test_a_kind_the_report_has_no_words_for_is_named(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, kind="gone_quiet", subject_type="rack", subject="r7", severity=float("inf"))])
    assert "rack r7 gone quiet: the loss is not known" in words(shown(warehouse))


def test_of_many_troubles_the_worst_are_shown_and_the_others_counted(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, subject=f"10.3.0.{n}", severity=n / 10) for n in range(15)])
    text = words(shown(warehouse))
    assert text.count("holds up its job") == 12
    assert "10.3.0.14 " in text
    assert "10.3.0.2 " not in text
    assert "And 3 lesser ones" in text


def test_markup_in_a_name_is_text(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, subject_type="host", subject="[bold]h[/]", explanation="[red]0.5 s[/red]")])
    assert "Host [bold]h[/] holds up" in shown(warehouse)
    assert "[red]0.5 s[/red]" in shown(warehouse)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_any_width_of_screen_is_kept_to(warehouse: Warehouse, minute: Minute, width: int) -> None:
    minute(0, [diagnosis(0, explanation="word " * 60)], rows_read=1_001)
    assert "The records do not add up" in words(shown(warehouse, width))


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
