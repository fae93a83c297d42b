"""The suites of `expectations/`: sound rows pass, each expectation can fail, and the window is the batch."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest
from empty_warehouse import empty_warehouse

from llmprism_tasks import __version__, validation
from llmprism_tasks.contract import frames
from llmprism_tasks.contract.errors import ContractError, WarehouseBusy
from llmprism_tasks.contract.plan import DERIVED
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.postponed import hide, is_postponed, postpone, show
from llmprism_tasks.sources.flows import REASONS
from llmprism_tasks.validation import refusals
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

WINDOW = Window(1_800_000_000_000_000_000, 60_000_000_000)
START, END = WINDOW.start_ns, WINDOW.end_ns
SUITES = tuple(table.name for table in TABLES if table.name not in ("validation_results", "notifications"))
A, B = "10.0.0.1", "10.0.0.2"


def sound(window: Window = WINDOW) -> dict[str, pl.DataFrame]:
    """Return rows of every table for a small job of two NICs with two steps, as a healthy run would leave them."""
    start, pair = window.start_ns, {"src_addr": A, "dst_addr": B}
    step = [
        {"step_index": 0, "start_ns": start, "end_ns": start + 10},
        {"step_index": 1, "start_ns": start + 10, "end_ns": start + 20},
    ]
    flow = {
        "flow_start_ns": start,
        "flow_end_ns": start + 5,
        **pair,
        "src_port": 1,
        "dst_port": 2,
        "protocol": 17,
        "bytes": 9000,
        "packets": 3,
    }
    rows: dict[str, list[dict[str, object]]] = {
        "flows": [flow | {"flow_start_ns": start + shift} for shift in range(4)],
        "flows_quarantine": [{"reason": "no_bytes", "source_file": "f.csv", "source_position": 7, "record": "{}"}],
        "windows": [
            {"window_end_ns": window.end_ns, "status": "landed", "rows_read": 5, "rows_landed": 4}
            | {"rows_quarantined": 1, "rows_duplicate": 1, "stage_ns": "{}", "software_version": __version__}
        ],
        "jobs": [{"kind": "training", "endpoints": 2, "hosts": 2, "tp": 1, "pp": 1, "dp": 2, "confidence": 0.9}],
        "job_members": [{"addr": A, "host": "h1"}, {"addr": B, "host": "h2"}],
        "pair_steps": [{**pair, **one, "flows": 2, "bytes": 18_000, "distinct_sizes": 1} for one in step],
        "pairs": [{**pair, "kind": "dp", "flows": 4, "bytes": 36_000, "distinct_sizes": 1, "confidence": 1.0}],
        "steps": [{"addr": addr, **one} for addr in (None, A, B) for one in step],
        "timeline": [
            {"addr": A, "step_index": 0, "start_ns": start, "end_ns": start + 4}
            | {"phase": "compute", "peer": None, "bytes": 0},
            {"addr": A, "step_index": 0, "start_ns": start + 4, "end_ns": start + 10}
            | {"phase": "dp_sync", "peer": B, "bytes": 18_000},
        ],
        "step_breakdown": [
            {"addr": A, "step_index": 0, "step_ns": 10, "compute_ns": 4, "communication_ns": 5, "bubble_ns": 0}
            | {"waiting_ns": 1, "waiting_for": B, "unexplained_ns": 0}
        ],
        "diagnoses": [
            {"kind": "cross_step", "subject_type": "addr", "subject": A, "start_ns": start, "end_ns": start + 10}
            | {"score": 5.0, "severity": 0.3, "explanation": "1.3 times as long as its peers"}
        ],
    }  # fmt: skip
    return {
        table: pl.DataFrame(
            [{"window_start_ns": start, "job_id": "j", "switch_path": None} | row for row in rows[table]],
            schema=frames.empty(table).schema,
        )
        for table in rows
    }


@pytest.fixture(params=["w.duckdb", "ducklake:w.ducklake"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.chdir(tmp_path)
    return open_warehouse(request.param, lock_wait_s=20)


@pytest.fixture
def file(tmp_path: Path) -> Warehouse:
    return empty_warehouse(tmp_path / "w.duckdb")


def failed(results: pl.DataFrame) -> list[str]:
    return results.filter(~pl.col("success"))["expectation"].to_list()


def changed(table: str, **values: object) -> Callable[[dict[str, pl.DataFrame]], pl.DataFrame]:
    """Change columns in all rows of a table; a value is an expression or a constant."""
    columns = {name: value if isinstance(value, pl.Expr) else pl.lit(value) for name, value in values.items()}
    return lambda rows: rows[table].with_columns(**columns)


def repeated(table: str, **values: object) -> Callable[[dict[str, pl.DataFrame]], pl.DataFrame]:
    """Add changed copies of a table's rows."""
    return lambda rows: pl.concat([rows[table], changed(table, **values)(rows)], how="vertical_relaxed")


BREAKING: dict[str, Callable[[dict[str, pl.DataFrame]], pl.DataFrame]] = {
    "flows.counted": lambda rows: rows["flows"].head(3),
    "flows.unique": changed("flows", flow_start_ns=START),
    "flows.starts_in_window": repeated("flows", flow_start_ns=END, flow_end_ns=END + 5),
    "flows.not_reversed": changed("flows", flow_end_ns=START - 1),
    "flows.bytes": changed("flows", bytes=0),
    "flows.two_ends": changed("flows", dst_addr=A),
    "flows.short": changed("flows", flow_end_ns=END + 60_000_000_000),
    "flows.packets": changed("flows", packets=9001),
    "flows.ports": changed("flows", dst_port=65_536),
    "flows.protocol": changed("flows", protocol=1),
    "flows_quarantine.counted": lambda rows: rows["flows_quarantine"].clear(),
    "flows_quarantine.key": repeated("flows_quarantine", record="another"),
    "flows_quarantine.reason": changed("flows_quarantine", reason="dislike"),
    "flows_quarantine.position": changed("flows_quarantine", source_position=0),
    "windows.one_row": repeated("windows"),
    "windows.adds_up": changed("windows", rows_read=6),
    "windows.not_reversed": changed("windows", window_end_ns=START),
    "windows.status": changed("windows", status="lost"),
    "windows.refused_most": changed("windows", rows_read=200, rows_quarantined=102),
    "windows.refused_share": changed("windows", rows_duplicate=0),
    "windows.duplicate_share": changed("windows", rows_duplicate=1),
    "jobs.key": repeated("jobs"),
    "jobs.kind": changed("jobs", kind="mining"),
    "jobs.members": changed("jobs", hosts=1),
    "jobs.endpoints": changed("jobs", endpoints=1),
    "jobs.degrees": changed("jobs", pp=0),
    "jobs.layout_fits": changed("jobs", dp=1),
    "jobs.confidence": changed("jobs", confidence=1.1),
    "jobs.experts": changed("jobs", ep=3),
    "jobs.ratios": changed("jobs", explained_bytes=1.1),
    "jobs.sizes": changed("jobs", period_ns=0),
    "jobs.explained": changed("jobs", explained_bytes=0.4),
    "jobs.unlisted": changed("jobs", unlisted=["10.9.9.9"]),
    "job_members.key": repeated("job_members"),
    "job_members.job": changed("job_members", job_id="k"),
    "job_members.pp_stage": changed("job_members", pp_stage=1),
    "job_members.dp_group": changed("job_members", dp_group=-1),
    "job_members.one_job": repeated("job_members", job_id="k"),
    "pair_steps.key": repeated("pair_steps"),
    "pair_steps.job": changed("pair_steps", job_id="k"),
    "pair_steps.senders": changed("pair_steps", src_addr="10.9.9.9"),
    "pair_steps.receivers": changed("pair_steps", dst_addr="10.9.9.9"),
    "pair_steps.two_ends": changed("pair_steps", dst_addr=A),
    "pair_steps.not_reversed": changed("pair_steps", start_ns=START + 30),
    "pair_steps.ends_in_window": changed("pair_steps", end_ns=END),
    "pair_steps.counts": changed("pair_steps", distinct_sizes=3),
    "pairs.key": repeated("pairs", kind="pp"),
    "pairs.job": changed("pairs", job_id="k"),
    "pairs.senders": changed("pairs", src_addr="10.9.9.9"),
    "pairs.receivers": changed("pairs", dst_addr="10.9.9.9"),
    "pairs.two_ends": changed("pairs", dst_addr=A),
    "pairs.kind": changed("pairs", kind="friends"),
    "pairs.counts": changed("pairs", flows=0),
    "pairs.confidence": changed("pairs", confidence=-0.1),
    "steps.key": repeated("steps"),
    "steps.job": changed("steps", job_id="k"),
    "steps.members": changed("steps", addr=pl.when(pl.col("addr") == A).then(pl.lit("10.9.9.9")).otherwise("addr")),
    "steps.not_reversed": changed("steps", start_ns=pl.col("end_ns")),
    "steps.ends_in_window": changed("steps", end_ns=END),
    "steps.joined": changed("steps", start_ns=pl.col("start_ns") - 1),
    "steps.last_member": changed("steps", end_ns=pl.col("end_ns") + pl.col("addr").is_null()),
    "timeline.key": repeated("timeline", end_ns=START + 11),
    "timeline.job": changed("timeline", job_id="k"),
    "timeline.members": changed("timeline", addr="10.9.9.9"),
    "timeline.phase": changed("timeline", phase="coffee"),
    "timeline.not_reversed": changed("timeline", end_ns=START - 1),
    "timeline.bytes": changed("timeline", bytes=1),
    "timeline.step": changed("timeline", step_index=9),
    "step_breakdown.key": repeated("step_breakdown"),
    "step_breakdown.step": changed("step_breakdown", step_index=9),
    "step_breakdown.length": changed("step_breakdown", step_ns=11, compute_ns=5),
    "step_breakdown.adds_up": changed("step_breakdown", compute_ns=5),
    "step_breakdown.no_negative_part": changed("step_breakdown", compute_ns=10, communication_ns=-1),
    "step_breakdown.waits_for_another": changed("step_breakdown", waiting_for=A),
    "step_breakdown.waits_for_member": changed("step_breakdown", waiting_for="10.9.9.9"),
    "diagnoses.key": repeated("diagnoses", score=6.0),
    "diagnoses.job": changed("diagnoses", job_id="k"),
    "diagnoses.kind": changed("diagnoses", kind="bad_mood"),
    "diagnoses.subject_type": changed("diagnoses", subject_type="person"),
    "diagnoses.subject": changed("diagnoses", subject="10.9.9.9"),
    "diagnoses.not_reversed": changed("diagnoses", end_ns=START - 1),
    "diagnoses.numbers": changed("diagnoses", score=math.nan),
    "diagnoses.explained": changed("diagnoses", explanation=" "),
    "diagnoses.confidence": changed("diagnoses", confidence=1.1),
    "diagnoses.rank": changed("diagnoses", rank=2),
    "diagnoses.price": changed("diagnoses", recoverable_gpu_s=-1.0),
}


def test_sound_rows_hold_in_a_file_and_in_a_lake(warehouse: Warehouse) -> None:
    store.replace(warehouse, WINDOW, sound() | {"windows": changed("windows", rows_read=5)(sound())})
    results = validation.validate(warehouse, WINDOW, SUITES)
    assert failed(results) == ["windows.duplicate_share"]  # one of five
    assert results.height == len(BREAKING)
    assert store.read(warehouse, "validation_results", WINDOW).equals(results)


def test_who_was_replaced_when_its_job_stopped_is_no_member_any_more(file: Warehouse) -> None:
    stopped = changed("diagnoses", kind="stopped", subject="10.9.9.9")(sound())
    store.replace(file, WINDOW, sound() | {"diagnoses": stopped})
    assert "diagnoses.subject" not in failed(validation.validate(file, WINDOW, SUITES))


@pytest.mark.parametrize(
    ("before", "broken"), [(5, []), (END - START, []), (END - START + 1, ["steps.ends_in_window"])]
)
def test_a_step_that_lacked_members_is_told_by_the_next_window(file: Warehouse, before: int, broken: list[str]) -> None:
    """Its job's end is that of a member whose own step the window before has told."""
    first, end = pl.col("step_index") == 0, START - before - pl.col("addr").is_not_null().cast(pl.Int64)
    earlier = changed(
        "steps",
        start_ns=pl.when(first).then(START - before - 20).otherwise(end),
        end_ns=pl.when(first).then(end).otherwise("end_ns"),
    )
    store.replace(file, WINDOW, sound() | {"steps": earlier(sound())})
    assert failed(validation.validate(file, WINDOW, ["steps"])) == broken


def test_an_empty_window_holds(file: Warehouse) -> None:
    nothing = changed("windows", rows_read=0, rows_landed=0, rows_quarantined=0, rows_duplicate=0)(sound())
    store.replace(file, WINDOW, {"windows": nothing})
    results = validation.validate(file, WINDOW, SUITES)
    assert results["success"].all()
    assert results["unexpected_count"].fill_null(0).sum() == 0


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return empty_warehouse(tmp_path_factory.mktemp("breaking") / "w.duckdb")


@pytest.mark.parametrize("expectation", BREAKING)
def test_each_expectation_can_fail(one_file: Warehouse, expectation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held on its own: Great Expectations takes as long for each of a suite as for all of these rows."""
    table, _, name = expectation.partition(".")
    whole = validation.suite(table)
    alone = whole | {"expectations": [one for one in whole["expectations"] if one["meta"]["name"] == name]}
    monkeypatch.setattr(validation, "suite", {table: alone}.get)
    rows = sound()
    store.replace(one_file, WINDOW, rows | {table: BREAKING[expectation](rows)})
    results = validation.validate(one_file, WINDOW, [table])
    assert failed(results) == [expectation]
    assert "error" not in results["observed"].item()
    if table in DERIVED and results["severity"].item() == "critical":  # it says whose rows they are
        (jobs,) = refusals.told(validation.validate_by_job(one_file, WINDOW, [table])).values()
        assert sum(jobs["set_aside"].values()) == results["unexpected_count"].item()
        assert store.read(one_file, table, WINDOW, jobs=list(jobs["set_aside"])).is_empty()


@pytest.mark.parametrize(("table", "expectation"), [("flows", "unique"), ("timeline", "key")])
def test_copies_are_found_wherever_they_are(file: Warehouse, table: str, expectation: str) -> None:
    rows = sound()[table]
    for stored in (rows, rows[::-1]):  # in what order rows are stored is for nobody to rely on
        store.replace(file, WINDOW, sound() | {table: stored.clear()})
        file.write(lambda connection, stored=stored: store.insert(connection, table, stored))  # type: ignore[misc]
        assert failed(validation.validate(file, WINDOW, [table])) == []
        file.write(lambda connection, rows=stored[:1]: store.insert(connection, table, rows))  # type: ignore[misc]
        assert f"{table}.{expectation}" in failed(validation.validate(file, WINDOW, [table]))


@pytest.mark.parametrize(
    ("acts", "broken"),
    [
        ("idle compute other", []),
        ("idle compute idle", ["timeline.key"]),  # copies of one moment, not next to each other
        ("other idle idle", ["timeline.key"]),
    ],
)
def test_acts_of_one_moment_are_held_against_each_other(file: Warehouse, acts: str, broken: list[str]) -> None:
    """Though the numbers that they have come in no order."""
    first = sound()["timeline"][:1]
    store.replace(file, WINDOW, sound() | {"timeline": first.with_columns(phase=pl.lit("other"))})
    rows = pl.concat([first.with_columns(phase=pl.lit(act)) for act in acts.split()])
    store.replace(file, WINDOW, {"timeline": rows}, ordered=True)
    assert failed(validation.validate(file, WINDOW, ["timeline"])) == broken


def test_every_expectation_is_named_noted_and_shown_to_fail() -> None:
    named = [f"{table}.{one['meta']['name']}" for table in SUITES for one in validation.suite(table)["expectations"]]
    assert sorted(named) == sorted(BREAKING)
    for table in SUITES:
        for one in validation.suite(table)["expectations"]:
            assert one["severity"] in ("critical", "warning")
            assert len(one["notes"]) > 20


def test_another_window_s_rows_are_not_seen(file: Warehouse) -> None:
    before = WINDOW.shifted(-1)
    rows = sound(before)
    store.replace(file, before, rows | {"flows": rows["flows"].with_columns(bytes=pl.lit(0))})
    store.replace(file, WINDOW, sound())
    assert failed(validation.validate(file, WINDOW, ["flows"])) == []


def test_results_replace_those_of_the_same_tables_only(file: Warehouse) -> None:
    store.replace(file, WINDOW, sound())
    validation.validate(file, WINDOW, ["flows", "jobs"])
    store.replace(file, WINDOW, {"jobs": changed("jobs", kind="mining")(sound())})
    validation.validate(file, WINDOW, ["jobs"])
    kept = store.read(file, "validation_results", WINDOW)
    assert failed(kept) == ["jobs.kind"]
    assert kept["expectation"].is_unique().all()
    assert kept["expectation"].str.starts_with("flows.").sum() == len(validation.suite("flows")["expectations"])


def test_results_name_column_count_and_what_was_seen(file: Warehouse) -> None:
    store.replace(file, WINDOW, sound() | {"flows": changed("flows", bytes=0)(sound())})
    row = validation.validate(file, WINDOW, ["flows"]).row(
        by_predicate=pl.col("expectation") == "flows.bytes", named=True
    )
    assert (row["column"], row["severity"], row["success"], row["unexpected_count"]) == ("bytes", "critical", False, 4)
    assert json.loads(row["observed"])["partial_unexpected_list"] == [0, 0, 0, 0]


def test_an_expectation_that_cannot_be_evaluated_fails_and_says_why(
    file: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = validation.suite("flows")
    wrong = whole["expectations"][0] | {"kwargs": {"where": "no_such_column > 0"}}
    monkeypatch.setattr(
        validation, "suite", {"flows": whole | {"expectations": [wrong, *whole["expectations"][1:]]}}.get
    )
    store.replace(file, WINDOW, sound())
    results = validation.validate(file, WINDOW, ["flows"])
    assert failed(results) == ["flows.counted"]
    assert "no_such_column" in results.filter(~pl.col("success"))["observed"].item()


def test_only_critical_failures_stop_and_say_what_to_do(file: Warehouse) -> None:
    store.replace(file, WINDOW, sound() | {"flows": changed("flows", packets=9001)(sound())})
    assert validation.stopping_error(WINDOW, validation.validate(file, WINDOW, ["flows"])) is None
    store.replace(file, WINDOW, {"flows": changed("flows", packets=9001, bytes=0)(sound())})
    error = validation.stopping_error(WINDOW, validation.validate(file, WINDOW, ["flows"]))
    assert isinstance(error, ContractError)
    assert str(WINDOW) in error.found
    assert "flows.bytes (unexpected rows: 4)" in error.found
    assert "flows.packets" not in error.found
    assert "quarantine" in error.todo


def two_jobs(broken: Sequence[str] = ()) -> dict[str, pl.DataFrame]:
    """Return sound rows of two jobs, `j` and `k`, but for pairs of a kind that is none."""
    rows = sound()
    for table in DERIVED:
        rows[table] = pl.concat([rows[table], rows[table].with_columns(job_id=pl.lit("k"))])
    kind = pl.when(pl.col("job_id").is_in(list(broken))).then(pl.lit("friends")).otherwise("kind")
    return rows | {"pairs": rows["pairs"].with_columns(kind=kind)}


def derived(warehouse: Warehouse) -> dict[str, pl.DataFrame]:
    return {table: store.read(warehouse, table, WINDOW) for table in (*DERIVED, "flows")}


def jobs_in(warehouse: Warehouse) -> set[str]:
    return {job for table in DERIVED for job in store.read(warehouse, table, WINDOW)["job_id"]}


@pytest.mark.parametrize("broken", [["k"], ["j", "k"]])
def test_jobs_whose_rows_break_an_expectation_are_set_aside_and_the_others_stand(
    warehouse: Warehouse, broken: list[str]
) -> None:
    rows = two_jobs(broken)
    store.replace(warehouse, WINDOW, rows)
    results = validation.validate_by_job(warehouse, WINDOW, DERIVED)
    assert validation.stopping_error(WINDOW, results) is None
    for table, found in derived(warehouse).items():
        left = rows[table].filter(~pl.col("job_id").is_in(broken)) if table in DERIVED else rows[table]
        assert found.equals(frames.conform(left, table)), table
    assert failed(results) == ["pairs.kind"]
    assert store.read(warehouse, "validation_results", WINDOW).equals(results)
    row = results.row(by_predicate=~pl.col("success"), named=True)
    assert (row["severity"], row["unexpected_count"]) == ("critical", len(broken))
    assert json.loads(row["observed"]) == {
        "observed_value": len(broken),
        "partial_unexpected_list": ["friends"] * len(broken),
        "set_aside": dict.fromkeys(broken, 1),
    }
    told = store.query(warehouse, "SELECT job_id, expectations, unexpected_rows FROM aside_jobs ORDER BY ALL")
    assert told.rows() == [(job, ["pairs.kind"], 1) for job in broken]
    reason = store.read(warehouse, "windows", WINDOW)["reason"].item()
    assert reason == "set aside: " + ", ".join(f"job {job} (unexpected rows: 1 in pairs.kind)" for job in broken)
    warning = validation.set_aside_warning(WINDOW, results)
    assert warning is not None
    assert reason in warning
    assert "please report it" in warning


def test_sound_rows_set_nobody_aside(file: Warehouse) -> None:
    store.replace(file, WINDOW, two_jobs())
    results = validation.validate_by_job(file, WINDOW, DERIVED)
    assert failed(results) == ["job_members.one_job"]
    assert validation.set_aside_warning(WINDOW, results) is None
    assert jobs_in(file) == {"j", "k"}
    assert store.read(file, "windows", WINDOW)["reason"].item() is None


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT kind FROM {batch} WHERE kind = 'friends'", "it does not say whose rows they are"),
        ("SELECT NULL::VARCHAR AS job_id FROM {batch} WHERE kind = 'friends'", "they are nobody's"),
        ("SELECT no_such_column FROM {batch}", "it cannot be evaluated"),
        ("SELECT 'k' AS job_id FROM window_flows", "it does not hold without the job either"),
    ],
)
def test_where_it_is_not_some_jobs_alone_nobody_is_set_aside_and_the_window_stops(
    file: Warehouse, monkeypatch: pytest.MonkeyPatch, query: str, why: str
) -> None:
    suites = {table: validation.suite(table) for table in DERIVED}
    other = {"type": "expect_no_rows", "kwargs": {"query": query}, "severity": "critical", "notes": why}
    suites["pairs"]["expectations"].append(other | {"meta": {"name": "other"}})
    monkeypatch.setattr(validation, "suite", suites.get)
    rows = two_jobs(["k"])
    store.replace(file, WINDOW, rows)
    results = validation.validate_by_job(file, WINDOW, DERIVED)
    assert {"pairs.kind", "pairs.other"} <= set(failed(results))
    error = validation.stopping_error(WINDOW, results)
    assert error is not None
    assert "pairs.kind" in error.found
    assert why in error.todo
    assert validation.set_aside_warning(WINDOW, results) is None
    assert all(found.equals(frames.conform(rows[table], table)) for table, found in derived(file).items())


def test_who_was_set_aside_stays_so_until_it_is_derived_again(file: Warehouse) -> None:
    store.replace(file, WINDOW, two_jobs(["k"]))
    results = validation.validate_by_job(file, WINDOW, DERIVED)
    before, bookkept = derived(file), store.read(file, "windows", WINDOW)
    assert validation.validate_by_job(file, WINDOW, DERIVED).equals(results)  # such as a task that is tried again
    assert store.read(file, "windows", WINDOW).equals(bookkept)
    assert all(found.equals(before[table]) for table, found in derived(file).items())
    mended = two_jobs()
    store.replace(file, WINDOW, {table: mended[table] for table in DERIVED})
    assert failed(validation.validate_by_job(file, WINDOW, DERIVED)) == ["job_members.one_job"]
    assert store.read(file, "windows", WINDOW)["reason"].item() is None
    assert jobs_in(file) == {"j", "k"}


def test_what_was_observed_is_json_though_it_be_no_number(file: Warehouse) -> None:
    nan = changed("pairs", confidence=math.nan)
    store.replace(file, WINDOW, sound() | {"pairs": nan(sound())})
    results = validation.validate_by_job(file, WINDOW, DERIVED)
    assert failed(results) == ["pairs.confidence"]
    assert store.query(file, "SELECT job_id FROM aside_jobs").rows() == [("j",)]


def test_the_suite_knows_every_reason_for_a_refusal() -> None:
    reasons = next(
        one for one in validation.suite("flows_quarantine")["expectations"] if one["meta"]["name"] == "reason"
    )
    assert set(re.findall(r"'(\w+)'", reasons["kwargs"]["where"])) == set(REASONS)


def test_a_table_without_suite_is_named() -> None:
    with pytest.raises(ContractError, match=r"no suite weather\.json.*flows_quarantine"):
        validation.suite("weather")


def test_it_is_silent_and_leaves_no_folder(
    file: Warehouse, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    store.replace(file, WINDOW, sound())
    validation.validate(file, WINDOW, DERIVED)
    assert capfd.readouterr() == ("", "")
    assert list(temporary.iterdir()) == []


def test_a_postponed_module_runs_when_something_in_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_come.py").write_text("import sys; sys.slow_has_come = True; answer = 42")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delattr(sys, "slow_has_come", raising=False)
    postpone("slow_to_come")
    import slow_to_come

    assert not hasattr(slow_to_come, "__wrapped__")  # as who looks at all modules may ask
    assert not hasattr(sys, "slow_has_come")
    assert slow_to_come.answer == 42
    postpone("slow_to_come")  # too late to make a difference
    assert sys.modules["slow_to_come"] is slow_to_come
    assert slow_to_come.answer == 42
    postpone("nobody_has_written_this")
    postpone("nobody_has_written_this.nor_that")
    assert "nobody_has_written_this" not in sys.modules
    del sys.modules["slow_to_come"], sys.slow_has_come


@pytest.fixture
def gathering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package, postponed, that gathers names from modules of its own."""
    package = tmp_path / "around_it" / "gathering"
    package.mkdir(parents=True)
    (tmp_path / "around_it" / "__init__.py").touch()
    (package / "__init__.py").write_text(
        "from .first import one\nfrom around_it.gathering.second import two\nthree = 3"
    )
    (package / "first.py").write_text("one = 1")
    (package / "second.py").write_text("two = 2")
    monkeypatch.syspath_prepend(tmp_path)
    postpone("around_it.gathering")
    for name in ("around_it", *(f"around_it.gathering.{part}" for part in ("first", "second"))):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield "around_it.gathering"
    for name in [name for name in sys.modules if name.startswith("around_it")]:
        del sys.modules[name]


def test_of_a_postponed_package_a_name_comes_from_where_it_is_defined(gathering: str) -> None:
    from around_it.gathering import one

    assert one == 1
    assert f"{gathering}.first" in sys.modules
    assert f"{gathering}.second" not in sys.modules


def test_of_a_postponed_package_a_module_can_be_imported(gathering: str) -> None:
    from around_it import gathering as package
    from around_it.gathering import second

    assert second.two == package.second.two == 2
    assert f"{gathering}.first" not in sys.modules


def test_a_postponed_package_is_run_for_what_it_defines_itself(gathering: str) -> None:
    from around_it.gathering import three

    assert three == 3
    assert sys.modules[gathering].one == 1


def test_whether_a_module_is_postponed_is_known_until_it_runs(gathering: str) -> None:
    assert is_postponed(gathering)
    assert sys.modules[gathering].three == 3
    assert not is_postponed(gathering)
    assert not is_postponed("nobody_has_written_this")


def test_a_hidden_library_is_found_but_not_there_until_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in_hiding.py").write_text("answer = 42")
    monkeypatch.syspath_prepend(tmp_path)
    hide("in_hiding")
    try:
        assert importlib.util.find_spec("in_hiding") is not None
        with pytest.raises(ModuleNotFoundError, match="in_hiding"):
            importlib.import_module("in_hiding")
    finally:
        show("in_hiding")
    assert importlib.import_module("in_hiding").answer == 42
    hide("in_hiding")  # too late to make a difference
    assert importlib.import_module("in_hiding").answer == 42
    show("in_hiding")
    del sys.modules["in_hiding"]


def test_expectations_of_great_expectations_itself_are_at_hand(
    file: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = validation.suite("flows")
    one = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "bytes", "min_value": 9001},
        "severity": "critical",
        "notes": "Nothing is as small.",
        "meta": {"name": "some"},
    }
    monkeypatch.setattr(validation, "suite", {"flows": whole | {"expectations": [*whole["expectations"], one]}}.get)
    store.replace(file, WINDOW, sound())
    for _ in ("when it is not there yet", "when it is"):
        results = validation.validate(file, WINDOW, ["flows"])
        assert failed(results) == ["flows.some"]
        assert results.height == len(whole["expectations"]) + 1
        assert json.loads(results.filter(~pl.col("success"))["observed"].item())["unexpected_count"] == 4


def test_great_expectations_comes_without_what_is_not_needed(file: Warehouse) -> None:
    store.replace(file, WINDOW, sound())
    code = f"""
import sys
from llmprism_tasks.postponed import hide
hide("pandas")
from llmprism_tasks import validation
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.windows import Window
validation.validate(Warehouse({file.location!r}, 20), Window({WINDOW.start_ns}, {WINDOW.length_ns}), {SUITES})
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "great_expectations" in loaded
    not_needed = {"altair.vegalite", "pandas", "requests", "scipy.linalg", "sqlalchemy"}
    assert not_needed & set(loaded) == set()


HOLD = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(("patience_s", "held_s"), [(20.0, 1.0), (0.2, 5.0)])
def test_it_waits_for_the_file_s_lock_like_everybody_else(file: Warehouse, patience_s: float, held_s: float) -> None:
    store.replace(file, WINDOW, sound())
    validation.validate(file, WINDOW, ["jobs"])  # what follows is then the wait, not the import
    with subprocess.Popen([sys.executable, "-c", HOLD, file.location, str(held_s)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        began = time.monotonic()
        impatient = Warehouse(file.location, patience_s)
        if patience_s > held_s:
            assert failed(validation.validate(impatient, WINDOW, ["jobs"])) == []
            assert time.monotonic() - began > held_s / 2
        else:
            with pytest.raises(WarehouseBusy, match=str(holder.pid)):
                validation.validate(impatient, WINDOW, ["jobs"])
        holder.kill()
