"""What explains what, and who is worst: suspects are devices, a cause is told once, and order does not matter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from handmade import settings
from hypothesis import given
from hypothesis import strategies as st
from job_evidence import moving
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA
from llmprism_tasks.stages.diagnosis.ranking import DEVICES, assemble, deduplicate, drop_unlikely_layouts

EVIDENCE = moving({"abc": 100.0, "def": 100.0})


def row(kind: str, subject_type: str, subject: str, **given_: Any) -> dict[str, Any]:
    """Return what a finder found, in the first second of the window unless told otherwise."""
    start = EVIDENCE.window.start_ns
    times = {"start_ns": start, "end_ns": start + 1_000_000_000}
    numbers = {"score": 10.0, "severity": 0.5, "confidence": 1.0, "peers": None}
    names = {"job_id": "j", "kind": kind, "subject_type": subject_type, "subject": subject}
    return names | times | numbers | {"explanation": "It is slow."} | given_


def diagnosed(*rows: dict[str, Any]) -> list[tuple[str, str, int | None]]:
    found = assemble(pl.DataFrame(rows, schema=FINDING_SCHEMA), EVIDENCE, settings())
    return found.select("kind", "subject", "rank").rows()


def test_what_is_latent_has_no_rank_and_is_no_news_where_another_job_suffers_from_it() -> None:
    hidden = row("latent", "link", "leaf-0 - s1", severity=0.0, confidence=None, job_id="k")
    assert diagnosed(hidden) == [("latent", "leaf-0 - s1", None)]
    assert diagnosed(hidden, row("degraded_link", "link", "leaf-0 - s1")) == [("degraded_link", "leaf-0 - s1", 1)]
    beside = row("slow_compute", "host", "h")
    assert diagnosed(row("latent", "addr", "a", severity=0.0, confidence=None), beside) == [
        ("slow_compute", "h", 1),
        ("latent", "a", None),
    ]


@pytest.mark.parametrize(("share", "kept"), [(0.9, False), (0.4, True)])
@pytest.mark.parametrize("kind", ["slow_network", "degraded_link"])
def test_a_stage_that_seems_slow_beside_slow_transfers_waits_for_them(kind: str, share: float, kept: bool) -> None:
    """A stage whose messages wait for a slow path seems to compute for longer; what transfers take is measured."""
    link = row(kind, "link", "leaf-0 - s1", severity=0.2, confidence=share)
    stage = row("pipeline_imbalance", "pp_stage", "2", severity=0.3)
    assert ("pipeline_imbalance", "2", None) in diagnosed(stage)
    assert (("pipeline_imbalance", "2", None) in diagnosed(stage, link)) == kept
    assert ((kind, "leaf-0 - s1", 1) in diagnosed(stage, link)) == (not kept or kind == "degraded_link")


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"kind": "degraded_link", "subject_type": "link", "subject": "leaf-0 - s1"}, 1),
        ({"kind": "degraded_link", "subject_type": "link", "subject": "leaf-0 - s2"}, 2),
        ({"candidates": ["leaf-0 - s2", "leaf-0 - s1"], "odds": [0.5, 0.5]}, 1),
        ({"candidates": ["leaf-0 - s2", "leaf-1 - s2"], "odds": [0.5, 0.5]}, 2),
        ({"subject_type": "dp_group", "candidates": ["a", "leaf-0 - s1"], "odds": [0.5, 0.5]}, 2),
        ({"kind": "slow_compute", "subject_type": "addr", "subject": "a"}, 2),
    ],
)
def test_what_may_be_the_slow_path_of_another_row_is_not_told_again_as_latent(told: dict[str, Any], kept: int) -> None:
    devices = {"candidates": ["leaf-0 - s0", "leaf-0 - s1", "a"], "odds": [0.5, 0.3, 0.2]}
    hidden = row("latent", "link", "leaf-0 - s0", severity=0.0, confidence=None) | devices
    assert len(diagnosed(row("slow_network", "link", "leaf-0 - s2") | told, hidden)) == kept


LATER = {"start_ns": EVIDENCE.window.start_ns + 1_000_000_000, "end_ns": EVIDENCE.window.end_ns}


@pytest.mark.parametrize(("since", "names"), [(0.4, ["d"]), (0.6, ["a", "d"])])
def test_who_was_slow_for_most_of_its_time_before_a_path_was_did_not_wait_for_it(
    since: float, names: list[str]
) -> None:
    start = EVIDENCE.window.start_ns + int(since * 1e9)
    found = diagnosed(row("slow_compute", "addr", "a"), row("slow_nic", "addr", "d", severity=0.2, start_ns=start))
    assert [subject for _, subject, _ in found] == names


def test_suspects_are_numbered_by_what_they_cost_and_effects_are_not() -> None:
    assert diagnosed(
        row("cross_step", "job", "j", confidence=None),
        row("slow_compute", "addr", "a", severity=0.2, confidence=0.4),
        row("slow_nic", "addr", "d", severity=0.4, confidence=0.6),
        row("degraded_switch", "switch", "leaf", severity=0.7, confidence=0.3),
    ) == [("slow_nic", "d", 1), ("degraded_switch", "leaf", 2), ("slow_compute", "a", 3), ("cross_step", "j", None)]


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        ({}, 1),
        ({"kind": "slow_network"}, 1),
        ({"subject_type": "addr", "subject": "a"}, 2),
        ({"job_id": "k"}, 2),
        (LATER, 2),
    ],
)
def test_that_one_of_few_is_slow_says_more_than_that_steps_are_longer(other: dict[str, Any], kept: int) -> None:
    longer = row("cross_step", "job", "j", confidence=None)
    straggler = row("straggler", "job", "j", confidence=None) | other
    assert len(diagnosed(longer, straggler)) == kept
    assert len(diagnosed(longer | {"steps": 1}, straggler)) == 2


@pytest.mark.parametrize(
    ("moves", "computes", "kept"),
    [
        ({}, {}, 1),
        ({"confidence": 0.5}, {"confidence": 0.6}, 1),
        ({"confidence": 0.5}, {"confidence": 0.5}, 2),
        ({"confidence": 0.4}, {}, 2),
        ({}, {"job_id": "k"}, 2),
        ({}, LATER, 2),
        ({}, {"kind": "hang"}, 2),
        ({"kind": "latent", "severity": 0.0, "confidence": None}, {}, 2),
    ],
    ids=["all", "too much", "half each", "the smaller part", "another job", "later", "a silence", "hidden"],
)
def test_who_seems_to_compute_slowly_may_wait_for_a_slow_path(
    moves: dict[str, Any], computes: dict[str, Any], kept: int
) -> None:
    cause = row("slow_nic", "addr", "d") | moves
    assert len(diagnosed(row("slow_compute", "addr", "a", severity=0.9) | computes, cause)) == kept
    assert len(diagnosed(row("slow_compute", "addr", "d", severity=0.9), cause)) == 1


def test_each_job_has_its_own_suspects() -> None:
    other = row("slow_nic", "addr", "z", job_id="k", severity=0.1)
    assert diagnosed(row("slow_compute", "addr", "a"), other) == [("slow_compute", "a", 1), ("slow_nic", "z", 1)]


@pytest.mark.parametrize(
    ("change", "kept"),
    [({}, 1), ({"subject": "b"}, 2), ({"kind": "slow_nic"}, 2), ({"subject_type": "host"}, 2), ({"job_id": "k"}, 2)],
)
def test_the_same_of_the_same_subject_is_said_once(change: dict[str, str], kept: int) -> None:
    rows = [row("slow_compute", "addr", "a", severity=0.1), row("slow_compute", "addr", "a", severity=0.9) | change]
    found = deduplicate(pl.DataFrame(rows, schema=FINDING_SCHEMA))
    assert found["severity"].to_list() == [0.1, 0.9][:kept]


@pytest.mark.parametrize("kind", ["straggler", "slow_network"])
@pytest.mark.parametrize(
    ("cause", "explains"),
    [
        ({}, True),
        ({"confidence": 0.51}, True),
        ({"confidence": 0.49}, False),
        ({"confidence": None}, False),
        ({"job_id": "k"}, False),
        (LATER, False),
    ],
)
def test_a_cause_that_takes_most_of_the_loss_leaves_no_one_else_to_blame(
    kind: str, cause: dict[str, Any], explains: bool
) -> None:
    found = diagnosed(row("slow_compute", "addr", "a", **cause), row(kind, "switch", "x", confidence=0.4))
    assert len(found) == (1 if explains else 2)


@pytest.mark.parametrize(("subject", "confidence", "left"), [("job", 0.51, 1), ("job", 0.49, 2), ("addr", 0.51, 1)])
def test_what_all_that_is_slow_has_in_common_is_more_than_a_cause_unknown(
    subject: str, confidence: float, left: int
) -> None:
    switch = row("slow_network", "switch", "s", confidence=confidence)
    assert len(diagnosed(switch, row("straggler", subject, "j", confidence=0.4))) == left


def test_a_job_s_own_trouble_explains_its_devices_and_has_no_rank() -> None:
    assert diagnosed(row("uneven_micro_batches", "job", "j"), row("straggler", "addr", "a")) == [
        ("uneven_micro_batches", "j", None)
    ]


def test_what_a_job_suffers_is_kept_beside_its_cause() -> None:
    found = diagnosed(row("slow_compute", "addr", "a"), row("cross_group", "dp_group", "a", confidence=None))
    assert found == [("slow_compute", "a", 1), ("cross_group", "a", None)]


@pytest.mark.parametrize(
    ("second", "kept"),
    [
        (row("slow_nic", "addr", "a", confidence=0.3), 1),
        (row("slow_nic", "host", "host-a", confidence=0.3), 1),
        (row("slow_compute", "host", "host-a", confidence=0.3), 1),
        (row("slow_nic", "host", "host-b", confidence=0.3), 2),
        (row("slow_nic", "addr", "b", confidence=0.3), 2),
        (row("slow_nic", "addr", "a", confidence=0.3, job_id="k"), 2),
        (row("hang", "addr", "a", confidence=0.3) | LATER, 2),
        (row("degraded_switch", "switch", "a", confidence=0.3), 2),
    ],
)
def test_one_device_has_one_trouble_at_a_time(second: dict[str, Any], kept: int) -> None:
    found = diagnosed(second, row("slow_compute", "addr", "a", confidence=0.7))
    assert ("slow_compute", "a", 1) in found
    assert len(found) == kept


def test_nothing_found_is_no_diagnosis() -> None:
    assert diagnosed() == []


ROWS = st.builds(
    row,
    st.sampled_from(["slow_compute", "slow_nic", "straggler", "cross_step", "hang"]),
    st.sampled_from(["addr", "host", "job"]),
    st.sampled_from(["a", "host-a", "b", "host-b"]),
    confidence=st.sampled_from([None, 0.4, 0.6, 1.0]),
    severity=st.sampled_from([0.1, 0.5]),
    job_id=st.sampled_from(["j", "k"]),
)


@given(st.lists(ROWS, max_size=8, unique_by=lambda one: tuple(one[n] for n in list(one)[:4])), st.randoms())
def test_order_does_not_matter_and_ranks_count_the_devices(rows: list[dict[str, Any]], random: Any) -> None:
    found = assemble(pl.DataFrame(rows, schema=FINDING_SCHEMA), EVIDENCE, settings())
    random.shuffle(rows)
    assert_frame_equal(found, assemble(pl.DataFrame(rows, schema=FINDING_SCHEMA), EVIDENCE, settings()))
    assert found["rank"].is_not_null().equals(found["subject_type"].is_in(DEVICES))
    for (_,), job in found.group_by("job_id"):
        assert job["rank"].drop_nulls().sort().to_list() == list(range(1, job["rank"].count() + 1))
        suspects = job.filter(pl.col("rank").is_not_null()).sort("rank")
        costs = (suspects["severity"] * suspects["confidence"].fill_null(0)).to_list()
        assert all(worse >= better for worse, better in pairwise(costs))


def test_a_silent_job_is_proved_by_the_pairs_it_had_when_it_fell_silent() -> None:
    """The window of the diagnosis has none: they are looked up, with five windows before, where the silence begins."""
    before = EVIDENCE.window.shifted(-2)
    times = {"start_ns": before.start_ns + 5, "end_ns": EVIDENCE.window.end_ns}
    for job_id, window in (("silent", before), ("j", EVIDENCE.window)):
        hang = row("hang", "job", job_id, job_id=job_id, **times)
        sql = assemble(pl.DataFrame([hang], schema=FINDING_SCHEMA), EVIDENCE, settings())["evidence_sql"].item()
        assert f"pairs.window_start_ns = {window.start_ns}" in sql
        assert (f"flows.flow_start_ns >= {before.lookback(5).start_ns}" in sql) == (job_id == "silent")


@pytest.mark.parametrize(
    ("confidence", "dp", "peers", "kinds"),
    [
        *((0.51, 2, ["b"], 3), (0.5, 2, ["b"], 1), (0.49, 2, None, 1)),
        *((0.5, None, ["b"], 1), (0.9, None, ["b"], 1), (0.5, None, None, 3), (0.3, None, None, 3)),
        (None, None, ["b"], 3),
    ],
)
def test_who_is_compared_with_whom_must_be_likely(
    confidence: float | None, dp: int | None, peers: list[str] | None, kinds: int
) -> None:
    """A layout that is not known compares with the own past alone. Of another job's layout nothing follows."""
    compared = [row(kind, "addr", "a", peers=peers) for kind in ("slow_compute", "pipeline_imbalance")]
    found = [*compared, row("slow_nic", "addr", "a")]
    kept = likely(found, laid_out(confidence, dp=dp))
    assert kept.height == kinds
    assert "slow_nic" in kept["kind"]


@pytest.mark.parametrize(("pp", "confidence", "kinds"), [(1, 0.26, 1), (1, 0.25, 0), (2, 0.51, 1), (2, 0.5, 0)])
def test_members_of_a_ring_do_the_same_work_whether_there_is_one_or_several(
    pp: int, confidence: float, kinds: int
) -> None:
    """Half of the doubt about tp 8 without a pipeline is that."""
    found = [row("slow_compute", "addr", "a", peers=["b"])]
    assert likely(found, laid_out(confidence, dp=4, tp=8, pp=pp)).height == kinds


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, 1),
        *(({name: value}, 0) for name in ("pp", "ep") for value in (2, None)),
        *(({"sharded": value}, 0) for value in (False, None)),
        *(({"confidence": value}, kinds) for value, kinds in ((0.26, 1), (0.25, 0))),
    ],
)
def test_members_of_rings_that_gather_parameters_do_the_same_work_whatever_the_degrees(
    changed: dict[str, Any], kinds: int
) -> None:
    """`dp` is not known there, and the layout's confidence is one half."""
    found = [row("slow_compute", "addr", "a", peers=["b"])]
    jobs = laid_out(0.5, dp=None, sharded=True).with_columns(**{name: pl.lit(value) for name, value in changed.items()})
    assert likely(found, jobs).height == kinds


@pytest.mark.parametrize(("explained", "kinds"), [(0.63, 1), (0.62, 0), (None, 1)])
def test_a_layout_that_explains_half_of_the_bytes_is_half_as_likely(explained: float | None, kinds: int) -> None:
    found = [row("slow_compute", "addr", "a", peers=["b"])]
    assert likely(found, laid_out(0.8, dp=4, explained=explained)).height == kinds


@pytest.mark.parametrize(("compared", "kinds"), [(True, 0), (False, 1)])
def test_stalls_of_members_need_a_layout_and_those_of_whole_jobs_none(*, compared: bool, kinds: int) -> None:
    found = [row("stalls", "job", "j")]
    assert likely(found, laid_out(0.4, dp=4), stalling=found * compared).height == kinds


@pytest.mark.parametrize(("trains", "kinds"), [(0.5, ["hang", "slow_nic"]), (0.51, ["hang", "slow_nic", "straggler"])])
def test_steps_of_a_job_that_may_as_well_not_train_tell_nothing(trains: float, kinds: list[str]) -> None:
    found = [row("hang", "job", "j"), row("slow_nic", "addr", "a"), row("straggler", "job", "j")]
    assert likely(found, laid_out(0.8, dp=4, trains=trains))["kind"].to_list() == kinds


def likely(found: list[dict[str, Any]], jobs: pl.DataFrame, *, stalling: Sequence[dict[str, Any]] = ()) -> pl.DataFrame:
    rows, stalls = (pl.DataFrame(some, schema=FINDING_SCHEMA) for some in (found, stalling))
    return drop_unlikely_layouts(rows, stalls, jobs)


def laid_out(
    confidence: float | None,
    *,
    dp: int | None,
    tp: int = 1,
    pp: int = 1,
    explained: float | None = 1.0,
    sharded: bool = False,
    trains: float = 1.0,
) -> pl.DataFrame:
    """Return a job's layout, and that of another one which is surely wrong."""
    degrees = {name: [degree, None] for name, degree in {"tp": tp, "pp": pp, "dp": dp, "cp": 1, "ep": 1}.items()}
    sure = {"confidence": [confidence, 0.0], "explained_bytes": [explained, 1.0], "recognition_confidence": trains}
    return pl.DataFrame({"job_id": ["j", "other"], "sharded": [sharded, None]} | sure | degrees)
