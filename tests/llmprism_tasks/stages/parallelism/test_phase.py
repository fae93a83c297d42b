"""What a pair is to its job shows in what it does in the step."""

from __future__ import annotations

import random
from collections.abc import Iterable

import polars as pl
import pytest
from handmade import (
    MB,
    WINDOW,
    Row,
    every,
    flows,
    jobs_of,
    members,
    messages,
    ring,
    settings,
    stages,
    taken,
    topology,
    visible,
)
from polars.testing import assert_frame_equal

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.phase import LAYOUT, Tables, _surer, parallelism

HOSTS = {"h": ["a", "b"], "i": ["c", "d"]}
NICS = members({"j": {addr: host for host, some in HOSTS.items() for addr in some}})
DEFAULT = settings()
PERIOD, STEPS = 1000, 12
BEGINS = every(PERIOD, count=STEPS)
AROUND = ring("abcd", every(PERIOD, count=STEPS, start=700))
"""One stage with four replicas: what exchanges tokens or blocks of context shares all gradients."""

GRADIENTS = [*ring("ab", every(PERIOD, count=STEPS, start=700)), *ring("cd", every(PERIOD, count=STEPS, start=700))]
"""Two stages, a host each, with two replicas: what every job here does, beside what is in question."""


def micro_batches(nics: str, begins: list[float] = BEGINS, count: int = 16) -> list[Row]:
    """Return what a pipeline of these NICs sends: passes of 10 and 20 ms fill half of the step."""
    return stages(nics, begins, micro_batches=count)


def identified(
    *parts: Iterable[Row], window: Window = WINDOW, values: Settings = DEFAULT
) -> tuple[dict[str, object], pl.DataFrame]:
    """Return the job's row and the pairs."""
    own = NICS.with_columns(window_start_ns=pl.lit(window.start_ns))
    jobs, _, pairs = parallelism(
        **taken(
            *("parallelism", visible(flows(*parts), window, values.window.lookback_windows), window, values),
            job_members=own,
        ),
        topology=topology(HOSTS),
        jobs=jobs_of(own),
        job_members=own,
        window=window,
        settings=values,
    )
    return jobs.row(0, named=True), pairs


def all_tables(*parts: Iterable[Row]) -> Tables:
    return parallelism(
        **taken("parallelism", flows(*parts), job_members=NICS),
        topology=topology(HOSTS),
        jobs=jobs_of(NICS),
        job_members=NICS,
        window=WINDOW,
        settings=DEFAULT,
    )


def kind(
    *parts: Iterable[Row],
    pair: str = "ac",
    section: str = "parallelism",
    gradients: Iterable[Row] = GRADIENTS,
    **values: float,
) -> str:
    """Return the kind of one pair of a job with some further traffic."""
    _, pairs = identified(gradients, *parts, values=settings(section, **values))
    return str(pairs.filter(src_addr=pair[0], dst_addr=pair[1])["kind"].item())


def test_nothing_has_no_pairs() -> None:
    row, pairs = identified()
    assert pairs.equals(frames.empty("pairs"))
    assert (row["tp"], row["pp"], row["dp"]) == (None, None, None)


def test_without_jobs_there_are_none() -> None:
    jobs, _, pairs = parallelism(
        **taken("parallelism", flows(GRADIENTS), job_members=frames.empty("job_members")),
        topology=topology(HOSTS),
        jobs=frames.empty("jobs"),
        job_members=frames.empty("job_members"),
        window=WINDOW,
        settings=DEFAULT,
    )
    assert jobs.is_empty()
    assert pairs.is_empty()


def test_a_pipeline_of_two_stages_and_two_replicas() -> None:
    row, pairs = identified(GRADIENTS, micro_batches("ac"), micro_batches("bd"))
    found = {src + dst: what for src, dst, what in pairs.select("src_addr", "dst_addr", "kind").iter_rows()}
    assert found == {"ab": "dp", "ba": "dp", "cd": "dp", "dc": "dp", "ac": "pp", "ca": "pp", "bd": "pp", "db": "pp"}
    assert (row["tp"], row["pp"], row["dp"]) == (1, 2, 2)
    assert pairs["confidence"].min() > 0.9


def test_pairs_count_what_they_sent_in_the_window_and_are_judged_by_the_look_back() -> None:
    """Twelve steps in the first window, two more in the second."""
    more = [*ring("ab", [60_700, 61_700]), *ring("cd", [60_700, 61_700])]
    before = [*ring("ab", every(PERIOD, count=48, start=12_700)), *ring("cd", every(PERIOD, count=48, start=12_700))]
    begins = every(PERIOD, count=62)
    _, pairs = identified(
        GRADIENTS, before, more, micro_batches("ac", begins), micro_batches("bd", begins), window=WINDOW.shifted(1)
    )
    ac = pairs.filter(src_addr="a", dst_addr="c").row(0, named=True)
    assert (ac["kind"], ac["flows"], ac["bytes"], ac["distinct_sizes"]) == ("pp", 32, 256 * MB, 1)
    ab = pairs.filter(src_addr="a", dst_addr="b").row(0, named=True)
    assert (ab["kind"], ab["flows"], ab["distinct_sizes"]) == ("dp", 16, 2)


def test_pairs_of_a_job_without_a_rhythm_are_not_judged() -> None:
    row, pairs = identified(messages("a", "b", [0, 17, 4000], MB))
    assert pairs.select("kind", "confidence").rows() == [("other", 0.0)]
    assert row["dp"] is None


def test_control_messages_are_other_with_certainty() -> None:
    _, pairs = identified(GRADIENTS, messages("d", "a", BEGINS, 48))
    found = pairs.filter(src_addr="d", dst_addr="a").row(0, named=True)
    assert (found["kind"], found["distinct_sizes"], found["confidence"]) == ("other", 0, 1.0)


def test_jobs_without_a_rhythm_are_not_judged_beside_others() -> None:
    own = members({"j": {addr: host for host, some in HOSTS.items() for addr in some}, "k": {"x": "k", "y": "l"}})
    _, _, pairs = parallelism(
        **taken("parallelism", flows(GRADIENTS, messages("x", "y", [0, 17, 4000], MB)), job_members=own),
        topology=topology(HOSTS | {"k": ["x"], "l": ["y"]}),
        jobs=jobs_of(own),
        job_members=own,
        window=WINDOW,
        settings=DEFAULT,
    )
    assert pairs.filter(job_id="k").select("kind", "confidence").rows() == [("other", 0.0)]
    assert pairs.filter(job_id="j")["confidence"].min() > 0.9


def test_a_pair_is_what_it_is_in_either_run() -> None:
    """The job ends after 25 s and comes back without its pipeline, but with a copy between what were its stages."""
    again = [*ring("ab", every(PERIOD, count=20, start=40_700)), *ring("cd", every(PERIOD, count=20, start=40_700))]
    _, pairs = identified(GRADIENTS, micro_batches("ac"), micro_batches("bd"), again, messages("a", "c", [39_000], MB))
    assert pairs.filter(src_addr="a", dst_addr="c")["kind"].item() == "pp"


@pytest.mark.parametrize(("back", "expected"), [(0.0019, "other"), (0.0021, "dp")])
def test_what_acknowledges_gradients_is_none(back: float, expected: str) -> None:
    begins = every(PERIOD, count=STEPS, start=700)
    gradients, answers = ring("abcd", begins, size=800 * MB), ring("dcba", begins, size=round(800 * MB * back))
    _, pairs = identified(gradients, answers)
    assert pairs.filter(src_addr="b", dst_addr="a").select("kind", "confidence").row(0) == (expected, 1.0)


@pytest.mark.parametrize(("count", "expected"), [(9, "dp"), (10, "pp")])
def test_micro_batches_fill_a_quarter_of_the_step(count: int, expected: str) -> None:
    """Nine of them take 247 ms of a second, ten 278."""
    assert kind(micro_batches("ac", count=count)) == expected


def test_how_much_of_the_step_they_fill_can_be_set() -> None:
    assert kind(micro_batches("ac", count=9), pipeline_spread=0.2) == "pp"
    assert kind(micro_batches("ac"), pipeline_spread=0.6) == "dp"


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_a_pipeline_may_carry_a_second_size_beside_the_one_it_repeats(share: float) -> None:
    """A tied embedding of two stages, once a step, with this share of the bytes: each size is judged by itself."""
    size = round(128 * MB * share / (1 - share))
    embedding = [row for pair in ("ac", "ca") for row in messages(*pair, every(PERIOD, count=STEPS, start=850), size)]
    assert kind(micro_batches("ac"), embedding) == "pp"


@pytest.mark.parametrize("fill", [0.6, 0.45])
def test_messages_that_nothing_answers_are_no_pipeline(fill: float) -> None:
    """What fills the step beside gradients that go the other way round is blocks of context."""
    begins = [begin + PERIOD * fill * i / 11 for begin in BEGINS for i in range(12)]
    rows = [row for link in ("dc", "cb", "ba", "ad") for row in messages(*link, begins, 8 * MB)]
    assert kind(rows, pair="dc", gradients=AROUND) == ("cp" if fill > 0.5 else "dp")


def test_exchanges_at_once_are_no_pipeline_however_long_they_go_on() -> None:
    at = [begin + 50 * i for begin in BEGINS for i in range(12)]
    rows = [row for link in ("ac", "ca", "bd", "db") for row in messages(*link, at, 8 * MB)]
    assert kind(rows, gradients=AROUND) == kind(rows, pair="ca", gradients=AROUND) == "cp"


def test_where_nothing_else_synchronises_what_fills_the_step_are_sharded_gradients() -> None:
    """All NICs gather parameters for twelve layers, and are quiet between steps."""
    at = [begin + 50 * i for begin in BEGINS for i in range(12)]
    rows = [row for src, dst in ("ac", "cb", "bd", "da") for row in messages(src, dst, at, 8 * MB)]
    _, pairs = identified(rows)
    assert pairs["kind"].unique().to_list() == ["dp"]


def joined_messages(begin: float, apart: float, size: int, draw: random.Random) -> list[tuple[float, int]]:
    """Return when records begin and their bytes, of 24 messages of which the collector joins some each time."""
    records, sent = [], 0
    while sent < 24:
        number = min(draw.randint(1, 7), 24 - sent)
        records.append((begin + apart * sent, number * size))
        sent += number
    return records


@pytest.mark.parametrize(("message", "told"), [(7 * MB, "cp"), (8 * MB, "dp")])
def test_messages_that_are_joined_are_blocks_unless_what_is_reduced_is_made_of_them(message: int, told: str) -> None:
    """Against the ring of the gradients, which come in bursts of 80 MB: they are ten messages, or no whole number."""
    draw = random.Random(7)
    rows = [
        row
        for src, dst in ("dc", "cb", "ba", "ad")
        for begin in BEGINS
        for at, size in joined_messages(begin, 25, message, draw)
        for row in messages(src, dst, [at], size)
    ]
    job, pairs = identified(ring("abcd", every(PERIOD, count=STEPS, start=700), parts=1), rows)
    found = {(src + dst): kind for src, dst, kind in pairs.select("src_addr", "dst_addr", "kind").rows()}
    assert found == dict.fromkeys(("ab", "bc", "cd", "da"), "dp") | dict.fromkeys(("dc", "cb", "ba", "ad"), told)
    assert job["cp"] == (4 if told == "cp" else None)


def test_a_pipeline_may_be_answered_on_another_rail() -> None:
    """Activations go from `a` to `c`, gradients come back from `d` to `b`, on the same two hosts (NCCL's PXN)."""
    there = [row for row in micro_batches("ac", count=20) if row[2] == "a"]
    back = [row for row in micro_batches("bd", count=20) if row[2] == "d"]
    assert kind(there, back) == kind(there, back, pair="db") == "pp"
    assert kind(there) != "pp"


def test_a_copy_beside_pipelines_is_not_answered_by_what_answers_them() -> None:
    """It goes on from `a` to `d` all the time; the pipelines of both NICs are between the same two hosts."""
    copy = messages("a", "d", every(37, count=STEPS * PERIOD // 37), 3 * MB)
    assert kind(micro_batches("ac"), micro_batches("bd"), copy, pair="ad") == "other"
    row, _ = identified(GRADIENTS, micro_batches("ac"), micro_batches("bd"), copy)
    assert (row["tp"], row["pp"], row["dp"]) == (1, 2, 2)


@pytest.mark.parametrize(("extra", "expected"), [(0.019, 1), (0.021, 2)])
def test_sizes_that_differ_by_headers_are_one(extra: float, expected: int) -> None:
    """Every second message is a little larger."""
    rows = sorted(micro_batches("ac"))
    mixed = [(*row[:4], round(row[4] * (1 + extra * (i % 2)))) for i, row in enumerate(rows)]
    _, pairs = identified(GRADIENTS, mixed)
    found = pairs.filter(src_addr="a", dst_addr="c").row(0, named=True)
    assert (found["kind"], found["distinct_sizes"]) == ("pp", expected)


@pytest.mark.parametrize(("present", "expected"), [(5, "other"), (6, "pp")])
def test_what_comes_in_few_steps_is_not_the_layout_s(present: int, expected: str) -> None:
    """Of twelve steps; the pair speaks in this many of them."""
    assert kind(micro_batches("ac", BEGINS[:present])) == expected


def test_how_often_it_must_come_can_be_set() -> None:
    assert kind(micro_batches("ac", BEGINS[:5]), least_presence=0.4) == "pp"


BETWEEN = ("ac", "ca", "ad", "da", "bc", "cb", "bd", "db")
"""All pairs of two hosts."""


def experts(count: int, spread: float, *, fresh: float = 1.0, links: Iterable[str] = BETWEEN) -> list[Row]:
    """Return calls over this share of each step, of which a share has sizes that never come again."""
    draw = random.Random(5)
    repeated = [draw.randint(1, 9) * MB for _ in range(count)]
    return [
        row
        for begin in BEGINS
        for i in range(count)
        for link in links
        for row in messages(
            *link,
            [begin + PERIOD * spread * i / (count - 1)],
            draw.randint(MB, 9 * MB) if i < round(fresh * count) else repeated[i],
        )
    ]


@pytest.mark.parametrize(
    ("count", "spread", "fresh", "expected"),
    [
        (12, 0.6, 1.0, "ep"),
        (3, 0.6, 1.0, "ep"),
        (12, 0.26, 1.0, "ep"),
        (12, 0.24, 1.0, "other"),
        (12, 0.6, 0.5, "ep"),
    ],
    ids=["plain", "few records", "long enough", "at once", "half of the sizes repeat"],
)
def test_experts_are_called_more_than_once_with_sizes_that_never_repeat(
    count: int, spread: float, fresh: float, expected: str
) -> None:
    assert kind(experts(count, spread, fresh=fresh), gradients=AROUND) == expected


@pytest.mark.parametrize(("comes_back", "expected"), [(True, "ep"), (False, "dp")])
def test_experts_that_get_equal_bytes_in_all_give_them_back(*, comes_back: bool, expected: str) -> None:
    """What two send each other is 10 MB in each dispatch, and in the combine, so that each pair sends as much in every
    step. Else, what comes is cut as a collector may cut it."""
    draw = random.Random(5)
    rows: list[Row] = []
    for begin in [begin + PERIOD * part for begin in BEGINS for part in (0.0, 0.2, 0.4, 0.6)]:
        for src, dst in ("ac", "bd"):
            first, second = (draw.randint(MB, 9 * MB) for _ in range(2))
            returned = first if comes_back else second
            rows += [(begin, begin + 1, src, dst, first), (begin, begin + 1, dst, src, 10 * MB - first)]
            begin_back = begin + PERIOD * 0.05
            rows += [(begin_back, begin_back + 1, dst, src, returned)]
            rows += [(begin_back, begin_back + 1, src, dst, 10 * MB - returned)]
            if not comes_back:  # to the same bytes in each step
                rows += [(begin_back + 2, begin_back + 3, src, dst, 10 * MB + returned - first)]
                rows += [(begin_back + 2, begin_back + 3, dst, src, 10 * MB + first - returned)]
    assert kind(rows, gradients=AROUND) == expected


def test_a_schedule_that_repeats_its_sizes_is_no_expert() -> None:
    """Five of twelve sizes are new in each step, with the default of a half; with two fifths they are experts."""
    rows = experts(12, 0.6, fresh=5 / 12)
    assert kind(rows, gradients=AROUND) != "ep"
    assert kind(rows, gradients=AROUND, expert_sizes=0.4) == "ep"


@pytest.mark.parametrize(("name", "value"), [("expert_sizes", 1.1), ("pipeline_spread", 0.7)])
def test_what_an_expert_is_can_be_set(name: str, value: float) -> None:
    assert kind(experts(12, 0.6), gradients=AROUND) == "ep"
    assert kind(experts(12, 0.6), gradients=AROUND, **{name: value}) == "other"


@pytest.mark.parametrize(("reducing", "expected"), [(("ac", "ca", "bd", "db"), "dp"), (("ac", "ca", "bd"), "ep")])
def test_experts_pairs_are_gradients_as_well_where_about_all_nics_reduce_some(
    reducing: tuple[str, ...], expected: str
) -> None:
    """All of four NICs, or three; their layers' calls carry as much in each step."""
    calls = [
        (start, end, *link, size)
        for start, end, _, _, size in experts(12, 0.6, links=["ac"])
        for link in ("ac", "ca", "bd", "db")
    ]
    sums = [row for src, dst in reducing for row in messages(src, dst, every(PERIOD, count=STEPS, start=700), 60 * MB)]
    _, pairs = identified(calls, sums)
    assert set(pairs["kind"]) == {expected}


@pytest.mark.parametrize(("apart", "expected"), [(110, "other"), (140, "pp")])
def test_a_pipeline_of_one_micro_batch_takes_turns(apart: float, expected: str) -> None:
    """One record each way per step; an eighth of the period lies between them, or they go together."""
    rows = [*messages("a", "c", BEGINS, 8 * MB), *messages("c", "a", every(PERIOD, count=STEPS, start=apart), 8 * MB)]
    assert kind(rows) == expected
    assert kind(rows, pair="ca") == expected


@pytest.mark.parametrize(("back", "expected"), [(8 * MB, "pp"), (9 * MB, "other")])
def test_what_comes_back_is_as_large_as_what_went(back: int, expected: str) -> None:
    rows = [*messages("a", "c", BEGINS, 8 * MB), *messages("c", "a", every(PERIOD, count=STEPS, start=300), back)]
    assert kind(rows) == expected


@pytest.mark.parametrize(("size", "expected"), [(38 * MB, "other"), (42 * MB, "dp")])
def test_the_embedding_of_first_and_last_stage_is_no_gradient_ring(size: int, expected: str) -> None:
    """A burst both ways between the stages, with less or more than half of a ring's bytes."""
    rows = ring("ac", every(PERIOD, count=STEPS, start=850), size=size)
    assert kind(rows) == expected


def test_how_much_a_ring_carries_can_be_set() -> None:
    assert kind(ring("ac", every(PERIOD, count=STEPS, start=850), size=38 * MB), ring_share=0.4) == "dp"


def test_the_first_weights_of_one_run_make_no_pair_of_the_other() -> None:
    """A job ends in the window; in the one after it on the same NICs its pipeline's pairs carry a broadcast once."""
    former = [*GRADIENTS, *micro_batches("ac"), *micro_batches("bd")]
    begins = every(PERIOD, count=20, start=28_000)
    copies = [row for src, dst in ("ac", "bd") for row in messages(src, dst, [27_000], 500 * MB)]
    _, pairs = identified(former, copies, ring("acbd", begins))
    found = {(src, dst): kind for src, dst, kind in pairs.select("src_addr", "dst_addr", "kind").iter_rows()}
    assert found["c", "a"] == found["d", "b"] == "pp"
    assert found["a", "b"] == "dp"


@pytest.mark.parametrize(("spread", "found"), [(0.6, False), (0.68, None), (0.75, True)])
def test_parameters_are_sharded_that_are_busy_for_more_than_a_backward_pass(
    spread: float, *, found: bool | None
) -> None:
    """Buckets are reduced in two thirds of a step at most; between that and seven tenths nobody knows."""
    rows = [
        row
        for nics in ("ab", "cd", "ac", "bd")
        for src, dst in (nics, nics[::-1])
        for i in range(9)
        for row in messages(src, dst, every(PERIOD, count=STEPS, start=spread * PERIOD * i / 8), (20 + i) * MB)
    ]
    assert identified(rows)[0]["sharded"] is found


def test_a_job_keeps_the_layout_of_the_window_before_where_that_was_surer() -> None:
    well = all_tables(GRADIENTS, micro_batches("ac"), micro_batches("bd"))
    poor = all_tables(messages("a", "b", [0, 17, 4000], MB))
    jobs, members_, pairs = _surer(poor, well)
    (row,), (was,), (now,) = (frame.rows(named=True) for frame in (jobs, well[0], poor[0]))
    assert [row[name] for name in LAYOUT] == [was[name] for name in LAYOUT]
    assert row["period_ns"] == now["period_ns"], "measured in the window"
    assert_frame_equal(members_, well[1])
    assert pairs.filter(src_addr="a", dst_addr="b").select("kind", "flows").rows() == [("dp", 3)]
    assert pairs.filter(src_addr="a", dst_addr="c").select("kind", "flows").rows() == [("pp", 0)]
    for kept, expected in zip(_surer(well, poor), well, strict=True):
        assert_frame_equal(kept, expected)


def test_a_window_before_the_first_steps_says_nothing_of_the_layout() -> None:
    """However sure it is that all pairs are nothing."""
    known = all_tables(GRADIENTS, micro_batches("ac"), micro_batches("bd"))
    nothing = [pl.lit(None, known[0].schema[name]).alias(name) for name in LAYOUT if name != "confidence"]
    before = (
        known[0].with_columns(*nothing, confidence=pl.lit(1.0)),
        known[1],
        known[2].with_columns(kind=pl.lit("other")),
    )
    doubted = (known[0].with_columns(confidence=pl.lit(0.5)), *known[1:])
    for kept, expected in zip(_surer(doubted, before), doubted, strict=True):
        assert_frame_equal(kept, expected)


def test_a_job_that_a_nic_has_joined_since_is_laid_out_anew() -> None:
    *rest, pairs = all_tables(GRADIENTS, micro_batches("ac"), micro_batches("bd"))
    poor = all_tables(messages("a", "b", [0, 17, 4000], MB))
    without = pairs.filter((pl.col("src_addr") != "d") & (pl.col("dst_addr") != "d"))
    for kept, expected in zip(_surer(poor, (*rest, without)), poor, strict=True):
        assert_frame_equal(kept, expected)
