"""The host that alone is missing from a ring's last exchange is told, if there are others enough to be missed by."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

from llmprism_tasks.stages.liveness.last_exchange import missing_sender


def ring(hosts: str, nics: int = 2) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return a ring that goes round the hosts once for each of their NICs, and their hosts.

    The first host sent its last 5,000 ns before the others began, and a tenth less of its step than they.
    """
    order = [f"{host}{nic}" for nic in range(nics) for host in hosts]
    rows = [
        (src, dst, 100, 80 if src[0] == hosts[0] else 90, 1_000 if src[0] == hosts[0] else 6_000)
        for src, dst in pairwise([*order, order[0]])
    ]
    pairs = pl.DataFrame(rows, schema=["src_addr", "dst_addr", "usual", "sent", "last_ns"], orient="row")
    return pairs, {addr: addr[0] for addr in order}


@pytest.mark.parametrize(
    ("hosts", "nics", "told"), [("abcd", 2, True), ("abc", 2, True), ("ab", 2, False), ("abc", 1, False)]
)
def test_two_others_have_to_have_begun_and_two_nics_to_be_missing(hosts: str, nics: int, told: bool) -> None:
    pairs, places = ring(hosts, nics)
    assert missing_sender(pairs, 0, 6_500, places) == (("a0", "a1") if told else ())


@pytest.mark.parametrize(("silent_ns", "told"), [(10_999, True), (11_000, False)])
def test_it_sent_its_last_well_before(silent_ns: int, told: bool) -> None:
    pairs, places = ring("abc")
    assert bool(missing_sender(pairs, 0, silent_ns, places)) == told
