"""Who stopped first is who was due to send first, as surely as earlier steps can tell."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from llmprism_tasks.stages.liveness.first_stopped import ABSENT, DUE, FirstStopped, find_first_stopped
from llmprism_tasks.stages.liveness.progress.step_progress import StepProgress

MS = 1_000_000
SILENT = 10_000
PERIOD = 2_000

Sends = Mapping[str, tuple[str, float | None, float, float | None, float | None]]
"""Of each NIC: whom it was due to send to, when (ms before the silence), noise, when it last sent and received."""


def stood(
    sends: Sends,
    *,
    lost: float = 1e-6,
    pairs: Mapping[str, tuple[str, float | None]] | None = None,
    lasts: Mapping[str, float] | None = None,
    rests: Mapping[str, float] | None = None,
    chances: Mapping[str, float] | None = None,
) -> StepProgress:
    """Return how far a job was; `lasts` is how long what a NIC was due to send takes, ms, `rests` the rest of a record
    of which it has sent a part, and `chances` how likely what it was due to send was lost."""

    def at(before_ms: float | None) -> int | None:
        return None if before_ms is None else round((SILENT - before_ms) * MS)

    rows = [
        (addr, to, noise * MS, (lasts or {}).get(addr, 0.0) * MS, at(last), at(heard), at(due))
        for addr, (to, due, noise, last, heard) in sends.items()
    ]
    names = {"addr": pl.String, "to": pl.String, "noise_ns": pl.Float64, "lasts_ns": pl.Float64}
    times = dict.fromkeys(("last_ns", "heard_ns", "due_ns"), pl.Int64)
    linked = [(src, dst, at(last)) for src, (dst, last) in (pairs or {}).items()]
    return StepProgress(
        midway=True,
        ended_ns=0,
        silent_ns=SILENT * MS,
        period_ns=PERIOD * MS,
        even=False,
        may_end=False,
        pairs=pl.DataFrame(
            linked, schema={"src_addr": pl.String, "dst_addr": pl.String, "last_ns": pl.Int64}, orient="row"
        ),
        next_sends=pl.DataFrame(rows, schema=names | times, orient="row").with_columns(
            lost=pl.col("addr").replace_strict(chances or {}, default=0.0),
            rest_ns=pl.col("lasts_ns") + MS * pl.col("addr").replace_strict(rests or {}, default=0.0),
        ),
        lost=lost,
    )


def first(where: StepProgress, *, together: bool = True, hosts: Mapping[str, str] | None = None) -> FirstStopped | None:
    addrs = where.next_sends["addr"]
    return find_first_stopped(where, hosts or {addr: f"host-{addr[0]}" for addr in addrs}, together=together)


CHAIN: Sends = {
    "a": ("b", 600, 5, 900, 700),
    "b": ("c", 400, 5, 500, 550),
    "c": ("d", 200, 5, 300, 350),
    "d": ("a", 0, 5, 0, 100),
}
"""`a` owed something to `b`, which was seen later; the others fell silent one after the other."""


def test_who_was_due_first_is_named_if_its_receiver_was_there() -> None:
    told = first(stood(CHAIN))
    assert told is not None
    assert (told.host, told.is_sure, told.addrs, told.reason, told.is_late) == ("host-a", True, ("a",), DUE, True)


def test_who_sent_nothing_after_it_was_owed_something_may_be_the_one() -> None:
    """Senders wait for their receivers as often as not; then it is either end, and the odds are three to one."""
    told = first(stood(CHAIN | {"b": ("c", 400, 5, 700, 650)}))
    assert told is not None
    assert not told.is_sure
    assert dict(told.chances) == {"host-a": pytest.approx(0.75, abs=0.01), "host-b": pytest.approx(0.25, abs=0.01)}


@pytest.mark.parametrize(("heard", "odds"), [(700, 0.75), (500, 2 / 3)])
def test_who_received_something_after_it_was_due_was_there_if_senders_wait(heard: float, odds: float) -> None:
    told = first(stood(CHAIN | {"a": ("b", 600, 5, 900, heard), "b": ("c", 400, 5, 700, 650)}))
    assert told is not None
    assert told.chances["host-a"] == pytest.approx(odds, abs=0.01)


@pytest.mark.parametrize(("noise", "sure"), [(100, True), (200, False)])
def test_the_deviation_of_earlier_steps_says_how_sure_it_is(noise: float, sure: bool) -> None:
    """200 ms apart are 1.4 and 0.7 deviations of the two; the logistic function of 1.7 times that is 0.92 and 0.77."""
    due: Sends = {"a": ("b", 600, noise, 900, 700), "b": ("a", 400, noise, 0, 550)}
    told = first(stood(due))
    assert told is not None
    assert (told.host, told.is_sure) == ("host-a", sure)


@pytest.mark.parametrize(("lost", "sure"), [(0.1, True), (0.3, False)])
def test_where_records_are_lost_nobody_is_sure(lost: float, sure: bool) -> None:
    told = first(stood(CHAIN, lost=lost))
    assert told is not None
    assert told.is_sure == sure


@pytest.mark.parametrize(("late", "told"), [(41, True), (-1, False)])
def test_where_nothing_was_due_all_stopped_together(late: float, told: bool) -> None:
    """2 % of a step of 2 s are 40 ms: what was due earlier is likelier than not to be the cause."""
    due: Sends = {"a": ("b", late, 1, 900, 700), "b": ("a", -500, 5, 0, 550)}
    assert (first(stood(due)) is not None) == told
    went_on = first(stood(due), together=False)
    assert went_on is not None
    assert went_on.host == "host-a"


@pytest.mark.parametrize(("late", "is_late"), [(40, False), (80, True)])
def test_it_is_late_if_the_time_alone_is_sure(late: float, is_late: bool) -> None:
    told = first(stood({"a": ("b", late, 1, 900, 700), "b": ("a", -500, 5, 0, 550)}))
    assert told is not None
    assert told.is_late == is_late


BARRIER: Sends = {
    "a": ("b", 200, 1, None, 30),
    "b": ("c", -500, 1, 0, None),
    "c": ("a", -500, 1, 10, 0),
}
"""`a` owed what the others had sent, a little before they fell silent."""


@pytest.mark.parametrize(("long", "is_sure"), [(265, True), (285, False)])
def test_a_job_that_was_killed_looks_as_if_one_had_stopped_while_a_long_message_is_under_way(
    long: float, is_sure: bool
) -> None:
    """With records of whole messages: what `a` was due to send is under way for another 74 ms of a step of 2 s, a 27th.

    That one of three hosts stops is as likely as that all do, and that this one does a third of it.
    """
    told = first(stood(BARRIER, lasts=dict.fromkeys("abc", long)))
    assert told is not None
    assert told.host == "host-a"
    assert told.is_sure == is_sure
    assert told.together == pytest.approx(1 - 1 / (1 + 3 * (long - 200) / PERIOD), abs=0.01)
    assert sum(told.chances.values()) + told.together == pytest.approx(1, abs=0.01)


def test_who_owed_what_would_have_been_over_before_the_others_fell_silent_has_stopped_alone() -> None:
    told = first(stood(BARRIER, lasts={"a": 150, "b": 2000, "c": 2000}))
    assert told is not None
    assert told.is_sure
    assert told.together < 0.02


@pytest.mark.parametrize(("rest", "is_killed"), [(450, True), (380, False)])
def test_of_joined_messages_the_rest_may_be_under_way_though_the_first_are_seen(rest: float, is_killed: bool) -> None:
    """`a` and `b` owe what lasts 1 s. `c` and `d` exchange a record of several messages, and wait for nobody else: the
    rest of it was due 400 ms before the last flow."""
    begun: Sends = {"c": ("d", 400, 1, 401, 401), "d": ("c", 400, 1, 401, 401)}
    owed: Sends = {"a": ("b", 600, 1, 650, 650), "b": ("a", 550, 1, 650, 650)}
    told = first(stood(owed | begun, lasts=dict.fromkeys("ab", 1000), rests=dict.fromkeys("cd", rest)))
    assert told is not None
    assert (told.together > 0.5) == is_killed


@pytest.mark.parametrize(("rest", "odds"), [(150, 3 * 50 / 151), (600, 3 * 500 / 601)])
def test_who_has_sent_a_part_of_a_record_may_have_stopped_anywhere_in_its_rest(rest: float, odds: float) -> None:
    """Three hosts are killed while the rest is under way, or one of them stops in it."""
    told = first(stood(BARRIER | {"a": ("b", 100, 1, 101, 30)}, rests=dict.fromkeys("abc", rest)))
    assert told is not None
    assert told.together == pytest.approx(odds / (1 + odds), abs=0.02)


def test_a_job_that_went_on_has_not_been_killed() -> None:
    told = first(stood(BARRIER, lasts=dict.fromkeys("abc", 1000)), together=False)
    assert told is not None
    assert told.together == 0


def test_who_owes_nothing_is_nobody() -> None:
    assert first(stood({"a": ("b", None, 5, 0, 0)})) is None
    assert first(stood({"a": ("b", 500, 5, 600, 0)}), hosts={"x": "host-x"}) is None


def test_unlikely_hosts_are_no_candidates() -> None:
    """One in twenty."""
    close = CHAIN | {"b": ("c", 600, 5, 700, 650), "c": ("d", 585, 5, 590, 350)}
    told = first(stood(close))
    assert told is not None
    assert all(chance >= 0.05 for chance in told.chances.values())
    assert set(told.chances) == {"host-a", "host-b"}


def test_of_several_nics_in_lock_step_the_middle_one_tells() -> None:
    """The record of one NIC is lost, which looks late; the host's others are not."""
    lost = {f"a{at}": ("b0", 900 if at == 0 else 100, 5, 1000, 700) for at in range(4)}
    told = first(stood(lost | {"b0": ("a0", 500, 5, 0, 0)}))
    assert told is not None
    assert told.host == "host-b"


@pytest.mark.parametrize(("apart", "nics"), [(20, ("a0", "a1")), (22, ("a0",))])
def test_nics_that_were_due_together_stopped_together(apart: float, nics: tuple[str, ...]) -> None:
    """Three deviations of 5 ms each, and the error of a clock: 21.4 ms."""
    due: Sends = {
        "a0": ("b", 600, 5, 900, 700),
        "a1": ("b", 600 - apart, 5, 900, 700),
        "b": ("a0", 0, 5, 0, 100),
    }
    told = first(stood(due))
    assert told is not None
    assert told.addrs == nics


def test_of_two_nics_of_a_host_that_wait_for_each_other_both_are_told() -> None:
    due: Sends = {"a0": ("a1", 600, 5, 900, 700), "a1": ("b", 100, 5, 900, 700), "b": ("a0", 0, 5, 0, 100)}
    told = first(stood(due))
    assert told is not None
    assert told.addrs == ("a0", "a1")


@pytest.mark.parametrize(("others_ms", "reason"), [(190, DUE), (160, ABSENT)])
def test_a_weak_absence_is_no_reason(others_ms: float, reason: str) -> None:
    """A spread of 174 ms in 2 s has, of five hosts, a chance of 1 in 1,500: that it sent nothing counts ten to one."""
    ring = {"a": ("b", 2000.0), "b": ("c", 0.0), "c": ("d", others_ms), "d": ("e", 0.0), "e": ("a", 0.0)}
    heard = dict(ring.values())
    due: Sends = {addr: (to, 1900 if addr == "a" else 0, 5, last, heard[addr]) for addr, (to, last) in ring.items()}
    told = first(stood(due, pairs=ring, lost=1e-9))
    assert told is not None
    assert (told.host, told.reason) == ("host-a", reason)


def test_who_is_absent_from_a_ring_stopped_though_others_owe_more() -> None:
    """All have sent a little of what follows, and `b` nothing: it was due when the others were."""
    others = {
        addr: (to, 5.0 + at, 1.0, 5.0 + at, 4.0 + at) for at, (addr, to) in enumerate(zip("cdea", "deab", strict=True))
    }
    ring = {addr: (to, last) for addr, (to, _, _, last, _) in others.items()} | {"b": ("c", 900.0)}
    told = first(stood({**others, "b": ("c", 4, 2, 900, 4)}, pairs=ring))
    assert told is not None
    assert (told.host, told.is_sure, told.reason) == ("host-b", True, ABSENT)
    alone = first(stood({**others, "b": ("c", 4, 2, 900, 4)}), together=False)
    assert alone is not None
    assert alone.host != "host-b"


STAGES: dict[str, tuple[str, float | None]] = {
    "a": ("b", 30.0), "b": ("c", 0.0), "c": ("d", 10.0), "d": ("a", None),
    "e": ("f", 230.0), "f": ("g", 200.0), "g": ("h", 210.0), "h": ("e", None),
}  # fmt: skip
"""Two rings: `d` and `h` are absent from what the others of theirs have begun."""


@pytest.mark.parametrize(("lasts_ms", "killed"), [(600, True), (180, False)])
def test_who_is_absent_came_after_the_others_of_its_own_ring(lasts_ms: float, killed: bool) -> None:
    """`h` was due 190 ms before the last flow: where its exchange would be under way yet, all may have been killed."""
    due: Sends = {addr: (to, (last or 0) - 1, 1, last, last) for addr, (to, last) in STAGES.items()}
    due |= {"d": ("a", -20, 20, None, 0), "h": ("e", 190, 20, None, 200)}
    told = first(stood(due, pairs=STAGES, lost=1e-9, lasts=dict.fromkeys("abcdefgh", lasts_ms)))
    assert told is not None
    assert (told.host, told.is_sure, told.together > 0.5) == ("host-h", not killed, killed)


@pytest.mark.parametrize(("late_ms", "host"), [(100, "host-d"), (700, "host-e")])
def test_who_is_absent_from_a_ring_is_not_awaited_by_other_stages(late_ms: float, host: str) -> None:
    """What `e` owes was due long before; `d` may wait for it."""
    due: Sends = {addr: (to, None, 1, last, last) for addr, (to, last) in STAGES.items() if addr in "fgh"}
    due |= {addr: (to, (last or 0) - 1, 1, last, last) for addr, (to, last) in STAGES.items() if addr in "abc"}
    due |= {"d": ("a", 150, 20, None, 0), "e": ("f", late_ms, 20, 800, 750)}
    told = first(stood(due, pairs=STAGES, lost=1e-3))
    assert told is not None
    assert told.host == host


@pytest.mark.parametrize(("owing", "is_sure"), [(1, False), (4, True)])
def test_one_of_several_nics_that_owes_what_is_often_lost_may_not_have_stopped(owing: int, is_sure: bool) -> None:
    """In one of five steps a NIC lacks as much; that all four of a host do is one in six hundred."""
    nics: Sends = {f"a{at}": ("b0", 900 if at < owing else None, 5, 1000, 700) for at in range(4)}
    told = first(stood(nics | {"b0": ("a0", 500, 5, 0, 0)}, chances={f"a{at}": 0.2 for at in range(4)}))
    assert told is not None
    assert (told.host, told.is_sure) == ("host-a", is_sure)
    assert ("host-b" in told.chances) != is_sure


@pytest.mark.parametrize(
    ("begun_ms", "due_ms", "is_sure"), [(30.0, 200.0, False), (1900.0, 200.0, True), (1900.0, 0.0, False)]
)
def test_who_alone_is_absent_may_be_the_last_to_begin_if_it_was_due_after_all_others(
    begun_ms: float, due_ms: float, is_sure: bool
) -> None:
    """What is due is under way for a fifth of a step, and nobody knows of the last to begin until it is over."""
    ring = {"a": ("b", begun_ms), "b": ("c", 0.0), "c": ("d", 10.0), "d": ("e", 20.0), "e": ("a", 15.0)}
    due: Sends = {addr: (to, due_ms if addr == "a" else -500, 1, None, None) for addr, (to, _) in ring.items()}
    told = first(stood(due, pairs=ring, lost=1e-9, lasts=dict.fromkeys("abcde", 600)))
    assert told is not None
    assert (told.host, told.is_sure) == ("host-a", is_sure)


@pytest.mark.parametrize(("waits_ms", "lasts_ms", "is_told"), [(0, 400, False), (1300, 400, True), (0, 0, True)])
def test_one_record_that_is_owed_was_lost_if_nobody_waits_before_it(
    waits_ms: float, lasts_ms: float, is_told: bool
) -> None:
    """A NIC of sixteen owes what should have left with its last record. A part of a record that is seen is not lost."""
    nics: Sends = {f"{host}{at}": ("b0", None, 0.2, 0, 0) for host in "ab" for at in range(8)}
    owing: Sends = {"a0": ("b0", 640, 0.2, 640 + waits_ms, 0)}
    told = first(stood({**nics, **owing}, lasts={"a0": lasts_ms}, chances=dict.fromkeys(nics, 0.0005)))
    assert (told is not None) == is_told
    assert told is None or (told.host, told.is_sure) == ("host-a", True)


def test_records_of_several_nics_are_hardly_lost_together() -> None:
    nics: Sends = {f"{host}{at}": ("b0", None, 0.2, 0, 0) for host in "ab" for at in range(8)}
    owing: Sends = {f"a{at}": ("b0", 640, 0.2, 640, 0) for at in range(3)}
    told = first(stood({**nics, **owing}, lasts=dict.fromkeys(owing, 400), chances=dict.fromkeys(nics, 0.0005)))
    assert told is not None
    assert (told.host, told.is_sure) == ("host-a", True)


@pytest.mark.parametrize(("waits_ms", "odds"), [(2000, 0.3), (600, 1.0)])
def test_the_longer_who_owes_something_waits_before_it_the_likelier_it_stopped_there(
    waits_ms: float, odds: float
) -> None:
    """All three of a step of 2 s stop while what is due is under way, for 200 ms, or one of three in its own wait."""
    told = first(stood(BARRIER | {"a": ("b", 200, 1, 200 + waits_ms, 30)}, lasts=dict.fromkeys("abc", 400)))
    assert told is not None
    assert told.together == pytest.approx(odds / (1 + odds), abs=0.01)


@pytest.mark.parametrize("lost", [0.0, 0.02])
def test_a_job_that_was_killed_lacks_what_was_under_way_and_what_was_lost(lost: float) -> None:
    """`a` owes what was over before the last flow; if its record was lost, the others show that the job was killed.

    Three hosts and the 700 ms until what `b` sends is over stand against the 15 ms that `a` waits.
    """
    owed = BARRIER | {"a": ("b", 600, 1, 615, 30)}
    told = first(stood(owed, lasts={"a": 100, "b": 200, "c": 400}, chances={"a": lost}))
    assert told is not None
    odds = 3 * lost * 700 / 15
    assert told.together == pytest.approx(odds / (1 + odds), abs=0.02)


def test_nobody_is_named_if_no_host_is_likely_enough_for_a_candidate() -> None:
    """Forty hosts owe the same at the same time, so that the job was likely killed, and each of them is unlikely."""
    many: Sends = {f"h{at}": ("h0", 0, 1, 60, 30) for at in range(40)}
    told = first(stood(many, lasts=dict.fromkeys(many, 8)), hosts={addr: f"host-{addr}" for addr in many})
    assert told is None
