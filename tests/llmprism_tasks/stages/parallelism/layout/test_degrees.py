"""From pairs to degrees: pipelines, rings, rings that pass through a host unseen, experts and context blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import polars as pl
import pytest
from handmade import degrees_of, members, topology

from llmprism_tasks.stages.parallelism.layout.degrees import likeliest, unless_sharded

Pair = tuple[str, str, str]


def table(pairs: Iterable[Pair], job: str = "j") -> pl.DataFrame:
    columns = {"job_id": pl.String, "src_addr": pl.String, "dst_addr": pl.String, "kind": pl.String}
    return pl.DataFrame([(job, *pair) for pair in pairs], schema=columns, orient="row")


def ring(nics: Sequence[str], kind: str = "dp") -> list[Pair]:
    return [(src, dst, kind) for src, dst in [*pairwise(nics), (nics[-1], nics[0])]]


def line(nics: Sequence[str]) -> list[Pair]:
    return [pair for src, dst in pairwise(nics) for pair in ((src, dst, "pp"), (dst, src, "pp"))]


def cluster(hosts: int, gpus: int) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Return hosts and their NICs, named `<host letter><gpu>`, and the NICs by host."""
    nics = [[f"{chr(97 + host)}{gpu}" for gpu in range(gpus)] for host in range(hosts)]
    return {f"host-{chr(97 + host)}": of for host, of in enumerate(nics)}, nics


def placed(hosts: dict[str, list[str]]) -> pl.DataFrame:
    """Return the members of one job on all NICs of the hosts."""
    return members({"j": {addr: host for host, of in hosts.items() for addr in of}})


def found(pairs: Iterable[Pair], hosts: dict[str, list[str]]) -> tuple[int | None, int | None, int | None] | None:
    """Return (tp, pp, dp) of one job on all NICs of the hosts; None if the job has no row."""
    table_ = degrees_of(table(pairs), placed(hosts), topology(hosts))
    return table_.select("tp", "pp", "dp").row(0) if table_.height else None


def test_rails_of_one_pipeline_and_one_ring_each() -> None:
    """Two replicas of two stages, a host each, four GPUs: TP 4, PP 2, DP 2."""
    hosts, nics = cluster(4, 4)
    rails = [pair for g in range(4) for pair in (*line([nics[0][g], nics[2][g]]), *line([nics[1][g], nics[3][g]]))]
    rings = [pair for g in range(4) for pair in (*ring([nics[0][g], nics[1][g]]), *ring([nics[2][g], nics[3][g]]))]
    assert found([*rails, *rings], hosts) == (4, 2, 2)


@pytest.mark.parametrize(("staged", "expected"), [(True, (4, 2, 2)), (False, (None, None, None))])
def test_peers_may_be_in_several_hosts_of_a_rack_that_exchange_nothing(
    staged: bool, expected: tuple[int | None, ...]
) -> None:
    """Two replicas of two stages, two hosts of two GPUs each: hosts of a stage are joined by NVLink alone.

    Without stages, as many GPUs may share parameters.
    """
    hosts, nics = cluster(8, 2)
    islands = [[nics[host] for host in range(first, 8, 2)] for first in (0, 1)]
    rails_ = [[host[gpu] for host in island] for island in islands for gpu in (0, 1)]
    lines = [pair for a, b, c, d in rails_ for pair in (*line([a, c]), *line([b, d]))] if staged else []
    rings_ = [pair for a, b, c, d in rails_ for pair in (*ring([a, b]), *ring([c, d]))]
    alone = [pair for rail in rails_ for pair in ring(rail)]
    assert found([*lines, *rings_] if staged else alone, hosts) == expected


def test_data_parallel_alone() -> None:
    hosts, nics = cluster(4, 2)
    assert found([pair for g in range(2) for pair in ring([of[g] for of in nics])], hosts) == (2, 1, 4)
    assert found(ring([nic for of in nics for nic in of]), hosts) == (1, 1, 8)


def test_pipelines_alone() -> None:
    hosts, nics = cluster(4, 2)
    assert found([pair for g in range(2) for pair in line([of[g] for of in nics])], hosts) == (2, 4, 1)


def test_a_pipeline_fed_from_both_ends_has_each_gradient_at_two_places() -> None:
    """DualPipe: the first and the last GPU of a line hold the same two stages, counted from either end."""
    hosts, nics = cluster(8, 2)
    lines = [pair for g in range(2) for first in (0, 1) for pair in line([nics[h][g] for h in range(first, 8, 2)])]
    rings_ = [
        pair for g in range(2) for hosts_ in ((0, 1, 7, 6), (2, 3, 5, 4)) for pair in ring([nics[h][g] for h in hosts_])
    ]
    assert found([*lines, *rings_], hosts) == (2, 4, 2)
    all_in_one = [pair for g in range(2) for pair in ring([nics[h][g] for h in range(8)])]
    assert found([*lines, *all_in_one], hosts) == (None, None, None)


def test_a_ring_through_a_host_with_two_replicas() -> None:
    """TP 2 on hosts of four: each ring enters a host at one rail and leaves it at another, unseen between."""
    hosts, nics = cluster(2, 4)
    seen = [pair for g in range(2) for pair in ((nics[0][g + 2], nics[1][g], "dp"), (nics[1][g + 2], nics[0][g], "dp"))]
    assert found(seen, hosts) == (2, 1, 4)


def test_gpu_indices_are_not_needed() -> None:
    hosts, nics = cluster(2, 4)
    seen = [pair for g in range(2) for pair in ((nics[0][g + 2], nics[1][g], "dp"), (nics[1][g + 2], nics[0][g], "dp"))]
    of = members({"j": {addr: host for host, some in hosts.items() for addr in some}})
    unknown = topology(hosts).with_columns(gpu=pl.lit(None, dtype=pl.Int32))
    assert degrees_of(table(seen), of, unknown).select("tp", "pp", "dp").row(0) == (2, 1, 4)


@pytest.mark.parametrize(("gpus", "expected"), [(5, (5, 1, 4)), (4, (None, None, None))])
def test_one_rail_in_five_may_have_lost_its_pairs(gpus: int, expected: tuple[int | None, ...]) -> None:
    """All rails but the last have their ring: four fifths of the NICs agree, or three quarters."""
    hosts, nics = cluster(4, gpus)
    assert found([pair for g in range(gpus - 1) for pair in ring([of[g] for of in nics])], hosts) == expected


def test_degrees_that_do_not_multiply_to_the_job_are_unknown() -> None:
    hosts, nics = cluster(5, 1)
    flat = [of[0] for of in nics]
    assert found([*line(flat[:4]), *ring([flat[4], flat[0]])], hosts) == (None, None, None)


def test_tensor_parallelism_stays_inside_a_host() -> None:
    """Rings of two among eight hosts with one GPU each leave a factor of four that no host could hold."""
    hosts, nics = cluster(8, 1)
    rings = [pair for i in range(0, 8, 2) for pair in ring([nics[i][0], nics[i + 1][0]])]
    assert found(rings, hosts) == (None, None, None)


def test_a_job_whose_pairs_are_all_other_has_no_degrees() -> None:
    hosts, nics = cluster(2, 1)
    assert found(ring([nics[0][0], nics[1][0]], "other"), hosts) is None
    assert found([], hosts) is None


def test_jobs_are_laid_out_each_by_itself() -> None:
    hosts, nics = cluster(4, 1)
    first, second = [of[0] for of in nics[:2]], [of[0] for of in nics[2:]]
    of = members({"one": {"a0": "host-a", "b0": "host-b"}, "two": {"c0": "host-c", "d0": "host-d"}})
    pairs = pl.concat([table(ring(first), "one"), table(line(second), "two")])
    rows = degrees_of(pairs, of, topology(hosts)).sort("job_id").select("job_id", "tp", "pp", "dp").rows()
    assert rows == [("one", 1, 1, 2), ("two", 1, 2, 1)]


def layout_of(pairs: Iterable[Pair], hosts: dict[str, list[str]]) -> dict[str, object]:
    nics = members({"j": {addr: host for host, of in hosts.items() for addr in of}})
    return degrees_of(table(pairs), nics, topology(hosts)).row(0, named=True)


def test_where_one_member_is_in_each_host_what_is_not_seen_is_not_used() -> None:
    hosts, nics = cluster(4, 2)
    row = layout_of([pair for g in range(2) for pair in ring([of[g] for of in nics])], hosts)
    assert (row["cp"], row["ep"], row["agreement"]) == (1, 1, 1.0)


def test_where_replicas_share_a_host_context_and_experts_may_stay_in_it() -> None:
    hosts, nics = cluster(2, 4)
    seen = [pair for g in range(2) for pair in ((nics[0][g + 2], nics[1][g], "dp"), (nics[1][g + 2], nics[0][g], "dp"))]
    row = layout_of(seen, hosts)
    assert (row["dp"], row["cp"], row["ep"]) == (4, None, None)


def test_context_blocks_go_round_within_the_gradients_group() -> None:
    """Four ranks of one rail hold two sequences of two parts: gradients go round all, blocks between two."""
    hosts, nics = cluster(4, 2)
    pairs = []
    for g in range(2):
        a, b, c, d = (of[g] for of in nics)
        pairs += [*ring([a, b], "cp"), *ring([c, d], "cp"), (b, c, "dp"), (d, a, "dp")]
    row = layout_of(pairs, hosts)
    assert (row["tp"], row["dp"], row["cp"]) == (2, 2, 2)


@pytest.mark.parametrize(
    ("mb", "norm", "sizes"),
    [(14, 10, (1, 1, 2, 3)), (12, 10, (1, 1, None, None)), (14, 0.1, (1, 1, 2, 3)), (14, 2, (1, 1, 1, 6))],
)
def test_blocks_go_on_over_the_hops_of_a_ring_of_gradients_that_carry_as_much_more(
    mb: float, norm: float, sizes: tuple[int | None, ...]
) -> None:
    """Two groups of three share a ring of gradients of 10 MB; blocks of 6 MB come back over pairs of their own. Another
    ring goes the other way; where it carries next to nothing, it tells nothing of the blocks."""
    hosts, nics = cluster(6, 1)
    a, b, c, d, e, f = (of[0] for of in nics)
    both = dict.fromkeys([(a, b), (b, c), (d, e), (e, f)], mb)
    carried = {**both, (c, d): 10, (f, a): 10, (c, a): 6, (f, d): 6, (d, c): norm}
    pairs = table((src, dst, "cp" if mb == 6 else "dp") for (src, dst), mb in carried.items()).with_columns(
        bytes_per_step=pl.Series([mb * 1e6 for mb in carried.values()])
    )
    assert degrees_of(pairs, placed(hosts), topology(hosts)).select("tp", "pp", "dp", "cp").row(0) == sizes


def carrying(pairs: Iterable[Pair], carried: Iterable[float], filling: float = 0.0) -> pl.DataFrame:
    return table(pairs).with_columns(bytes_per_step=pl.Series(carried, dtype=pl.Float64), filling=pl.lit(filling))


def unless(tp: int, pairs: pl.DataFrame, *, sharded: bool | None = True) -> tuple[int | None, ...]:
    """Return what is kept of `tp`, `dp` and `cp` of a job of four replicas."""
    laid = pl.DataFrame({"job_id": ["j"], "tp": [tp], "pp": [1], "dp": [4], "cp": [1]})
    told = pl.DataFrame({"job_id": ["j"], "sharded": [sharded]}, schema_overrides={"sharded": pl.Boolean})
    return unless_sharded(laid, told, pairs, same_bytes=0.1, every_step=0.8).select("tp", "dp", "cp").row(0)


@pytest.mark.parametrize(
    ("tp", "sharded", "known"),
    [(8, True, (None, None, 1)), (8, False, (8, 4, 1)), (1, True, (1, 4, 1)), (8, None, (8, 4, 1))],
)
def test_who_shares_parameters_in_every_layer_may_be_a_peer_or_a_replica(
    tp: int, sharded: bool | None, known: tuple[int | None, ...]
) -> None:
    both_ways = carrying([*ring("abcd"), *ring("dcba")], [5.0] * 8)
    assert unless(tp, both_ways, sharded=sharded) == known


@pytest.mark.parametrize(("back", "told"), [(1.0, True), (1.08, True), (1.2, False), (1.9, False), (0.0, False)])
def test_what_goes_round_one_way_may_be_blocks_of_context_and_gradients(back: float, *, told: bool) -> None:
    """So it may where less goes round the other way."""
    pairs = (
        carrying([*ring("abcd"), *ring("dcba")], [back] * 4 + [1.0] * 4) if back else carrying(ring("abcd"), [1.0] * 4)
    )
    assert unless(1, pairs) == ((1, 4, 1) if told else (1, None, None))


@pytest.mark.parametrize(("filling", "told"), [(0.9, True), (0.7, False), (0.4, False)])
def test_a_ring_that_fills_the_step_gathers_parameters_or_passes_blocks(filling: float, *, told: bool) -> None:
    """Most that fill every step gather, so `dp` is told, but nobody knows that none of it is context."""
    assert unless(1, carrying(ring("abcd"), [1.0] * 4, filling)) == ((1, 4, None) if told else (1, None, None))


@pytest.mark.parametrize("sharded", [False, None])
def test_a_ring_of_gradients_that_are_sent_at_once_is_told(*, sharded: bool | None) -> None:
    assert unless(1, carrying(ring("abcd"), [1.0] * 4), sharded=sharded) == (1, 4, 1)


@pytest.mark.parametrize("kind", ["ep", "pp"])
def test_experts_and_stages_say_more_of_a_job_than_its_ring(kind: str) -> None:
    assert unless(1, carrying([*ring("abcd"), ("a", "c", kind)], [1.0] * 5)) == (1, 4, 1)


def test_experts_are_exchanged_within_the_dense_layers_group() -> None:
    hosts, nics = cluster(4, 2)
    pairs = []
    for g in range(2):
        a, b, c, d = (of[g] for of in nics)
        pairs += [*ring([a, b, c, d]), *ring([a, b], "ep"), *ring([c, d], "ep"), *ring([a, c])]
    row = layout_of(pairs, hosts)
    assert (row["tp"], row["dp"], row["ep"]) == (2, 4, 2)


def test_relayed_experts_are_all_members_in_the_hosts() -> None:
    """TP 2 on hosts of four: rails alone are linked, for what goes to another GPU of a host is handed on inside."""
    hosts, nics = cluster(2, 4)
    through = [(nics[0][g + 2], nics[1][g], "dp") for g in range(2)] + [
        (nics[1][g + 2], nics[0][g], "dp") for g in range(2)
    ]
    exchange = [pair for g in range(4) for pair in ring([nics[0][g], nics[1][g]], "ep")]
    row = layout_of([*through, *exchange], hosts)
    assert (row["tp"], row["dp"], row["ep"]) == (2, 4, 4)


def test_two_groups_that_exchange_tokens_between_the_same_hosts_are_two() -> None:
    """Across rails: everybody sends to everybody of the group, so that nothing passes through a host unseen."""
    hosts, nics = cluster(2, 4)
    across = [(nics[0][one], nics[1][other]) for group in ((0, 1), (2, 3)) for one in group for other in group]
    row = layout_of([(*ends, "ep") for both in across for ends in (both, both[::-1])], hosts)
    assert (row["dp"], row["ep"]) == (8, 4)


def test_channels_that_enter_a_host_at_every_gpu_make_one_group() -> None:
    """Each GPU a rank: a ring's channels come in at one rail and go out at the next, so rails are apart by one."""
    hosts, nics = cluster(4, 4)
    pairs = [(nics[h][g], nics[(h + 1) % 4][g ^ 1], "dp") for h in range(4) for g in (0, 2)]
    row = layout_of(pairs, hosts)
    assert (row["tp"], row["dp"]) == (1, 16)


def test_a_host_may_hold_two_stages() -> None:
    """Three replicas of two stages, two places in a host: each stage has its ring, which joins what it links alone."""
    hosts, nics = cluster(3, 2)
    (a0, a1), (b0, b1), (c0, c1) = nics
    rings = [(src, dst, "dp") for x, y in ((a0, b0), (a1, b0), (b1, c0), (b1, c1)) for src, dst in ((x, y), (y, x))]
    row = layout_of([*rings, *line([a0, b1]), *line([a1, c0]), *line([b0, c1])], hosts)
    assert (row["tp"], row["pp"], row["dp"]) == (1, 2, 3)


def test_a_relayed_message_between_members_of_one_group_is_no_link_of_the_pipeline() -> None:
    hosts, nics = cluster(4, 1)
    a, b, c, d = (of[0] for of in nics)
    row = layout_of([*ring([a, b]), *ring([c, d]), *line([a, c]), (c, d, "pp")], hosts)
    assert (row["pp"], row["dp"]) == (2, 2)


@pytest.mark.parametrize(
    ("peers", "expected"),
    [(4, (4, 2, 1, 1)), (2, (2, 2, 2, None)), (1, (1, 2, 4, None)), (3, (None, 2, None, None)), (None,) * 2],
)
def test_replicas_of_a_pipeline_that_is_alone_are_told_by_who_works_in_lock_step(
    peers: int | None, expected: tuple[int | None, ...] | None
) -> None:
    """Two hosts of four GPUs, a stage each; where nobody knows, neither tp nor dp is known."""
    hosts, nics = cluster(2, 4)
    pairs = table(pair for g in range(4) for pair in line([of[g] for of in nics]))
    known = pl.DataFrame([("j", peers)], schema={"job_id": pl.String, "peers": pl.Int64}, orient="row").drop_nulls()
    everyone = members({"j": {addr: host for host, of in hosts.items() for addr in of}})
    found = degrees_of(pairs, everyone, topology(hosts), known)
    assert found.select("tp", "pp", "dp", "cp").row(0) == (expected or (None, 2, None, None))


def by_peers(pairs: Iterable[Pair], hosts: dict[str, list[str]], peers: int | None) -> tuple[int | None, ...]:
    """Return (tp, pp, dp) of one job on all NICs of the hosts, so many of each host in lock-step."""
    nics = members({"j": {addr: host for host, of in hosts.items() for addr in of}})
    known = pl.DataFrame([("j", peers)], schema={"job_id": pl.String, "peers": pl.Int64}, orient="row").drop_nulls()
    laid, seen = likeliest(table(pairs), nics, topology(hosts), known)
    row: tuple[int | None, ...] = laid.select("tp", "pp", "dp").row(0)
    if row[2] is not None:
        assert seen.groups.group_by("group").len()["len"].unique().to_list() == [row[2]]
    return row


@pytest.mark.parametrize(
    ("peers", "expected"),
    [(None, (4, 1, 3)), (4, (4, 1, 3)), (2, (2, 1, 6)), (1, (1, 1, 12)), (3, (None, 1, None)), (8, (4, 1, 3))],
)
def test_rings_on_every_rail_join_the_members_of_a_host_that_are_no_peers(
    peers: int | None, expected: tuple[int | None, ...]
) -> None:
    """Three hosts of four GPUs, a ring on each rail: four peers each, or two of two replicas, or four replicas."""
    hosts, nics = cluster(3, 4)
    assert by_peers([pair for g in range(4) for pair in ring([of[g] for of in nics])], hosts, peers) == expected


def test_where_nobody_knows_who_are_peers_neither_tp_nor_dp_nor_ep_is_known() -> None:
    """A row without peers is an exchange of tokens that keeps all in step; no row is nobody who was asked."""
    hosts, nics = cluster(3, 4)
    pairs = table(pair for g in range(4) for pair in ring([of[g] for of in nics]))
    everyone = members({"j": {addr: host for host, of in hosts.items() for addr in of}})
    unknown = pl.DataFrame({"job_id": ["j"], "peers": [None]}, schema_overrides={"peers": pl.Int64})
    laid, _ = likeliest(pairs, everyone, topology(hosts), unknown)
    assert laid.select("tp", "pp", "dp", "ep").row(0) == (None, 1, None, None)
    laid, _ = likeliest(pairs, everyone, topology(hosts), unknown.clear())
    assert laid.select("tp", "pp", "dp", "ep").row(0) == (4, 1, 3, 1)


def test_rails_that_are_stages_are_not_joined() -> None:
    """Each GPU is its own peer, and so says the layout without joining."""
    hosts, nics = cluster(2, 2)
    (a, b), (c, d) = nics
    pairs = [*ring([a, c]), *ring([b, d]), (a, d, "pp"), (d, a, "pp"), (c, b, "pp"), (b, c, "pp")]
    assert by_peers(pairs, hosts, 1) == (1, 2, 2)
