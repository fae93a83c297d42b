"""Files that are still being written: not seen before they are renamed, waited for, tried again, or told of."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from flowfiles import LATENESS_NS, WINDOW, csv_text, flow, pack, write

from llmprism_tasks.contract.errors import InputError, TransientError
from llmprism_tasks.sources import flows as sources
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import arrival, landing
from llmprism_tasks.warehouse.landing.intake import Intake

NOW_NS = WINDOW.end_ns + 30_000_000_000
SECOND = 1_000_000_000
PATTERN = "{window:%Y%m%dT%H%M}*.*"
INTAKE = Intake(now_ns=NOW_NS, young_ns=90 * SECOND, quiet_ns=5 * SECOND)
WAITING = Intake(now_ns=NOW_NS, young_ns=90 * SECOND, quiet_ns=5 * SECOND, waits_for_next=True)
WRITTEN_ON = "still being written when it was read"
CUT = "ends without a line feed, so that its last record may be cut"


def aged(path: Path, seconds: float) -> Path:
    """Let a file be changed so many seconds before now."""
    moment = NOW_NS - round(seconds * SECOND)
    os.utime(path, ns=(moment, moment))
    return path


def half(path: Path) -> Path:
    whole = write(path, [flow(second / 100) for second in range(1000)]).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path


def land(warehouse: Warehouse, flows: Path, intake: Intake = INTAKE) -> dict[str, int]:
    return landing.land(warehouse, WINDOW, str(flows), lateness_ns=LATENESS_NS, intake=intake)


def reason(warehouse: Warehouse) -> str | None:
    return store.read(warehouse, "windows", WINDOW)["reason"].item()


@pytest.mark.parametrize("name", [".20251009T0900.csv", "20251009T0900.csv.part", "20251009T0900.csv.tmp"])
def test_a_file_is_not_seen_before_it_is_renamed(
    warehouse: Warehouse, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    pack(tmp_path / name, csv_text([flow(0)]).encode())
    for flows in (tmp_path, tmp_path / "*", tmp_path / PATTERN):
        assert land(warehouse, flows)["read"] == 0
    assert name not in caplog.text
    (tmp_path / name).rename(tmp_path / "20251009T0900.csv")
    assert land(warehouse, tmp_path / PATTERN)["read"] == 1


@pytest.mark.parametrize("ending", [".parquet", ".csv.gz", ".csv.zst"])
@pytest.mark.parametrize(("age_s", "error"), [(89.9, TransientError), (90, InputError)])
def test_a_young_file_that_cannot_be_read_is_tried_again(
    warehouse: Warehouse, tmp_path: Path, ending: str, age_s: float, error: type[Exception]
) -> None:
    path = aged(half(tmp_path / f"flows{ending}"), age_s)
    with pytest.raises(error) as caught:
        land(warehouse, tmp_path)
    assert str(path) in str(caught.value)
    assert ("probably still being written" in str(caught.value)) == (error is TransientError)
    assert store.read(warehouse, "windows", WINDOW).is_empty()


def test_a_file_with_nothing_in_it_yet_is_tried_again_and_a_wrong_header_is_not(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    path = tmp_path / "flows.csv"
    path.write_bytes(b"")
    aged(path, 1)
    with pytest.raises(TransientError):
        land(warehouse, tmp_path)
    path.write_text("one,two\n1,2\n", encoding="utf-8")
    aged(path, 1)
    with pytest.raises(InputError):
        land(warehouse, tmp_path)


@pytest.mark.parametrize(
    ("make", "age_s", "told"),
    [
        (half, 4.9, WRITTEN_ON),
        (half, 5, WRITTEN_ON),  # quiet, but its last line has no end
        (half, 90, CUT),  # nobody writes on in it
        (lambda path: write(path, [flow(0)]), 4.9, WRITTEN_ON),
        (lambda path: write(path, [flow(0)]), 5, None),
    ],
)
def test_a_window_that_was_landed_from_half_a_file_says_so(
    warehouse: Warehouse, tmp_path: Path, make: Callable[[Path], Path], age_s: float, told: str | None
) -> None:
    """A number that is cut is a smaller number, and nobody could see it afterwards."""
    path = aged(make(tmp_path / "20251009T0900.csv"), age_s)
    land(warehouse, tmp_path / PATTERN)
    assert reason(warehouse) == (f"{told}: {path}" if told else None)


def test_a_window_is_ready_when_its_file_and_the_next_are_there_and_quiet(tmp_path: Path) -> None:
    flows = str(tmp_path / PATTERN)
    own, following = tmp_path / "20251009T0900.csv", tmp_path / "20251009T0901.csv"
    aged(write(own, [flow(0)]), 60)
    assert arrival.flows_arrived(WINDOW, flows, INTAKE)
    assert not arrival.flows_arrived(WINDOW, flows, WAITING)
    aged(write(following, [flow(60)]), 4.9)
    assert not arrival.flows_arrived(WINDOW, flows, WAITING)
    aged(following, 5)
    assert arrival.flows_arrived(WINDOW, flows, WAITING)
    aged(own, 4.9)
    assert not arrival.flows_arrived(WINDOW, flows, INTAKE)


def test_a_window_that_did_not_get_the_next_file_says_so(warehouse: Warehouse, tmp_path: Path) -> None:
    aged(write(tmp_path / "20251009T0900.csv", [flow(0)]), 60)
    land(warehouse, tmp_path / PATTERN, WAITING)
    assert reason(warehouse) == arrival.NO_NEXT_FILE
    aged(write(tmp_path / "20251009T0901.csv", [flow(60)]), 60)
    land(warehouse, tmp_path / PATTERN, WAITING)
    assert reason(warehouse) is None


def test_links_out_of_the_folder_are_refused_and_counted(
    warehouse: Warehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = write(tmp_path / "secret" / "passwords.csv", [flow(9)])
    folder = tmp_path / "flows"
    own = write(folder / "20251009T0900.csv", [flow(0)])
    (folder / "20251009T0900-inside.csv").symlink_to(own)
    (folder / "20251009T0900-outside.csv").symlink_to(secret)
    (folder / "20251009T0900-folder").symlink_to(secret.parent)
    for flows in (folder, folder / "*.csv", folder / "**" / "*.csv", folder / PATTERN):
        assert land(warehouse, flows)["read"] == 1, flows  # the link inside leads to a copy
    told = re.findall(r"left out (.*) behind symbolic links that lead out of this folder", caplog.text)
    assert sorted(told) == ["1 file", "2 files"], "each once, however often the files are looked for"
    link = tmp_path / "elsewhere"
    link.symlink_to(folder)
    assert land(warehouse, link)["read"] == 1  # a folder may be named by a link


def test_a_missing_file_of_a_folder_is_waited_for_until_a_later_record_is_there(tmp_path: Path) -> None:
    aged(write(tmp_path / "a.csv", [flow(0)]), 60)
    assert not arrival.flows_arrived(WINDOW, str(tmp_path), INTAKE)
    aged(half(tmp_path / "b.parquet"), 1)
    assert arrival.flows_arrived(WINDOW, str(tmp_path), INTAKE)  # landing says what is wrong with it


@pytest.mark.parametrize("source", ["", "*.csv", PATTERN])
def test_what_is_no_file_is_left_out(warehouse: Warehouse, tmp_path: Path, source: str) -> None:
    """Before, a FIFO with a window's name kept its landing waiting for ever, and a folder was a traceback."""
    os.mkfifo(tmp_path / f"{WINDOW.start:%Y%m%dT%H%M}.csv")
    (tmp_path / f"{WINDOW.start:%Y%m%dT%H%M}-folder.csv").mkdir()
    write(tmp_path / f"{WINDOW.start:%Y%m%dT%H%M}-b.csv", [flow(0)])
    assert land(warehouse, tmp_path / source)["landed"] == 1


def test_a_fifo_that_is_named_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "flows.csv")
    with pytest.raises(InputError, match=r"flows\.csv, which is neither a file nor a folder"):
        land(warehouse, tmp_path / "flows.csv")


@pytest.mark.parametrize("source", ["", "*/*.csv", f"*/{PATTERN}"])
def test_a_name_that_is_no_text_is_left_out_and_told(
    warehouse: Warehouse, tmp_path: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, it was a traceback, as long as the file was there."""
    for folder in ("sound", os.fsdecode(b"\xff\xfe")):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / f"{WINDOW.start:%Y%m%dT%H%M}.csv", [flow(0 if folder == "sound" else 1)])
    assert land(warehouse, tmp_path / source)["landed"] == 1
    assert "left out 1 file whose names are not UTF-8" in caplog.text


def test_a_file_of_another_format_is_told_once_however_often_files_are_looked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run looks several times, and each time it was told."""
    (tmp_path / "notes.txt").write_text("what a collector left here")
    for _ in range(2):
        assert sources.find(str(tmp_path), length_ns=WINDOW.length_ns) == []
    assert [record.getMessage().partition("left out ")[2] for record in caplog.records] == [
        f"1 file of unknown format, such as {tmp_path / 'notes.txt'}"
    ]
