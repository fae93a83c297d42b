"""The command line: what each subcommand prints, where errors go, and which exit code says what."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from empty_warehouse import copied, empty_warehouse
from kept_windows import put
from places import REAL

from llmprism_tasks import __version__, cli
from llmprism_tasks.cli import entry_point
from llmprism_tasks.contract.errors import WarehouseBusy
from llmprism_tasks.simulate.scenario.collector import Collector
from llmprism_tasks.simulate.scenario.faults import Fault
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.upkeep import read_copy

CAPTURE = REAL / "ddp4_healthy"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, with a screen of known width."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """A warehouse with two minutes of a capture in it; what was printed, and what of it as an error."""
    folder = tmp_path_factory.mktemp("analyzed")
    flows, minute = pl.read_parquet(CAPTURE / "flows_coarse.parquet"), pl.col("flow_start_ns") // 60_000_000_000
    flows.filter(minute.is_between(minute.min() + 1, minute.min() + 2)).write_parquet(folder / "flows.parquet")
    place = str(folder / "w.duckdb")
    arguments = ["--flows", str(folder / "flows.parquet"), "--topology", str(CAPTURE / "topology.csv")]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert cli.main(["analyze", *arguments, "--warehouse", place]) == 0
    return place, out.getvalue(), err.getvalue()


@pytest.fixture
def analyzed(analysis: tuple[str, str, str]) -> str:
    return analysis[0]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from llmprism_tasks.cli import run; run()", *arguments]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"llmprism {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["sql"],
        ["simulate"],
        ["settings", "--set", "window.length_s"],
        ["settings", "--set", "length_s=60"],
        ["simulate", "--out", "x", "--start", "yesterday"],
        ["report", "--format", "xml"],
        ["evaluate", "--warehouse", "w.duckdb"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == 2
    assert "usage: llmprism" in capsys.readouterr().err


def test_a_column_that_is_named_the_wrong_way_round_is_told_in_the_words_of_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before, a setting columns.octets of --set was told, which nobody had given."""
    with pytest.raises(SystemExit):
        cli.main(["analyze", "--columns", "octets=bytes"])
    told = capsys.readouterr().err
    assert "argument --columns: 'octets' is no field of a flow, which are flow_start_ns, flow_end_ns" in told


def test_help_does_not_wait_for_libraries() -> None:
    heavy = "polars duckdb numpy rich great_expectations"
    code = f"""
import sys
from llmprism_tasks import cli
try:
    cli.main(["--help"])
finally:
    print(set({heavy!r}.split()) & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith("set()\n")


def test_analyze_takes_every_window_to_its_end(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT status, count(*) FROM windows GROUP BY status"
    assert cli.main(["sql", "--warehouse", analyzed, "--format", "csv", query]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["done,2"]


def test_analyze_says_how_many_windows_were_done_and_what_is_next(analysis: tuple[str, str, str]) -> None:
    place, out, err = analysis
    assert out == f"Windows done: 2. Next: llmprism report --warehouse {place}\n"
    assert err == ""


def test_nothing_due_is_said_in_one_line(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["due", "--warehouse", analyzed]) == 0
    assert capsys.readouterr().out == "Nothing is due. 2 minutes expected: 2 done.\n"
    assert cli.main(["due", "--run", "--warehouse", analyzed]) == 0
    assert capsys.readouterr().out.startswith("Windows done: 0.\n")
    assert cli.main(["due", "--warehouse", analyzed, "--set", "window.length_s=30"]) == 1
    assert "Set the same length as before" in capsys.readouterr().err


def test_due_windows_are_listed_with_why_and_since_when(capsys: pytest.CaptureFixture[str]) -> None:
    def expect(connection: Any) -> None:
        minutes.expect(connection, [0, 60 * 10**9], 0)
        minutes.mark_due(connection, [0], minutes.LATE_RECORDS, now_ns=3600 * 10**9)

    open_warehouse(Warehouse("w.duckdb", lock_wait_s=1)).write(expect)
    assert cli.main(["due", "--warehouse", "w.duckdb"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"1970-01-01 00:01:00Z +no run landed it +1970-01-01 00:03:30Z +0 *\n", out)
    assert re.search(r"1970-01-01 00:00:00Z +records of it came after its run +1970-01-01 01:00:00Z +0 *\n", out)
    assert "2 minutes expected: 0 done, 2 due (1 late records, 1 skipped). " in out
    assert cli.main(["due", "--warehouse", "w.duckdb", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["expected"], found["due"], found["lag_s"]) == (2, {"late_records": 1, "skipped": 1}, None)
    assert [one["window"] for one in found["windows"]] == ["1970-01-01 00:01:00Z", "1970-01-01 00:00:00Z"]


def test_due_windows_that_fail_are_an_error_that_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    open_warehouse(Warehouse("w.duckdb", lock_wait_s=1)).write(lambda connection: minutes.expect(connection, [0], 0))
    (Path.cwd() / "bad.parquet").write_bytes(b"PAR1 this is no Parquet PAR1")
    places = ["--flows", "bad.parquet", "--topology", str(CAPTURE / "topology.csv"), "--warehouse", "w.duckdb"]
    assert cli.main(["due", "--run", *places]) == 1
    out, err = capsys.readouterr()
    assert out == "Windows done: 0.\n"
    assert "1 due windows failed, the first with: bad.parquet" in err


def test_flows_without_a_record_are_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    arguments = ["--flows", "empty", "--topology", str(CAPTURE / "topology.csv"), "--warehouse", "w.duckdb"]
    assert cli.main(["analyze", *arguments]) == 1
    out, err = capsys.readouterr()
    assert (out, err.partition(";")[0]) == ("", "llmprism: no flow record in empty")


def test_settings_show_value_unit_source_and_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMPRISM_WINDOW__LENGTH_S", "30")
    Path("s.toml").write_text("[window]\nlookback_windows = 7\n", encoding="utf-8")
    assert cli.main(["settings", "--settings", "s.toml", "--set", "places.flows=f", "--format", "json"]) == 0
    shown = {f"{one['section']}.{one['name']}": one for one in json.loads(capsys.readouterr().out)}
    assert (shown["window.length_s"]["value"], shown["window.length_s"]["source"]) == (30, "LLMPRISM_WINDOW__LENGTH_S")
    assert (shown["window.lookback_windows"]["value"], shown["window.lookback_windows"]["source"]) == (7, "s.toml")
    assert (shown["places.flows"]["value"], shown["places.flows"]["source"]) == ("f", "--set places.flows")
    assert cli.main(["settings"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["setting", "value", "unit", "source", "reason"]
    assert "window.length_s" in table[2]
    assert len({len(line) for line in table}) == 1  # the width of the whole table, not of a screen


def test_settings_can_be_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["settings", "--check"]) == 0
    assert "settings are right" in capsys.readouterr().out
    assert cli.main(["settings", "--check", "--set", "window.length_s=0"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "llmprism: window.length_s = '0' from --set window.length_s; expected a whole number from 1 to 3600 (s). "
        "Choose a value in the range.\n"
    )
    assert cli.main(["settings", "--check", "--set", "places.flows=flows/{window}.parquet"]) == 1
    assert "pattern of flows flows/{window}.parquet, with" in capsys.readouterr().err


IN_A_PROCESS = """
import gc, logging, os, signal, sys
from llmprism_tasks import cli

def state():
    loggers = [logging.getLogger(), logging.getLogger("llmprism_tasks")]
    logs = [(one.level, list(one.handlers)) for one in loggers]
    signals = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    return dict(os.environ), list(sys.meta_path), gc.get_threshold(), gc.get_freeze_count(), logs, signals

before = state()
assert cli.main(["settings", "--check"]) == 0
assert state() == before
import pandas, sqlalchemy
print(pandas.DataFrame({"a": [1]}).a.sum(), sqlalchemy.select(1))
"""


def test_a_process_that_calls_it_is_left_as_it_was() -> None:
    ran = subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "1 SELECT 1"


@pytest.mark.parametrize("form", ["perfetto", "kineto", "csv", "svg"])
def test_timeline_writes_a_file_named_for_the_job(analyzed: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sql", "--warehouse", analyzed, "--format", "csv", "SELECT DISTINCT job_id FROM jobs"]) == 0
    job = capsys.readouterr().out.splitlines()[1]
    part = ["--nics", "10.0.1.1,10.0.3.1", "--to", "2100-01-01"]
    assert cli.main(["timeline", "--warehouse", analyzed, "--job", job, "--format", form, *part]) == 0
    said = re.fullmatch(
        r"Written to (\S+): ([\d,]+) slices of 2 NICs in 5 steps\. Open it with .+\.\n", capsys.readouterr().out
    )
    assert said is not None
    assert Path(said[1]).name == job + {"perfetto": ".json.gz", "kineto": "", "csv": ".csv", "svg": ".svg"}[form]
    assert Path(said[1]).exists()


def test_a_timeline_of_a_job_that_is_not_there_is_refused(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["timeline", "--warehouse", analyzed, "--job", "nobody"]) == 1
    assert "llmprism: no steps of nobody in this time; expected a job with steps: job-" in capsys.readouterr().err


QUERY = "SELECT 1 AS one, NULL AS none, ['a', 'b'] AS path, 'x,[bold]y' AS text"


def test_sql_as_table_csv_and_json(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sql", "--warehouse", analyzed, QUERY]) == 0
    head, _, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["one", "none", "path", "text"]
    assert row == ["1", "['a',", "'b']", "x,[bold]y"]
    assert cli.main(["sql", "--warehouse", analyzed, "--format", "csv", QUERY]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["one", "none", "path", "text"],
        ["1", "", '["a", "b"]', "x,[bold]y"],
    ]
    assert cli.main(["sql", "--warehouse", analyzed, "--format", "json", QUERY]) == 0
    assert json.loads(capsys.readouterr().out) == [{"one": 1, "none": None, "path": ["a", "b"], "text": "x,[bold]y"}]


@pytest.mark.parametrize(("columns", "lines"), [(40, 3), (20, 5)])
def test_rows_that_are_too_wide_for_the_screen_have_a_line_for_each_value(
    analyzed: str, columns: int, lines: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")  # a screen, to Rich
    assert cli.main(["sql", "--warehouse", analyzed, QUERY]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == lines
    assert "[bold]y" in shown
    assert ("1 of 1" in shown) == (columns == 20)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", "DuckDB refuses"),
        ("SELECT * FROM weather", "DuckDB refuses"),
        ("DELETE FROM flows", "llmprism does not run (DELETE)"),
        ("FROM read_text('/etc/hostname')", "llmprism does not run (rows of the function read_text)"),
        (";", "llmprism does not run (0 statements)"),
    ],
)
def test_sql_refuses_what_is_wrong_or_would_write(
    analyzed: str, query: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sql", "--warehouse", analyzed, query]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"llmprism: a query that {said}")
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["sql", "SELECT 1"], ["report"], ["evaluate", "--truth", "t"]])
def test_a_warehouse_that_is_not_there_is_not_made(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*arguments, "--warehouse", "none.duckdb"]) == 1
    assert "no warehouse none.duckdb" in capsys.readouterr().err
    assert not Path("none.duckdb").exists()


def test_report_as_text_and_json(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--warehouse", analyzed]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^job-[0-9a-f]{8} ", out, re.MULTILINE), "no screen folds the name of a job"
    assert cli.main(["report", "--warehouse", analyzed, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["windows"]["all"] == 2


def test_evaluate_as_text_and_json(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "--warehouse", analyzed, "--truth", str(CAPTURE / "truth")]
    assert cli.main([*arguments, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["all"]["exact"], found["all"]["windows"]) == (2, 2)
    assert list(found["jobs"]) == ["jobA"]
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[:2] for line in lines if line.startswith(("jobA", "all"))] == [["jobA", "2/2"], ["all", "2/2"]]


def test_a_truth_that_is_not_there_is_named(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "--warehouse", analyzed, "--truth", "nowhere"]) == 1
    assert "nowhere/truth_jobs.parquet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("192.168.0.1,h\n", "none of the 1 NICs of topology.csv is among the"),
        ("", "topology.csv lists no NIC: no job can be seen."),
    ],
)
def test_a_topology_in_which_no_job_can_be_seen_is_noticed(
    rows: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    pl.read_parquet(CAPTURE / "flows_coarse.parquet").head(20).write_parquet("few.parquet")
    Path("topology.csv").write_text(f"addr,host\n{rows}", encoding="utf-8")
    arguments = ["--flows", "few.parquet", "--topology", "topology.csv", "--warehouse", "w.duckdb"]
    assert cli.main(["analyze", *arguments]) == 0
    assert told in caplog.text


@pytest.mark.parametrize(("days", "told"), [(0, False), (2, True)])
def test_flows_of_a_later_day_are_noticed(days: int, told: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The report of what a wrong clock wrote would look healthy."""
    now_ns = time.time_ns() + days * 86_400 * 10**9
    flows = pl.read_parquet(CAPTURE / "flows_coarse.parquet").head(20)
    shift = now_ns - flows["flow_start_ns"].min()
    flows.with_columns(pl.col("flow_start_ns", "flow_end_ns") + shift).write_parquet("few.parquet")
    arguments = ["--flows", "few.parquet", "--topology", str(CAPTURE / "topology.csv"), "--warehouse", "w.duckdb"]
    assert cli.main(["analyze", *arguments]) == 0
    assert ("windows are more than a day in the future" in caplog.text) is told


def test_simulate_says_what_a_scenario_may_hold(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["simulate", "--keys"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    for name, kind in (("jobs", Job), ("faults", Fault), ("collector", Collector)):
        for one in dataclasses.fields(kind):
            assert f"{name}.{one.name} " in told
            assert one.metadata["reason"] in told
    assert re.search(r"jobs\.tp +8 +GPUs +1 to 64 ", told)
    assert re.search(r"jobs\.algorithm +ring +text +ring, tree ", told)


def test_simulate_writes_what_analyze_reads(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--out", "s", "--scenario", "small", "--minutes", "1", "--start", "2026-05-01T04:12"]
    assert cli.main(arguments) == 0
    assert "Next: llmprism analyze --flows s/flows --topology s/topology.csv" in capsys.readouterr().out
    (flows,) = Path("s/flows").iterdir()
    assert flows.name == "20260501T0412.parquet"


@pytest.mark.parametrize(
    ("flows", "message"),
    [("none.parquet", "no file or folder none.parquet"), ("bad.parquet", "bad.parquet")],
)
def test_bad_input_is_1_with_a_message_and_no_traceback(
    flows: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.parquet").write_text("no parquet", encoding="utf-8")
    arguments = ["analyze", "--flows", flows, "--topology", str(CAPTURE / "topology.csv"), "--warehouse", "w.duckdb"]
    assert cli.main(arguments) == 1
    err = capsys.readouterr().err
    assert message in err
    assert "expected" in err
    assert "Traceback" not in err


def test_sql_waits_its_turn_and_75_says_try_again(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open_warehouse(Warehouse(analyzed, lock_wait_s=5)).writing():
        ran = subprocess.run(
            command("sql", "--warehouse", analyzed, "--set", "warehouse.lock_wait_s=0.2", "SELECT 1"),
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == os.EX_TEMPFAIL == 75
    assert f"held by process {os.getpid()}" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_interrupt_is_130_without_a_traceback(analyzed: str) -> None:
    with (
        open_warehouse(Warehouse(analyzed, lock_wait_s=5)).writing(),
        subprocess.Popen(command("sql", "--warehouse", analyzed, "SELECT 1"), stderr=subprocess.PIPE, text=True) as ran,
    ):
        time.sleep(1.5)  # it has started and waits for the lock
        ran.send_signal(signal.SIGINT)
        _, err = ran.communicate(timeout=20)
    assert ran.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err


def wait_until_held(warehouse: str) -> None:
    with contextlib.suppress(WarehouseBusy):
        for _ in range(3000):
            open_warehouse(Warehouse(warehouse, lock_wait_s=0)).write(lambda _: time.sleep(0.01))
            time.sleep(0.05)  # the other process starts sooner
        pytest.fail("nobody opened the warehouse")


IMPORTS_A_LIBRARY = """
def command(_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(9)
    except KeyboardInterrupt:
        pass
    raise AttributeError("partially initialized module")
"""

GOES_ON = """
class Tidied:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

def command(_):
    Tidied()
    signals.end_if_asked()
    print("not reached")
"""


@pytest.mark.parametrize(
    ("work", "before"),
    [
        pytest.param(IMPORTS_A_LIBRARY, "", id="a library fails of it"),
        pytest.param(GOES_ON, "Exception ignored in: .*", id="it is lost"),
    ],
)
def test_asked_to_end_where_the_exception_is_dropped_it_ends_and_says_so(work: str, before: str) -> None:
    """pyarrow, which imports pandas, dropped the exception, and failed with one of its own. Python drops what is raised
    while it takes an object away; then the next window ends the command."""
    runs_it = """
arguments = argparse.Namespace(command=command, verbose=False)
entry_point.parser = lambda: argparse.Namespace(parse_args=lambda _: arguments)
entry_point.run()
"""
    imports = "import argparse, os, signal, sys, time\nfrom llmprism_tasks.cli import entry_point, signals\n"
    ran = subprocess.run([sys.executable, "-c", imports + work + runs_it], capture_output=True, text=True, check=False)
    assert ran.returncode == 143
    assert not ran.stdout
    assert re.fullmatch(f"(?s){before}llmprism: terminated. {re.escape(entry_point.FINISHES)}\n", ran.stderr)


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_query_is_given_up_when_it_is_asked_to(analyzed: str, asked: signal.Signals, code: int) -> None:
    """DuckDB makes an error of its own of what comes while it works."""
    query = "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers) SELECT count(*) FROM numbers"
    with subprocess.Popen(command("sql", "--warehouse", analyzed, query), stderr=subprocess.PIPE, text=True) as ran:
        wait_until_held(analyzed)
        ran.send_signal(asked)
        try:
            _, err = ran.communicate(timeout=20)
        finally:
            ran.kill()
    assert ran.returncode == code
    assert err in ("llmprism: terminated.\n", "llmprism: interrupted.\n")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute of a simulated platform."""
    folder = tmp_path_factory.mktemp("simulated")
    assert cli.main(["simulate", "--out", str(folder), "--minutes", "1"]) == 0
    return folder


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a worker is for a processor of its own")
@pytest.mark.parametrize("whole_group", [False, True], ids=["as Kubernetes does", "as systemd does"])
def test_asked_to_end_it_leaves_neither_a_process_nor_files(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_group: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words = command("analyze", "--flows", f"{simulated}/flows", "--topology", f"{simulated}/topology.csv")
    words += ["--warehouse", "w.duckdb"]
    words[2] = f"from llmprism_tasks.execution.partitions import pool; pool.MIN_BYTES_FOR_POOL = 0; {words[2]}"
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as ran:
        worker = worker_at_work(ran)
        (os.killpg if whole_group else os.kill)(ran.pid, signal.SIGTERM)
        _, err = ran.communicate(timeout=60)
    assert ran.returncode == 143
    assert err == f"llmprism: terminated. {entry_point.BEGINS_AGAIN}\n"
    assert not worker.exists()
    assert list(tmp_path.glob("llmprism-*/*")) == []


def worker_at_work(ran: subprocess.Popen[str]) -> Path:
    """Wait until a command's worker looks at flows; returns the folder that is there as long as the worker is."""
    while ran.poll() is None:
        for child in Path(f"/proc/{ran.pid}/task/{ran.pid}/children").read_text(encoding="utf-8").split():
            if "flows.arrow" in Path(f"/proc/{child}/maps").read_text(encoding="utf-8"):
                return Path("/proc") / child
        time.sleep(0.01)  # it is at work for tenths of a second
    raise AssertionError(f"it ended before: {ran.communicate()}")


def test_a_reader_that_has_enough_is_no_error(analyzed: str) -> None:
    query = "SELECT * FROM flows"
    with subprocess.Popen(
        command("sql", "--warehouse", analyzed, "--format", "csv", query),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        ran.stdout.readline()
        ran.stdout.close()
        assert ran.stderr.read() == b""
    assert ran.returncode == 0


def test_progress_is_for_a_person_watching(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["simulate", "--out", "s", "--scenario", "small", "--minutes", "1"]
    assert cli.main(arguments) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert cli.main(arguments) == 0
    assert "simulating" in capsys.readouterr().err


def test_a_command_leaves_the_process_that_calls_it_as_it_was() -> None:
    code = """
import sys
from llmprism_tasks import cli
finders = list(sys.meta_path)
assert cli.main(["settings", "--check"]) == 0
import pandas, sqlalchemy
assert pandas.DataFrame({"a": [1]}).shape == (1, 1)
assert sqlalchemy.create_engine("sqlite://").connect().exec_driver_sql("SELECT 1").scalar() == 1
assert not [finder for finder in sys.meta_path if finder not in finders and "llmprism" in repr(finder)]
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = empty_warehouse(tmp_path_factory.mktemp("twelve") / "made.duckdb")
    put(made, range(12))
    return made


@pytest.fixture
def kept(twelve: Warehouse, tmp_path: Path) -> Warehouse:
    """Twelve windows."""
    return copied(twelve, tmp_path / "kept.duckdb")


def test_expire_says_what_goes_and_a_dry_run_keeps_it(kept: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["expire", "--warehouse", kept.location, "--set", "retention.flows_h=0.1"]
    assert cli.main([*asked, "--dry-run"]) == 0
    dry = capsys.readouterr().out
    assert re.search(r"^flows +120 +240 +[\d,]+ *$", dry, re.MULTILINE)
    assert "Nothing was deleted. Without --dry-run 6 windows lose their flows" in dry
    assert cli.main(asked) == 0
    assert "Done: 6 windows lose their flows, 0 their timeline, 0 all rows." in capsys.readouterr().out
    assert cli.main(["report", "--warehouse", kept.location]) == 0
    assert "Expired: flows and refused records of 6 windows" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["report", "--warehouse", kept.location, "--evidence"]) == 0
    assert "-- The flows behind this incident have expired (retention.flows_h); the query" in capsys.readouterr().out


def test_forget_takes_a_removed_file_s_records_away(kept: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["forget", "--warehouse", kept.location, "--file"]
    assert cli.main([*asked, "never.csv"]) == 1
    assert "never.csv, of which nothing was landed" in capsys.readouterr().err
    part = "SELECT min(window_start_ns), 'wrong.csv', 1, 'd', true FROM windows"
    kept.write(lambda connection: connection.execute(f"INSERT INTO flow_file_windows {part}"))
    assert cli.main([*asked, "wrong.csv"]) == 0
    assert "Forgotten. Windows that were landed from it: 1." in capsys.readouterr().out
    assert cli.main(["due", "--warehouse", kept.location]) == 0
    assert "a file that it was landed from was forgotten" in capsys.readouterr().out


def test_expire_makes_no_warehouse(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["expire", "--warehouse", "none.duckdb"]) == 1
    assert not Path("none.duckdb").exists()
    assert "no warehouse none.duckdb" in capsys.readouterr().err


def test_the_read_copy_is_read_unless_something_else_is_asked_for(
    kept: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLMPRISM_PLACES__WAREHOUSE", kept.location)
    monkeypatch.setenv("LLMPRISM_PLACES__READ_COPY", "copy.duckdb")
    assert cli.main(["report"]) == 1
    assert "no read copy, copy.duckdb" in capsys.readouterr().err
    read_copy.publish(kept, Path("copy.duckdb"))
    put(kept, [12])
    count = "SELECT count(*) FROM windows"
    for arguments, windows in (([], 12), (["--live"], 13), (["--warehouse", kept.location], 13)):
        assert cli.main(["sql", "--format", "csv", count, *arguments]) == 0
        assert capsys.readouterr().out.split()[-1] == str(windows)
    assert cli.main(["sql", "FROM flows"]) == 1
    assert "Flows and timeline are only in the warehouse itself: add --live." in capsys.readouterr().err


def test_the_doctor_says_what_to_do_and_ends_with_1_only_for_problems(
    kept: Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    Path("flows").mkdir()
    Path("topology.csv").write_text("addr,host\n10.0.0.2,h\n", encoding="utf-8")
    asked = ["doctor", "--warehouse", kept.location, "--flows", "flows", "--topology", "topology.csv"]
    assert cli.main(asked) == 0
    out = capsys.readouterr().out
    assert "ok       warehouse: schema version" in out
    assert "warning  airflow's database: sqlite\n         It is for trying out" in out
    assert cli.main([*asked[:-1], "none.csv", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert {"check": "topology", "state": "problem"}.items() <= json.loads(out)[0].items()
    assert "llmprism: 1 problem; expected none. What to do is said beside each." in err
