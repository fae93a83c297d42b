"""The suites of `expectations/`: sound rows pass, each expectation can fail, and the window is the batch."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from empty_warehouse import copied, empty_lake, empty_warehouse
from sound_window import END, START, SUITES, WINDOW, A, changed, repeated, sound

from llmprism_tasks import validation
from llmprism_tasks.contract import frames
from llmprism_tasks.contract.errors import ContractError, WarehouseBusy
from llmprism_tasks.contract.fault_catalogue import KINDS
from llmprism_tasks.contract.plan import DERIVED
from llmprism_tasks.sources.flows import REASONS
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.storage import insertion


@pytest.fixture(params=[empty_warehouse, empty_lake], ids=["file", "lake"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return request.param(tmp_path / "w")  # type: ignore[no-any-return]


@pytest.fixture
def file(tmp_path: Path) -> Warehouse:
    return empty_warehouse(tmp_path / "w.duckdb")


def failed(results: pl.DataFrame) -> list[str]:
    return results.filter(~pl.col("success"))["expectation"].to_list()


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
    "flows_quarantine.flood": changed("flows_quarantine", reason="unlisted_flood"),
    "flow_files.key": repeated("flow_files"),
    "flow_files.records": changed("flow_files", records=-1),
    "flow_files.copies": changed("flow_files", records=1),
    "flow_file_windows.key": repeated("flow_file_windows", records=0),
    "flow_file_windows.records": changed("flow_file_windows", records=0),
    "flow_file_windows.counted": changed("flow_file_windows", records=4),
    "flow_file_windows.late": repeated("flow_file_windows", source_file="late.csv", landed=False),
    "windows.one_row": repeated("windows"),
    "windows.adds_up": changed("windows", rows_read=6),
    "windows.not_reversed": changed("windows", window_end_ns=START),
    "windows.status": changed("windows", status="lost"),
    "windows.refused_most": changed("windows", rows_read=200, rows_quarantined=102),
    "windows.refused_share": changed("windows", rows_duplicate=0),
    "windows.duplicate_share": changed("windows", rows_duplicate=1),
    "minutes.one_row": repeated("minutes"),
    "minutes.expected_by": changed("minutes", expected_by="chance"),
    "minutes.mark": changed("minutes", due_reason="late_records"),
    "minutes.runs": changed("minutes", runs=1),
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
    "pair_steps.senders": changed("pair_steps", src_addr="10.9.9.9"),
    "pair_steps.receivers": changed("pair_steps", dst_addr="10.9.9.9"),
    "pair_steps.two_ends": changed("pair_steps", dst_addr=A),
    "pair_steps.not_reversed": changed("pair_steps", start_ns=START + 30),
    "pair_steps.ends_in_window": changed("pair_steps", end_ns=END),
    "pair_steps.counts": changed("pair_steps", distinct_sizes=3),
    "pair_steps.same_steps": changed("pair_steps", start_ns=START + 12, end_ns=START + 14),
    "pairs.key": repeated("pairs", kind="pp"),
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
    "steps.same_steps": changed("steps", step_index=pl.col("step_index") + 7),
    "steps.last_member": changed("steps", end_ns=pl.col("end_ns") + pl.col("addr").is_null()),
    "timeline.key": repeated("timeline", end_ns=START + 11),
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
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Holds sound rows; for copies."""
    made = empty_warehouse(tmp_path_factory.mktemp("sound") / "w.duckdb")
    store.replace(made, WINDOW, sound())
    return made


@pytest.mark.parametrize("expectation", BREAKING)
def test_each_expectation_can_fail(
    sound_file: Warehouse, tmp_path: Path, expectation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held on its own: Great Expectations takes as long for each of a suite as for all of these rows."""
    table, _, name = expectation.partition(".")
    whole = validation.suite(table)
    alone = whole | {"expectations": [one for one in whole["expectations"] if one["meta"]["name"] == name]}
    monkeypatch.setattr(validation, "suite", {table: alone}.get)
    one_file = copied(sound_file, tmp_path / "w.duckdb")
    store.replace(one_file, WINDOW, {table: BREAKING[expectation](sound())})
    by_job = table in DERIVED and alone["expectations"][0]["severity"] == "critical"
    results = (validation.validate_by_job if by_job else validation.validate)(one_file, WINDOW, [table])
    assert failed(results) == [expectation]
    observed = json.loads(results["observed"].item())
    assert "error" not in observed
    if by_job:  # it says whose rows they are
        jobs = observed["set_aside"]
        assert sum(jobs.values()) == observed.get("unexpected_count", observed.get("observed_value"))
        assert store.read(one_file, table, WINDOW, jobs=list(jobs)).is_empty()


@pytest.mark.parametrize(("table", "expectation"), [("flows", "unique"), ("timeline", "key")])
def test_copies_are_found_wherever_they_are(file: Warehouse, table: str, expectation: str) -> None:
    rows = sound()[table]
    for stored in (rows, rows[::-1]):  # in what order rows are stored is for nobody to rely on
        store.replace(file, WINDOW, sound() | {table: stored.clear()})
        file.write(lambda connection, stored=stored: insertion.insert(connection, table, stored))  # type: ignore[misc]
        assert failed(validation.validate(file, WINDOW, [table])) == []
        file.write(lambda connection, rows=stored[:1]: insertion.insert(connection, table, rows))  # type: ignore[misc]
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


@pytest.mark.parametrize(
    ("expectation", "strange"),
    [
        ("pair_steps.senders", {"job_id": "k"}),
        ("pairs.senders", {"job_id": "k"}),
        ("timeline.step", {"job_id": "k"}),
        ("timeline.step", {"addr": "10.9.9.9"}),
    ],
)
def test_rows_of_a_strange_job_or_nic_break_what_joins_them_to_members(
    file: Warehouse, expectation: str, strange: dict[str, str]
) -> None:
    table, _, _ = expectation.partition(".")
    store.replace(file, WINDOW, sound() | {table: changed(table, **strange)(sound())})
    assert expectation in failed(validation.validate(file, WINDOW, [table]))


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
    assert [one["bytes"] for one in json.loads(row["observed"])["rows"]] == [0, 0, 0, 0]


def test_an_expectation_that_cannot_be_evaluated_fails_and_says_why(
    file: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = validation.suite("flows")
    wrong = whole["expectations"][0] | {"kwargs": {"unexpected_rows_query": "SELECT no_such_column FROM {batch}"}}
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


@pytest.mark.parametrize(
    ("warehouse", "broken"),
    [(empty_lake, ["k"]), (empty_warehouse, ["j", "k"])],
    ids=["some, in a lake", "all, in a file"],
    indirect=["warehouse"],
)
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
    seen = json.loads(row["observed"])
    assert seen["set_aside"] == dict.fromkeys(broken, 1)
    assert sorted((one["job_id"], one["kind"]) for one in seen["rows"]) == [(job, "friends") for job in broken]
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
        (
            "SELECT 'k' AS job_id FROM flows JOIN {batch} USING (window_start_ns)",
            "it does not hold without the job either",
        ),
    ],
)
def test_where_it_is_not_some_jobs_alone_nobody_is_set_aside_and_the_window_stops(
    file: Warehouse, monkeypatch: pytest.MonkeyPatch, query: str, why: str
) -> None:
    suites = {table: validation.suite(table) for table in DERIVED}
    other = {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}}
    other |= {"severity": "critical", "notes": why}
    suites["pairs"]["expectations"].append(other | {"meta": {"name": "other"}})
    monkeypatch.setattr(validation, "suite", suites.get)
    rows = two_jobs(["k"])
    store.replace(file, WINDOW, rows)
    results = validation.validate_by_job(file, WINDOW, ["jobs", "pairs"])
    assert {"pairs.kind", "pairs.other"} <= set(failed(results))
    error = validation.stopping_error(WINDOW, results)
    assert error is not None
    assert "pairs.kind" in error.found
    assert why in error.todo
    assert validation.set_aside_warning(WINDOW, results) is None
    assert all(found.equals(frames.conform(rows[table], table)) for table, found in derived(file).items())


def test_who_was_set_aside_stays_so_until_it_is_derived_again(file: Warehouse) -> None:
    checked = ["jobs", "job_members", "pairs"]
    store.replace(file, WINDOW, two_jobs(["k"]))
    results = validation.validate_by_job(file, WINDOW, checked)
    before, bookkept = derived(file), store.read(file, "windows", WINDOW)
    assert validation.validate_by_job(file, WINDOW, checked).equals(results)  # such as a task that is tried again
    assert store.read(file, "windows", WINDOW).equals(bookkept)
    assert all(found.equals(before[table]) for table, found in derived(file).items())
    mended = two_jobs()
    store.replace(file, WINDOW, {table: mended[table] for table in DERIVED})
    assert failed(validation.validate_by_job(file, WINDOW, checked)) == ["job_members.one_job"]
    assert store.read(file, "windows", WINDOW)["reason"].item() is None
    assert jobs_in(file) == {"j", "k"}


def test_what_was_observed_is_json_though_it_be_no_number(file: Warehouse) -> None:
    nan = changed("pairs", confidence=math.nan)
    store.replace(file, WINDOW, sound() | {"pairs": nan(sound())})
    results = validation.validate_by_job(file, WINDOW, ["pairs"])
    assert failed(results) == ["pairs.confidence"]
    assert store.query(file, "SELECT job_id FROM aside_jobs").rows() == [("j",)]


@pytest.mark.parametrize(
    ("table", "name", "known"), [("flows_quarantine", "reason", REASONS), ("diagnoses", "kind", KINDS)]
)
def test_the_suite_knows_every_reason_for_a_refusal_and_every_kind_of_diagnosis(
    table: str, name: str, known: Mapping[str, object]
) -> None:
    one = next(one for one in validation.suite(table)["expectations"] if one["meta"]["name"] == name)
    assert set(one["kwargs"]["value_set"]) == set(known)


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
