"""Diagnoses of one trouble are one incident, in whatever order its windows were run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from empty_warehouse import empty_lake, empty_warehouse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from small_windows import FIRST, SECOND, Minute, diagnosis, writer

from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.store import query

SLOW_STEPS = {"kind": "cross_step", "subject_type": "job", "subject": "gpt"}
LEAF = {"kind": "degraded_switch", "subject_type": "switch", "subject": "leaf3"}


def incidents(warehouse: Warehouse) -> pl.DataFrame:
    return query(warehouse, "SELECT * FROM incidents ORDER BY start_ns, family, place, tenant")


def spans(warehouse: Warehouse) -> list[tuple[int, int, str]]:
    """First and last window of each incident, counted from the first of all, and whether it is open."""
    rows = incidents(warehouse).select("first_window_start_ns", "last_window_start_ns", "state").rows()
    return [((first - FIRST.start_ns) // FIRST.length_ns, (last - FIRST.start_ns) // FIRST.length_ns, state)
            for first, last, state in rows]  # fmt: skip


def show(minute: Minute, pattern: str, **given_: Any) -> None:
    """Write a window for each letter: `X` shows a trouble, `.` does not, `0` has no records, `r` still runs, `a` set
    its job aside, `b` another, ` ` is none."""
    for number, letter in enumerate(pattern):
        bookkeeping: dict[str, Any] = {
            "0": {"rows_landed": 0},
            "r": {"status": "running"},
            "a": {"aside": "gpt"},
            "b": {"aside": "bert"},
        }.get(letter, {})
        if letter != " ":
            minute(number, [diagnosis(number, **given_)] if letter == "X" else [], **bookkeeping)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("X", [(0, 0, "open")]),
        ("XX.X", [(0, 3, "open")]),
        ("X..X", [(0, 0, "closed"), (3, 3, "open")]),
        (".X.", [(1, 1, "open")]),
        ("X..", [(0, 0, "closed")]),
        ("X.0.", [(0, 0, "closed")]),
        ("X.0X", [(0, 3, "open")]),
        ("X.r", [(0, 0, "open")]),
        ("X.r.X", [(0, 0, "closed"), (4, 4, "open")]),
        ("X     X", [(0, 6, "open")]),
        ("X. . X", [(0, 0, "closed"), (5, 5, "open")]),
        ("Xaaa", [(0, 0, "open")]),
        ("XaaaX", [(0, 4, "open")]),
        ("Xa.a.", [(0, 0, "closed")]),
        ("Xa.a.X", [(0, 0, "closed"), (5, 5, "open")]),
        ("aaX.", [(2, 2, "open")]),
        ("Xbb", [(0, 0, "closed")]),
    ],
)
def test_two_finished_windows_without_it_end_it(
    warehouse: Warehouse, minute: Minute, pattern: str, expected: list[tuple[int, int, str]]
) -> None:
    show(minute, pattern)
    assert spans(warehouse) == expected


def test_an_incident_has_a_start_a_last_seen_an_end_a_peak_and_a_cost(warehouse: Warehouse, minute: Minute) -> None:
    for number, severity in enumerate((0.1, 0.4, 0.2)):
        price = {"lost_gpu_s": 100 * severity, "recoverable_gpu_s": 50 * severity, "evidence_sql": f"SELECT {severity}"}
        minute(number, [diagnosis(number, severity=severity, score=severity * 10, explanation=f"{severity}", **price)])
    open_one = incidents(warehouse).row(0, named=True)
    assert (open_one["windows"], open_one["peak_severity"], open_one["peak_score"]) == (3, 0.4, 4.0)
    assert (open_one["explanation"], open_one["evidence_sql"]) == ("0.4", "SELECT 0.4")
    assert open_one["lost_gpu_s"] == pytest.approx(70)
    assert open_one["recoverable_gpu_s"] == pytest.approx(35)
    assert open_one["start_ns"] == FIRST.start_ns + 5 * SECOND
    assert open_one["last_seen_ns"] == FIRST.shifted(2).end_ns - 5 * SECOND
    assert (open_one["end_ns"], open_one["ended"]) == (None, None)
    for number in (3, 4):
        minute(number)
    closed = incidents(warehouse).row(0, named=True)
    assert closed["end_ns"] == closed["last_seen_ns"] == open_one["last_seen_ns"]
    assert closed["incident_id"] == open_one["incident_id"]


def test_a_nic_its_host_and_its_cause_once_it_is_known_are_one_trouble(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, severity=0.5)])
    minute(1, [diagnosis(1, kind="slow_compute", severity=0.3, lost_gpu_s=60.0),
               diagnosis(1, kind="slow_compute", subject="10.3.1.6", severity=0.2, lost_gpu_s=50.0)])  # fmt: skip
    minute(2, [diagnosis(2, kind="slow_compute", subject_type="host", subject="gpt-01", severity=0.2, lost_gpu_s=40.0)])
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["kind"], incident["subject"], incident["host"]) == ("slow_compute", "10.3.1.5", "gpt-01")
    assert (incident["windows"], incident["peak_severity"], incident["lost_gpu_s"]) == (3, 0.5, 100.0)
    assert incident["kinds"] == ["slow_compute", "straggler"]


def test_of_a_host_the_host_is_itself(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [diagnosis(0, subject_type="host", subject="gpt-01")])
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["subject"], incident["host"]) == ("gpt-01", "gpt-01")


@pytest.mark.parametrize(
    "other",
    [{"subject": "10.3.2.5"}, {"job_id": "bert", "subject": "10.4.1.5"}, {"kind": "hang"}, LEAF, SLOW_STEPS],
)
def test_other_places_jobs_and_troubles_are_other_incidents(
    warehouse: Warehouse, minute: Minute, other: dict[str, Any]
) -> None:
    minute(0, [diagnosis(0), diagnosis(0, **other)])
    assert incidents(warehouse)["incident_id"].n_unique() == 2


def test_a_switch_that_slows_two_jobs_is_one_incident_and_costs_both(warehouse: Warehouse, minute: Minute) -> None:
    for number in range(2):
        both = [diagnosis(number, **LEAF, job_id=job, lost_gpu_s=10.0) for job in ("bert", "gpt")]
        minute(number, both)
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["jobs"], incident["windows"], incident["lost_gpu_s"]) == (["bert", "gpt"], 2, 40.0)


def test_what_a_job_suffers_while_something_is_to_blame_is_its_effect(warehouse: Warehouse, minute: Minute) -> None:
    others = [diagnosis(1, **SLOW_STEPS | {"subject": "bert"}, job_id="bert")]
    minute(0, [diagnosis(0, **SLOW_STEPS)])
    minute(1, [diagnosis(1, **SLOW_STEPS), diagnosis(1, **LEAF, severity=0.1), diagnosis(1), *others])
    found = {(one["family"], one["job_id"]): one for one in incidents(warehouse).to_dicts()}
    assert found["slow_job", "gpt"]["effect_of"] == found["slow_host", "gpt"]["incident_id"]
    assert found["slow_job", "bert"]["effect_of"] is None
    assert found["slow_host", "gpt"]["effect_of"] is None


def test_that_a_job_ended_in_order_is_to_blame_for_nothing(warehouse: Warehouse, minute: Minute) -> None:
    ended = {"kind": "ended", "subject_type": "job", "subject": "gpt"}
    minute(0, [diagnosis(0, **SLOW_STEPS), diagnosis(0, **ended)])
    assert incidents(warehouse)["effect_of"].null_count() == 2


@pytest.mark.parametrize(("after", "own"), [(1, False), (2, True)])
def test_what_outlasts_what_is_to_blame_for_it_is_a_trouble_of_its_own(
    warehouse: Warehouse, minute: Minute, after: int, own: bool
) -> None:
    """And stays so once it is over, as who was told of it must be told of its end."""
    minute(0, [diagnosis(0, **SLOW_STEPS), diagnosis(0)])
    for number in range(1, after + 1):
        minute(number, [diagnosis(number, **SLOW_STEPS)])
    for number in range(3):
        found = {one["family"]: one for one in incidents(warehouse).to_dicts()}
        assert (found["slow_job"]["effect_of"] is None) == own
        minute(after + 1 + number)
    assert found["slow_job"]["state"] == "closed"


@pytest.mark.parametrize(("since", "own"), [(0, False), (1, True)])
def test_what_goes_on_where_its_cause_was_told_last_is_its_effect(
    warehouse: Warehouse, minute: Minute, since: int, own: bool
) -> None:
    """In the second window the flows do not name the slow host, and the job's next step is as slow."""
    cause = diagnosis(0)
    minute(0, [cause])
    minute(1, [diagnosis(1, **SLOW_STEPS, start_ns=cause["end_ns"] + since)])
    found = {one["family"]: one for one in incidents(warehouse).to_dicts()}
    assert (found["slow_job"]["effect_of"] is None) == own


def test_a_job_that_is_held_up_by_nobody_known_is_one_trouble_with_its_slow_steps(
    warehouse: Warehouse, minute: Minute
) -> None:
    held_up = {"kind": "straggler", "subject_type": "job", "subject": "gpt"}
    minute(0, [diagnosis(0, **SLOW_STEPS, severity=0.9), diagnosis(0, **held_up, severity=0.2)])
    minute(1, [diagnosis(1, **SLOW_STEPS), diagnosis(1, kind="slow_compute")])
    found = {one["family"]: one for one in incidents(warehouse).to_dicts()}
    assert set(found) == {"slow_job", "slow_host"}
    assert (found["slow_job"]["kind"], found["slow_job"]["windows"]) == ("straggler", 2)
    assert found["slow_job"]["effect_of"] == found["slow_host"]["incident_id"]


def test_a_job_that_became_slower_is_one_trouble_with_the_one_of_its_hosts_that_is_slow(
    warehouse: Warehouse, minute: Minute
) -> None:
    of_job = {"subject_type": "job", "subject": "gpt"}
    minute(0, [diagnosis(0, kind="straggler", **of_job, severity=0.1)])
    minute(1, [diagnosis(1, kind="slow_compute", **of_job, severity=0.2)])
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["family"], incident["kind"], incident["windows"]) == ("slow_job", "slow_compute", 2)


def test_what_a_job_suffered_before_anything_was_to_blame_stands_alone(warehouse: Warehouse, minute: Minute) -> None:
    show(minute, "X...", **SLOW_STEPS)
    minute(4, [diagnosis(4)])
    assert incidents(warehouse)["effect_of"].null_count() == 2


STILL_SOMEBODY = {"kind": "stalls", "subject_type": "job", "subject": "gpt"}
STILL = {"kind": "stalls", "subject_type": "host", "subject": "gpt-01"}


@pytest.mark.parametrize(
    ("stalls", "other", "gap", "kinds"),
    [
        (STILL, {"kind": "straggler"}, 0, [["stalls", "straggler"]]),
        (STILL, {"kind": "slow_compute"}, 0, [["slow_compute", "stalls"]]),
        (STILL, {"kind": "straggler"}, 1, [["stalls", "straggler"]]),
        (STILL, {"kind": "straggler"}, 2, [["stalls"], ["straggler"]]),
        (STILL, {"kind": "straggler", "subject_type": "host", "subject": "gpt-02"}, 0, [["stalls"], ["straggler"]]),
        (STILL, {"kind": "slow_nic"}, 0, [["stalls"], ["slow_nic"]]),
        (STILL_SOMEBODY, {"kind": "straggler"}, 0, [["stalls", "straggler"]]),
        (STILL_SOMEBODY, {"kind": "slow_compute"}, 0, [["stalls"], ["slow_compute"]]),
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_host_that_is_slow_while_it_is_known_to_stand_still_is_one_trouble_with_that(
    warehouse: Warehouse,
    minute: Minute,
    stalls: dict[str, Any],
    other: dict[str, Any],
    gap: int,
    kinds: list[list[str]],
    backwards: bool,
) -> None:
    """Whichever is told first; without a known host, only where the cause of what is slow is not known either."""
    shown: list[dict[str, Any] | None] = [stalls, *[None] * gap, other]
    for number, given_ in enumerate(reversed(shown) if backwards else shown):
        minute(number, [] if given_ is None else [diagnosis(number, **given_)])
    found = incidents(warehouse).sort("start_ns", descending=backwards)
    assert found["kinds"].to_list() == kinds
    assert found["kind"][0] == "stalls" or kinds == [["slow_compute", "stalls"]]


def test_the_stop_of_its_job_ends_it(warehouse: Warehouse, minute: Minute) -> None:
    stopped = {"kind": "stopped", "subject_type": "job", "subject": "gpt"}
    minute(0, [diagnosis(0), diagnosis(0, **LEAF, job_id="bert")])
    minute(1, [diagnosis(1, **stopped)])
    found = {one["family"]: one["state"] for one in incidents(warehouse).to_dicts()}
    assert found == {"slow_host": "closed", "slow_switch": "open", "silent": "open"}


def silent(number: int, until: float, kind: str = "hang", since: float = 30, **given_: Any) -> dict[str, Any]:
    """Return what a window tells of `gpt`, silent between these seconds after the first window's start."""
    span = {"start_ns": FIRST.start_ns + round(since * SECOND), "end_ns": FIRST.start_ns + round(until * SECOND)}
    return diagnosis(
        number, kind=kind, **{"confidence": 0.5, "severity": until - since, "lost_gpu_s": 1.0} | span | given_
    )


STOPPED: dict[str, Any] = {"kind": "stopped", "subject_type": "job", "subject": "gpt", "severity": 0.0}


def test_a_hang_that_ends_in_a_restart_is_one_incident(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [silent(0, 55)])
    minute(1, [silent(1, 130, **STOPPED)])
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["kind"], incident["kinds"]) == ("hang", ["hang", "stopped"])
    assert (incident["subject"], incident["state"]) == ("10.3.1.5", "open")


@pytest.mark.parametrize(
    ("since", "subject", "expected"),
    [
        (100, "10.3.2.5", ["10.3.1.5", "10.3.2.5"]),
        (90, "10.3.2.5", ["10.3.1.5"]),
        (100, "10.3.1.5", ["10.3.1.5"]),
        (100, "gpt", ["10.3.1.5"]),
    ],
    ids=["another host", "while it is silent", "the same host", "nobody"],
)
def test_another_host_that_silences_its_job_again_is_another_incident(
    warehouse: Warehouse, minute: Minute, since: float, subject: str, expected: list[str]
) -> None:
    again = {"subject_type": "job" if subject == "gpt" else "addr", "subject": subject}
    minute(0, [silent(0, 55)])
    minute(1, [silent(1, 90)])
    minute(2, [silent(2, 130, since=since, **STOPPED | again)])
    minute(3, [silent(3, 130, since=since, **STOPPED | again)])
    found = incidents(warehouse)
    assert found["subject"].to_list() == expected
    assert found["incident_id"].n_unique() == len(expected)


def test_a_silence_costs_all_of_it_whichever_windows_show_it(warehouse: Warehouse, minute: Minute) -> None:
    """32 GPUs from 30 to 130 s, and from 150 to 170 s; what was said of it in between begins a little later."""
    minute(0, [silent(0, 58.5)])
    minute(1, [silent(1, 119, since=30.5)])
    minute(2, [silent(2, 130), silent(2, 170, since=150, **STOPPED)])
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["lost_gpu_s"], incident["recoverable_gpu_s"]) == (32 * 120, 32 * 120)
    assert incident["last_seen_ns"] == FIRST.start_ns + 170 * SECOND


@pytest.mark.parametrize(("back", "lost"), [({"lost_gpu_s": 9.0}, 32 * 100.0), ({"lost_gpu_s": None}, None)])
def test_a_job_that_was_stopped_costs_what_it_lost_until_it_came_back(
    warehouse: Warehouse, minute: Minute, back: dict[str, Any], lost: float | None
) -> None:
    minute(0, [silent(0, 58, **STOPPED | {"lost_gpu_s": None})])
    minute(2, [silent(2, 130, **STOPPED | back)])
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["lost_gpu_s"], incident["recoverable_gpu_s"]) == (lost, None)


def test_of_who_is_as_likely_the_first_that_was_named_stays_it(warehouse: Warehouse, minute: Minute) -> None:
    """With what was said of it last."""
    minute(0, [silent(0, 58, explanation="58")])
    minute(1, [silent(1, 119, subject="10.3.2.5", explanation="other")])
    minute(2, [silent(2, 179, explanation="179")])
    minute(3, [silent(3, 239, subject="10.3.2.5", explanation="other")])
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["subject"], incident["explanation"]) == ("10.3.1.5", "179")


def test_who_goes_on_by_itself_had_not_stopped(warehouse: Warehouse, minute: Minute) -> None:
    minute(0, [silent(0, 58, **STOPPED | {"lost_gpu_s": None})])
    minute(1, [silent(1, 90, subject_type="job", subject="gpt", severity=9.0)])
    (incident,) = incidents(warehouse).to_dicts()
    assert (incident["kind"], incident["lost_gpu_s"]) == ("hang", 32 * 60)


@pytest.mark.parametrize(("until", "went_on"), [(57, True), (59, False)])
def test_a_silence_after_which_steps_end_is_told_to_have_gone_on(
    warehouse: Warehouse, minute: Minute, until: float, *, went_on: bool
) -> None:
    """The last step of the window ends in its second 58."""
    minute(0, [silent(0, until), diagnosis(0)])
    found = {one["family"]: one["went_on"] for one in incidents(warehouse).to_dicts()}
    assert found == {"silent": went_on, "slow_host": False}


@pytest.mark.parametrize(("sure", "kind"), [(0.4, "hang"), (0.9, "stopped")])
def test_a_silence_is_told_by_whoever_is_surest(warehouse: Warehouse, minute: Minute, sure: float, kind: str) -> None:
    minute(0, [diagnosis(0, kind="hang", confidence=0.5)])
    minute(1, [diagnosis(1, kind="stopped", severity=0.0, confidence=sure)])
    assert incidents(warehouse)["kind"].to_list() == [kind]


SHOWN = st.lists(
    st.lists(
        st.sampled_from(["gpu", "host", "leaf", "leaf of bert", "steps", "quiet", "stopped"]), unique=True, max_size=3
    ),
    min_size=3,
    max_size=5,
)
TOLD: dict[str, dict[str, Any]] = {
    "gpu": {},
    "host": {"kind": "slow_compute", "subject_type": "host", "subject": "gpt-01"},
    "leaf": LEAF,
    "leaf of bert": LEAF | {"job_id": "bert"},
    "steps": SLOW_STEPS,
    "quiet": {"kind": "hang", "confidence": 0.5},
    "stopped": STOPPED,
}


def written(place: str, shown: list[list[str]], order: list[int]) -> pl.DataFrame:
    lake = place.startswith("ducklake:")
    warehouse = (empty_lake if lake else empty_warehouse)(Path(place.removeprefix("ducklake:")))
    write = writer(warehouse)
    for number in order:
        write(number, [diagnosis(number, **TOLD[one], lost_gpu_s=float(number)) for one in shown[number]])
    return incidents(warehouse)


def same_in_any_order(folder: Path, prefix: str, shown: list[list[str]], order: list[int]) -> bool:
    straight = written(f"{prefix}{folder / 'straight'}", shown, list(range(len(shown))))
    assert_frame_equal(written(f"{prefix}{folder / 'shuffled'}", shown, order), straight)
    return True


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_windows_in_any_order_and_again_end_with_the_same_incidents(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shown = data.draw(SHOWN)
    order = data.draw(st.permutations(range(len(shown))))
    assert same_in_any_order(tmp_path_factory.mktemp("incidents"), "", shown, [*order, order[0]])


def test_a_lake_has_the_incidents_of_a_file_in_any_order(tmp_path: Path) -> None:
    shown = [["gpu", "steps"], ["host", "leaf", "leaf of bert"], [], [], ["host"]]
    assert same_in_any_order(tmp_path, "ducklake:", shown, [4, 0, 2, 3, 1, 3])
    file = written(str(tmp_path / "file"), shown, list(range(len(shown))))
    assert_frame_equal(incidents(open_warehouse(Warehouse(f"ducklake:{tmp_path / 'straight'}", lock_wait_s=5))), file)
