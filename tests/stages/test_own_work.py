"""How long a NIC works when it has nobody to wait for, against the others of its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, flows
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.own_work import own_work

STEP = 1000


def kinds(dp: Iterable[Row] = (), pp: Iterable[Row] = ()) -> pl.DataFrame:
    """Return flows of one job, of these kinds."""
    parts = [flows(rows).with_columns(job_id=pl.lit("j"), kind=pl.lit(kind)) for kind, rows in (("dp", dp), ("pp", pp))]
    return pl.concat(parts)


def steps(addrs: Iterable[str], count: int = 1) -> pl.DataFrame:
    """Return steps of a second each."""
    rows = [
        ("j", addr, i, WINDOW.start_ns + i * STEP * MS, WINDOW.start_ns + (i + 1) * STEP * MS)
        for addr in addrs
        for i in range(count)
    ]
    columns = ["job_id", "addr", "step_index", "start_ns", "end_ns"]
    return pl.DataFrame(
        rows, schema=dict(zip(columns, [pl.String, pl.String, *[pl.Int64] * 3], strict=True)), orient="row"
    )


def groups(*components: str) -> pl.DataFrame:
    """Return data-parallel groups of NICs named by single letters."""
    rows = [("j", addr, number) for number, addrs in enumerate(components) for addr in addrs]
    return pl.DataFrame(rows, schema={"job_id": pl.String, "addr": pl.String, "component": pl.Int64}, orient="row")


def starts(begins: Mapping[str, float], *, step: int = 0) -> list[Row]:
    """Return a ring in which each NIC begins to send at a time of its own, in ms after the step's start."""
    addrs = list(begins)
    after = [*addrs[1:], addrs[0]]
    return [
        row
        for addr, peer in zip(addrs, after, strict=True)
        for row in burst(addr, peer, step * STEP + begins[addr], length=STEP - 100 - begins[addr])
    ]


def work_ms(found: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Return each NIC's own and usual work, in ms."""
    return {addr: (own / MS, usual / MS) for addr, own, usual in found.select("addr", "own_ns", "usual_ns").iter_rows()}


def test_without_a_pipeline_work_is_from_the_step_s_start_to_the_first_gradient() -> None:
    found = own_work(kinds(starts({"a": 300, "b": 450, "c": 310})), steps("abc"), groups("abc"))
    assert work_ms(found) == {"a": (300, 310), "b": (450, 310), "c": (310, 310)}
    assert found["times"].to_list() == [1, 1, 1]


def test_the_quicker_of_two_shows_what_is_usual() -> None:
    found = own_work(kinds(starts({"a": 300, "b": 450})), steps("ab"), groups("ab"))
    assert work_ms(found) == {"a": (300, 300), "b": (450, 300)}


def test_who_has_no_peers_is_not_compared() -> None:
    table = kinds([*starts({"a": 300, "b": 450}), *burst("c", "d", 200)])
    assert work_ms(own_work(table, steps("abcd"), groups("ab", "c"))).keys() == {"a", "b"}
    assert own_work(table, steps("abcd"), groups("a", "b", "c")).is_empty()
    assert own_work(table, steps("abcd"), groups()).is_empty()


def micro_batches(
    first: str, second: str, *, forward: float, work: float, each: float = 100, count: int = 4
) -> list[Row]:
    """Return activations every `each` ms from `forward` on, and gradients that come back after the second's work."""
    rows: list[Row] = []
    for i in range(count):
        at = forward + i * each
        rows += [(at, at + 2, first, second, 8 * MB), (at + 2 + work, at + 4 + work, second, first, 8 * MB)]
    return rows


def test_a_later_stage_works_from_its_first_input_s_end_to_its_first_send() -> None:
    """Stage `c`, `d` of two replicas: `c` got its input 50 ms later, and worked as long."""
    pp = [*micro_batches("a", "c", forward=150, work=60), *micro_batches("b", "d", forward=100, work=60)]
    dp = [*starts({"a": 700, "b": 705}), *starts({"c": 600, "d": 600})]
    found = own_work(kinds(dp, pp), steps("abcd"), groups("ab", "cd"))
    assert work_ms(found) == {"a": (150, 100), "b": (100, 100), "c": (60, 60), "d": (60, 60)}
    assert found["times"].to_list() == [4] * 4


@pytest.mark.parametrize("queue_pairs", [1, 2, 4])
def test_a_message_s_queue_pairs_are_one_micro_batch(queue_pairs: int) -> None:
    """Records of one message that start together count once."""
    pp = micro_batches("a", "c", forward=100, work=60) + micro_batches("b", "d", forward=100, work=60)
    split = [
        (start + 0.01 * i, end, src, dst, size // queue_pairs)
        for start, end, src, dst, size in pp
        for i in range(queue_pairs)
    ]
    found = own_work(kinds(starts({"a": 700, "b": 700}), split), steps("abcd"), groups("ab"))
    assert found["times"].to_list() == [4, 4]


def test_each_step_is_measured_from_its_own_start() -> None:
    rows = [row for step in range(3) for row in starts({"a": 300 + step, "b": 400}, step=step)]
    found = own_work(kinds(rows), steps("ab", 3), groups("ab"))
    assert found.filter(addr="a")["own_ns"].to_list() == [300 * MS, 301 * MS, 302 * MS]
    assert found.filter(addr="b")["usual_ns"].to_list() == [300 * MS, 301 * MS, 302 * MS]


def test_flows_outside_the_steps_and_of_other_kinds_tell_nothing() -> None:
    """Before the first step, after the last, and a checkpoint's flows within."""
    rows = starts({"a": 300, "b": 400}, step=1)
    table = kinds(rows)
    outside = kinds([*burst("a", "b", 100), *burst("a", "b", 2100)])
    checkpoint = flows(burst("a", "b", 1050)).with_columns(job_id=pl.lit("j"), kind=pl.lit("other"))
    second = steps("ab", 2).filter(step_index=1)
    assert_frame_equal(
        own_work(pl.concat([table, outside, checkpoint]), second, groups("ab")), own_work(table, second, groups("ab"))
    )


def test_who_only_receives_has_no_work_of_its_own() -> None:
    found = own_work(kinds(burst("a", "b", 300)), steps("ab"), groups("ab"))
    assert found.is_empty()


def test_nothing_in_nothing_out() -> None:
    full = own_work(kinds(starts({"a": 300, "b": 450})), steps("ab"), groups("ab"))
    assert_frame_equal(own_work(kinds(), steps(""), groups("ab")), full.clear())
    assert_frame_equal(own_work(kinds(starts({"a": 3, "b": 4})), steps(""), groups("ab")), full.clear())


@given(
    st.lists(st.integers(50, 800), min_size=2, max_size=5),
    st.lists(st.integers(50, 800), min_size=2, max_size=5),
    st.integers(0, 10**6),
)
def test_usual_is_never_the_worst_and_the_order_of_rows_does_not_matter(
    left: list[int], right: list[int], seed: int
) -> None:
    begins = {f"{side}{i}": at for side, ats in (("l", left), ("r", right)) for i, at in enumerate(ats)}
    sides = [{addr: at for addr, at in begins.items() if addr[0] == side} for side in "lr"]
    table = kinds([row for side in sides for row in starts(side)])
    components = pl.DataFrame(
        [("j", addr, number) for number, side in enumerate(sides) for addr in side],
        schema=groups("").schema,
        orient="row",
    )
    found = own_work(table, steps(begins), components)
    assert {addr: own for addr, (own, _) in work_ms(found).items()} == begins
    for side in sides:
        usual = {work_ms(found)[addr][1] for addr in side}
        assert len(usual) == 1
        assert min(side.values()) <= usual.pop() <= max(side.values())
    shuffled = [frame.sample(fraction=1, shuffle=True, seed=seed) for frame in (table, steps(begins), components)]
    assert_frame_equal(own_work(*shuffled), found)
