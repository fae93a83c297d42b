"""What all kinds of trouble share: whose steps they are, how long they took, and by how much they are longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from handmade import MS, WINDOW, every, flows, members, pipeline, ring, settings, taken, topology, visible
from hypothesis import given
from hypothesis import strategies as st
from job_evidence import history
from polars.testing import assert_frame_equal

from llmprism_tasks.contract import frames
from llmprism_tasks.stages.diagnosis.evidence import gather, slowdown
from llmprism_tasks.stages.diagnosis.phase import diagnosis
from llmprism_tasks.stages.traffic import nic_pairs

SETTINGS = settings()
HOSTS = {f"host-{addr}": [addr] for addr in "abcd"}
NICS = members({"j": {addr: f"host-{addr}" for addr in "abcd"}})
PAIRS = {"ab": "dp", "ba": "dp", "cd": "dp", "dc": "dp", "ac": "pp", "ca": "pp", "bd": "pp", "db": "pp"}

CHAT = 100
"""Bytes of what members tell each other over a connection of its own."""


def tables(
    *,
    steps: int = 40,
    start: float = 40_000,
    again: Sequence[float] = (),
    beside: Sequence[Any] = (),
    lost: tuple[int, str] | None = None,
) -> dict[str, Any]:
    """Return two replicas of two stages that train in this window and, for twenty steps, in the one before it.

    Of a `lost` step and ring no record was seen.
    Records of `CHAT` bytes have a port of their own, those of others are not known.
    """
    begins = [*every(1000, count=steps, start=start - 60_000), *again]
    sync = [begin + 800 for begin in begins]
    links = [row for link in ("ac", "bd") for row in pipeline(*link, begins, back=120)]
    rings = [
        row for nics in ("ab", "cd") for row in ring(nics, [at for step, at in enumerate(sync) if (step, nics) != lost])
    ]
    rows = [*links, *rings, *beside]
    own = [
        (
            WINDOW.start_ns,
            "j",
            addr,
            i,
            WINDOW.start_ns + (i * 1000 - 100) * MS,
            WINDOW.start_ns + (i * 1000 + 900) * MS,
        )
        for addr in [*"abcd", None]
        for i in range(steps - 20)
    ]
    pairs = [(WINDOW.start_ns, "j", pair[0], pair[1], kind, 1, 1, 1, 1.0) for pair, kind in PAIRS.items()]
    kinds = pl.DataFrame(pairs, schema=frames.empty("pairs").schema, orient="row")
    port = pl.when(pl.col("bytes") == CHAT).then(pl.lit(7946, pl.Int32)).alias("dst_port")
    return {
        **taken("diagnosis", visible(flows(rows).with_columns(port), WINDOW), job_members=NICS, pairs=kinds),
        "topology": topology(HOSTS),
        "job_members": NICS,
        "pairs": kinds,
        "steps": pl.DataFrame(own, schema=frames.empty("steps").schema, orient="row"),
    }


@pytest.mark.parametrize(("size", "told"), [(CHAT, True), (CHAT + 1, False)])
def test_tries_in_vain_are_told_whatever_goes_over_another_connection(size: int, told: bool) -> None:
    tries = [(at, at, "a", "d", 8_948) for at in (1000, 1440, 2300, 4000, 7400)]
    evidence = gather(**tables(beside=[*tries, (1500, 1500, "a", "d", size)]), window=WINDOW, settings=SETTINGS)
    assert evidence is not None
    assert evidence.retried.select(nic_pairs.PAIR).unique().rows() == ([("a", "d")] if told else [])


def test_evidence_is_gathered_from_window_and_look_back() -> None:
    evidence = gather(**tables(), window=WINDOW, settings=SETTINGS)
    assert evidence is not None
    assert evidence.steps["addr"].null_count() == 0
    assert evidence.groups.group_by("component").agg(pl.col("addr").sort())["addr"].sort().to_list() == [
        ["a", "b"],
        ["c", "d"],
    ]
    named = nic_pairs.named(evidence.flows)
    assert dict(named.select(pl.col("src_addr") + pl.col("dst_addr"), "kind").unique().rows()) == PAIRS
    lengths = evidence.history["end_ns"] - evidence.history["start_ns"]
    assert lengths.unique().to_list() == [1000 * MS]
    assert evidence.history["current"].to_list() == [False] * 19 + [True] * 20


def test_where_a_step_began_is_not_known_after_one_whose_records_were_lost() -> None:
    """Of what `a` and `b` exchange, nothing was seen at one step's end; their next would seem to be twice as long."""
    evidence = gather(**tables(lost=(30, "ab")), window=WINDOW, settings=SETTINGS)
    assert evidence is not None
    assert (evidence.steps["end_ns"] - evidence.steps["start_ns"]).unique().to_list() == [1000 * MS]
    whole = gather(**tables(), window=WINDOW, settings=SETTINGS)
    assert whole is not None
    gone = whole.steps.join(evidence.steps, on=["addr", "step_index"], how="anti")
    assert sorted(gone.select("addr", "step_index").rows()) == [(addr, at) for addr in "ab" for at in (30, 31)]


@pytest.mark.parametrize(("start", "count", "length"), [(25_000, 25, 1500), (45_000, 10, 1000)])
def test_a_job_that_began_anew_is_measured_by_one_of_its_runs(start: float, count: int, length: float) -> None:
    again = every(1500, count=count, start=start - 5_000)
    evidence = gather(**tables(start=start, again=again), window=WINDOW, settings=SETTINGS)
    assert evidence is not None
    for steps in (evidence.history, evidence.steps):
        assert (steps["end_ns"] - steps["start_ns"]).unique().to_list() == [length * MS]
    begins = evidence.flows["flow_start_ns"].to_numpy()
    assert (begins.min() >= WINDOW.start_ns + again[0] * MS) == (length == 1500)
    assert (begins.max() < WINDOW.start_ns + again[0] * MS) == (length == 1000)


def test_bulk_that_members_exchange_beside_training_is_known() -> None:
    """With an address outside the job, or over a pair of it that does not train, which is told for both its ends."""
    others = [(100.0, 200.0, "a", "x", 700_000), (300.0, 400.0, "x", "a", 20), (500.0, 600.0, "a", "d", 300_000)]
    evidence = gather(**tables(beside=others), window=WINDOW, settings=SETTINGS)
    assert evidence is not None
    at = [WINDOW.start_ns + ms * MS for ms in (100, 500)]
    known = [("j", "a", at[0], 700_000), ("j", "a", at[1], 300_000), ("j", "d", at[1], 300_000)]
    assert evidence.beside.rows() == known


def test_without_steps_there_is_no_evidence_and_no_diagnosis() -> None:
    given_ = tables() | {"steps": frames.empty("steps")}
    assert gather(**given_, window=WINDOW, settings=SETTINGS) is None
    (rows,) = diagnosis(**given_, jobs=frames.empty("jobs"), window=WINDOW, settings=SETTINGS)
    assert_frame_equal(rows, frames.empty("diagnoses"))


def test_a_job_that_is_well_has_no_diagnosis() -> None:
    (rows,) = diagnosis(**tables(), jobs=frames.empty("jobs"), window=WINDOW, settings=SETTINGS)
    assert_frame_equal(rows, frames.empty("diagnoses"))


SPAN = (WINDOW.start_ns, WINDOW.end_ns)


@pytest.mark.parametrize(
    ("lookback", "now", "more"),
    [
        ([1000] * 10, [1300] * 5, 0.3),
        ([1000] * 10, [1000] * 5, 0.0),
        ([1000] * 10, [700] * 5, 0.0),
        ([1000] * 10, [1000, 1300, 1300], 0.3),
        ([], [1300] * 5, 0.0),
        ([1000] * 5, [1300] * 12, 0.3),
        ([1000] * 3, [1300] * 12, 0.0),
        ([1000] * 3, [], 0.0),
        ([], [], 0.0),
    ],
)
def test_how_much_longer_steps_are_than_the_quick_ones(lookback: list[float], now: list[float], more: float) -> None:
    assert slowdown(history([*lookback, *now], current=len(now)), *SPAN) == pytest.approx(more)


def test_a_step_counts_where_it_ends() -> None:
    table = history([*[1000] * 8, 1300, 1500], current=2)
    first, second = table["end_ns"].to_list()[-2:]
    assert slowdown(table, first - 1, first) == pytest.approx(0.3)
    assert slowdown(table, first, second) == pytest.approx(0.5)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.integers(0, 20), st.integers(2, 9))
def test_slowdown_is_a_ratio_and_never_negative(lengths: list[int], current: int, factor: int) -> None:
    now = min(current, len(lengths))
    found = slowdown(history(lengths, current=now), *SPAN)
    assert found >= 0
    inside = (WINDOW.start_ns, WINDOW.start_ns + 10**18)
    scaled = slowdown(history([length * factor for length in lengths], current=now), *inside)
    assert scaled == pytest.approx(slowdown(history(lengths, current=now), *inside))
