"""The commands about pages: a page as one file, pages for this machine alone, and mutes."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from paged_windows import write_windows

from llmprism_tasks import cli
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = empty_warehouse(tmp_path / "w.duckdb")
    write_windows(made)
    return made


def the_incident(warehouse: Warehouse) -> str:
    return str(query(warehouse, "SELECT incident_id FROM incidents").item())


def test_mute_and_unmute(warehouse: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    name, place = the_incident(warehouse), ["--warehouse", warehouse.location]
    assert cli.main(["mute", name, "--until", "2d", "--reason", "ticket 7", *place]) == 0
    assert re.fullmatch(rf"No message about {name} until \d{{4}}-.* UTC\.\n", capsys.readouterr().out)
    assert query(warehouse, "SELECT reason FROM mutes").item() == "ticket 7"
    assert cli.main(["unmute", name, *place]) == 0
    assert capsys.readouterr().out == f"{name} is not muted any more.\n"
    assert cli.main(["unmute", name, *place]) == 0
    assert capsys.readouterr().out == f"{name} was not muted.\n"
    assert cli.main(["mute", "nobody", "--until", "2d", "--reason", "ticket 7", *place]) == 1
    assert "no incident nobody" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "words"), [([], "1 incident open"), (["--job", "gpt"], "Job gpt"), (["--incident"], "node-1")]
)
def test_a_page_as_one_file(
    warehouse: Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: list[str], words: str
) -> None:
    asked = [*what, the_incident(warehouse)] if what == ["--incident"] else what
    file = tmp_path / "page.html"
    assert cli.main(["report", "--html", str(file), *asked, "--warehouse", warehouse.location]) == 0
    assert capsys.readouterr().out == f"Written: {file}, {file.stat().st_size / 1e3:,.0f} kB\n"
    page = file.read_text(encoding="utf-8")
    assert words in page
    assert "http" not in re.sub(r"(?s)<script>.*?</script>", "", page).replace("http-equiv", "")


@pytest.mark.parametrize(
    "what", [["--last", "24x"], ["--job", "gpt"], ["--incident", "i"], ["--from", "t"], ["--to", "t"]]
)
def test_what_only_a_page_shows_is_refused_without_one(
    warehouse: Warehouse, what: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", *what, "--warehouse", warehouse.location]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"llmprism: {what[0]} without --html; expected --html FILE with it")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (["--html", "p", "--picture", "p"], "--html with --picture; expected one of them"),
        (["--html", "p", "--format", "json", "--evidence"], "--html with --format json and --evidence; expected"),
        (["--html", "p", "--last", "1h", "--from", "2026-01-01"], "--last with --from; expected one of them"),
    ],
)
def test_options_of_which_one_would_be_ignored_are_refused(
    warehouse: Warehouse, what: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", *what, "--warehouse", warehouse.location]) == 1
    assert words in capsys.readouterr().err
    assert not Path("p").exists()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (["--last", "24x"], "last=24x; expected one of 15m"),
        (["--job", "nosuch"], "no job nosuch"),
        (["--incident", "nosuch"], "no incident nosuch"),
        (["--job", "nosuch"], "or from llmprism report"),  # a command has no first page to choose from
        (["--incident", "nosuch"], "or from llmprism report"),
    ],
)
def test_a_page_of_what_is_not_there_is_refused(
    warehouse: Warehouse, tmp_path: Path, what: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "page.html"
    assert cli.main(["report", "--html", str(file), *what, "--warehouse", warehouse.location]) == 1
    assert words in capsys.readouterr().err
    assert not file.exists()


def test_pages_are_served_to_this_machine_alone_until_interrupted(warehouse: Warehouse) -> None:
    serve = [sys.executable, "-u", "-c", "from llmprism_tasks.cli import run; run()", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*serve, "--warehouse", warehouse.location], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = re.match(r"(http://127\.0\.0\.1:(\d+)/) ", process.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(address[1], timeout=30) as answer:
            assert b"1 incident open" in answer.read()
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", int(address[2])))  # loopback, but not where it listens
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "llmprism: interrupted.\n", "a server writes nothing that could be finished"
    finally:
        process.kill()
        process.communicate()


def test_a_port_that_is_taken_is_told(warehouse: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.main(["serve", "--port", str(taken.getsockname()[1]), "--warehouse", warehouse.location]) == 1
    assert "Choose another one with --port" in capsys.readouterr().err
