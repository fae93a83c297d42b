"""What pairs are follows from what they are together: the layout that most of them make says what the rest are."""

from __future__ import annotations

import random
from itertools import pairwise, permutations

import numpy as np
import polars as pl
import pytest
from handmade import members

from llmprism_tasks.stages.parallelism.pair_kinds import roles

HOSTS = {nic: f"host-{nic}" for nic in "abcdefgh"}
SIGNS = ("pipeline", "expert", "filling", "together")
SIGN_OF = {"pp": "pipeline", "ep": "expert", "cp": "filling"}

Pairs = list[dict[str, object]]


def seeming(
    links: list[str], kind: str, mb: float, *, sure: float = 1.0, presence: float = 1.0, **others: float
) -> Pairs:
    """Return pairs that seem to be of a kind in this ratio of their steps."""
    signs = dict.fromkeys(SIGNS, 0.0) | others
    if kind in SIGN_OF:
        signs[SIGN_OF[kind]] = sure
    return [
        {"job_id": "j", "src_addr": link[0], "dst_addr": link[1], "kind": kind, "bytes_per_step": mb * 1e6}
        | {"presence": presence, "periodic": kind != "other"}
        | signs
        for link in links
    ]


def around(nics: str) -> list[str]:
    return [src + dst for src, dst in [*pairwise(nics), (nics[-1], nics[0])]]


def both_ways(*links: str) -> list[str]:
    return [way for link in links for way in (link, link[::-1])]


def all_with_all(nics: str) -> list[str]:
    return [src + dst for src, dst in permutations(nics, 2)]


def found(*parts: Pairs, hosts: dict[str, str] = HOSTS) -> dict[str, tuple[str, float | None]]:
    pairs = pl.DataFrame([row for part in parts for row in part]).with_row_index("pair")
    told = roles.likeliest(pairs, members({"j": hosts}), 0.5)
    return {
        f"{src}{dst}": (kind, sure)
        for src, dst, kind, sure in told.select("src_addr", "dst_addr", "kind", "posterior").iter_rows()
    }


def kinds(*parts: Pairs, hosts: dict[str, str] = HOSTS) -> dict[str, str]:
    return {link: kind for link, (kind, _) in found(*parts, hosts=hosts).items()}


def on_hosts(*of_hosts: str) -> dict[str, str]:
    return {nic: f"host-{nics}" for nics in of_hosts for nic in nics}


RINGS = [*seeming(around("abc"), "dp", 9), *seeming(around("def"), "dp", 7)]
"""Two stages with three replicas each."""

LINKS = both_ways("ad", "be", "cf")


def test_what_agrees_is_told_with_certainty() -> None:
    told = found(RINGS, seeming(LINKS, "pp", 4))
    assert {link: kind for link, (kind, _) in told.items() if kind != "dp"} == dict.fromkeys(LINKS, "pp")
    assert min(sure for _, sure in told.values() if sure is not None) > 0.99


@pytest.mark.parametrize(("misread", "told"), [(3, "ep"), (10, "other")])
def test_an_exchange_is_one_though_some_of_its_pairs_seem_to_be_answered(misread: int, told: str) -> None:
    """Of twelve pairs among four NICs; where nearly all are misread, it is no exchange."""
    every = all_with_all("abcd")
    ring = seeming(around("abcd"), "dp", 40)
    links = [link for link in every if link not in around("abcd")]
    seem = [*seeming(links[misread:], "ep", 4, sure=0.9), *seeming(links[:misread], "pp", 4, sure=0.6)]
    exchanged = {link: kind for link, kind in kinds(ring, seem).items() if link in links}
    assert (set(exchanged.values()) == {"ep"}) == (told == "ep")


@pytest.mark.parametrize(("answered", "told"), [(True, {"ep"}), (False, {"other"})])
def test_who_exchanges_tokens_is_answered_as_stages_are(told: set[str], *, answered: bool) -> None:
    """None of the pairs seems to be an exchange's. All are within one group of gradients, where no pipeline is."""
    ring = both_ways(*around("abcdef"))
    links = [link for link in all_with_all("abcdef") if link not in ring and (answered or link[0] < link[1])]
    seen = kinds(seeming(ring, "dp", 40), seeming(links, "pp", 4, sure=0.6))
    assert {seen[link] for link in links} == told


@pytest.mark.parametrize(("mb", "told"), [(0.7, "ep"), (15.0, "dp")])
def test_gradients_that_share_a_pair_with_tokens_carry_more_than_tokens_alone(mb: float, told: str) -> None:
    """Six NICs exchange tokens, those around two rings for certain, the others in nearly half of their steps."""
    ring = both_ways(*around("abcdef"))
    links = [link for link in all_with_all("abcdef") if link not in ring]
    seen = kinds(seeming(ring, "ep", 13), seeming(links, "dp", mb, expert=0.45))
    assert {seen[link] for link in links} == {told}


def test_the_ring_of_all_replicas_may_go_along_pairs_that_exchange_tokens() -> None:
    """Two groups of four share experts each, and all eight a ring of gradients. It leaves a group in one place alone.
    The replicas of each expert reduce between the groups, layer by layer: no stages send to each other."""
    ring = around("abcdefgh")
    shared, between = [link for link in ring if link not in ("de", "ha")], ["de", "ha"]
    tokens = [link for group in ("abcd", "efgh") for link in all_with_all(group) if link not in shared]
    replicas = both_ways("ae", "bf", "cg", "dh")
    seen = kinds(
        seeming(tokens, "ep", 5), seeming(shared, "ep", 13), seeming(between, "dp", 8), seeming(replicas, "dp", 3)
    )
    assert {seen[link] for link in [*replicas, *between]} == {"dp"}
    assert {seen[link] for link in [*tokens, *shared]} == {"ep"}


@pytest.mark.parametrize(("links", "told"), [(LINKS, "pp"), (LINKS[::2], "other")])
def test_what_links_the_rings_of_gradients_both_ways_is_a_pipeline(links: list[str], told: str) -> None:
    """Context is shared within a gradient group: there are two, so this is no ring of context."""
    assert {kinds(RINGS, seeming(links, "cp", 4, sure=0.8))[link] for link in links} == {told}


@pytest.mark.parametrize(("mb", "told"), [(9.9, "dp"), (15.0, "other")])
def test_a_hop_that_was_not_seen_to_keep_the_period_is_known_by_its_bytes(mb: float, told: str) -> None:
    """All hops of a ring carry as much; what carries half as much again closes no ring for certain."""
    ring = [*seeming(around("abcd")[:3], "dp", 9.5), *seeming(["da"], "other", mb)]
    own = kinds(ring, seeming(both_ways("ab"), "other", 0.1, presence=0.1))
    assert own["da"] == told


@pytest.mark.parametrize(("together", "told"), [(1.0, "dp"), (0.4, "pp")])
def test_two_hosts_that_gather_parameters_from_each_other_do_so_at_the_same_time(together: float, told: str) -> None:
    """Three copies of a model, each shared by two hosts: their rings of gradients are linked as those of stages are."""
    shards = seeming(LINKS, "ep", 40, expert=0.0, filling=1.0, together=together)
    seen = kinds(RINGS, [pair | {"expert": 0.0} for pair in shards])
    assert {seen[link] for link in LINKS} == {told}


@pytest.mark.parametrize(("closing", "told"), [(6.0, "dp"), (3.0, "pp")])
def test_what_leads_all_around_with_as_many_bytes_is_no_pipeline(closing: float, told: str) -> None:
    """Interleaved stages send less from the last one back to the first."""
    seem = [*seeming(both_ways("ab", "bc", "cd"), "pp", 6), *seeming(both_ways("da"), "pp", closing)]
    assert set(kinds(seem).values()) == {told}


@pytest.mark.parametrize(("closing", "told"), [([], "pp"), (["ac"], "dp")])
def test_gradients_go_round_and_do_not_end_where_they_came_from(closing: list[str], told: str) -> None:
    """Two links of an interleaved pipeline seem to reduce gradients; three would be a ring both ways."""
    hosts = {nic: f"host-{nic}" for nic in "abcd"}
    seem = [
        *seeming(both_ways("ab", "bc", *closing), "dp", 2, filling=0.2),
        *seeming(both_ways("cd"), "pp", 2),
        *seeming(both_ways("da"), "pp", 1),
    ]
    seen = kinds(seem, hosts=hosts)
    assert {seen[link] for link in both_ways("ab", "bc", *closing)} == {told}


@pytest.mark.parametrize(("misread", "told"), [(3, {"ep"}), (9, {"pp"})])
def test_between_two_hosts_all_pairs_that_carry_as_much_are_of_one_kind(misread: int, told: set[str]) -> None:
    """Tokens and activations of two stages are as many bytes by chance: each stage is two hosts of two NICs, which send
    tokens to each other, and activations to the next stage."""
    hosts = on_hosts("ab", "cd", "ef", "gh")
    tokens = [
        way for ours, others in (("ab", "cd"), ("ef", "gh")) for a in ours for b in others for way in (a + b, b + a)
    ]
    links = both_ways("ae", "bf", "cg", "dh")
    seem = [
        *seeming(links, "pp", 5.1, sure=0.9),
        *seeming(tokens[misread:], "ep", 5),
        *seeming(tokens[:misread], "pp", 5, sure=0.6, expert=0.9),
    ]
    seen = kinds(seem, hosts=hosts)
    assert {seen[link] for link in links} == {"pp"}
    assert {seen[link] for link in tokens if link[0] in "abcd"} == told


@pytest.mark.parametrize(("odd", "told"), [(1, "by hosts"), (0, "as they are")])
def test_that_links_of_two_kinds_carry_as_much_is_seldom_chance(odd: int, told: str) -> None:
    """Four pairs between two hosts seem to be a pipeline's, but for so many of them; others are gradients."""
    src, dst, voted = (
        np.array([0, 1, 4, 5, 2, 3]),
        np.array([4, 5, 0, 1, 3, 2]),
        np.array([roles.PP] * 4 + [roles.DP] * 2),
    )
    voted[:odd] = roles.DP
    host = np.array([0, 0, 2, 3, 1, 1])
    evidence = np.full((6, len(roles.KINDS)), np.log(0.1))
    evidence[:4, roles.PP] = evidence[4:, roles.DP] = np.log(0.6)
    job = roles.Job(
        *(src, dst, host[src] * 4 + host[dst], host[dst] * 4 + host[src], evidence, voted),
        *(np.zeros(6, np.bool_), np.zeros(6, np.bool_), np.ones(6), np.zeros(6, np.int64)),
        *(host, np.array([0, 1, 0, 0, 0, 1])),
    )
    ((_, options),) = roles._choices(job)
    by_hosts = [roles.PP] * 4 + [roles.DP] * 2
    cost = next(cost for cost, way in options if way.tolist() == by_hosts)
    said = 6 * np.log(0.6) - 2 * roles.UNLIKE_ROLE_NATS
    assert cost == pytest.approx(said - (roles.EQUAL_BYTES_NATS if told == "by hosts" else 0.0))


def test_a_copy_between_stages_is_nothing_and_leaves_the_layout_as_it_is() -> None:
    told = kinds(RINGS, seeming(LINKS, "pp", 4), seeming(["ae"], "cp", 60))
    assert told.pop("ae") == "other"
    assert {link for link, kind in told.items() if kind == "pp"} == set(LINKS)


@pytest.mark.parametrize(("sending", "told"), [(["ch"], "other"), (["ch", "af"], "pp")])
def test_what_one_replica_alone_sends_to_another_stage_is_no_pipeline(sending: list[str], told: str) -> None:
    """Two stages of two replicas and two peers: what seems to be answered goes from one pipeline to another, without a
    period."""
    gradients = [*seeming(both_ways("ac", "bd"), "dp", 9), *seeming(both_ways("eg", "fh"), "dp", 7)]
    pipelines = seeming(both_ways("ae", "cg", "bf", "dh"), "pp", 4)
    hosts = on_hosts("ab", "cd", "ef", "gh")
    assert kinds(gradients, pipelines, seeming(sending, "pp", 60, periodic=False), hosts=hosts)["ch"] == told


def test_blocks_come_back_over_pairs_of_their_own_where_their_groups_share_a_ring_of_gradients() -> None:
    """Two groups of four go around along the ring, and are closed by a pair each."""
    ring = [seeming([link], "dp", 9 if link in ("de", "ha") else 14)[0] for link in around("abcdefgh")]
    seen = kinds(ring, seeming(["da", "he"], "cp", 5))
    assert seen == dict.fromkeys(around("abcdefgh"), "dp") | {"da": "cp", "he": "cp"}


@pytest.mark.parametrize(("blocks", "told"), [(around("dcba"), "cp"), (["dc"], "dp")], ids=["all around", "one hop"])
def test_blocks_that_go_around_the_other_way_may_be_as_many_bytes_as_gradients(blocks: list[str], told: str) -> None:
    """What one hop of a ring seems to be beside hops that carry as much is chance."""
    rest = [link for link in around("dcba") if link not in blocks]
    both = kinds(seeming([*around("abcd"), *rest], "dp", 20.5), seeming(blocks, "cp", 21, sure=0.6))
    assert {both[link] for link in blocks} == {told}
    assert {both[link] for link in around("abcd")} == {"dp"}


@pytest.mark.parametrize(
    ("back", "told"), [(["ba", "dc", "fe", "hg"], "cp"), (["ba", "dc"], "dp")], ids=["of all groups", "of some"]
)
def test_blocks_that_come_back_may_be_as_many_bytes_as_gradients_that_go_on(back: list[str], told: str) -> None:
    """Groups of two exchange blocks along a ring of gradients. Where the two part, a NIC sends in both."""
    shared, alone = around("abcdefgh")[::2], around("abcdefgh")[1::2]
    rest = [link for link in both_ways(*shared) if link not in (*shared, *back)]
    both = kinds(
        seeming(shared, "dp", 41.5, together=1.0),
        seeming([*alone, *rest], "dp", 20.5),
        seeming(back, "cp", 21, together=0.7),
    )
    assert {both[link] for link in back} == {told}
    assert {both[link] for link in [*shared, *alone]} == {"dp"}


@pytest.mark.parametrize(("filling", "told"), [(1.0, "cp"), (0.4, "dp")])
def test_two_rings_of_as_many_bytes_are_told_by_which_of_them_fills_the_step(filling: float, told: str) -> None:
    """Half of the hops of one ring seem to be a pipeline's."""
    blocks = around("dcba")
    piped = seeming(blocks[::2], "pp", 21, sure=0.6, filling=filling)
    both = kinds(seeming(around("abcd"), "dp", 20.5), seeming(blocks[1::2], "cp", 21, sure=filling), piped)
    assert {both[link] for link in blocks} == {told}
    assert {both[link] for link in around("abcd")} == {"dp"}


@pytest.mark.parametrize(("expert", "told"), [(0.45, {"ep"}), (0.0, {"ep", "dp"})])
def test_what_all_exchange_with_all_is_no_ring_of_gradients(expert: float, told: set[str]) -> None:
    """Members of trees have four peers, each of six NICs has five others. Half of the pairs were taken for gradients,
    narrowly or for certain."""
    every = all_with_all("abcdef")
    taken = [*seeming(every[1::2], "ep", 5, sure=0.55), *seeming(every[::2], "dp", 5, expert=expert)]
    assert set(kinds(taken).values()) == told


@pytest.mark.parametrize(("presence", "judged"), [(0.49, False), (0.5, True)])
def test_what_comes_seldom_is_not_asked(presence: float, *, judged: bool) -> None:
    _, sure = found(RINGS, seeming(["ae"], "other", 3, presence=presence))["ae"]
    assert (sure is not None) == judged


def test_where_two_ways_are_close_neither_is_sure() -> None:
    """Two NICs that answer each other in half of the steps."""
    told = found(seeming(both_ways("ab"), "pp", 4, sure=0.5))
    assert max(sure for _, sure in told.values() if sure is not None) < 0.9


def test_nothing_is_nothing() -> None:
    pairs = pl.DataFrame(RINGS).with_row_index("pair").clear()
    assert roles.likeliest(pairs, members({"j": HOSTS}), 0.5).is_empty()


@pytest.mark.parametrize(("inside", "told"), [(True, "dp"), (False, "other")])
def test_a_ring_may_pass_by_nics_inside_a_host(told: str, *, inside: bool) -> None:
    """Replicas of two stages: the ring comes to a host at one NIC and leaves at another, past a third. If each NIC is a
    host of its own, it is no ring."""
    hosts = on_hosts(*(("abx", "cdy", "efu", "ghv") if inside else "abxcdyefughv"))
    ring = seeming(["ac", "db", "eg", "hf"], "dp", 9)
    own = kinds(ring, seeming(both_ways("ae", "bf", "cg", "dh", "xu", "yv"), "pp", 4), hosts=hosts)
    assert {own[link] for link in ("ac", "db", "eg", "hf")} == {told}


@pytest.mark.parametrize(("of_hosts", "told"), [("ac b df e", "dp"), ("a c b df e", "pp")])
def test_a_ring_that_passes_inside_a_host_ends_there_twice(of_hosts: str, told: str) -> None:
    """Three replicas of two stages, two of them in one host, seem to be a line of stages as well as a ring."""
    seem = seeming(both_ways("ab", "bc", "de", "ef"), "dp", 9, pipeline=0.6, filling=0.2)
    own = kinds(seem, seeming(both_ways("ad", "be", "cf"), "pp", 4), hosts=on_hosts(*of_hosts.split()))
    assert {own[link] for link in both_ways("ab", "bc")} == {told}


def test_lines_that_end_beside_each_other_are_no_rings() -> None:
    """Two hops inside hosts seem to be links of two stages in a ring of four hosts. What they leave of the ring is two
    lines: each host has an end of both."""
    ring = [*around("abcdefgh"), *around("hgfedcba")]
    links = both_ways("ab", "ef")
    seem = [
        *seeming([hop for hop in ring if hop not in links], "dp", 9),
        *seeming(links, "pp", 9),
    ]
    assert set(kinds(seem, hosts=on_hosts("ab", "cd", "ef", "gh")).values()) == {"dp"}


def test_who_exchanges_tokens_with_a_whole_host_shares_gradients_inside_it() -> None:
    """Each channel leaves a host of four at a NIC of its own, so gradients go around four times, and tokens go from
    each NIC to all."""
    rings = both_ways("ae", "bf", "cg", "dh")
    tokens = [link for src in "abcd" for dst in "efgh" for link in both_ways(src + dst) if link not in rings]
    own = kinds(seeming(rings, "dp", 60), seeming(tokens, "ep", 9), hosts=on_hosts("abcd", "efgh"))
    assert {own[link] for link in rings} == {"dp"}
    assert {own[link] for link in tokens} == {"ep"}


def test_no_kind_is_more_likely_than_certain() -> None:
    """The odds of many ways add up to one, but for rounding."""
    draw = random.Random(10)
    nics = "abcdefgh"[: draw.randint(4, 6)]
    parts = [
        seeming(
            [link],
            draw.choice(["dp", "cp", "ep"]),
            round(draw.uniform(1, 30)),
            sure=round(draw.uniform(0.3, 0.9), 1),
            expert=round(draw.uniform(0, 0.5), 1),
        )
        for link in all_with_all(nics)
    ]
    assert max(sure for _, sure in found(*parts).values() if sure is not None) <= 1.0


@pytest.mark.parametrize("channels", [4, 2])
def test_shards_and_what_is_reduced_between_groups_of_hosts_are_both_gradients(channels: int) -> None:
    """HSDP: parameters go around two hosts by a channel at each of a few NICs, and inside hosts through all GPUs. Each
    GPU reduces its share with that of the other two hosts, both ways at the same time."""
    a, b, c, d = hosts = ("abcd", "efgh", "ijkl", "mnop")
    rings = [
        link for some in ((a, b), (c, d)) for at in range(channels) for link in both_ways(some[0][at] + some[1][at])
    ]
    shares = [
        link for some in ((a, c), (b, d)) for one, other in zip(*some, strict=True) for link in both_ways(one + other)
    ]
    gathered = seeming(rings, "dp", 900, filling=1.0, together=1.0)
    reduced = seeming(shares, "dp", 90, filling=1.0, together=1.0)
    told = found(gathered, reduced, hosts=on_hosts(*hosts))
    assert {kind for kind, _ in told.values()} == {"dp"}
