"""One message for each change of an incident's state, whatever order windows run in, and none that fails a window."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from empty_warehouse import empty_lake, empty_warehouse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from receiver import Receiver, receiving
from small_windows import FIRST, SECOND, diagnosis, writer

from llmprism_tasks.execution import window as steps_of_a_window
from llmprism_tasks.execution.notify.incidents import send_messages
from llmprism_tasks.settings import NotifySettings, Settings
from llmprism_tasks.settings.load import load
from llmprism_tasks.warehouse.bookkeeping import minutes, notifications
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query

GPU = "10.3.1.5"
Run = Callable[..., dict[str, int]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return empty_warehouse(tmp_path / "warehouse.duckdb")


def runner(warehouse: Warehouse, receiver: Receiver) -> Run:
    """Return a function that runs one window, twenty seconds after its end, with these diagnoses."""
    write = writer(warehouse)

    def run(number: int, *found: dict[str, Any], after_s: float = 20, **rule: Any) -> dict[str, int]:
        window = write(number, [diagnosis(number, **one) for one in found])
        told = Settings(notify=NotifySettings(**{"webhook": receiver.address} | rule))
        return send_messages(warehouse, window, told, now_ns=window.end_ns + int(after_s * SECOND))

    return run


@pytest.fixture
def run(warehouse: Warehouse, receiver: Receiver) -> Run:
    return runner(warehouse, receiver)


def recorded(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return query(warehouse, "SELECT change, outcome, detail FROM notifications ORDER BY told_ns").rows()


def test_an_incident_is_told_when_it_opens_and_when_it_closes(run: Run, receiver: Receiver) -> None:
    assert run(0, {}) == {"sent": 1, "not_sent": 0}
    assert run(1, {"kind": "slow_compute"}) == {"sent": 0, "not_sent": 0}
    assert receiver.told == [("opened", GPU)]
    run(2)
    assert receiver.told == [("opened", GPU)]
    run(3)
    run(4)
    assert receiver.told == [("opened", GPU), ("closed", GPU)]


def test_windows_that_are_run_again_tell_nothing_new(run: Run, receiver: Receiver, warehouse: Warehouse) -> None:
    for number in (0, 1, 0, 1, 1):
        run(number, {})
    assert receiver.told == [("opened", GPU)]
    assert recorded(warehouse) == [("opened", "sent", None)]


def test_what_has_closed_stays_so_while_the_windows_after_it_are_run_again(
    run: Run, receiver: Receiver, warehouse: Warehouse
) -> None:
    for number, found in enumerate(([{}], [], [])):
        run(number, *found)
    told = [("opened", GPU), ("closed", GPU)]
    assert receiver.told == told
    warehouse.write(lambda connection: connection.execute("UPDATE windows SET status = 'landed'"))
    for number, found in enumerate(([{}], [], [])):
        run(number, *found)
    assert receiver.told == told


def test_what_comes_back_is_told_again(run: Run, receiver: Receiver) -> None:
    for number, found in enumerate(([{}], [], [], [{}])):
        run(number, *found)
    assert [change for change, _ in receiver.told] == ["opened", "closed", "opened"]


def test_earlier_windows_that_come_later_belong_to_what_was_told(run: Run, receiver: Receiver) -> None:
    for number in (3, 2, 0, 1):
        run(number, {})
    assert receiver.told == [("opened", GPU)]


def test_a_trouble_that_a_rerun_no_longer_shows_where_it_was_told_is_not_told_twice(
    run: Run, receiver: Receiver
) -> None:
    run(0, {})
    run(1, {})
    run(0)
    run(2, {})
    assert receiver.told == [("opened", GPU)]


@pytest.mark.parametrize(("after_s", "told"), [(899, 1), (901, 0)])
def test_a_backfill_of_old_windows_pages_nobody(run: Run, receiver: Receiver, after_s: float, told: int) -> None:
    run(0, {}, after_s=after_s)
    assert len(receiver.bodies) == told


def test_a_backfill_tells_when_it_is_asked_to(run: Run, receiver: Receiver) -> None:
    for number, found in enumerate(([{}], [], [])):
        run(number, *found, after_s=10**7, oldest_s=10**8)
    assert [change for change, _ in receiver.told] == ["opened", "closed"]


def test_what_opened_and_closed_while_nobody_was_told_is_not_told(run: Run, receiver: Receiver) -> None:
    for number, found in enumerate(([{}], [], [])):
        run(number, *found, after_s=10**7)
    run(3)
    assert receiver.bodies == []


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({}, 1),
        ({"kinds": "hang, straggler"}, 1),
        ({"kinds": "hang"}, 0),
        ({"least_severity": 0.3}, 1),
        ({"least_severity": 0.31}, 0),
        ({"webhook": ""}, 0),
    ],
)
def test_what_is_told_can_be_chosen(run: Run, receiver: Receiver, rule: dict[str, Any], told: int) -> None:
    run(0, {}, **rule)
    assert len(receiver.bodies) == told


ENDED = {"kind": "ended", "subject_type": "job", "subject": "gpt", "severity": 0.0}
ONE_STEP = {"kind": "cross_step", "subject_type": "job", "subject": "gpt", "steps": 1, "lost_gpu_s": 900.0}


@pytest.mark.parametrize(("rule", "told"), [({}, 0), ({"quiet_kinds": ""}, 1), ({"quiet_kinds": "hang"}, 1)])
def test_who_may_have_ended_pages_nobody_unless_it_is_asked_for(
    run: Run, receiver: Receiver, rule: dict[str, Any], told: int
) -> None:
    run(0, ENDED, **rule)
    assert len(receiver.bodies) == told


@pytest.mark.parametrize(("rule", "told"), [({}, 0), ({"one_step_gpu_s": 901.0}, 0), ({"one_step_gpu_s": 900.0}, 1)])
def test_one_slow_step_is_told_if_it_was_dear(run: Run, receiver: Receiver, rule: dict[str, Any], told: int) -> None:
    run(0, ONE_STEP, **rule)
    assert len(receiver.bodies) == told


SLOW_GROUP = {"kind": "cross_group", "subject_type": "dp_group", "subject": "10.0.0.1", "lost_gpu_s": 900.0}


@pytest.mark.parametrize(
    ("rule", "windows", "told"),
    [
        ({}, 1, 0),
        ({"one_step_gpu_s": 901.0}, 1, 0),
        ({"one_step_gpu_s": 901.0}, 2, 1),
        ({"one_step_gpu_s": 900.0}, 1, 1),
    ],
)
def test_a_slow_group_of_unknown_cause_is_told_when_it_has_become_dear(
    run: Run, receiver: Receiver, rule: dict[str, Any], windows: int, told: int
) -> None:
    for number in range(windows):
        run(number, SLOW_GROUP, **rule)
    assert len(receiver.bodies) == told


def test_a_slow_step_that_comes_again_is_told(run: Run, receiver: Receiver) -> None:
    run(0, ONE_STEP)
    run(1)
    assert receiver.told == []
    run(2, ONE_STEP)
    assert [change for change, _ in receiver.told] == ["opened"]


def test_an_effect_is_not_told_beside_its_cause(run: Run, receiver: Receiver) -> None:
    slow_steps = {"kind": "cross_step", "subject_type": "job", "subject": "gpt", "severity": 0.9}
    run(0, {}, slow_steps)
    assert receiver.told == [("opened", GPU)]


def test_what_the_receiver_refuses_is_tried_again(run: Run, receiver: Receiver, warehouse: Warehouse) -> None:
    receiver.status = 503
    assert run(0, {}) == {"sent": 0, "not_sent": 1}
    receiver.status = 200
    run(1, {})
    run(2, {})
    assert recorded(warehouse) == [("opened", "refused", "HTTP 503"), ("opened", "sent", None)]


def test_what_began_and_ended_while_the_receiver_was_down_is_told_once_it_is_back(
    run: Run, receiver: Receiver, warehouse: Warehouse
) -> None:
    receiver.status = 503
    for number, found in enumerate(([{}], [], [])):
        run(number, *found)
    receiver.status = 200
    run(3)
    run(4)
    assert recorded(warehouse)[-1] == ("closed", "sent", None)
    assert [outcome for _, outcome, _ in recorded(warehouse)].count("sent") == 1


def test_what_may_have_arrived_is_not_sent_again(run: Run, receiver: Receiver, warehouse: Warehouse) -> None:
    receiver.status = 0
    run(0, {})
    receiver.status = 200
    run(1, {})
    assert receiver.told == [("opened", GPU)]
    assert [row[:2] for row in recorded(warehouse)] == [("opened", "unknown")]


def test_a_receiver_that_is_not_there_is_asked_once_in_a_window(run: Run, warehouse: Warehouse) -> None:
    counts = run(0, {}, {"subject": "10.3.2.1"}, webhook="http://127.0.0.1:9/")
    assert counts == {"sent": 0, "not_sent": 2}
    details = [detail for _, _, detail in recorded(warehouse)]
    assert "refused" in details[0]
    assert details[1] == "the receiver could not be reached before"


TELL = """
import sys
from llmprism_tasks.execution.notify.incidents import send_messages
from llmprism_tasks.settings import NotifySettings, Settings
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.contract.windows import Window

place, address, start_ns = sys.argv[1:]
window = Window(int(start_ns), 60 * 10**9)
sys.stdin.readline()
settings = Settings(notify=NotifySettings(webhook=address))
send_messages(Warehouse(place, 20), window, settings, now_ns=window.end_ns)
"""


def test_processes_that_end_windows_side_by_side_tell_it_once(
    run: Run, receiver: Receiver, warehouse: Warehouse
) -> None:
    run(0, {}, webhook="")
    command = [sys.executable, "-c", TELL, warehouse.location, receiver.address]
    workers = [
        subprocess.Popen([*command, str(FIRST.shifted(number).start_ns)], stdin=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    for worker in workers:
        worker.communicate("now\n")
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert receiver.told == [("opened", GPU)]


def test_the_message_says_what_is_wrong_what_it_costs_what_to_do_and_what_proves_it(
    run: Run, receiver: Receiver, warehouse: Warehouse
) -> None:
    run(0, {"kind": "slow_compute", "lost_gpu_s": 90.0, "confidence": 0.8, "evidence_sql": "SELECT 1"})
    (body,) = receiver.bodies
    assert set(body) == {"change", "text", "incident"}
    assert body["text"].startswith("Opened: addr 10.3.1.5 on gpt-01 computes slowly. It starts its sends 0.60 s")
    incident = body["incident"]
    assert (incident["job_id"], incident["host"], incident["state"]) == ("gpt", "gpt-01", "open")
    assert (incident["lost_gpu_s"], incident["confidence"], incident["peak_severity"]) == (90.0, 0.8, 0.3)
    assert (incident["started"], incident["ended"]) == ("2026-01-01T00:00:05.000Z", None)
    assert incident["evidence_sql"] == "SELECT 1"
    assert incident["next"].startswith("wait for a second window")  # as pages and reports advise
    assert "Then check the GPU's clocks" in incident["next"]
    assert json.loads(query(warehouse, "SELECT message FROM notifications").item()) == body


def test_the_message_says_that_its_price_is_of_some_of_the_minutes_only(
    run: Run, receiver: Receiver, warehouse: Warehouse
) -> None:
    """Before, the price of an incident was that of the minutes seen, and nobody knew how many were not."""
    run(0, {})
    run(2, {}, webhook="")
    starts = [FIRST.shifted(number).start_ns for number in range(3)]
    warehouse.write(lambda connection: minutes.expect(connection, starts, starts[0]))
    for number in (0, 2):
        warehouse.write(partial(minutes.begin_run, window=FIRST.shifted(number), run=minutes.Run(0, starts[2])))
    for number in (3, 4):
        run(number, after_s=600)
    closed = receiver.bodies[-1]
    assert closed["change"] == "closed"
    assert closed["incident"]["coverage"] == {"expected": 3, "done": 2}
    assert closed["text"].endswith("Costs are of the 2 of 3 expected minutes that are done.")
    assert receiver.bodies[0]["incident"]["coverage"] == {"expected": 0, "done": 0}


def test_what_has_closed_is_not_advised_as_if_it_went_on(run: Run, receiver: Receiver) -> None:
    slow = {"kind": "slow_compute"}
    for number, found in enumerate(([slow], [slow], [], [])):
        run(number, *found)
    assert receiver.bodies[-1]["incident"]["next"].startswith(
        "it is over, or has become the normal state; if it comes back, check"
    )


def test_the_pipeline_tells_and_never_fails_by_it(receiver: Receiver, warehouse: Warehouse) -> None:
    window = writer(warehouse)(0, [diagnosis(0)])
    places = {"places.warehouse": warehouse.location, "warehouse.lock_wait_s": "0"}
    told = load(overrides=places | {"notify.webhook": receiver.address})
    with warehouse.writing():
        assert steps_of_a_window.send_messages(window, told, now_ns=window.end_ns) == {"sent": 0, "not_sent": 0}
    assert steps_of_a_window.send_messages(window, told, now_ns=window.end_ns) == {"sent": 1, "not_sent": 0}
    assert receiver.told == [("opened", GPU)]


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shown=st.lists(st.booleans(), min_size=3, max_size=4), data=st.data())
def test_in_any_order_each_change_is_told_once(
    tmp_path_factory: pytest.TempPathFactory, shown: list[bool], data: st.DataObject
) -> None:
    """Between two messages the state has changed, and in the end the last message is the state."""
    order = data.draw(st.permutations(range(len(shown))))
    warehouse = empty_warehouse(tmp_path_factory.mktemp("told") / "warehouse")
    with receiving() as receiver:
        run = runner(warehouse, receiver)
        for number in [*order, *order]:
            run(number, *([{}] if shown[number] else []))
        last = query(warehouse, "SELECT state FROM incidents ORDER BY first_window_start_ns DESC LIMIT 1")
        assert len(receiver.bodies) <= 2 * max(len(shown), 1)
        told_open = bool(receiver.told) and receiver.told[-1][0] == "opened"
        assert told_open == (last.height > 0 and last.item() == "open")


def test_a_lake_tells_as_a_file_does(tmp_path: Path, receiver: Receiver) -> None:
    run = runner(empty_lake(tmp_path / "lake"), receiver)
    for number, found in enumerate(([{}], [], [])):
        run(number, *found)
        run(number, *found)
    assert receiver.told == [("opened", GPU), ("closed", GPU)]


def mute(warehouse: Warehouse, number: int, *, minutes: int) -> None:
    """Mute the only incident from the end of a window on."""
    (name,) = query(warehouse, "SELECT incident_id FROM incidents")["incident_id"]
    now_ns = FIRST.shifted(number).end_ns
    until_ns = now_ns + minutes * 60 * SECOND
    notifications.mute(warehouse, name, now_ns=now_ns, until_ns=until_ns, reason="being mended", muted_by="ann")


def test_of_a_muted_incident_nothing_is_told_until_the_mute_is_over(
    run: Run, receiver: Receiver, warehouse: Warehouse
) -> None:
    run(0, {})
    mute(warehouse, 0, minutes=4)
    for number in (1, 2, 3):
        assert run(number) == {"sent": 0, "not_sent": 0}
    assert receiver.told == [("opened", GPU)]
    run(4)  # 20 s after the mute's end
    assert receiver.told == [("opened", GPU), ("closed", GPU)]


def test_a_mute_holds_to_its_last_nanosecond(run: Run, receiver: Receiver, warehouse: Warehouse) -> None:
    run(0, {}, webhook="")  # nobody was told
    mute(warehouse, 0, minutes=1)
    run(1, {}, after_s=-1e-6)
    assert receiver.told == []
    run(1, {}, after_s=0)
    assert receiver.told == [("opened", GPU)]


def test_a_mute_of_one_incident_is_none_of_another(run: Run, receiver: Receiver, warehouse: Warehouse) -> None:
    run(0, {})
    mute(warehouse, 0, minutes=60)
    run(1, {}, {"subject": "10.3.2.5"})
    assert receiver.told == [("opened", GPU), ("opened", "10.3.2.5")]


def test_a_mute_stays_with_its_incident_when_an_earlier_window_gives_it_another_id(
    run: Run, receiver: Receiver, warehouse: Warehouse
) -> None:
    run(1, {}, webhook="")
    mute(warehouse, 1, minutes=60)
    before = query(warehouse, "SELECT incident_id FROM incidents").item()
    run(0, {}, after_s=100)
    assert query(warehouse, "SELECT incident_id FROM incidents").item() != before
    assert receiver.told == []


def test_what_is_unmuted_is_told_again(run: Run, receiver: Receiver, warehouse: Warehouse) -> None:
    run(0, {}, webhook="")
    mute(warehouse, 0, minutes=60)
    (name,) = query(warehouse, "SELECT incident_id FROM incidents")["incident_id"]
    assert notifications.unmute(warehouse, name, now_ns=FIRST.shifted(1).start_ns + 1) == 1
    assert notifications.unmute(warehouse, name, now_ns=FIRST.shifted(1).start_ns + 2) == 0
    run(1, {})
    assert receiver.told == [("opened", GPU)]


@pytest.mark.parametrize(
    ("confidence", "missing", "sent"),
    [
        (0.5, True, 0),
        (0.51, True, 1),
        (0.5, False, 1),  # it explains half of the loss, and nobody else may be at fault
        (0.49, False, 0),  # most of the loss is something else's
        (None, True, 1),  # an effect on the job accuses nobody
    ],
)
def test_nobody_is_paged_for_what_something_else_may_as_well_have_done(
    warehouse: Warehouse, receiver: Receiver, confidence: float | None, sent: int, *, missing: bool
) -> None:
    window = writer(warehouse)(0, [diagnosis(0, confidence=confidence)])
    unlisted = "['10.9.9.9']" if missing else "NULL"
    warehouse.write(lambda connection: connection.execute(f"UPDATE jobs SET unlisted = {unlisted}"))
    told = load(overrides={"notify.webhook": receiver.address})
    send_messages(warehouse, window, told, now_ns=window.end_ns + SECOND)
    assert receiver.told == [("opened", GPU)] * sent
