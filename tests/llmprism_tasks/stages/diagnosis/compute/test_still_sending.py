"""A NIC all of whose sends are slow begins the next ones late: that is no slow computing."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from handmade import MS, WINDOW

from llmprism_tasks.stages.diagnosis.compute.still_sending import not_still_sending
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA

SLOW_SENDS = {("a", "b"): "slow", ("a", "d"): "slow", ("b", "a"): "quick", ("d", "a"): "quick"}


def finding(kind: str, subject: str = "a", **changed: Any) -> dict[str, Any]:
    """Return a finding of the window's first 20 s."""
    known = {"job_id": "j", "kind": kind, "subject_type": "addr", "subject": subject, "confidence": 0.8}
    times = {"start_ns": WINDOW.start_ns, "end_ns": WINDOW.start_ns + 20_000 * MS}
    return {name: (known | times | changed).get(name) for name in FINDING_SCHEMA}


def left(*found: dict[str, Any], sends: dict[tuple[str, str], str] = SLOW_SENDS) -> list[str]:
    """Return the kinds that stand; hops are `slow`, `quick` or slow in a `ring`."""
    hops = pl.DataFrame(
        [("j", *ends, how != "quick", how == "ring") for ends, how in sends.items()],
        schema=["job_id", "src_addr", "dst_addr", "slow", "ring_bound"],
        orient="row",
    )
    return not_still_sending(pl.DataFrame(found, schema=FINDING_SCHEMA), hops)["kind"].to_list()


SLOW_NIC = finding("slow_nic")
LATER = {"start_ns": WINDOW.start_ns + 11_000 * MS, "end_ns": WINDOW.start_ns + 40_000 * MS}


@pytest.mark.parametrize("kind", ["slow_compute", "straggler"])
def test_who_still_sends_seems_to_compute(kind: str) -> None:
    assert left(finding(kind), SLOW_NIC) == ["slow_nic"]
    assert left(finding(kind)) == [kind]
    assert left(finding(kind, "b"), SLOW_NIC) == [kind, "slow_nic"]


@pytest.mark.parametrize(
    "sends",
    [
        SLOW_SENDS | {("a", "d"): "quick"},
        SLOW_SENDS | {("a", "d"): "ring"},
        {(dst, src): how for (src, dst), how in SLOW_SENDS.items()},
    ],
    ids=["some are quick", "it may wait in a ring", "it receives slowly"],
)
def test_who_sends_something_at_its_usual_pace_or_may_wait_computes_slowly(sends: dict[tuple[str, str], str]) -> None:
    assert left(finding("slow_compute"), SLOW_NIC, sends=sends) == ["slow_compute", "slow_nic"]


@pytest.mark.parametrize(
    "other",
    [
        finding("slow_nic", confidence=0.49),
        finding("slow_nic", **LATER),
        finding("latent"),
    ],
    ids=["it takes less than half of the loss", "it came later", "it costs nothing"],
)
def test_both_stand_where_slow_sends_do_not_explain_it(other: dict[str, Any]) -> None:
    assert left(finding("slow_compute"), other) == ["slow_compute", other["kind"]]


def test_both_stand_where_their_shares_fit_into_the_loss() -> None:
    for share, kinds in ((0.2, ["slow_compute", "slow_nic"]), (0.21, ["slow_nic"])):
        assert left(finding("slow_compute", confidence=share), SLOW_NIC) == kinds
