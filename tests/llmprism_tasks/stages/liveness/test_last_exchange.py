"""The host that alone is missing from a ring's last exchange is likelier to have stopped; of two hosts neither is."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import polars as pl
import pytest

from llmprism_tasks.stages.liveness.first_stopped import STRONG
from llmprism_tasks.stages.liveness.last_exchange import CLOCK_ERROR_NS, absences, factor_of_chance

MS = 1_000_000


def ring(last_ms: dict[str, float | None], nics: int = 1) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return a ring that goes round the hosts once for each of their NICs, when each sent last, and their hosts."""
    order = [f"{host}{nic}" for nic in range(nics) for host in last_ms]
    rows = [
        (src, dst, None if (at := last_ms[src[0]]) is None else round(at * MS))
        for src, dst in pairwise([*order, order[0]])
    ]
    pairs = pl.DataFrame(rows, schema=["src_addr", "dst_addr", "last_ns"], orient="row")
    return pairs.with_columns(owes=True), {addr: addr[0] for addr in order}


def factors(last_ms: dict[str, float | None], lost: float = 1e-9) -> dict[str, float]:
    pairs, hosts = ring(last_ms)
    return {host: one.factor for host, one in absences(pairs, 0, hosts, lost).items()}


def test_who_is_far_from_the_others_has_not_come() -> None:
    """Of four hosts, two lie between the first and the last. `b` receives from `a`, so all were seen in the end."""
    found = factors({"a": 100, "b": 0, "c": 99, "d": 98})
    by_chance = (2 / 100) ** 2
    assert found["b"] == pytest.approx((factor_of_chance(by_chance)) / 2)
    assert factors({"a": 100, "b": 0, "c": 50, "d": 98})["b"] < 1


def test_who_is_waited_for_is_not_seen_at_all() -> None:
    """`a` does not send to `b`, which has not come; both have sent nothing, but `a` has received something."""
    found = factors({"a": None, "b": None, "c": 999, "d": 1000})
    assert max(found, key=found.__getitem__) == "b"
    assert found["b"] > 1


@pytest.mark.parametrize(("hosts", "tells"), [("ab", False), ("abc", True)])
def test_of_two_either_is_first(hosts: str, tells: bool) -> None:
    last = dict.fromkeys(hosts, 1000.0) | {"a": 0.0}
    assert (factors(last).get("a", 0) > 1) == tells


def test_a_pipeline_is_no_ring() -> None:
    pairs = pl.DataFrame({"src_addr": ["a", "b"], "dst_addr": ["b", "a"], "last_ns": [0, 9 * MS], "owes": True})
    assert absences(pairs, 0, {"a": "a", "b": "b"}, 0.01) == {}


@pytest.mark.parametrize(("hosts", "tells"), [("abc", False), ("abcd", True)])
def test_where_each_sends_to_all_others_one_may_be_absent(hosts: str, tells: bool) -> None:
    """Of three, the first and the last stage of a pipeline may share the embedding."""
    last = {"a": None, "b": 998 * MS, "c": 999 * MS, "d": 1000 * MS}
    rows = [(src, dst, None if dst == "a" else last[src], True) for src, dst in permutations(hosts, 2)]
    pairs = pl.DataFrame(rows, ["src_addr", "dst_addr", "last_ns", "owes"], orient="row")
    found = absences(pairs, 0, {host: host for host in hosts}, 1e-9)
    assert {host for host, one in found.items() if one.factor > 1} == ({"a"} if tells else set())


@pytest.mark.parametrize(("nics", "of_host", "of_nic"), [(1, 10, 10), (2, 100, 0.5)])
def test_absence_is_no_better_evidence_than_records(nics: int, of_host: float, of_nic: float) -> None:
    """The ring goes through each host once for each NIC, and no NIC is absent alone where two are."""
    pairs, hosts = ring({"a": 0, "b": 10_000, "c": 10_000, "d": 10_000, "e": 10_000}, nics)
    mean = (2 * of_host + of_nic) / 3
    assert absences(pairs, 0, hosts, 0.1)["a"].factor == pytest.approx(mean / 2 + 0.25, rel=0.2)


def test_each_stage_of_a_pipeline_has_a_ring_of_its_own() -> None:
    """Its links go both ways. `b` is absent from the first ring, `g` from the second; what is over tells nothing."""
    rings = [ring({"a": 100, "b": 0, "c": 99, "d": 98})[0], ring({"e": 50, "f": 50, "g": 0, "h": 49})[0]]
    links = pl.DataFrame([("a0", "e0"), ("e0", "a0")], schema=["src_addr", "dst_addr"], orient="row").with_columns(
        last_ns=pl.lit(500 * MS), owes=True
    )
    hosts = {f"{host}0": host for host in "abcdefgh"}
    found = absences(pl.concat([*rings, links], how="vertical_relaxed"), 0, hosts, 1e-9)
    told = {host: (one.seen_ns, one.members) for host, one in found.items() if one.factor > 1}
    assert told == {"b": (100 * MS, frozenset("abcd")), "g": (50 * MS, frozenset("efgh"))}
    over = [rings[0].with_columns(owes=False), rings[1], links]
    assert "b" not in absences(pl.concat(over, how="vertical_relaxed"), 0, hosts, 1e-9)
    unbegun = rings[0].with_columns(last_ns=pl.lit(None, pl.Int64))
    assert absences(unbegun, 0, hosts, 1e-9) == {}


@pytest.mark.parametrize("others", ["efg", "AEF"])
def test_of_two_rings_of_a_host_the_one_counts_that_says_most(others: str) -> None:
    """`b` is absent from the one and just early in the other, whichever of them is looked at first."""
    strong, hosts = ring({"a": 100, "b": 0, "c": 99, "d": 98})
    early, more = ring({"b": 45, others[0]: 50, others[1]: 48, others[2]: 47})
    early = early.with_columns(pl.col("src_addr", "dst_addr").str.replace("b0", "b1"))
    found = absences(pl.concat([early, strong]), 0, {**hosts, **more, "b1": "b"}, 1e-9)
    assert found["b"] == absences(strong, 0, hosts, 1e-9)["b"]


def test_clocks_differ() -> None:
    """Others that fell silent at one moment may have done so within the error of two clocks."""
    found = factors({"a": 0, "b": 100, "c": 100})
    assert found["a"] == pytest.approx(factor_of_chance(CLOCK_ERROR_NS / MS / 100) / 2 + 0.25)


def test_the_factor_of_what_chance_explains_is_one_in_the_mean() -> None:
    """The integral of it over all probabilities is 1: it is evidence, and no threshold."""
    count = 1_000_000
    mean = sum(factor_of_chance((at + 0.5) / count) for at in range(0, count, 10)) / (count / 10)
    assert mean == pytest.approx(1, abs=0.02)
    assert math.isfinite(factor_of_chance(0))


@pytest.mark.parametrize(("inside", "tells"), [(False, True), (True, False)])
def test_a_ring_with_hops_inside_a_host_tells_nothing_of_hosts(inside: bool, tells: bool) -> None:
    """Its members are NICs: how the last one of a host was there says nothing of the others."""
    order = ["a0", "a1", "b0", "c0", "d0"]
    pairs = pl.DataFrame(
        [(src, dst, at * 1_000_000) for at, (src, dst) in enumerate(zip(order, order[1:] + order[:1], strict=True))],
        schema={"src_addr": pl.String, "dst_addr": pl.String, "last_ns": pl.Int64},
        orient="row",
    ).with_columns(owes=True)
    hosts = {addr: addr[0] if inside else addr for addr in order}
    assert bool(absences(pairs, 0, hosts, 0.001)) == tells


def test_one_gpu_of_a_host_may_be_absent_from_its_own_ring() -> None:
    """Of two rails the second lacks `b`, whose GPU on the first one goes on; its receiver has not sent either."""
    first, hosts = ring({"a": 100, "b": 97, "c": 99, "d": 98, "e": 99})
    second = ring({"a": None, "b": None, "c": 99, "d": 98, "e": 100})[0]
    second = second.with_columns(pl.col("src_addr", "dst_addr").str.replace("0", "1"))
    both = pl.concat([first, second], how="vertical_relaxed")
    found = absences(both, 0, hosts | {addr.replace("0", "1"): host for addr, host in hosts.items()}, 1e-9)
    assert {host for host, one in found.items() if one.factor > STRONG} == {"b"}
    alone = absences(second, 0, {addr.replace("0", "1"): host for addr, host in hosts.items()}, 1e-9)
    assert found["b"].factor > alone["b"].factor


@pytest.mark.parametrize(("absent", "tells"), [(1, True), (0, False)])
def test_one_nic_that_lacks_in_an_exchange_of_many_tells_its_host(absent: int, tells: bool) -> None:
    """Four hosts are few to tell by: of three that fall silent at any time one is often far from the others."""
    rng = np.random.default_rng(3)
    rails, hosts = list[pl.DataFrame](), dict[str, str]()
    for rail in range(8):
        last = dict(zip("abcd", rng.uniform(80, 100, 4).tolist(), strict=True))
        pairs, names = ring(last | {"b": 20.0} if rail < absent else last)
        rails.append(pairs.with_columns(pl.col("src_addr", "dst_addr").str.replace("0", str(rail))))
        hosts |= {addr.replace("0", str(rail)): host for addr, host in names.items()}
    found = absences(pl.concat(rails, how="vertical_relaxed"), 0, hosts, 0.001)
    assert {host for host, one in found.items() if one.factor > STRONG} == ({"b"} if tells else set())
