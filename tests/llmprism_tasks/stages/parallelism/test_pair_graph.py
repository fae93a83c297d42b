"""What pairs are in the graph of their job: gradients go round, pipelines up and down a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism import pair_graph

Pair = tuple[str, str, str]
RING_SHARE, SAME_SIZE = 0.5, 0.02


def table(pairs: Iterable[Pair | tuple[str, str, str, float]], job: str = "j") -> pl.DataFrame:
    """Return pairs of one job from (sender, receiver, kind) and perhaps their bytes per step, else 100."""
    rows = [(job, src, dst, kind, float(rest[0] if rest else 100)) for src, dst, kind, *rest in pairs]
    columns = {
        "job_id": pl.String,
        "src_addr": pl.String,
        "dst_addr": pl.String,
        "kind": pl.String,
        "bytes_per_step": pl.Float64,
    }
    return pl.DataFrame(rows, schema=columns, orient="row")


def ring(nics: Sequence[str], kind: str = "dp") -> list[Pair]:
    return [(src, dst, kind) for src, dst in [*pairwise(nics), (nics[-1], nics[0])]]


def line(nics: Sequence[str]) -> list[Pair]:
    return [pair for src, dst in pairwise(nics) for pair in ((src, dst, "pp"), (dst, src, "pp"))]


def kinds(pairs: Iterable[tuple[str, str, str, float]], share: float = RING_SHARE) -> dict[tuple[str, str], str]:
    found = pair_graph.gradients_apart(table(pairs), share, SAME_SIZE)
    return {(src, dst): kind for src, dst, kind in found.select("src_addr", "dst_addr", "kind").iter_rows()}


def two_groups(joining: float) -> list[tuple[str, str, str, float]]:
    """Two rings of four, of 100 bytes a step, and a pair between one NIC of each that carries this much."""
    rings = [(src, dst, kind, 100.0) for nics in ("abcd", "efgh") for src, dst, kind in ring(nics)]
    return [*rings, ("a", "e", "dp", joining), ("e", "a", "dp", joining)]


@pytest.mark.parametrize(("joining", "kind"), [(49, "other"), (51, "dp")])
def test_what_links_two_gradient_groups_with_fewer_bytes_is_something_else(joining: float, kind: str) -> None:
    """The embedding of the first and the last stage: only a pair as busy as the rings is one of them."""
    found = kinds(two_groups(joining))
    assert found[("a", "e")] == found[("e", "a")] == kind
    assert {found[("a", "b")], found[("h", "e")]} == {"dp"}


@pytest.mark.parametrize(("mb", "kind"), [(30.0, "dp"), (30.5, "dp"), (31.0, "other"), (29.0, "other")])
def test_a_ring_of_gradients_may_share_all_but_some_of_its_hops_with_blocks_of_context(mb: float, kind: str) -> None:
    """Two groups go around along the ring and are closed by a pair each, of blocks alone; two hops are gradients'."""
    hops = [(src, dst, kind, mb if src + dst in ("de", "ha") else 100.0) for src, dst, kind in ring("abcdefgh")]
    found = kinds([*hops, ("d", "a", "cp", 70.0), ("h", "e", "cp", 70.0)])
    assert found[("d", "e")] == found[("h", "a")] == kind


def test_how_busy_a_ring_is_can_be_set() -> None:
    assert kinds(two_groups(30), share=0.25)[("a", "e")] == "dp"


def test_a_weak_pair_inside_one_group_stays_with_it() -> None:
    assert kinds([*two_groups(10), ("a", "c", "dp", 10)])[("a", "c")] == "dp"


@pytest.mark.parametrize(("linked", "kind"), [(3, "other"), (4, "dp")])
def test_links_across_groups_that_touch_about_all_nics_are_gradients(linked: int, kind: str) -> None:
    """Dense layers beside experts: each NIC of one group has a weak link into the other, or only some have."""
    links = [(src, dst, "dp", 10.0) for src, dst in list(zip("abcd", "efgh", strict=True))[:linked]]
    found = kinds([*two_groups(10)[:-2], *links])
    assert found[("a", "e")] == kind


@pytest.mark.parametrize(("larger", "kind"), [(10.0, "dp"), (30.0, "other")])
def test_nics_that_have_no_larger_ring_are_in_no_group_that_is_linked(larger: float, kind: str) -> None:
    """HSDP: shards go around by few NICs of each host, and what is reduced among groups of hosts goes by all. Where
    the others' rings are larger than what links groups, they are groups that nothing links."""
    links = [(src, dst, "dp", 10.0) for src, dst in zip("abcd", "efgh", strict=True)]
    beside = [(src, dst, "dp", larger) for one, other in ("ij", "kl", "mn") for src, dst in (one + other, other + one)]
    assert kinds([*two_groups(10)[:-2], *links, *beside])["a", "e"] == kind


@pytest.mark.parametrize(("others", "kind"), [(["ep"], "dp"), (["ep", "pp"], "other")])
def test_links_beside_experts_are_gradients_unless_there_are_stages(others: list[str], kind: str) -> None:
    """Without a pipeline nothing but the rings of dense layers joins those of each expert's replicas."""
    assert kinds([*two_groups(10), *(("x", "y", other, 10.0) for other in others)])["a", "e"] == kind


def test_only_synchronised_pairs_are_judged() -> None:
    assert kinds([("a", "b", "pp", 10), ("b", "a", "ep", 10)]) == {("a", "b"): "pp", ("b", "a"): "ep"}


links = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")).filter(lambda p: p[0] != p[1]))


@given(links)
def test_components_join_what_is_linked_whichever_way_round(pairs: list[tuple[str, str]]) -> None:
    def labels(rows: list[tuple[str, str]]) -> dict[str, int]:
        found = pair_graph.components(table([(*pair, "dp") for pair in rows]).select("job_id", "src_addr", "dst_addr"))
        return dict(found.select("addr", "component").iter_rows())

    label = labels(pairs)
    assert all(label[src] == label[dst] for src, dst in pairs)
    assert set(label) == {addr for pair in pairs for addr in pair}
    assert labels([(dst, src) for src, dst in reversed(pairs)]) == label
