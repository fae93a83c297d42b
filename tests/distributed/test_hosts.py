"""Several machines: whoever does a window, or dies meanwhile, the tables are those of one `llmprism analyze`."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable

import pytest

from distributed.cluster import NOTICED_WITHIN_S, Cluster, work_done
from distributed.trial import PARTITIONS, PATIENCE_S, Tables, backfill_with_kills, differing, leftovers, prepare, starts

pytestmark = pytest.mark.distributed

SHARED_OUT = 1.6
"""Times the work of the busier worker that both did: two that share evenly did twice as much as either."""


@pytest.fixture(scope="session")
def windows(request: pytest.FixtureRequest) -> int:
    count: int = request.config.getoption("--windows")
    return count


@pytest.fixture(scope="session")
def expected(running: Cluster, windows: int) -> Tables:
    return prepare(running, windows)


def test_two_workers_share_a_backfill_and_do_nothing_twice(
    running: Cluster, expected: Tables, windows: int, say: Callable[[str], None]
) -> None:
    began = time.monotonic()
    running.backfill(starts(windows)[0], starts(windows)[-1])
    running.wait_for_runs(windows, PATIENCE_S * windows)
    took = time.monotonic() - began
    done = running.tasks()
    by_host = work_done(done)
    seconds = [work["seconds"] for work in by_host.values()]
    say(f"{windows} windows in {took:.0f} s: {json.dumps(by_host)}; {sum(seconds) / max(seconds):.2f} times one worker")

    assert differing(running, expected, windows) == {}
    assert {task["try_number"] for task in done if task["state"] == "success"} == {1}
    each = Counter((task["dag_run_id"], task["task_id"], task["map_index"]) for task in done)
    assert set(each.values()) == {1}
    assert Counter(task["task_id"] for task in done)["partition"] == PARTITIONS * windows
    assert set(by_host) == {"first", "second"}
    assert sum(seconds) / max(seconds) >= SHARED_OUT
    assert leftovers(running) == []


def test_a_killed_worker_is_noticed_and_its_tasks_are_done_by_others(
    running: Cluster,
    expected: Tables,
    windows: int,
    request: pytest.FixtureRequest,
    say: Callable[[str], None],
) -> None:
    draw, kills = random.Random(26), request.config.getoption("--kills")
    while kills > 0:
        found = backfill_with_kills(running, expected, windows, draw, kills)
        say(f"{found}")
        assert found.kills > 0
        assert found.differ == {}
        assert found.left == 0
        assert all(seconds <= NOTICED_WITHIN_S for seconds in found.noticed_s)
        kills -= found.kills


def test_two_backfills_over_one_hour_end_like_one(running: Cluster, expected: Tables, windows: int) -> None:
    before = len(running.runs())
    running.backfill(starts(windows)[0], starts(windows)[-1], again=True)
    for start in reversed(starts(windows)):
        running.trigger(start)
    running.wait_for_runs(before + windows, 2 * PATIENCE_S * windows)
    assert differing(running, expected, windows) == {}
    assert leftovers(running) == []


def test_the_password_is_in_no_log_no_file_name_and_no_list_of_processes(running: Cluster) -> None:
    secret = running.password
    logs = [path for path in running.folder.rglob("*.log") if path.is_file()]
    assert logs
    assert [str(path) for path in logs if secret in path.read_text(encoding="utf-8", errors="replace")] == []
    assert [path for path in running.folder.rglob("*") if secret in path.name] == []
    assert secret not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    shown = running.command("llmprism", "settings")
    assert secret not in shown
    assert "dbname=lake" in shown
