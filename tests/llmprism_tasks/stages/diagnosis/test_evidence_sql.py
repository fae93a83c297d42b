"""The query of a diagnosis returns exactly the flows that its finder looked at, on DuckDB and on DuckLake."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from empty_warehouse import empty_lake, empty_warehouse
from handmade import MB, WINDOW, flows, settings
from job_evidence import as_texts, moving, together, working

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.evidence_sql import query
from llmprism_tasks.stages.diagnosis.ranking import assemble
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse

LETTERS = {"abc": 100.0, "def": 100.0, "ghi": 100.0, "jkl": 40.0}
LEAVES = {"abc": ["l1", "s1", "l2"], "def": ["l1", "s2", "l2"], "ghi": ["l2", "s1", "l1"], "jkl": ["l1", "l2", "s1"]}
LATE = {"a": [500.0] * 10, "b": [700.0] * 10, "c": [500.0] * 10, "d": [500.0] * 10}
PIPED = [(step * 1000 + at, step * 1000 + at + 1, *pair, 8 * MB) for step in range(10) for at, pair in ((5, "xb"),)]


@pytest.fixture(params=["duckdb", "ducklake"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    empty = empty_lake if request.param == "ducklake" else empty_warehouse
    return empty(tmp_path / "warehouse", lock_wait_s=5)


def proven(warehouse: Warehouse, evidence: Evidence, found: pl.DataFrame) -> list[pl.DataFrame]:
    """Write what the evidence was gathered from, and much that is none; return what each query finds."""
    diagnoses = assemble(found, evidence, settings()).with_columns(window_start_ns=pl.lit(WINDOW.start_ns))
    pair = ["job_id", "src_addr", "dst_addr"]
    pairs = (
        as_texts(evidence.flows)
        .select(*pair, "kind")
        .unique()
        .with_columns(flows=1, bytes=1, distinct_sizes=1, confidence=1)
    )
    numbered = evidence.groups.rename({"component": "dp_group"})
    tables = {
        "pairs": pairs,
        "job_members": evidence.members.select("job_id", "addr", "host")
        .join(numbered, on=["job_id", "addr"], how="left")
        .with_columns(pp_stage=pl.col("host").rank("dense") % 2),
        "diagnoses": diagnoses,
    }
    now = {name: frame.with_columns(window_start_ns=pl.lit(WINDOW.start_ns)) for name, frame in tables.items()}
    for window in (WINDOW.shifted(-6), WINDOW.shifted(-1), WINDOW, WINDOW.shifted(1)):
        inside = pl.col("window_start_ns") == window.start_ns
        rows = pl.concat([as_texts(evidence.flows).filter(inside).drop("job_id", "kind"), unrelated(evidence, window)])
        store.replace(warehouse, window, {"flows": rows} | (now if window == WINDOW else {}))
    return [store.query(warehouse, sql) for sql in diagnoses["evidence_sql"]]


def slow(kind: str, subject_type: str, subject: str, *, job: str = "j", peers: list[str] | None = None) -> pl.DataFrame:
    """Return what a finder says of a subject that is slow throughout the window."""
    names = {"job_id": job, "kind": kind, "subject_type": subject_type, "subject": subject, "explanation": "It's slow."}
    times = {"start_ns": WINDOW.start_ns, "end_ns": WINDOW.end_ns}
    return pl.DataFrame(
        [names | times | {"score": 2.0, "severity": 0.5, "confidence": 1.0, "peers": peers}], schema=FINDING_SCHEMA
    )


def unrelated(evidence: Evidence, window: Window) -> pl.DataFrame:
    """Return flows that no finder looks at: control messages, other pairs, other times."""
    names = frames.empty("flows").columns
    seen = as_texts(evidence.flows)
    control = seen.head(3).select(names).with_columns(bytes=pl.lit(64, dtype=pl.Int64))
    strangers = flows([(5, 9, "a", "storage", 80 * MB), (5, 9, "storage", "b", 80 * MB)])
    shift = pl.lit(window.start_ns) - pl.lit(WINDOW.start_ns)
    moved = [
        rows.with_columns(pl.col("window_start_ns", "flow_start_ns", "flow_end_ns") + shift)
        for rows in (control.with_columns(window_start_ns=pl.lit(WINDOW.start_ns)), strangers)
    ]
    early_or_late = seen.select(names) if window not in (WINDOW, WINDOW.shifted(-1)) else control.clear()
    elsewhere = early_or_late.filter(pl.col("window_start_ns") == WINDOW.start_ns).with_columns(
        pl.col("window_start_ns", "flow_start_ns", "flow_end_ns") + shift
    )
    return pl.concat([*moved, elsewhere])


def same(found: pl.DataFrame, expected: pl.DataFrame) -> bool:
    """Tell whether the flows are the same, each as often; the query's are in order of time."""
    assert found["flow_start_ns"].is_sorted()
    names = ["flow_start_ns", "flow_end_ns", "src_addr", "dst_addr", "bytes", "kind"]
    return found.height > 0 and found.select(names).sort(names).equals(expected.select(names).sort(names))


def looked_at(evidence: Evidence, *, kinds: tuple[str, ...]) -> pl.DataFrame:
    return evidence.flows.filter(pl.col("kind").is_in(kinds))


def diagnosed(kind: str, subject_type: str, subject: str, **given: Any) -> pl.DataFrame:
    """Return a row as a finder makes it, about the whole window unless told otherwise."""
    names = {"job_id": "j", "kind": kind, "subject_type": subject_type, "subject": subject}
    times = {"start_ns": WINDOW.start_ns, "end_ns": WINDOW.end_ns}
    numbers = {"score": 9.0, "severity": 0.5, "confidence": 1.0, "peers": None}
    return pl.DataFrame([names | times | numbers | {"explanation": "It's slow."} | given], schema=FINDING_SCHEMA)


def test_slow_work_is_proven_by_what_the_nic_and_its_peers_moved(warehouse: Warehouse) -> None:
    slow = working([LATE], pp=PIPED)
    other = moving({"mno": 100.0}, job="k")
    evidence = together(slow, dataclasses.replace(other, flows=other.flows.select(slow.flows.columns)))
    (proof,) = proven(warehouse, evidence, diagnosed("slow_compute", "addr", "b", peers=["a", "c", "d"]))
    job = looked_at(evidence, kinds=("dp", "pp")).filter(pl.col("job_id") == "j")
    assert same(proof, job)
    own = job.filter((pl.col("src_addr") == "b") | (pl.col("dst_addr") == "b"))
    assert same(proof.filter("of_subject"), own)
    assert own["kind"].unique().sort().to_list() == ["dp", "pp"]


def test_only_the_time_of_the_trouble_counts(warehouse: Warehouse) -> None:
    evidence = working([LATE | {"b": [500.0] * 5 + [700.0] * 5}])
    since, until = WINDOW.start_ns + 5 * 10**9, WINDOW.start_ns + 8 * 10**9
    found = diagnosed("slow_compute", "addr", "b", peers=["a", "c", "d"], start_ns=since, end_ns=until)
    (proof,) = proven(warehouse, evidence, found)
    late = evidence.flows.filter(pl.col("flow_start_ns").is_between(since, until, closed="left"))
    assert same(proof, late)
    assert 0 < late.height < evidence.flows.height


def test_a_switch_is_proven_by_all_that_crosses_it_and_by_its_job_s_rates_then_and_before(warehouse: Warehouse) -> None:
    def tenant(names: Callable[[str], str], job: str) -> Evidence:
        rates = {names(part): 40.0 if part in ("abc", "def") else 100.0 for part in LETTERS}
        leaves = {names(part): ["l1"] if part in ("abc", "def") else ["l2"] for part in LETTERS}
        return moving(rates, paths=leaves, before=dict.fromkeys(rates, 100.0), job=job)

    evidence = together(tenant(str, "j"), tenant(str.upper, "k"))
    found = [diagnosed("degraded_switch", "switch", "l1", job_id=job) for job in "jk"]
    of_j, of_k = proven(warehouse, evidence, pl.concat(found))
    transfers = looked_at(evidence, kinds=("dp", "pp"))
    crossing = pl.col("switch_path").list.contains("l1")
    for proof, job in ((of_j, "j"), (of_k, "k")):
        assert same(proof, transfers.filter((pl.col("job_id") == job) | crossing))
        assert same(proof.filter("of_subject"), transfers.filter(crossing))


def test_a_group_is_proven_by_its_transfers_and_those_of_its_peers(warehouse: Warehouse) -> None:
    evidence = moving(LETTERS, {"ad": 100.0})
    (proof,) = proven(warehouse, evidence, diagnosed("cross_group", "dp_group", "j", peers=["a", "g"]))
    transfers = looked_at(evidence, kinds=("dp", "pp"))
    assert same(proof, transfers.filter(pl.any_horizontal(pl.col("src_addr", "dst_addr").is_in(list("abcghijkl")))))
    assert same(proof.filter("of_subject"), transfers.filter(pl.col("src_addr").is_in(list("jkl"))))


def test_a_slow_job_is_proven_by_its_flows_from_the_look_back_on(warehouse: Warehouse) -> None:
    evidence = moving(LETTERS, before=LETTERS)
    (proof,) = proven(warehouse, evidence, diagnosed("cross_step", "job", "j"))
    assert same(proof, evidence.flows)
    assert proof["window_start_ns"].unique().sort().to_list() == [WINDOW.shifted(-1).start_ns, WINDOW.start_ns]


@pytest.mark.parametrize(("kind", "shown"), [("checkpoint_stall", True), ("stopped", True), ("stalls", False)])
def test_a_pause_is_proven_by_the_flow_that_ends_it_too(warehouse: Warehouse, kind: str, *, shown: bool) -> None:
    evidence = moving(LETTERS, before=LETTERS)
    starts = evidence.flows.filter(pl.col("window_start_ns") == WINDOW.start_ns)["flow_start_ns"]
    back_ns = starts.unique().sort()[5]
    (proof,) = proven(warehouse, evidence, diagnosed(kind, "job", "j", end_ns=back_ns))
    until = pl.col("flow_start_ns") <= back_ns if shown else pl.col("flow_start_ns") < back_ns
    assert same(proof.drop_nulls("kind"), evidence.flows.filter(until))


def test_a_checkpoint_is_proven_by_what_is_written_meanwhile_too(warehouse: Warehouse) -> None:
    (proof,) = proven(warehouse, moving(LETTERS), diagnosed("checkpoint_stall", "job", "j"))
    assert proof.filter(pl.col("kind").is_null()).select("src_addr", "dst_addr").rows() == [("a", "storage")]


SUBJECTS: list[tuple[dict[str, Any], pl.Expr, pl.Expr]] = [
    (
        {"subject_type": "host", "subject": "host-a", "peers": ["host-b", "d"]},
        pl.any_horizontal(pl.col("src_addr", "dst_addr") == "a"),
        pl.any_horizontal(pl.col("src_addr", "dst_addr").is_in(["a", "b", "d"])),
    ),
    (
        {"subject_type": "pp_stage", "subject": "1", "peers": None},
        pl.any_horizontal(pl.col("src_addr", "dst_addr").is_in(list("acegik"))),
        pl.any_horizontal(pl.col("src_addr", "dst_addr").is_in(list("acegik"))),
    ),
    (
        {"subject_type": "link", "subject": "l1 - s1", "peers": None},
        pl.col("src_addr").is_in(list("abcghi")),
        pl.lit(value=True),
    ),
]


@pytest.mark.parametrize(("named", "own", "compared"), SUBJECTS)
def test_each_type_of_subject_has_its_flows(
    warehouse: Warehouse, named: dict[str, Any], own: pl.Expr, compared: pl.Expr
) -> None:
    """Links are crossed either way, and only where their switches follow each other."""
    evidence = moving(LETTERS, paths=LEAVES)
    (proof,) = proven(warehouse, evidence, diagnosed("a kind of its own", **named))
    assert same(proof, evidence.flows.filter(compared))
    assert same(proof.filter("of_subject"), evidence.flows.filter(own))


@pytest.mark.parametrize(("subject_type", "subject"), [("addr", "x"), ("host", "host-x")])
def test_who_left_its_job_is_proven_by_what_it_sent_last(warehouse: Warehouse, subject_type: str, subject: str) -> None:
    """Its pairs are in no table any more when the job begins anew without it."""
    back = WINDOW.shifted(1)
    last = [(at, at + 9, *pair, 8 * MB) for at in (5, 50) for pair in ("xa", "ax", "ab", "ba")]
    other = [(5, 9, "x", "storage", 8 * MB), (5, 9, "e", "f", 8 * MB), (5, 9, "x", "b", 64)]
    for window, rows, nics in ((WINDOW, [*last, *other], "abx"), (back, [(60_005, 60_009, *"ay", 8 * MB)], "aby")):
        members = pl.DataFrame({"addr": list(nics)}).with_columns(
            window_start_ns=pl.lit(window.start_ns), job_id=pl.lit("j"), host="host-" + pl.col("addr")
        )
        store.replace(warehouse, window, {"flows": flows(rows), "job_members": members})
    stopped = slow("stopped", subject_type, subject)
    row = stopped.with_columns(start_ns=pl.lit(WINDOW.end_ns), end_ns=pl.lit(back.end_ns)).row(0, named=True)
    for since_ns in (WINDOW.start_ns, WINDOW.end_ns + 1):  # the minute before, where a run began after the stop
        found = store.query(warehouse, query(row, since_ns, back, settings()))
        ends = found.select("of_subject", ends=pl.col("src_addr") + pl.col("dst_addr")).rows()
        assert ends == [(pair in ("xa", "ax"), pair) for pair in ("ab", "ax", "ba", "xa") * 2] + [(False, "ay")]


def test_a_name_with_a_quote_in_it_is_text(warehouse: Warehouse) -> None:
    evidence = moving(LETTERS, paths=LEAVES | {"abc": ["o'leaf"]})
    (proof,) = proven(warehouse, evidence, diagnosed("degraded_switch", "switch", "o'leaf"))
    assert proof["of_subject"].sum() == 12
