"""What the user's disk, paths and permissions refuse: one sentence, the right exit code, and never a traceback."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from places import REAL

from llmprism_tasks import cli
from llmprism_tasks.cli.entry_point import PERMANENT, TRY_LATER
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

CAPTURE = REAL / "ddp4_healthy"
ANALYZE = ["analyze", "--flows", "few.parquet", "--topology", str(CAPTURE / "topology.csv"), "--warehouse"]
COMMAND = [sys.executable, "-c", "from llmprism_tasks.cli import run; run()"]
LONG = "n" * 300


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_few(Path("few.parquet"))


def write_few(path: Path) -> None:
    """Write the first flows of a capture, of one minute."""
    flows = pl.read_parquet(CAPTURE / "flows_coarse.parquet").head(100)
    minute = pl.col("flow_start_ns") // 60_000_000_000
    flows.filter(minute == minute.min()).write_parquet(path)


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse with those few flows, to be read."""
    folder = tmp_path_factory.mktemp("analyzed")
    write_few(folder / "few.parquet")
    arguments = [str(folder / "few.parquet") if one == "few.parquet" else one for one in ANALYZE]
    assert cli.main([*arguments, str(folder / "w.duckdb")]) == 0
    return str(folder / "w.duckdb")


def said(arguments: list[str], capsys: pytest.CaptureFixture[str], *, code: int = PERMANENT) -> str:
    """Run a command that must fail with a code, and return the one line that it says."""
    assert cli.main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("llmprism: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("/etc/passwd/x.duckdb", "/etc/passwd: File exists; expected a path whose folders are folders, not files"),
        ("/proc/no/x.duckdb", "/proc/no: No such file or directory; expected a path whose folders are there"),
        (LONG, f"{LONG}: File name too long; expected a name of at most 255 bytes"),
        ("ducklake:/etc/passwd/x", "/etc/passwd: File exists"),
        ("ducklake:/proc/x", "/proc/x.lock: No such file or directory"),
        (f"ducklake:{LONG}", f"{LONG}: File name too long"),
        ("/proc/x.duckdb", "/proc/x.duckdb: No such file or directory"),
        (".", "warehouse .: Is a directory; expected a file, not a folder"),
        ("few.parquet", "warehouse few.parquet that cannot be opened (it is no DuckDB file)"),
    ],
)
def test_a_place_where_no_warehouse_can_be(place: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in said([*ANALYZE, place], capsys)
    if place != "few.parquet":
        assert said(["report", "--warehouse", place], capsys)


def test_output_that_cannot_be_written(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--warehouse", analyzed, "--picture", "/proc/x.svg"]) == PERMANENT
    assert capsys.readouterr().err.startswith("llmprism: /proc/x.svg: No such file or directory; expected a path")
    simulate = ["simulate", "--scenario", "small", "--minutes", "1", "--out"]
    assert "/proc/x: No such file or directory" in said([*simulate, "/proc/x"], capsys)
    assert "few.parquet" in said([*simulate, "few.parquet"], capsys)


def test_a_full_disk_under_the_output_may_have_room_later(analyzed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--warehouse", analyzed, "--picture", "/dev/full"]) == TRY_LATER
    assert "No space left on device; expected room to write. Make room there" in capsys.readouterr().err
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [*COMMAND, "report", "--warehouse", analyzed]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (TRY_LATER, 1)
    assert ran.stderr.startswith("llmprism: [Errno 28] No space left on device; expected room to write")


def test_a_full_disk_under_the_warehouse_is_told_at_once_and_a_rerun_mends_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    open_warehouse(Warehouse("w.duckdb", lock_wait_s=1))
    log = Path("w.duckdb.wal")
    log.symlink_to("/dev/full")  # what DuckDB writes before all else
    sentence = said([*ANALYZE, "w.duckdb"], capsys, code=TRY_LATER)
    assert "warehouse w.duckdb: No space left on device; expected room to write. Make room there" in sentence
    log.unlink()
    assert cli.main([*ANALYZE, "w.duckdb"]) == 0


@pytest.mark.parametrize("place", ["w.duckdb", "ducklake:w"])
def test_a_warehouse_that_outgrows_what_a_process_may_write(place: str) -> None:
    """The limit stands for a full disk: it stops writing in the middle of a file, wherever that is."""
    open_warehouse(Warehouse(place, lock_wait_s=1))
    ran = subprocess.run(
        [*COMMAND, *ANALYZE, place],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1)),
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (PERMANENT, 1), ran.stderr
    assert "File too large; expected files as large as this process needs. Raise the limit (ulimit -f)" in ran.stderr
    assert cli.main([*ANALYZE, place]) == 0


@pytest.mark.parametrize("place", ["/sys/w.duckdb", "ducklake:/sys/w"])
def test_a_folder_that_takes_no_files_even_from_root(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = said([*ANALYZE, place], capsys)
    assert "Permission denied; expected a path that this user may use" in sentence or "Read-only" in sentence
