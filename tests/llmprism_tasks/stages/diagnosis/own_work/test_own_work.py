"""How long a NIC works when it has nobody to wait for, against the others of its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, flows
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.own_work.own_work import own_work

STEP = 1000


def kinds(**rows: Iterable[Row]) -> pl.DataFrame:
    """Return flows of one job, by the kind of their pairs."""
    parts = [flows(some).with_columns(job_id=pl.lit("j"), kind=pl.lit(kind)) for kind, some in rows.items()]
    return pl.concat(parts)


def steps(addrs: Iterable[str], count: int = 1) -> pl.DataFrame:
    """Return steps of a second each."""
    rows = [
        ("j", addr, i, WINDOW.start_ns + i * STEP * MS, WINDOW.start_ns + (i + 1) * STEP * MS, True)
        for addr in addrs
        for i in range(count)
    ]
    columns = {"job_id": pl.String, "addr": pl.String, "step_index": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(rows, schema={**columns, "current": pl.Boolean}, orient="row")


def groups(*components: str) -> pl.DataFrame:
    """Return data-parallel groups of NICs named by single letters."""
    rows = [("j", addr, number) for number, addrs in enumerate(components) for addr in addrs]
    return pl.DataFrame(rows, schema={"job_id": pl.String, "addr": pl.String, "component": pl.Int64}, orient="row")


def ring(ready: Mapping[str, float], *, end: float = 900, size: int = 8 * MB) -> list[Row]:
    """Return a ring whose hops begin when both ends are ready, in ms after the step's start."""
    addrs = list(ready)
    pairs = zip(addrs, [*addrs[1:], addrs[0]], strict=True)
    return [(max(ready[addr], ready[peer]), end, addr, peer, size) for addr, peer in pairs]


def own_ms(found: pl.DataFrame) -> dict[str, float]:
    return {addr: round(own / MS, 3) for addr, own in found.select("addr", "own_ns").iter_rows()}


def excess(found: pl.DataFrame) -> dict[str, float | None]:
    return {addr: None if more is None else round(more, 3) for addr, more in found.select("addr", "excess").iter_rows()}


def test_without_a_pipeline_who_is_late_at_all_its_hops_is_silent_for_longer() -> None:
    found = own_work(kinds(dp=ring({"a": 300, "b": 450, "c": 300, "d": 300})), steps("abcd"), groups("abcd"))
    assert own_ms(found) == {"a": 300, "b": 450, "c": 300, "d": 300}
    assert excess(found) == {"a": 0, "b": 0.5, "c": 0, "d": 0}
    assert found["share"].to_list() == [0.3, 0.45, 0.3, 0.3]


@pytest.mark.parametrize(("early", "own"), [(20 * MB, 300), (21 * MB, 300 + 140)])
def test_a_stall_after_what_went_ahead_is_no_work(early: int, own: float) -> None:
    """`c` and `d` push a little and stall until `b` has come. A tenth of a burst of 203 MB is not a little."""
    ready = {"a": 300, "b": 450, "c": 300, "d": 300}
    bulk = [(450.0, 900.0, src, dst, 193 * MB) for _, _, src, dst, _ in ring(ready)]
    pushed = [(300.0, 310.0, "c", "d", early)]
    found = own_work(kinds(dp=[*bulk, *pushed]), steps("abcd"), groups("abcd"))
    assert own_ms(found)["d"] == own
    assert own_ms(found)["b"] == 450


def test_silences_cut_in_two_by_a_piece_of_a_burst_make_less_pace_though_not_less_silence() -> None:
    whole = [(400.0, 900.0, "a", "b", 80 * MB), (400.0, 900.0, "b", "a", 80 * MB)]
    cut = [(200.0, 200.001, "c", "d", 40 * MB), (400.0, 900.0, "c", "d", 40 * MB), (400.0, 900.0, "d", "c", 40 * MB)]
    found = own_work(kinds(dp=[*whole, *cut]), steps("abcd"), groups("abcd"))
    pace = dict(found.select("addr", pl.col("pace") / MS).iter_rows())
    assert own_ms(found)["c"] == pytest.approx(400, abs=0.01)
    assert pace["a"] == pytest.approx(400)
    assert pace["c"] == pytest.approx(400 / 2**0.5, rel=1e-4)


def returned(sent: list[Row]) -> list[Row]:
    """Return gradients for activations, at the end of the step."""
    return [(STEP - 2, STEP - 1, receiver, sender, size) for _, _, sender, receiver, size in sent]


def test_the_quicker_of_two_shows_what_is_usual_and_of_three_the_median() -> None:
    pp: list[Row] = [
        (at, at + 2, addr, "x", 8 * MB) for addr, at in (("a", 300), ("b", 450), ("c", 290), ("d", 300), ("e", 320))
    ]
    found = own_work(kinds(pp=[*pp, *returned(pp)]), steps("abcde"), groups("ab", "cde"))
    assert excess(found) == {"a": 0, "b": 0.5, "c": -0.033, "d": 0, "e": 0.067}


@pytest.mark.parametrize(("joined", "compared"), [("bc", True), ("bcd", False)])
def test_peers_whose_exchanges_are_joined_show_no_usual_work(joined: str, compared: bool) -> None:
    """What they compute between two exchanges that are in one record is not seen."""
    alone = [row for src, dst in ("ae", "bf", "cg", "dh") for row in burst(src, dst, 500, parts=1)]
    parts = [burst(src, dst, 300, parts=1) for src, dst in ("ae", "bf", "cg", "dh") if src not in joined]
    long = [(300.0, 500.0, src, dst, 80 * MB) for src, dst in ("bf", "cg", "dh") if src in joined]
    found = own_work(kinds(dp=[*alone, *(row for part in parts for row in part), *long]), steps("abcd"), groups("abcd"))
    assert (excess(found)["a"] is not None) == compared


@pytest.mark.parametrize(("more", "compared"), [(1_100_000, True), (1_200_000, False)])
def test_who_moves_fewer_gradients_than_its_peers_has_another_role(more: int, compared: bool) -> None:
    """A tree's root waits while inner nodes send to their children, who move a seventh more than it, or less."""
    whole = ring({"a": 450, "b": 300, "c": 300, "d": 300})
    others = ring({"b": 310, "c": 310, "d": 310}, size=more)
    found = own_work(kinds(dp=[*whole, *others]), steps("abcd"), groups("abcd"))
    assert own_ms(found)["a"] == 450
    assert (excess(found)["a"] is not None) == compared
    assert all(excess(found)[addr] is not None for addr in "bcd")


def test_the_neighbours_of_who_is_seen_as_no_member_are_not_compared() -> None:
    """The host of g leaves the job, and what its neighbours send it, or get from it, is no longer the job's."""
    rows = [row for row in ring(dict.fromkeys("abcdefg", 100.0)) if "g" not in row[2:4]]
    found = own_work(kinds(dp=rows), steps("abcdef"), groups("abcdef"))
    assert [addr for addr, more in excess(found).items() if more is None] == ["a", "f"]


def test_who_has_no_peers_is_measured_and_not_compared() -> None:
    pp: list[Row] = [(300, 302, "a", "x", 8 * MB), (400, 402, "b", "x", 8 * MB)]
    found = own_work(kinds(pp=[*pp, *returned(pp)]), steps("ab"), groups("a"))
    assert own_ms(found) == {"a": 300, "b": 400}
    assert excess(found) == {"a": None, "b": None}


def replica(first: str, middle: str, last: str, *, start: float, work: float = 50, count: int = 2) -> list[Row]:
    """Return micro-batches through three stages and back, one after another; the middle one's forward takes `work`."""
    rows: list[Row] = []
    for i in range(count):
        at = start + 300 * i
        hops = ((first, middle, 0), (middle, last, work), (last, middle, 60), (middle, first, 40))
        for src, dst, spent in hops:
            at += spent
            rows.append((at, at + 2, src, dst, 8 * MB))
            at += 2
    return rows


def test_a_stage_works_from_its_first_input_to_its_first_output() -> None:
    """The first one from the step's start; the last one forward and backward."""
    found = own_work(kinds(pp=replica("a", "b", "c", start=100)), steps("abc"), groups())
    assert own_ms(found) == {"a": 100, "b": 50, "c": 60}
    assert found["last_stage"].to_list() == [False, False, True]
    assert found["entered"].to_list() == [False, True, True]
    # Two micro-batches, forward and backward: three times 100, three times 50, and 60 ms each.
    assert found["share"].to_list() == pytest.approx([0.6, 0.3, 0.12])


@pytest.mark.parametrize(("size", "own"), [(60_000, 50), (70_000, 90)])
def test_a_log_is_no_micro_batch_to_work_on(size: int, own: float) -> None:
    """It comes while the first stage still computes; no activation is smaller than 64 kB."""
    log = (160.0, 162.0, "a", "b", size)
    found = own_work(kinds(pp=[log, *replica("a", "b", "c", start=200)]), steps("abc"), groups())
    assert own_ms(found)["b"] == own


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("ahead", "own"), [(2, {"b": 150}), (3, {})])
def test_a_last_stage_that_gets_all_its_inputs_before_it_answers_shows_no_pass(
    channels: int, ahead: int, own: dict[str, float]
) -> None:
    """In 1F1B the stage before is one micro-batch ahead, in GPipe all of them are."""
    forward = [(100 + 40 * i, 102 + 40 * i, "a", "b", 8 * MB) for i in range(ahead)]
    back = [(252 + 40 * i, 254 + 40 * i, "b", "a", 8 * MB) for i in range(ahead)]
    rows = [row for row in [*forward, *back] for _ in range(channels)]
    found = own_work(kinds(pp=rows), steps("ab"), groups())
    assert own_ms(found) == {"a": 100} | own


def test_an_input_in_two_parts_is_one() -> None:
    """A sender whose receiver is busy fills the buffers first, and sends the rest later."""
    forward = [(100, 102, "a", "b", 8 * MB), (140, 141, "a", "b", 2 * MB), (251, 253, "a", "b", 6 * MB)]
    back = [(252 + 40 * i, 254 + 40 * i, "b", "a", 8 * MB) for i in range(2)]
    found = own_work(kinds(pp=[row for row in [*forward, *back] for _ in range(2)]), steps("ab"), groups())
    assert own_ms(found)["b"] == 150


def test_who_relays_for_another_gpu_shows_no_pass_of_its_own() -> None:
    """The gradients of `b` go to `a` by way of `d`, on the rail of `a`; those of `c` do not."""
    rows = replica("a", "b", "c", start=100)
    relayed = [(*row[:3], "d", row[4]) if row[2:4] == ("b", "a") else row for row in rows]
    relayed += [(begin + 5, end + 5, "d", "a", size) for begin, end, sender, _, size in relayed if sender == "b"]
    assert own_ms(own_work(kinds(pp=relayed), steps("abcd"), groups())) == {"c": 60}


def test_a_late_input_is_not_its_receiver_s_fault() -> None:
    pp = [*replica("a", "b", "c", start=100), *replica("d", "e", "f", start=180)]
    found = own_work(kinds(pp=pp), steps("abcdef"), groups("ad", "be", "cf"))
    assert excess(found) == {"a": 0, "b": 0, "c": 0, "d": 0.8, "e": 0, "f": 0}


@pytest.mark.parametrize(("late", "own"), [(0, 50), (1.5, 80)], ids=["at once", "apart"])
def test_ranks_of_a_host_begin_a_pass_together_if_they_end_it_together(late: float, own: float) -> None:
    """The input of `e` comes 30 ms after that of `b`; both outputs leave at once, or apart by more than clocks are."""
    pp = [*replica("a", "b", "c", start=100, work=80), *replica("d", "e", "f", start=130, work=50 + late)]
    rows = [("j", addr, f"host-{stage}", stage) for stage, addrs in enumerate(("ad", "be", "cf")) for addr in addrs]
    hosts = pl.DataFrame(rows, schema=["job_id", "addr", "host", "pp_stage"], orient="row")
    found = own_work(kinds(pp=pp), steps("abcdef"), groups("ad", "be", "cf"), hosts=hosts)
    assert own_ms(found)["b"] == own
    assert own_ms(found)["e"] == 50 + late


def test_who_ends_a_pipeline_is_no_peer_of_who_does_not() -> None:
    """It works forward and backward: where they are in one group, a pair was taken for what it is not."""
    pp = [*replica("a", "b", "c", start=100), *replica("d", "e", "f", start=100)]
    found = own_work(kinds(pp=pp), steps("abcdef"), groups("ad", "bf", "e"))
    assert excess(found) == {"a": 0, "b": None, "c": None, "d": 0, "e": None, "f": None}
    assert found["members"].to_list() == [2, 1, 1, 2, 1, 1]


def test_whose_inputs_are_not_seen_is_no_peer_of_who_waits_for_them() -> None:
    """The records of `d` to `e` are lost but for one at the end: `e` seems to work from the step's beginning on."""
    rows = [*replica("a", "b", "c", start=100), *replica("d", "e", "f", start=100)]
    found = own_work(
        kinds(pp=[*(row for row in rows if row[2:4] != ("d", "e")), *returned(rows[11:12])]),
        steps("abcdef"),
        groups("ad", "be", "cf"),
    )
    assert own_ms(found)["e"] == 152
    assert excess(found) == {"a": None, "b": None, "c": 0, "d": None, "e": None, "f": 0}


def test_the_first_stage_begins_when_its_parameters_are_gathered() -> None:
    dp = [(10, 70, "a", "x", 8 * MB), (10, 70, "x", "a", 8 * MB)]
    found = own_work(kinds(pp=replica("a", "b", "c", start=100), dp=dp), steps("abc"), groups())
    assert own_ms(found)["a"] == 30


@pytest.mark.parametrize(
    ("host", "peers", "own"),
    [
        ("host-b", [], {"c": 60}),
        ("host-a", [], {"a": 100, "b": 11, "c": 60}),
        ("host-b", ["b", "x"], {"a": 100, "b": 11, "c": 60}),
    ],
    ids=["two hosts", "one host", "with a peer"],
)
def test_where_a_pipeline_begins_in_two_hosts_nobody_knows_what_they_send_first(
    host: str, peers: list[str], own: dict[str, float]
) -> None:
    """What `b` sends after 11 ms may be the end of the step before. Peers would be cut there, too."""
    rows: list[Row] = [(11, 13, "b", "y", 8 * MB), (11, 13, "x", "z", 8 * MB)]
    rows += [*returned(rows), *replica("a", "b", "c", start=100), *replica("d", "x", "f", start=100)]
    members = [("j", addr, host if addr == "b" else f"host-{addr}", None) for addr in "abcdxfyz"]
    hosts = pl.DataFrame(members, schema=["job_id", "addr", "host", "pp_stage"], orient="row")
    found = own_work(kinds(pp=rows), steps("abcdxf"), groups("".join(peers)), hosts=hosts)
    assert {addr: ms for addr, ms in own_ms(found).items() if addr in "abc"} == own


@pytest.mark.parametrize(("late", "own"), [(9, 50), (11, 11)])
def test_a_gradient_that_leaves_after_the_step_s_end_is_the_last_step_s(late: float, own: float) -> None:
    """Of five outputs in a second, 200 ms apart, no GPU sends the first within a twentieth of that."""
    rows = [(late, late + 2, "b", "a", 8 * MB), *replica("a", "b", "c", start=100)]
    assert own_ms(own_work(kinds(pp=rows), steps("abc"), groups()))["b"] == own


def test_a_stage_s_first_pass_is_found_however_many_there_are_in_a_step() -> None:
    """Of a hundred micro-batches in ten seconds, the first has gone through both stages in less than 100 ms."""
    sent = [(at, at + 2, "a", "b", 8 * MB) for at in range(30, 10_000, 100)]
    rows = [*sent, *((at + 22, at + 24, "b", "a", 8 * MB) for at, *_ in sent)]
    whole = steps("ab").with_columns(end_ns=pl.col("start_ns") + 10 * STEP * MS)
    found = own_work(kinds(pp=rows), whole, groups())
    assert own_ms(found) == {"a": 30, "b": 20}
    assert found["entered"].to_list() == [False, True]


LOST, SPLIT, SMALLER = range(3)


@pytest.mark.parametrize(("first", "own"), [(LOST, None), (SPLIT, 100), (SMALLER, 100)])
def test_a_pass_whose_message_s_record_was_lost_is_not_measured(first: int, own: float | None) -> None:
    """Without it, the pass of `a` seems to last until the second micro-batch. A record in two parts moves as many
    bytes, and a shorter sample is one message."""
    rows = [row for step in range(3) for row in replica("a", "b", "c", start=100 + step * STEP)]
    start, end, src, dst, size = rows[0]
    instead = {
        LOST: [],
        SPLIT: [(start, end - 1, src, dst, size // 2), (end - 1, end, src, dst, size // 2)],
        SMALLER: [(start, end, src, dst, size // 4)],
    }[first]
    others = [row for nics in ("def", "ghi") for step in range(3) for row in replica(*nics, start=110 + step * STEP)]
    found = own_work(kinds(pp=[*instead, *rows[1:], *others]), steps("abcdefghi", 3), groups("adg", "beh", "cfi"))
    assert own_ms(found.filter(step_index=0)).get("a") == own
    assert own_ms(found.filter(pl.col("step_index") > 0)).get("a") == 100


def test_without_peers_a_lost_record_shows_beside_the_other_steps() -> None:
    rows = [row for step in range(4) for row in replica("a", "b", "c", start=100 + step * STEP)]
    found = own_work(kinds(pp=rows[1:]), steps("abc", 4), groups())
    assert found.filter(addr="a")["step_index"].to_list() == [1, 2, 3]


@pytest.mark.parametrize("queue_pairs", [1, 2, 4])
def test_a_message_s_queue_pairs_are_one_micro_batch(queue_pairs: int) -> None:
    split = [
        (start + 0.01 * i, end, src, dst, size // queue_pairs)
        for start, end, src, dst, size in replica("a", "b", "c", start=100)
        for i in range(queue_pairs)
    ]
    found = own_work(kinds(pp=split), steps("abc"), groups())
    assert found["share"].to_list() == pytest.approx([0.6, 0.3, 0.12], rel=1e-3)


@pytest.mark.parametrize(("size", "entries"), [(63 * MB, True), (65 * MB, False)])
def test_what_is_exchanged_in_every_layer_outweighs_a_pipeline(size: int, entries: bool) -> None:
    """It has eight messages of 8 MB: where less is exchanged, a pair of it was taken for what it is not."""
    ep = [(300, 310, "a", "c", size)]
    found = own_work(kinds(pp=replica("a", "b", "c", start=100), ep=ep), steps("abc"), groups())
    assert found.is_empty() != entries  # silences beside a pipeline's messages are waiting


def test_whose_experts_are_asked_for_more_may_compute_longer() -> None:
    """`b` computes for 40 % longer: as it is sent 1.4 times the mean, or more than that explains."""

    def exchange(received: int) -> list[Row]:
        others = "acd"
        ready = {"a": 300, "b": 420, "c": 300, "d": 300}
        rows = ring(ready, end=500, size=8 * MB)
        return [
            (start, end, src, dst, received if dst == "b" else size) for start, end, src, dst, size in rows if others
        ]

    busy = own_work(kinds(ep=exchange(14 * MB)), steps("abcd"), groups("abcd"))
    idle = own_work(kinds(ep=exchange(8 * MB)), steps("abcd"), groups("abcd"))
    assert excess(idle)["b"] == pytest.approx(0.4)
    assert excess(busy)["b"] == pytest.approx(1.4 / (14 / 9.5) - 1, abs=1e-3)


def test_each_step_is_measured_from_its_own_start_and_flows_outside_tell_nothing() -> None:
    table = kinds(dp=[(at + i * STEP, at + 100 + i * STEP, "a", "b", 8 * MB) for i, at in enumerate((300, 310, 320))])
    found = own_work(table, steps("a", 3), groups())
    assert [own / MS for own in found["own_ns"]] == [300, 310, 320]
    second = steps("a", 2).filter(step_index=1)
    assert_frame_equal(own_work(table, second, groups()), found.filter(step_index=1))


def test_nothing_in_nothing_out_and_the_order_of_rows_does_not_matter() -> None:
    table = kinds(dp=ring({"a": 300, "b": 450, "c": 310}), pp=[])
    full = own_work(table, steps("abc"), groups("abc"))
    assert_frame_equal(own_work(table.clear(), steps("abc"), groups("abc")), full.clear())
    assert_frame_equal(own_work(table, steps(""), groups("abc")), full.clear())
    shuffled = [frame.sample(fraction=1, shuffle=True, seed=7) for frame in (table, steps("abc"), groups("abc"))]
    assert_frame_equal(own_work(*shuffled), full)


@pytest.mark.parametrize(("until", "slow"), [(1210, False), (1430, True)])
def test_a_burst_amid_the_only_peer_s_gap_makes_nobody_else_slow(until: float, slow: bool) -> None:
    """Both compute for 600 ms. Where the burst takes a part of them, the other computes for longer indeed."""
    pairs = [*ring({"a": 1500, "b": 1500}, end=1900), *ring({"a": 500, "b": 500}), *ring({"c": 500, "d": 500})]
    amid = [(1150.0, until, "b", "c", 8 * MB)]
    found = own_work(kinds(dp=[*pairs, *amid]), steps("abcd", 2), groups("ab", "cd"))
    (mine,) = found.filter(pl.col("addr") == "a", pl.col("step_index") == 1)["excess"]
    assert mine == pytest.approx(0.1, abs=0.1) if not slow else mine > 1
