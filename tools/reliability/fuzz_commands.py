"""Fuzz by command: run `llmprism analyze` on damaged and hostile files, each time in a process of its own."""

from __future__ import annotations

import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from reliability import fuzz
from reliability.kills import PROCESSES

PATIENCE_S = 600
"""Seconds after which a command hangs."""

OUTCOMES = ("done", "refused", "miscounted", "unsaid")
TOPOLOGY = "addr,host,gpu,leaf_switch\n" + "".join(
    f"10.0.{leaf}.{gpu},h{leaf}{gpu},0,leaf{leaf}\n" for leaf in (0, 1) for gpu in range(4)
)
BROKEN_TOPOLOGIES = 0.1
"""Share of cases in which the topology is damaged as well."""


def measure(cases: int, *, seed: int, say: Callable[[str], None], first: int = 0) -> dict[str, Any]:
    """Run the command on some cases; return how many had each outcome, those that went wrong, and the memory used.

    Parameters
    ----------
    cases : how many
    first : number of the first one
    """
    PROCESSES.set_forkserver_preload(["llmprism_tasks.cli", "reliability.preloaded"])
    counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    wrong: list[int] = []
    peak_mb = 0
    with tempfile.TemporaryDirectory() as name:
        empty = Path(name) / "empty.duckdb"
        open_warehouse(Warehouse(str(empty), lock_wait_s=20))
        for number in range(first, first + cases):
            place = Path(name) / str(number)
            place.mkdir()
            shutil.copy(empty, place / "w.duckdb")
            outcome, said, used_mb = run(place, seed, number)
            counts[outcome] += 1
            peak_mb = max(peak_mb, used_mb)
            if outcome in ("miscounted", "unsaid"):
                wrong.append(number)
                say(f"case {number}: {outcome}: {said}")
            shutil.rmtree(place)
            if (number + 1 - first) % 50 == 0:
                say(f"{number + 1 - first} cases: {counts}, peak {peak_mb} MB")
    return {"cases": cases, "seeds": [seed], "counts": counts, "wrong": wrong, "peak_mb": peak_mb}


def is_sound(found: dict[str, Any]) -> bool:
    """Return whether every command counted all records, or refused its input in one sentence."""
    return not found["wrong"]


def sentence(found: dict[str, Any]) -> str:
    """Return what was found, in a sentence."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in found["counts"].items())
    return (
        f"{found['cases']} commands (seeds {', '.join(map(str, found['seeds']))}): {counts}; peak {found['peak_mb']} MB"
    )


def run(place: Path, seed: int, number: int) -> tuple[str, str, int]:
    """Run the command on one case in a folder with an empty warehouse; return outcome, what it said, and its MB."""
    chance = random.Random(f"command-{seed}-{number}")
    flows = fuzz.write_case(place / "flows", chance)
    topology = TOPOLOGY.encode()
    if chance.random() < BROKEN_TOPOLOGIES:
        topology = fuzz.damaged(topology, chance)
    (place / "topology.csv").write_bytes(topology)
    process = PROCESSES.Process(target=analyze, args=(place, flows))
    process.start()
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()
        process.join()
        return "unsaid", f"hangs for {PATIENCE_S} s", 0
    errors = (place / "errors").read_text(encoding="utf-8", errors="replace")
    used_mb = int((place / "peak_mb").read_text("utf-8")) if (place / "peak_mb").exists() else 0
    outcome, said = judged(process.exitcode, errors, place / "w.duckdb")
    return outcome, said, used_mb


def judged(code: int | None, errors: str, warehouse: Path) -> tuple[str, str]:
    """Return the outcome of a command, and what was wrong.

    Parameters
    ----------
    code : with which the command ended
    errors : what it wrote to standard error
    """
    sentences = [line for line in errors.splitlines() if line.startswith("llmprism: ")]
    if code not in (0, 1) or "Traceback" in errors or len(sentences) != code:
        return "unsaid", f"ended with {code}: {errors[-600:]}"
    place = Warehouse(str(warehouse), lock_wait_s=20)
    counted = "SELECT " + ", ".join(
        f"coalesce(sum({column}), 0)::BIGINT" for column in ("rows_read", "rows_landed", "rows_quarantined")
    )
    ((read, landed, refused),) = store.query(place, f"{counted} FROM windows").rows()
    rows = [store.query(place, f"SELECT count(*) FROM {table}").item() for table in ("flows", "flows_quarantine")]
    held = store.query(place, "SELECT coalesce(sum(records), 0)::BIGINT FROM flow_file_windows").item()
    if read != landed + refused or rows != [landed, refused] or held != read:
        return "miscounted", f"read {read}, landed {landed}, quarantined {refused}, rows {rows}, in files {held}"
    return ("done", "") if code == 0 else ("refused", sentences[0])


def analyze(place: Path, flows: Path) -> None:
    """Run the command as a process of its own does, and note the memory that it took."""
    from llmprism_tasks.cli import main  # noqa: PLC0415 - imported by the process that this one was forked from

    os.chdir(place)
    for number, name in ((1, "said"), (2, "errors")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    words = ["analyze", "--flows", str(flows), "--topology", "topology.csv", "--warehouse", "w.duckdb"]
    try:
        code = main([*words, "--set", "window.most_empty_windows=3"])
    finally:
        Path("peak_mb").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024), encoding="utf-8")
    sys.exit(code)
