"""A password in any setting is found nowhere: not in what commands print or log, and not in names of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import REAL

COMMAND = [sys.executable, "-c", "from llmprism_tasks.cli import run; run()"]
CAPTURE = REAL / "ddp4_healthy"
FLOWS = ["--flows", str(CAPTURE / "flows_coarse.parquet"), "--topology", str(CAPTURE / "topology.csv")]
SECRET = "Zebra77crossing"
NOWHERE = f"ducklake:postgres:host=127.0.0.1 port=1 dbname=lake user=u password={SECRET}"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["settings"], 0),
        (["settings", "--format", "json", "-v"], 0),
        (["settings", "--check"], 0),
        (["analyze", "-v", *FLOWS, "--set", "warehouse.data_path=data"], None),
        (["report", "-v"], None),
        (["sql", "-v", "SELECT 1"], None),
        (["report", "--warehouse", NOWHERE], 1),
        (["report", "--set", f"warehouse.catalog_password={SECRET}"], 1),
        (["report", "--set", f"notify.webhook=https://x/{SECRET}"], 1),
    ],
)
def test_no_secret_in_any_output_or_file_name(tmp_path: Path, arguments: list[str], code: int | None) -> None:
    secrets = {
        "LLMPRISM_PLACES__WAREHOUSE": NOWHERE,
        "LLMPRISM_NOTIFY__WEBHOOK": f"https://hooks.example/{SECRET}",
        "LLMPRISM_WAREHOUSE__LOCK_WAIT_S": "0.1",
        "TMPDIR": str(tmp_path),
    }
    ran = subprocess.run(
        [*COMMAND, *arguments], cwd=tmp_path, env=os.environ | secrets, capture_output=True, text=True, check=False
    )
    assert SECRET not in ran.stdout + ran.stderr
    assert not [path for path in tmp_path.rglob("*") if SECRET in str(path)]
    assert ran.returncode == code if code is not None else ran.returncode in {1, 75}, ran.stderr
    assert "Traceback" not in ran.stderr or "-v" in arguments
