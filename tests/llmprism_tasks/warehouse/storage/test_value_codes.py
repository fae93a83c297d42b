"""Flows and the timeline are stored with numbers for their texts and come back as they were; a text has one number."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import polars as pl
import pytest
from flowfiles import WINDOW, flow

from llmprism_tasks.contract import frames
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.storage import insertion, value_codes


def flows(*records: dict[str, object]) -> pl.DataFrame:
    rows = [record | {"window_start_ns": WINDOW.start_ns} for record in records]
    return pl.DataFrame(rows, schema=frames.empty("flows").schema)


def timeline(*acts: dict[str, object]) -> pl.DataFrame:
    """Return rows of the timeline, a second each, in the order of their key."""
    first = {"window_start_ns": WINDOW.start_ns, "job_id": "j", "addr": "a", "phase": "idle", "peer": None}
    first |= {"bytes": 0, "step_index": 0}
    rows = [first | {"start_ns": start, "end_ns": start + 1} | act for start, act in enumerate(acts)]
    return frames.conform(pl.DataFrame(rows, schema_overrides=frames.empty("timeline").schema), "timeline")


def names(warehouse: Warehouse) -> list[tuple[int, str]]:
    return store.query(warehouse, "FROM stored.names ORDER BY number").rows()


PATHS = [None, [], [""], ["a", "b"], ["a|b"], [None], ["a", None]]


def test_paths_come_back_whatever_is_in_them(either: Warehouse) -> None:
    rows = flows(*(flow(second, switch_path=path) for second, path in enumerate(PATHS)))
    for _ in range(2):
        store.replace(either, WINDOW, {"flows": rows})
    assert store.read(either, "flows", WINDOW).equals(rows)
    assert store.query(either, "SELECT switch_path FROM flows ORDER BY flow_start_ns")["switch_path"].to_list() == PATHS
    assert store.query(either, "SELECT count(*) FROM stored.paths").item() == len(PATHS) - 1


def test_a_text_keeps_its_number(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"flows": flows(flow(src_addr="10.0.0.9", dst_addr="10.0.0.5"))})
    before = names(either)
    assert before == [(0, ""), (1, "10.0.0.9"), (2, "10.0.0.5")]
    store.replace(either, WINDOW, {"flows": flows(flow(src_addr="10.0.0.5", dst_addr="10.0.0.1"))})
    assert names(either) == [*before, (3, "10.0.0.1")]


def test_compact_rows_are_stored_as_their_texts_are(either: Warehouse) -> None:
    rows = flows(flow(0), flow(1, switch_path=None), flow(2, switch_path=[], src_port=None))
    path = pl.col("switch_path").list.join(frames.BETWEEN_SWITCHES)
    compact = rows.with_columns(pl.col("src_addr", "dst_addr").cast(pl.Categorical), path.cast(pl.Categorical))
    assert frames.plain(compact).equals(rows)
    store.replace(either, WINDOW, {}, streams={"flows": lambda: compact})
    assert store.read(either, "flows", WINDOW).equals(rows)


def test_two_who_add_texts_at_once_give_them_different_numbers(warehouse: Warehouse) -> None:
    meet = threading.Barrier(2)
    seen: list[int] = []

    def add(text: str) -> None:
        def work(connection: duckdb.DuckDBPyConnection) -> None:
            connection.execute("FROM stored.names").fetchall()
            if len(seen) < 2:  # both have begun before either adds
                seen.append(0)
                meet.wait(20)
            insertion.insert(connection, "flows", flows(flow(src_addr=text)))

        warehouse.write(work)

    adding = [threading.Thread(target=add, args=[f"10.0.9.{number}"]) for number in range(2)]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()
    assert sorted(store.read(warehouse, "flows", WINDOW)["src_addr"]) == ["10.0.9.0", "10.0.9.1"]
    assert len({number for number, _ in names(warehouse)}) == len(names(warehouse)) == 4


ACTS = timeline({}, {"peer": "b"}, {"job_id": "k"}, {"phase": "dp_sync", "peer": "b"}, {"addr": "b", "peer": "a"}, {})


def test_who_did_what_with_whom_comes_back(either: Warehouse) -> None:
    texts = pl.col("job_id", "addr", "phase", "peer")
    for rows in (ACTS, ACTS.with_columns(texts.cast(pl.Categorical)), ACTS):
        store.replace(either, WINDOW, {"timeline": rows})
        assert store.read(either, "timeline", WINDOW).equals(ACTS)
    found = {
        place: store.query(either, f"SELECT value FROM stored.{place} ORDER BY number")["value"]
        for place in ("nics", "acts")
    }
    assert found["nics"].struct.unnest().rows() == [("", ""), ("j", "a"), ("j", "b"), ("k", "a")]
    known = [("", ""), ("dp_sync", "b"), ("idle", "a"), ("idle", "b"), ("idle", None)]
    assert found["acts"].struct.unnest().rows() == known


def test_rows_of_some_jobs_are_found_by_their_nics(either: Warehouse) -> None:
    store.replace(either, WINDOW, {"timeline": ACTS})
    assert store.read(either, "timeline", WINDOW, jobs=["k"]).equals(ACTS.filter(job_id="k"))
    store.replace(either, WINDOW, {"timeline": ACTS.filter(job_id="k")[:0]}, jobs=["k", "l"])
    assert store.read(either, "timeline", WINDOW).equals(ACTS.filter(job_id="j"))


@pytest.mark.parametrize("kind", ["{}.duckdb", "ducklake:{}.ducklake"])
def test_the_timeline_of_an_older_warehouse_keeps_its_rows_and_order(tmp_path: Path, kind: str) -> None:
    warehouse = Warehouse(kind.format(tmp_path / "old"), lock_wait_s=1)

    def fill(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute((Path(__file__).parents[1] / "schema_version_1.sql").read_text(encoding="utf-8"))
        connection.register("rows", ACTS.reverse().to_arrow())
        connection.execute("CREATE OR REPLACE TABLE timeline AS FROM rows")

    warehouse.write(fill)
    open_warehouse(Warehouse(warehouse.location, lock_wait_s=1))
    assert store.read(warehouse, "timeline", WINDOW).equals(ACTS)
    stored = store.query(warehouse, "SELECT start_ns FROM stored.timeline")["start_ns"]
    assert stored.equals(ACTS["start_ns"].reverse())


@pytest.mark.parametrize("kind", ["{}.duckdb", "ducklake:{}.ducklake"])
def test_flows_of_an_older_warehouse_keep_their_rows_and_order(tmp_path: Path, kind: str) -> None:
    warehouse = Warehouse(kind.format(tmp_path / "old"), lock_wait_s=1)
    rows = flows(
        *(flow(second, src_addr=f"10.0.1.{second % 3}", switch_path=PATHS[second % 7]) for second in range(50))
    )
    old = (Path(__file__).parents[1] / "schema_version_0.sql").read_text(encoding="utf-8")

    def fill(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(old)
        connection.execute("DELETE FROM flows")
        connection.register("rows", rows.to_arrow())
        connection.execute("INSERT INTO flows BY NAME FROM rows")

    warehouse.write(fill)
    open_warehouse(Warehouse(warehouse.location, lock_wait_s=1))
    assert store.read(warehouse, "flows", WINDOW).equals(rows)
    stored = store.query(warehouse, "SELECT flow_start_ns FROM stored.flows")["flow_start_ns"]
    assert stored.equals(rows["flow_start_ns"])


def test_only_flows_and_the_timeline_are_stored_elsewhere() -> None:
    assert (value_codes.stored("flows"), value_codes.stored("pairs")) == ('stored."flows"', '"pairs"')
