"""When a NIC was due to send next follows from its own last message, however late the whole step was."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.stages.liveness.progress.next_send import moments_of_pairs, next_sends, share_of_lost

Sent = tuple[str, str, int, int, int]
"""Sender, receiver, start and end since the step before ended, bytes."""

ENDED = 1_000_000


def flows(rows: list[Sent], step: int | None = None) -> pl.DataFrame:
    names = ["src_addr", "dst_addr", "flow_start_ns", "flow_end_ns", "bytes"]
    types = [pl.String] * 2 + [pl.Int64] * 3
    table = pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row")
    if step is None:
        return table.with_columns(pl.col("flow_start_ns", "flow_end_ns") + ENDED)
    return table.with_columns(step=pl.lit(step), since_ns=pl.col("flow_start_ns"))


def template(*shifts: int) -> pl.DataFrame:
    """Return steps in which `a` sends to `b`, waits for 500 ns, and sends again; each step is late as a whole."""
    return pl.concat(
        flows(
            [
                ("a", "b", at, at + 100, 10),
                ("b", "a", at + 200, at + 300, 10),
                ("a", "b", at + 600, at + 700, 10),
            ],
            step,
        )
        for step, at in enumerate(shifts)
    )


def moments(now: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    pair = ["src_addr", "dst_addr"]
    usual = steps.group_by(*pair, "step").agg(pl.col("bytes").sum()).group_by(pair).agg(usual=pl.col("bytes").median())
    return moments_of_pairs(now, steps, usual, 0.02)


def due(begun: list[Sent], steps: pl.DataFrame) -> dict[str, tuple[int | None, float | None]]:
    now = flows(begun)
    table = next_sends(moments(now, steps), now, steps, ENDED, 0.02)
    return {addr: (at, noise) for addr, at, noise in table.select("addr", "due_ns", "noise_ns").iter_rows()}


def test_the_next_message_is_due_as_long_after_the_last_as_before() -> None:
    """The steps began 0 to 400 ns after the one before; what lies between two messages is the same in all."""
    found = due([("a", "b", 900, 1000, 10)], template(0, 100, 200, 400))
    assert found["a"] == (ENDED + 1000 + 500, 0)


def test_who_has_sent_nothing_was_due_as_long_after_the_step_as_before() -> None:
    found = due([("b", "a", 0, 10, 1)], template(0, 100, 200))
    at, noise = found["a"]
    assert at == ENDED + 100
    assert noise == pytest.approx(148.26)


@pytest.mark.parametrize(("sent", "is_due"), [(19, True), (20, False)])
def test_who_has_sent_all_but_what_steps_differ_by_owes_nothing(sent: int, is_due: bool) -> None:
    at, _ = due([("a", "b", 0, 100, sent)], template(0, 100, 200))["a"]
    assert (at is not None) == is_due


@pytest.mark.parametrize(("more", "is_due"), [(2, True), (1, False)])
def test_what_was_sent_in_half_of_the_steps_is_due(more: int, is_due: bool) -> None:
    steps = pl.concat(
        flows([("a", "b", 0, 10, 10), *[("a", "b", 50, 60, 10)] * (step < more)], step) for step in range(4)
    )
    at, _ = due([("a", "b", 0, 10, 10)], steps)["a"]
    assert (at is not None) == is_due


def test_inside_a_record_bytes_follow_each_other_evenly() -> None:
    steps = pl.concat(flows([("a", "b", 0, 100, 10), ("a", "c", 80, 90, 10)], step) for step in range(3))
    table = next_sends(moments(now := flows([("a", "b", 0, 10, 5)]), steps), now, steps, ENDED, 0.02)
    (row,) = table.filter(pl.col("addr") == "a").to_dicts()
    assert (row["due_ns"], row["to"], row["last_ns"]) == (ENDED + 10, "b", ENDED + 10)
    assert table.filter(pl.col("addr") == "b")["heard_ns"].item() == ENDED + 10


def test_lost_records_are_counted_by_the_rule_of_succession() -> None:
    """Two pairs and three steps: six, of which none or one is lost."""
    steps = template(0, 100, 200)
    whole = moments(flows([]), steps)
    assert share_of_lost(whole) == pytest.approx(1 / 8)
    assert share_of_lost(whole[1:]) == pytest.approx(2 / 8)


@pytest.mark.parametrize(("sent", "lasts", "rest"), [(10, 100, 100), (15, 0, 50)])
def test_what_is_due_lasts_as_long_as_its_record_unless_a_part_of_that_is_seen(
    sent: int, lasts: float, rest: float
) -> None:
    now = flows([("a", "b", 900, 1000, sent)])
    table = next_sends(moments(now, template(0, 100, 200)), now, template(0, 100, 200), ENDED, 0.02)
    assert table.filter(addr="a").select("lasts_ns", "rest_ns").row(0) == (lasts, rest)


@pytest.mark.parametrize(("begins", "is_due"), [(300, True), (700, False)])
def test_what_is_owed_although_later_messages_have_begun_was_lost(begins: int, is_due: bool) -> None:
    """`a` owes `b` its second message, of 600 ns. What it sends to `c` begins before that in each step, or after it."""
    steps = pl.concat(flows([("a", "c", begins, begins + 50, 10)], step) for step in range(3))
    steps = pl.concat([template(0, 0, 0), steps])
    at, _ = due([("a", "b", 0, 100, 10), ("a", "c", 800, 900, 10)], steps)["a"]
    assert (at is not None) == is_due


@pytest.mark.parametrize(("sent", "lost"), [(40, 2 / 6), (20, 1 / 6)])
def test_how_often_as_much_was_lacking_in_earlier_steps_is_the_chance_of_loss(sent: int, lost: float) -> None:
    """One of four steps lacks 10 of 50 bytes; now 10 or 30 of them are lacking."""
    steps = pl.concat(
        flows([("a", "b", 100 * at, 100 * at + 50, 10) for at in range(5 - (step == 0))], step) for step in range(4)
    )
    now = flows([("a", "b", 0, 50, sent)])
    table = next_sends(moments(now, steps), now, steps, ENDED, 0.02)
    assert table.filter(pl.col("addr") == "a")["lost"].item() == pytest.approx(lost)


@pytest.mark.parametrize(("begins", "lasts"), [(1100, 50), (900, 0)])
def test_what_is_sent_ahead_to_a_receiver_that_is_not_there_leaves_a_record_to_send(begins: int, lasts: float) -> None:
    """`a` has sent half of its message by 1,000 ns after the step before. `b` owes its own 100 ns after what it heard
    from `c`, that is before or after it."""
    steps = pl.concat(
        flows([("a", "b", 500, 600, 10), ("b", "c", 300, 400, 10), ("b", "a", 500, 600, 10)], step) for step in range(3)
    )
    now = flows([("a", "b", 900, 1000, 5), ("b", "c", begins - 200, begins - 100, 10)])
    table = next_sends(moments(now, steps), now, steps, ENDED, 0.02)
    assert dict(table.select("addr", "lasts_ns").iter_rows())["a"] == lasts


@pytest.mark.parametrize(("heard", "at"), [(1100, 1500), (1250, 1550)])
def test_the_next_message_is_due_no_sooner_after_what_it_needs_than_before(heard: int, at: int) -> None:
    """`a` waits for 500 ns after its own message, and for 300 ns after the answer of `b`, that comes late."""
    found = due([("a", "b", 900, 1000, 10), ("b", "a", heard - 100, heard, 10)], template(0, 100, 200, 400))
    assert found["a"] == (ENDED + at, 0)


@pytest.mark.parametrize(("onward", "is_due"), [(20, False), (15, True)])
def test_what_the_next_of_a_ring_has_sent_on_was_lost(onward: int, is_due: bool) -> None:
    """Of two messages of 10, the second of `a` is missing; `b` has sent two of its own, or one and a half."""
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    steps = pl.concat(flows([(*pair, at, at + 100, 10) for pair in ring for at in (0, 200)], step) for step in range(4))
    at, _ = due([("a", "b", 0, 100, 10), ("b", "c", 0, 300, onward), ("c", "a", 0, 300, 20)], steps)["a"]
    assert (at is not None) == is_due
