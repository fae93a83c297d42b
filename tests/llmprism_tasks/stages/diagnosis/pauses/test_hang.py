"""A hang names who went quiet first, a crash is told and wakes nobody, and the end of the data is nobody's trouble."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from handmade import MB, MS, WINDOW
from job_evidence import DEFAULT, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.pauses import hang
from llmprism_tasks.stages.liveness.overdue import Gap, Silence
from llmprism_tasks.stages.liveness.step_progress import StepProgress

PERIOD = 2000
SINCE = 20_000
RING = {"a": "b", "b": "c", "c": "d", "d": "e", "e": "a"}
PIPELINES = {"a": "p", "p": "a", "b": "q", "q": "b", "c": "r", "r": "c"}

Due = tuple[str, str, float, float, float, float | None]
"""A pair that has more to send: late by ms, give or take ms, sent MB, when it sent last."""


def pairs(towards: Mapping[str, str], late: Mapping[str, float], **more: Mapping[str, float]) -> list[Due]:
    """Return pairs of these senders, each late by so many ms; `sent` MB and `last` ms are 0 and None where not told."""
    return [
        (src, dst, late.get(src, 0), 5, more.get("sent", {}).get(src, 0), more.get("last", {}).get(src))
        for src, dst in towards.items()
    ]


def stood(due: Sequence[Due], noise: float | None = None, *, even: bool = False) -> StepProgress:
    rows = [
        (
            src,
            dst,
            late * MS,
            (noise or usual) * MS,
            round(sent * MB),
            None if last is None else WINDOW.start_ns + round(last * MS),
        )
        for src, dst, late, usual, sent, last in due
    ]
    names = ["src_addr", "dst_addr", "late_ns", "noise_ns", "sent", "last_ns"]
    waiting = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    return StepProgress(
        midway=True,
        ended_ns=WINDOW.start_ns,
        silent_ns=WINDOW.start_ns + SINCE * MS,
        period_ns=PERIOD * MS,
        even=even,
        pairs=waiting.select("src_addr", "dst_addr", "sent", "last_ns", usual=pl.lit(10.0 * MB)),
        due=waiting,
    )


def evidence(
    due: Sequence[Due],
    *,
    over: bool = False,
    restarted: bool = False,
    alone: bool = False,
    hosts: Mapping[str, str] | None = None,
    noise: float | None = None,
    even: bool = False,
) -> Evidence:
    """Return evidence about a job that is silent for 20 s."""
    since, until = (WINDOW.start_ns + at * MS for at in (SINCE, 2 * SINCE))
    gap = Gap("j", since, until if over else None, PERIOD * MS)
    told = Silence(gap, until, restarted=restarted, alone=alone, where=stood(due, noise, even=even))
    addrs = sorted({addr for row in due for addr in row[:2]})
    well = working([{addr: [500.0] * 10 for addr in addrs}], hosts=hosts)
    return dataclasses.replace(well, silences=[told])


def named(told: Evidence) -> list[tuple[str, str, str]]:
    return hang.find(told, DEFAULT).select("kind", "subject_type", "subject").rows()


BEGAN = {"c": 19_970.0, "d": 19_980.0, "e": 20_000.0}
IDLE_B = pairs(RING, {}, sent=dict.fromkeys("cde", 4), last=BEGAN)
"""All hops of which both ends have come were begun; `b`, to which and from which nothing went, has not."""

ONE_BY_ONE = pairs(
    RING,
    {},
    sent={"b": 8, "c": 9, "d": 10, "e": 11, "a": 9},
    last={"b": 19_940, "c": 19_960, "d": 19_970, "e": 19_980, "a": 20_000},
)
"""`b` stopped in the middle of the ring's transfer, then who receives from it, and so on."""


def test_who_has_not_come_to_the_exchange_is_named_with_what_it_costs() -> None:
    rows = hang.find(evidence(IDLE_B), DEFAULT)
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    (row,) = rows.to_dicts()
    assert (row["kind"], row["subject_type"], row["subject"]) == ("hang", "addr", "b")
    assert (row["start_ns"], row["end_ns"]) == (WINDOW.start_ns + SINCE * MS, WINDOW.start_ns + 2 * SINCE * MS)
    assert (row["severity"], row["score"]) == (10, 10)
    assert row["peers"] == ["a", "c", "d", "e"]
    assert row["confidence"] == hang.SURE
    stood = "in the middle of a step of 2.0 s, and had been silent for 20 s when the window ended"
    assert f"{stood}. NIC b stopped first: it took no part" in row["explanation"]


@pytest.mark.parametrize(("before", "names"), [(19_910, ("job", "j")), (19_890, ("addr", "b"))])
def test_the_last_exchange_is_apart_from_the_one_before(before: float, names: tuple[str, str]) -> None:
    """Half of the time from when `a` and `b` exchanged last, 110 ms before the silence, to the last 55 ms of it."""
    due = pairs(RING, {}, last={"a": before, "b": before, "c": 19_950, "d": 19_970, "e": 20_000})
    assert named(evidence(due))[0][1:] == names


def test_of_two_that_have_not_come_nobody_is_named() -> None:
    """A killed rank and who was told so by its broken connection look alike."""
    assert named(evidence(pairs(RING, {}, last={"d": 20_000}))) == [("stopped", "job", "j")]
    assert named(evidence(pairs(RING, dict.fromkeys(RING, 300), last={"d": 20_000}))) == [("hang", "job", "j")]


def test_a_ring_falls_silent_from_who_stopped_first() -> None:
    assert named(evidence(ONE_BY_ONE)) == [("hang", "addr", "b")]


@pytest.mark.parametrize(("who", "at"), [("c", 19_930), ("d", 19_960), ("a", 19_980)])
def test_a_ring_that_falls_silent_in_any_order_was_stopped(who: str, at: float) -> None:
    other = [(*row[:5], at) if row[0] == who else row for row in ONE_BY_ONE]
    assert named(evidence(other)) == [("stopped", "job", "j")]


BLOCKS = {"a": 3.0, "b": 3.0, "c": 4.0, "d": 4.0, "e": 4.0}


@pytest.mark.parametrize(
    ("sent", "late", "told"),
    [
        (BLOCKS, 500, ("hang", "addr", "b")),
        (BLOCKS, 20, ("stopped", "job", "j")),
        (BLOCKS | {"a": 3.94, "b": 3.94}, 500, ("hang", "job", "j")),
        (BLOCKS | {"a": 3.93, "b": 3.93}, 500, ("hang", "addr", "b")),
        (BLOCKS | {"c": 3.0}, 500, ("hang", "job", "j")),
    ],
    ids=["lacks a block", "nobody is late", "less than a block", "a small block", "three hops lack one"],
)
def test_over_the_hops_from_and_to_who_stopped_a_block_less_has_come(
    sent: Mapping[str, float], late: float, told: tuple[str, str, str]
) -> None:
    """A block has 64 kB at least."""
    assert named(evidence(pairs(RING, dict.fromkeys(RING, late), sent=sent))) == [told]


@pytest.mark.parametrize(
    ("filled", "subject", "candidates"),
    [
        (2.0, ("addr", "b"), ["host-b", "host-c"]),
        (0.9, ("job", "j"), None),
        (-2.0, ("addr", "c"), ["host-c", "host-b"]),
    ],
    ids=["b", "nobody", "c"],
)
def test_of_two_between_three_hops_that_lack_a_block_the_one_whose_buffers_filled_has_stopped(
    filled: float, subject: tuple[str, str], candidates: list[str] | None
) -> None:
    """What came to `b` was seen for longer after its own last than what came to `c`: by more than clocks differ."""
    last = {"a": 19_500 + filled, "b": 19_500, "c": 19_500, "d": 19_900, "e": 19_900}
    due = pairs(RING, dict.fromkeys(RING, 500), sent=BLOCKS | {"c": 3.0}, last=last)
    (row,) = hang.find(evidence(due), DEFAULT).to_dicts()
    assert ((row["subject_type"], row["subject"]), row["candidates"]) == (subject, candidates)


def test_three_make_a_ring_and_two_do_not() -> None:
    """Of a link of two, which has waited as long, each end sends what it gets."""
    three = {"a": "b", "b": "c", "c": "a"}
    sent, late = {addr: BLOCKS[addr] for addr in three}, dict.fromkeys(three, 500)
    assert named(evidence(pairs(three, late, sent=sent))) == [("hang", "addr", "b")]
    link = pairs(three | {"p": "q", "q": "p"}, late | {"p": 500, "q": 500}, sent=sent | {"p": 8.0, "q": 9.0})
    assert named(evidence(link)) == [("hang", "addr", "b")]


def test_of_two_rings_the_one_that_waited_longer_tells_who_stopped() -> None:
    other = {"p": "q", "q": "r", "r": "p"}
    sent = BLOCKS | {"p": 8, "q": 9, "r": 8}
    late = dict.fromkeys(RING, 1400) | dict.fromkeys(other, 450)
    assert named(evidence(pairs(RING | other, late, sent=sent))) == [("hang", "addr", "b")]


def test_three_fall_silent_in_order_by_chance() -> None:
    short = {"a": "b", "b": "c", "c": "a"}
    due = pairs(short, {}, sent={"b": 8, "c": 9, "a": 9}, last={"b": 19_940, "c": 19_960, "a": 19_970})
    assert named(evidence(due)) == [("stopped", "job", "j")]


def test_in_a_pipeline_the_first_that_was_due_is_named_and_who_may_not_have_taken_it() -> None:
    """`b` and `q` stopped; other pipelines ran on for 600 ms."""
    (row,) = hang.find(evidence(pairs(PIPELINES, {"b": 600, "q": 580})), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["subject"]) == ("hang", "addr", "b")
    assert "was due to send to host-q first. It may also have been host host-q." in row["explanation"]
    assert row["confidence"] == hang.UNSURE


@pytest.mark.parametrize(
    ("due_to_c", "owes"), [(1600, "c"), (1693, "c"), (1695, "b")], ids=["later", "just later", "as early"]
)
def test_who_owes_an_answer_and_lacks_nothing_stopped_first(due_to_c: float, owes: str) -> None:
    """`c` was due to answer `b` at first. When `a` is due to send differs from step to step, so that it may have been
    due as early; but it was due to receive from `b` before. Two ms of noise three times are six."""
    due: list[Due] = [
        ("c", "b", 1700, 2, 0, None),
        ("b", "a", 1650, 2, 0, None),
        ("b", "c", due_to_c, 2, 4, 19_000),
        ("a", "b", 1400, 105, 4, 19_000),
    ]
    (row,) = hang.find(evidence(due), DEFAULT).to_dicts()
    assert row["subject"] == owes
    if owes == "c":
        assert "had received all that it needed and has not sent to host-b" in row["explanation"]
        assert (row["candidates"], row["odds"]) == (["host-c", "host-b"], [0.75, 0.25])


@pytest.mark.parametrize(("towards", "stopped"), [({"b": "a", "c": "b"}, "b"), ({"c": "b", "d": "c"}, "c")])
def test_in_a_line_of_stages_whom_all_wait_for_has_stopped(towards: Mapping[str, str], stopped: str) -> None:
    """Gradients are due to and from it; the one that it waits for was begun last."""
    last = {"b": 19_850, "c": 19_900, "d": 20_000} | ({"c": 20_000} if "d" not in towards else {})
    assert named(evidence(pairs(towards, {}, sent={"c": 3, "d": 3}, last=last))) == [("hang", "addr", stopped)]


@pytest.mark.parametrize(("late", "kind"), [(39, "stopped"), (41, "hang")])
def test_who_is_overdue_by_less_than_a_step_varies_was_stopped_with_all_others(late: float, kind: str) -> None:
    """2 % of a step of 2 s are 40 ms."""
    assert named(evidence(pairs(PIPELINES, {"b": late, "q": late})))[0][0] == kind


@pytest.mark.parametrize(("late", "kind"), [(490, "stopped"), (510, "hang")])
def test_who_is_overdue_by_less_than_its_own_noise_was_stopped_too(late: float, kind: str) -> None:
    """Five deviations of 100 ms."""
    assert named(evidence(pairs(PIPELINES, {"b": late, "q": late}), noise=100))[0][0] == kind


@pytest.mark.parametrize(("late", "subject"), [(530, "j"), (570, "b")])
def test_others_that_are_as_late_leave_it_open(late: float, subject: str) -> None:
    """Within 2 % of a step of the latest."""
    due = pairs(PIPELINES, {"b": late + 40, "q": late + 40, "c": 550, "r": 550})
    assert named(evidence(due))[0][2] == subject


CHAIN = {"a": "b", "b": "c", "c": "d"}


def test_who_waits_for_an_earlier_exchange_of_its_own_is_excused() -> None:
    """`a` hands nothing on to `b`, which has nothing for `c`; another pipeline, as late, could as well be the cause."""
    late = {"a": 700, "b": 680, "c": 661}
    assert named(evidence(pairs(CHAIN, late))) == [("hang", "addr", "a")]
    assert named(evidence(pairs(CHAIN | {"x": "y"}, late | {"x": 690}))) == [("hang", "job", "j")]


@pytest.mark.parametrize(("towards", "odds"), [("az", 0.75), ("za", 0.5)], ids=["sent", "received"])
def test_of_two_who_sent_longest_ago_went_quiet_first(towards: str, odds: float) -> None:
    """`a` and `b` have sent to each other 1,250 ms before the end, and `a` to `z` later; what `a` receives may wait."""
    due = pairs({"a": "b", "b": "a"}, {"a": 600, "b": 600}, last={"a": 18_750, "b": 18_750})
    (row,) = hang.find(evidence([*due, (towards[0], towards[1], 0, 5, 0, 19_000)]), DEFAULT).to_dicts()
    assert dict(zip(row["candidates"], row["odds"], strict=True))["host-b"] == odds
    assert row["confidence"] == hang.UNSURE


@pytest.mark.parametrize(
    ("sent", "named_"),
    [("acde", [("hang", "addr", "b")]), ("ace", [("stopped", "job", "j")]), ("cde", [("hang", "addr", "b")])],
    ids=["alone", "two of five", "its sender waits for it"],
)
def test_who_sends_nothing_into_a_ring_has_not_come(sent: str, named_: list[tuple[str, str, str]]) -> None:
    """`b` may have received something of `a`; `a`, if it has sent nothing, has received something of `e`."""
    due = pairs(RING, {}, sent=dict.fromkeys(sent, 1), last=dict.fromkeys(sent, 19_900.0))
    assert named(evidence(due)) == named_


def test_the_idle_hops_of_a_ring_have_who_hangs_in_common() -> None:
    """Nothing came from `a` to `b`, nor on to `c`, but over all other hops. Where it comes back, it is no ring."""
    due = pairs({"a": "b", "b": "c", "d": "a"}, {"a": 600, "b": 600, "d": 595}, sent={"d": 3}, last={"d": 19_000})
    assert named(evidence(due)) == [("hang", "addr", "b")]
    back = pairs({"b": "a", "a": "b", "d": "a"}, {"b": 600, "a": 600, "d": 595}, sent={"d": 3}, last={"d": 19_000})
    assert named(evidence(back)) != [("hang", "addr", "b")]


@pytest.mark.parametrize(
    ("late", "first", "said"),
    [(584, "p", "was due to send to host-a first"), (586, "a", "at the same time. It may also have been host host-p.")],
)
def test_of_two_that_were_seen_together_the_earlier_stage_is_named(late: float, first: str, said: str) -> None:
    """Without stages who was due to send for longer than fifteen ms of noise explain; else the first by name."""
    due = pairs({"a": "p", "p": "a", "b": "q", "q": "b"}, {"a": late, "p": 600})
    known = evidence(due)
    (row,) = hang.find(known, DEFAULT).to_dicts()
    assert (row["subject"], row["confidence"]) == (first, hang.UNSURE)
    assert said in row["explanation"]
    stages = {"a": 0, "b": 0, "p": 1, "q": 1}
    placed = [dataclasses.replace(one, stages=stages) for one in known.silences]
    assert named(dataclasses.replace(known, silences=placed))[0][2] == "a"


@pytest.mark.parametrize(("sent", "first"), [({}, "a"), ({"a": 4}, "p"), ({"a": 4, "p": 1}, "a"), ({"p": 1}, "a")])
def test_of_two_equally_due_who_has_begun_to_send_has_come(sent: Mapping[str, float], first: str) -> None:
    due = pairs({"a": "p", "p": "a", "b": "q", "q": "b"}, {"a": 600, "p": 600}, sent=sent)
    assert named(evidence(due)) == [("hang", "addr", first)]


def test_of_two_who_had_received_all_and_sent_nothing_comes_first_whatever_its_stage() -> None:
    """`a` waits for a gradient of `p`, to which it has sent all activations."""
    due = evidence(pairs({"p": "a"}, {"p": 600}))
    (one,) = due.silences
    (row,) = hang.find(
        dataclasses.replace(due, silences=[dataclasses.replace(one, stages={"a": 0, "p": 1})]), DEFAULT
    ).to_dicts()
    assert (row["subject"], row["candidates"], row["odds"]) == ("p", ["host-p", "host-a"], [0.75, 0.25])
    assert "had received all that it needed and has not sent to host-a" in row["explanation"]


def test_what_nothing_tells_apart_is_a_tie() -> None:
    (row,) = hang.find(evidence(pairs({"a": "p", "p": "a"}, {"a": 600, "p": 600})), DEFAULT).to_dicts()
    assert (row["candidates"], row["odds"]) == (["host-a", "host-p"], [0.5, 0.5])


def test_where_all_idle_hops_meet_is_who_has_not_come() -> None:
    """`b`, whose pipeline's next stage `z` waits for it, too; and with one of a ring away, one of two that meet."""
    first = dict.fromkeys("cde", 19_990.0)
    due = pairs(RING | {"z": "b"}, {}, sent=dict.fromkeys("cde", 4), last=first | {"z": 18_000.0})
    assert named(evidence(due)) == [("hang", "addr", "b")]
    twice = {"a": "b", "b": "a", "c": "d", "d": "c"}
    due = pairs(twice, {}, last={"c": 19_990, "d": 19_990})
    (row,) = hang.find(evidence(due), DEFAULT).to_dicts()
    assert (row["subject"], row["confidence"]) == ("a", hang.UNSURE)


def test_lock_step_peers_are_their_host() -> None:
    hosts = {addr: f"host-{addr[0]}" for addr in ("a1", "a2", "b1", "b2", "p1", "p2", "q1", "q2")}
    both = {f"{x}{i}": f"{y}{i}" for x, y in (("a", "p"), ("p", "a"), ("b", "q"), ("q", "b")) for i in (1, 2)}
    late = {"b1": 600, "b2": 600, "q1": 590, "q2": 590}
    (row,) = hang.find(evidence(pairs(both, late), hosts=hosts), DEFAULT).to_dicts()
    assert (row["subject_type"], row["subject"]) == ("host", "host-b")
    assert row["peers"] == ["a1", "a2", "p1", "p2", "q1", "q2"]


def test_one_of_several_rails_that_looks_late_has_lost_a_record() -> None:
    hosts = {f"{x}{i}": f"host-{x}" for x in "ab" for i in (1, 2, 3)}
    rails = {f"a{i}": f"b{i}" for i in (1, 2, 3)} | {f"b{i}": f"a{i}" for i in (1, 2, 3)}
    assert named(evidence(pairs(rails, {"a1": 600}), hosts=hosts))[0][0] == "stopped"
    assert named(evidence(pairs(rails, {"a1": 600, "a3": 600}), hosts=hosts))[0][0] == "hang"


def rails(rail: int, *, lacks: float = 0.1, before: float = 19_800, back: bool = False) -> list[Due]:
    """Return rings of hosts a to e, one over each of some rails, whose last exchange lacks the NICs of `b`.

    Parameters
    ----------
    lacks : MB of a step that `b` has sent less than all others
    before : when `b` sent last, ms; others sent from 19,950 ms on, and fell silent at 20,000
    back : NICs of `c` answer those of `b`
    """
    towards = {f"{x}{i}": f"{y}{i}" for x, y in RING.items() for i in range(rail)}
    last = {addr: before if addr[0] == "b" else 19_950 + 10 * "acde".index(addr[0]) for addr in towards}
    due = pairs(towards, {}, last=last, sent={addr: 7 - lacks * (addr[0] == "b") for addr in towards})
    return [
        *due,
        *pairs({f"c{i}": f"b{i}" for i in range(rail)}, {}, sent={"c0": 7}, last={"c0": 19_950}),
    ] * back or due


OF_RAILS = {f"{addr}{i}": f"host-{addr}" for addr in RING for i in range(2)}


@pytest.mark.parametrize(
    ("due", "named_"),
    [
        (rails(2), [("hang", "host", "host-b")]),
        (rails(1), []),
        (rails(2, lacks=0), []),
        (rails(2, before=19_890), [("hang", "host", "host-b")]),
        (rails(2, before=19_910), []),
        (rails(2, back=True), []),
    ],
    ids=["missing", "one record", "as far as others", "apart", "not apart", "no ring"],
)
def test_who_alone_is_missing_from_the_last_exchange_stopped_first(
    due: Sequence[Due], named_: list[tuple[str, str, str]]
) -> None:
    """The others have begun, also to send to it: in a step of sharded parameters all had exchanged much before."""
    assert named(evidence(due, hosts=OF_RAILS, even=True)) == named_


def all_to_all(last: Mapping[str, float], late: float = 300) -> list[Due]:
    """Return what five NICs that send to each other have left to send, each as late as all others."""
    return [(src, dst, late, 5, 1, last[src]) for src in "abcde" for dst in "abcde" if src != dst]


@pytest.mark.parametrize(
    ("last", "late", "told"),
    [
        ({"a": 100, "b": 50, "c": 95, "d": 99, "e": 98}, 300, {"host-b": 0.75, "host-c": 0.25}),
        ({"a": 100, "b": 50, "c": 51, "d": 99, "e": 98}, 300, {"host-b": 0.5, "host-c": 0.5}),
        ({"a": 100, "b": 50, "c": 51, "d": 52, "e": 98}, 300, None),
        ({"a": 100, "b": 50, "c": 95, "d": 99, "e": 98}, 0, None),
        ({"a": 100, "b": 100, "c": 100, "d": 100, "e": 100}, 300, None),
    ],
    ids=["one", "two", "three", "nobody was late", "all at once"],
)
def test_where_all_send_to_all_who_sent_its_last_before_the_widest_silence_stopped(
    last: Mapping[str, float], late: float, told: Mapping[str, float] | None
) -> None:
    due = all_to_all({addr: 19_900 + at for addr, at in last.items()}, late)
    (row,) = hang.find(evidence(due), DEFAULT).to_dicts()
    assert row["candidates"] == (told and list(told))
    assert row["odds"] == (told and list(told.values()))
    assert row["subject"] == "j"  # whoever is guessed is not accused


@pytest.mark.parametrize("late", [300, 0])
def test_who_may_have_stopped_first_in_a_crash_is_told_if_others_were_waiting(late: float) -> None:
    due = all_to_all({"a": 20_000, "b": 19_950, "c": 19_995, "d": 19_999, "e": 19_998}, late)
    (row,) = hang.find(evidence(due, over=True, restarted=True), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["subject"]) == ("stopped", "job", "j")
    assert row["candidates"] == (["host-b", "host-c"] if late else None)
    guessed = "It may be host host-b, which sent its last before the others did, or host host-c."
    assert row["explanation"].endswith(guessed) == bool(late)


def test_who_begins_anew_was_stopped_with_all_others_if_nobody_was_late() -> None:
    (row,) = hang.find(evidence(IDLE_B, over=True, restarted=True), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["severity"]) == ("stopped", "job", 0)
    assert row["explanation"].endswith("was silent for 20 s until it restarted.")


@pytest.mark.parametrize(
    ("replaced", "subject"),
    [
        ({"x": "host-x"}, ("addr", "x")),
        ({"x": "host-x", "y": "host-x"}, ("host", "host-x")),
        ({"x": "host-x", "y": "host-y"}, ("job", "j")),
    ],
)
def test_who_is_replaced_when_the_job_begins_anew_had_failed(
    replaced: Mapping[str, str], subject: tuple[str, str]
) -> None:
    crashed = evidence(IDLE_B, over=True, restarted=True)
    (one,) = crashed.silences
    told = dataclasses.replace(one, replaced=replaced, replacements=("a",))
    (row,) = hang.find(dataclasses.replace(crashed, silences=[told]), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["subject"]) == ("stopped", *subject)
    named_one = subject[0] != "job"
    assert row["explanation"].endswith("was replaced by host-a.") == named_one
    assert row["confidence"] == (hang.SURE if named_one else hang.UNSURE)


def test_a_job_that_came_equally_far_had_crashed_if_one_was_replaced() -> None:
    ended = evidence(pairs(RING, {}), over=True, restarted=True, even=True)
    assert named(ended) == []
    told = dataclasses.replace(ended.silences[0], replaced={"x": "host-x"}, replacements=("a",))
    assert named(dataclasses.replace(ended, silences=[told])) == [("stopped", "addr", "x")]


def test_who_goes_on_after_a_while_hung() -> None:
    (row,) = hang.find(evidence(ONE_BY_ONE, over=True), DEFAULT).to_dicts()
    assert (row["kind"], row["subject"]) == ("hang", "b")
    assert "until it went on" in row["explanation"]
    assert named(evidence(pairs(RING, {}), over=True)) == [("hang", "job", "j")]


@pytest.mark.parametrize(
    ("resumed", "change", "subject"),
    [
        ([("b", "c"), ("a", "b")], {}, "b"),
        ([("b", "c"), ("c", "d")], {}, "j"),
        ([("b", "c"), ("a", "b")], {"alone": True}, None),
        ([("b", "c"), ("a", "b")], {"restarted": True}, "j"),
    ],
    ids=["it sends and is sent to", "others go on, too", "nobody else is seen", "the job began anew"],
)
def test_who_goes_on_first_stopped_first(
    resumed: list[tuple[str, str]], change: dict[str, bool], subject: str | None
) -> None:
    known = evidence(pairs(RING, {}), **({"over": True} | change))
    (silence,) = known.silences
    silence = dataclasses.replace(silence, resumed=tuple(resumed))
    rows = hang.find(dataclasses.replace(known, silences=[silence]), DEFAULT).to_dicts()
    assert [row["subject"] for row in rows] == ([] if subject is None else [subject])
    if subject == "b":
        assert (rows[0]["candidates"], rows[0]["odds"]) == (["host-b", "host-c"], [0.75, 0.25])
        level = dataclasses.replace(silence, where=dataclasses.replace(silence.where, level=True))
        (row,) = hang.find(dataclasses.replace(known, silences=[level]), DEFAULT).to_dicts()
        assert row["subject"] == "j"


def test_where_all_have_come_equally_far_and_one_was_quiet_first_the_job_did_not_end_there() -> None:
    assert named(evidence(IDLE_B, even=True, over=True, restarted=True)) == [("stopped", "job", "j")]
    assert named(evidence(pairs(RING, {}), even=True, over=True, restarted=True)) == []


def test_when_nobody_is_seen_any_more_only_who_went_quiet_before_is_told() -> None:
    """All fall silent at once when the data end."""
    assert named(evidence(pairs(RING, {}), alone=True)) == []
    assert named(evidence(pairs(RING, {}), alone=True, over=True)) == []
    assert named(evidence(IDLE_B, alone=True)) == [("hang", "addr", "b")]


OVERDUE_B = [
    (src, dst, 500.0, *rest) if "b" in (src, dst) else (src, dst, late, *rest) for src, dst, late, *rest in IDLE_B
]
"""The same; what leads from and to `b` was due half a second before the silence."""


@pytest.mark.parametrize(
    ("due", "changed", "sure"),
    [
        (IDLE_B, {}, 0.9),
        (IDLE_B, {"alone": True}, 0.45),
        (IDLE_B, {"alone": True, "over": True}, 0.9),
        (OVERDUE_B, {"alone": True}, 0.9),
    ],
    ids=["others are seen", "nobody is seen", "it went on", "it was overdue"],
)
def test_where_nothing_else_is_seen_the_collector_may_have_stopped(
    due: list[Due], changed: dict[str, bool], sure: float
) -> None:
    """Less than an even chance pages nobody."""
    (row,) = hang.find(evidence(due, **changed), DEFAULT).to_dicts()
    assert (row["kind"], row["subject"], row["confidence"]) == ("hang", "b", sure)
    assert ("the collector may have stopped instead" in row["explanation"]) == (sure < 0.5)


def test_where_all_have_come_equally_far_the_job_may_have_ended() -> None:
    assert named(evidence(pairs(RING, {}), even=True)) == []
    assert named(evidence(pairs(RING, {}), even=True, over=True, restarted=True)) == []
    assert named(evidence(IDLE_B, even=True)) == [("hang", "addr", "b")]


def test_no_silence_no_rows() -> None:
    well = dataclasses.replace(evidence(IDLE_B), silences=())
    assert_frame_equal(hang.find(well, DEFAULT), pl.DataFrame(schema=FINDING_SCHEMA))
