"""Exactly a window's rows are replaced, all tables at once or none; the same holds for a file and for a lake."""

from __future__ import annotations

import json

import duckdb
import polars as pl
import pytest
from flowfiles import WINDOW, flow

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.errors import ContractError, InputError
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import landed_flows, store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import Change

BEFORE, AFTER = WINDOW.shifted(-1), WINDOW.shifted(1)


def members(window: Window, *pairs: tuple[str, str]) -> pl.DataFrame:
    rows = [{"window_start_ns": window.start_ns, "job_id": job, "addr": addr, "host": "h"} for job, addr in pairs]
    return pl.DataFrame(rows, schema=frames.empty("job_members").schema)


def flows(window: Window, *records: dict[str, object]) -> pl.DataFrame:
    rows = [record | {"window_start_ns": window.start_ns} for record in records]
    return pl.DataFrame(rows, schema=frames.empty("flows").schema)


def addresses(warehouse: Warehouse, window: Window, jobs: list[str] | None = None) -> list[str]:
    return store.read(warehouse, "job_members", window, jobs=jobs)["addr"].to_list()


def test_empty_tables_read_with_the_contracts_schema(either: Warehouse) -> None:
    for table, frame in store.read_each(either, {table.name: WINDOW for table in TABLES}).items():
        assert frame.schema == frames.empty(table).schema, table
        assert frame.height == 0, table
    store.replace(either, WINDOW, {table.name: frames.empty(table.name) for table in TABLES})


def test_only_the_windows_own_rows_are_replaced(either: Warehouse) -> None:
    for window in (BEFORE, WINDOW, AFTER):
        store.replace(either, window, {"job_members": members(window, ("j", "old"), ("j", "gone"))})
    for _ in range(2):  # again makes no difference
        store.replace(either, WINDOW, {"job_members": members(WINDOW, ("j", "new"))})
    assert [addresses(either, window) for window in (BEFORE, WINDOW, AFTER)] == [
        ["gone", "old"],
        ["new"],
        ["gone", "old"],
    ]
    store.replace(either, WINDOW, {"job_members": members(WINDOW)})
    assert addresses(either, WINDOW) == []


def test_tables_to_clear_lose_the_windows_rows_only(either: Warehouse) -> None:
    for window in (WINDOW, AFTER):
        store.replace(either, window, {"job_members": members(window, ("j", "a")), "flows": flows(window, flow())})
    store.replace(either, WINDOW, {"flows": flows(WINDOW)}, clears=["job_members", "steps"])
    assert (addresses(either, WINDOW), addresses(either, AFTER)) == ([], ["a"])


def test_some_jobs_are_replaced_and_the_others_stay(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"job_members": members(WINDOW, ("j", "a"), ("k", "b"), ("l", "c"))})
    store.replace(either, WINDOW, {"job_members": members(WINDOW, ("j", "d"))}, jobs=["j", "k"], clears=["pairs"])
    assert store.read(either, "job_members", WINDOW).select("job_id", "addr").rows() == [("j", "d"), ("l", "c")]
    assert addresses(either, WINDOW, jobs=["l"]) == ["c"]
    assert addresses(either, WINDOW, jobs=[]) == []
    with pytest.raises(ContractError, match="flows_quarantine"):
        store.replace(either, WINDOW, {}, clears=["flows_quarantine"], jobs=["j"])


def test_flows_of_jobs_are_those_of_their_members_in_the_last_window(either: Warehouse) -> None:
    for window, addr in ((BEFORE, "10.0.0.9"), (WINDOW, "10.0.0.1")):
        records = [flow(src_addr="10.0.0.1"), flow(src_addr="10.0.0.3", dst_addr="10.0.0.1"), flow(src_addr="10.0.0.9")]
        store.replace(either, window, {"job_members": members(window, ("j", addr)), "flows": flows(window, *records)})
    rows = store.read(either, "flows", WINDOW.lookback(1), jobs=["j"]).select("window_start_ns", "src_addr").rows()
    assert rows == [(window.start_ns, addr) for window in (BEFORE, WINDOW) for addr in ("10.0.0.1", "10.0.0.3")]
    assert store.read(either, "flows", WINDOW, jobs=["nobody"]).height == 0


def test_rows_come_in_one_order_whatever_order_they_were_written_in(either: Warehouse) -> None:
    records = flows(WINDOW, flow(2), flow(1, src_port=None), flow(1), flow(1, switch_path=None), flow(0))
    answers = []
    for frame in (records, records.reverse()):
        store.replace(either, WINDOW, {"flows": frame})
        answers.append(store.read(either, "flows", WINDOW))
    assert answers[0].equals(answers[1])
    assert answers[0]["flow_start_ns"].is_sorted()


def test_what_breaks_the_contract_is_refused_whole(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"job_members": members(WINDOW, ("j", "a"))})
    nobody = members(WINDOW, ("j", "a")).with_columns(host=pl.lit(None, pl.String))
    for wrong, found in ((members(AFTER, ("j", "b")), "1 rows of other windows"), (nobody, "NULL in host")):
        with pytest.raises(ContractError, match=found):
            store.replace(either, WINDOW, {"flows": flows(WINDOW, flow()), "job_members": wrong})
    assert addresses(either, WINDOW) == ["a"]
    assert store.read(either, "flows", WINDOW).height == 0


def test_an_exception_inside_a_transaction_leaves_everything_as_it_was(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"job_members": members(WINDOW, ("j", "a"))})

    def fail() -> None:
        with either.writing() as connection:
            connection.execute("DELETE FROM job_members")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert addresses(either, WINDOW) == ["a"]


def test_changes_that_come_one_after_another_are_one(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"job_members": members(WINDOW, ("j", "a"), ("k", "b"))})
    first = Change({"job_members": members(WINDOW, ("j", "c"))}, jobs=["j"])
    store.replace_each(either, WINDOW, [first, Change({"job_members": members(WINDOW, ("k", "d"))}, jobs=["k"])])
    assert addresses(either, WINDOW) == ["c", "d"]
    with pytest.raises(ContractError):
        store.replace_each(either, WINDOW, [Change({}, clears=["job_members"]), Change({}, clears=["flows"], jobs=[])])
    assert addresses(either, WINDOW) == ["c", "d"]


class Interrupted:
    """Changes between the first and the second of which somebody else's commit came."""

    def __init__(self, *changes: Change) -> None:
        self._coming: list[Change | duckdb.TransactionException] = list(changes)
        self._coming.insert(1, duckdb.TransactionException("conflict"))

    def __iter__(self) -> Interrupted:
        return self

    def __next__(self) -> Change:
        if not self._coming:
            raise StopIteration
        come = self._coming.pop(0)
        if isinstance(come, Exception):
            raise come
        return come


def test_changes_that_came_before_a_conflict_are_made_again(either: Warehouse) -> None:
    changes = (Change({"job_members": members(WINDOW, (job, job))}, jobs=[job]) for job in ("j", "k"))
    store.replace_each(either, WINDOW, Interrupted(*changes))
    assert addresses(either, WINDOW) == ["j", "k"]


def test_bookkeeping_keeps_what_it_is_not_told(either: Warehouse) -> None:
    with pytest.raises(ContractError, match="no row in windows"):
        minutes.record_done(either, WINDOW, now_ns=0)
    row = {"window_start_ns": WINDOW.start_ns, "window_end_ns": WINDOW.end_ns, "status": "landed", "reason": None}
    row |= dict.fromkeys(("rows_read", "rows_landed", "rows_quarantined", "rows_duplicate"), 0)
    row |= {"stage_ns": "{}", "software_version": "0"}
    assert store.replace(either, WINDOW, {"windows": pl.DataFrame([row])}, unless_landed=True)
    store.replace(either, WINDOW, {}, stage_ns={"recognition": 5_000_000_000})
    store.replace(either, WINDOW, {}, stage_ns={"timeline": 7_000_000_000})
    store.replace(either, WINDOW, {}, stage_ns={"recognition": 6_000_000_000})
    store.record_window(either, WINDOW, reason="odd")
    assert not store.replace(either, WINDOW, {"windows": pl.DataFrame([row])}, unless_landed=True)
    told = store.read(either, "windows", WINDOW).row(0, named=True)
    assert (told["status"], told["reason"]) == ("running", "odd")
    took_s = {stage: elapsed_ns // 1_000_000_000 for stage, elapsed_ns in json.loads(told["stage_ns"]).items()}
    assert took_s == {"recognition": 6, "timeline": 7}
    assert minutes.record_done(either, WINDOW, now_ns=0) == 0
    assert store.read(either, "windows", WINDOW)["status"].to_list() == ["done"]


def test_rows_are_counted_by_job_where_all_of_them_have_one(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"job_members": members(WINDOW, ("k", "a"), ("j", "b"), ("k", "c"))})
    with either.reading() as connection:
        assert store.rows_by_job(connection, "FROM job_members") == {"j": 1, "k": 2}
        assert store.rows_by_job(connection, "SELECT addr FROM job_members") is None
        assert store.rows_by_job(connection, "SELECT nullif(job_id, 'k') AS job_id FROM job_members") is None
        assert store.rows_by_job(connection, "FROM job_members WHERE addr = 'd'") is None


def test_results_of_some_tables_leave_those_of_others_and_of_other_windows(either: Warehouse) -> None:
    def results(window: Window, *expectations: str) -> pl.DataFrame:
        row = {"column": "", "severity": "critical", "success": True, "window_start_ns": window.start_ns}
        return pl.DataFrame([row | {"expectation": expectation} for expectation in expectations])

    store.replace_results(either, AFTER, ["jobs"], results(AFTER, "jobs.key"))
    store.replace_results(either, WINDOW, ["flows"], results(WINDOW, "flows.counted", "flows.key"))
    store.replace_results(either, WINDOW, ["jobs", "pairs"], results(WINDOW, "jobs.key", "pairs.key"))
    store.replace_results(either, WINDOW, ["flows"], results(WINDOW, "flows.counted"))
    names = store.read(either, "validation_results", WINDOW)["expectation"].to_list()
    assert names == ["flows.counted", "jobs.key", "pairs.key"]
    assert store.read(either, "validation_results", AFTER)["expectation"].to_list() == ["jobs.key"]
    with pytest.raises(ContractError, match="other windows"):
        store.replace_results(either, WINDOW, ["jobs"], results(AFTER, "jobs.key"))


def test_jobs_are_set_aside_with_the_results_that_say_so_or_not_at_all(either: Warehouse) -> None:
    row = {"expectation": "pairs.kind", "column": "", "severity": "critical", "success": False}
    results = pl.DataFrame([row | {"window_start_ns": WINDOW.start_ns}])
    for window in (WINDOW, AFTER):
        store.replace(either, window, {"job_members": members(window, ("j", "a"), ("k", "b"))})

    def set_aside(jobs: list[str], of: pl.DataFrame) -> None:
        store.set_aside(either, WINDOW, jobs, tables=["job_members", "pairs"], results=of, reason=None)

    with pytest.raises(ContractError, match="other windows"):
        set_aside(["k"], results.with_columns(window_start_ns=AFTER.start_ns))
    assert addresses(either, WINDOW) == ["a", "b"]
    for jobs in (["k"], []):
        set_aside(jobs, results)
        assert (addresses(either, WINDOW), addresses(either, AFTER)) == (["a"], ["a", "b"])
        assert store.read(either, "validation_results", WINDOW)["expectation"].to_list() == ["pairs.kind"]
    with pytest.raises(ContractError, match="flows"):
        store.set_aside(either, WINDOW, ["j"], tables=["flows"], results=results, reason=None)


def test_queries_read_and_cannot_write(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"job_members": members(WINDOW, ("j", "a"))})
    assert store.query(either, "SELECT addr, 1 AS one FROM job_members").rows() == [("a", 1)]
    for wrong in ("SELECT nothing FROM nowhere", "SELECT addr FROM either", "SELEKT 1"):
        with pytest.raises(InputError, match="DuckDB refuses"):
            store.query(either, wrong)
    with pytest.raises(InputError, match="does not run"):
        store.query(either, "DELETE FROM job_members")
    assert addresses(either, WINDOW) == ["a"]


def test_flows_come_in_the_order_of_time_though_windows_were_landed_in_another(either: Warehouse) -> None:
    for window in (AFTER, WINDOW, BEFORE):
        shift = window.start_ns - WINDOW.start_ns
        records = [flow(second) for second in (2, 1)]
        moved = [one | {name: one[name] + shift for name in ("flow_start_ns", "flow_end_ns")} for one in records]
        store.replace(either, window, {"flows": flows(window, *moved)})
    rows = store.read(either, "flows", Window(BEFORE.start_ns, 3 * WINDOW.length_ns))
    assert rows["flow_start_ns"].is_sorted()
    assert rows["window_start_ns"].is_sorted()
    assert rows.height == 6


def test_only_the_columns_asked_for_are_read(either: Warehouse) -> None:
    store.replace(
        either, WINDOW, {"flows": flows(WINDOW, flow(1), flow(0)), "job_members": members(WINDOW, ("j", "a"))}
    )
    assert store.read(either, "flows", WINDOW, columns=["bytes", "src_addr"]).schema == {
        "bytes": pl.Int64,
        "src_addr": pl.String,
    }
    assert store.read(either, "job_members", WINDOW, columns=["addr"]).rows() == [("a",)]


def test_a_stream_of_rows_replaces_a_window_s_rows(either: Warehouse) -> None:
    rows = flows(WINDOW, flow(0), flow(1))
    for _ in range(2):
        store.replace(either, WINDOW, {}, streams={"flows": rows.to_arrow})
    assert store.read(either, "flows", WINDOW).equals(rows)


def test_addresses_are_seen_at_either_end_within_the_span(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"flows": flows(WINDOW, flow(src_addr="10.0.0.1", dst_addr="10.0.0.2"))})
    spans = [WINDOW, WINDOW, WINDOW, WINDOW.shifted(1)]
    sought = [["10.0.0.9", "10.0.0.1"], ["10.0.0.2"], ["10.0.0.9"], ["10.0.0.1"]]
    found = [landed_flows.sees(either, span, pl.Series(addrs)) for span, addrs in zip(spans, sought, strict=True)]
    assert found == [True, True, False, False]
