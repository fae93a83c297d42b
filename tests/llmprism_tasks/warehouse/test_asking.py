"""Queries of pages are bounded in time: a run that wants to write gets its turn."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse

from llmprism_tasks.contract.errors import QueryTooLong
from llmprism_tasks.warehouse.asking import QUERY_TRIES, asking
from llmprism_tasks.warehouse.connect import Warehouse

ENDLESS = (
    "SELECT count(*) AS flow_start_ns, 0 AS flow_end_ns FROM range(10000000000) AS a (n), range(1000) AS b (m) "
    "WHERE (n * m) % 7 = 3"
)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return empty_warehouse(tmp_path / "w.duckdb", lock_wait_s=10)


def test_a_query_that_takes_too_long_is_interrupted_and_told(warehouse: Warehouse) -> None:
    began = time.monotonic()
    told = rf"longer than 0\.1 s, {QUERY_TRIES} times"
    with asking(warehouse, longest_s=0.1) as ask, pytest.raises(QueryTooLong, match=told):
        ask.of_text(ENDLESS, since_ns=0, most=1)
    assert time.monotonic() - began < QUERY_TRIES * 3


def test_between_queries_of_a_page_a_run_can_write(warehouse: Warehouse) -> None:
    waited: list[float] = []

    def write() -> None:
        began = time.monotonic()
        warehouse.write(lambda connection: connection.execute("DELETE FROM mutes"))
        waited.append(time.monotonic() - began)

    with asking(warehouse, longest_s=0.2) as ask:
        ask("span")
        writer = threading.Thread(target=write)
        writer.start()
        until = time.monotonic() + 8
        while not waited and time.monotonic() < until:  # a page with very many queries
            ask("span")
        writer.join()
    assert waited[0] < 8


def test_how_long_each_query_took_is_kept(warehouse: Warehouse) -> None:
    with asking(warehouse, longest_s=5) as ask:
        assert set(ask("span").row(0)) == {None}
    assert set(ask.took_s) == {"span"}
