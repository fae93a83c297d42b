"""What is read as sound is what staging lands, and staging is asked only where a record is refused or a type is odd."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from flowfiles import MINUTE_NS, WINDOW, flow, write
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llmprism_tasks.contract.frames import conform, plain
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources.addresses import ADDRESS
from llmprism_tasks.sources.flows import FlowFile
from llmprism_tasks.warehouse.landing import columnar
from llmprism_tasks.warehouse.landing.records import ALL_TIME, staging, staging_sql
from llmprism_tasks.warehouse.storage import flow_order

SECONDS = st.sampled_from([-70.0, -16.0, -15.0, -1.0, 0.0, 1.0, 59.0, 60.0, 74.0, 75.0])
GOOD = st.builds(
    flow,
    SECONDS,
    bytes=st.integers(1, 2),
    src_port=st.one_of(st.none(), st.integers(0, 1)),
    switch_path=st.one_of(st.none(), st.lists(st.sampled_from(["a", "b"]), max_size=2)),
)
ODD = st.sampled_from(
    [
        {"flow_start_ns": None},
        {"flow_start_ns": -1},
        {"flow_start_ns": 946_684_799_999_999_999},
        {"flow_end_ns": 7_258_118_400_000_000_000},
        {"flow_end_ns": WINDOW.start_ns - 100 * MINUTE_NS},
        {"bytes": 0},
        {"bytes": None},
        {"src_addr": "10.0.0.2"},
        {"dst_addr": "gpu-7"},
        {"dst_addr": ""},
    ]
)
RECORDS = st.one_of(
    st.lists(GOOD, max_size=8),
    st.lists(st.builds(lambda record, change: record | change, GOOD, ODD), min_size=1, max_size=2),
)


def both(
    path: Path, *, span: Window | None = None, within: Window = ALL_TIME
) -> tuple[columnar.Sound | None, dict[int, pl.DataFrame], int]:
    """Read a file as sound and as staging does; return what is found, and staging's rows and number of refused ones."""
    files = [FlowFile(str(path), "parquet", span)]
    found = columnar.read(files, length_ns=MINUTE_NS, within=within, whole=set())
    with staging(files, length_ns=MINUTE_NS, within=within, whole=set()) as staged:
        windows = [Window(start_ns, MINUTE_NS) for start_ns in sorted(staged.placed())]
        refused = sum(staged.counts(window).quarantined for window in windows)
        if found is not None:
            assert found.placed() == staged.placed()
            assert all(found.counts(window) == staged.counts(window) for window in windows)
        rows = {window.start_ns: pl.DataFrame(pl.from_arrow(staged.flows(window)().read_all())) for window in windows}
    return found, rows, refused


@given(RECORDS, st.sampled_from([None, WINDOW]), st.sampled_from([ALL_TIME, WINDOW]))
@example([flow(), flow()], None, ALL_TIME)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_it_is_what_staging_lands_where_nothing_is_refused(
    records: list[dict[str, Any]], span: Window | None, within: Window
) -> None:
    with tempfile.TemporaryDirectory() as name:
        found, rows, refused = both(write(Path(name) / "flows.parquet", records), span=span, within=within)
    if refused:
        assert found is None
    elif found is not None:
        for start_ns, expected in rows.items():
            window = Window(start_ns, MINUTE_NS)
            assert plain(found.frame(window)).equals(flow_order.in_order(conform(expected, "flows")))
            assert found.quarantine(window)().is_empty()
    else:
        assert within != ALL_TIME  # an odd record may be of another window


@pytest.mark.parametrize(
    ("change", "is_sound"),
    [
        (pl.col("src_port").cast(pl.Int64), True),
        (pl.col("bytes").cast(pl.UInt32), True),
        (pl.lit(4_294_967_296).alias("src_port"), False),
        (pl.col("packets").cast(pl.String), False),
        (pl.col("packets").cast(pl.Float64), False),
        (pl.lit("leaf0|spine0").alias("switch_path"), False),
        (pl.lit(1).alias("vlan"), True),
    ],
)
def test_of_columns_only_numbers_may_be_of_another_type(tmp_path: Path, change: pl.Expr, *, is_sound: bool) -> None:
    path = write(tmp_path / "flows.parquet", [flow(), flow(61)])
    pl.read_parquet(path).with_columns(change).write_parquet(path)
    found, rows, _ = both(path)
    assert (found is not None) == is_sound
    if found is not None:
        assert found.strangers <= {"vlan"}
        for start_ns, expected in rows.items():
            assert plain(found.frame(Window(start_ns, MINUTE_NS))).equals(conform(expected, "flows"))


def test_what_is_optional_may_be_absent(tmp_path: Path) -> None:
    path = write(tmp_path / "flows.parquet", [flow()])
    pl.read_parquet(path).drop("packets", "switch_path").write_parquet(path)
    found, rows, _ = both(path)
    assert found is not None
    assert plain(found.frame(WINDOW)).equals(conform(rows[WINDOW.start_ns], "flows"))
    pl.read_parquet(path).drop("bytes").write_parquet(path)
    assert columnar.read([FlowFile(str(path), "parquet")], length_ns=1, within=ALL_TIME) is None


@pytest.mark.parametrize("path", [["a|b"], [""], ["a", None]])
def test_switches_whose_names_cannot_be_joined_are_staged(tmp_path: Path, path: list[str | None]) -> None:
    found, rows, _ = both(write(tmp_path / "flows.parquet", [flow(), flow(1, switch_path=path)]))
    assert found is None
    assert rows[WINDOW.start_ns]["switch_path"].to_list()[1] == path


def test_files_of_many_row_groups_in_any_order_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_order, "MOST_TIED", 4)
    records = [
        flow(second % 7, src_port=None if second % 5 else second, switch_path=[None, [], ["a"], ["a", "b"]][second % 4])
        | {"src_addr": f"10.0.{second % 3}.1", "bytes": second + 1}
        for second in range(50)
    ]
    path = write(tmp_path / "flows.parquet", records)
    pl.read_parquet(path).write_parquet(path, row_group_size=9)
    found, rows, _ = both(path)
    assert found is not None
    assert plain(found.frame(WINDOW)).equals(flow_order.in_order(conform(rows[WINDOW.start_ns], "flows")))


@pytest.mark.parametrize("span", [None, WINDOW])
def test_records_of_other_windows_leave_no_gap(tmp_path: Path, span: Window | None) -> None:
    records = [
        flow(second, bytes=second + 20, src_port=None if second % 3 else 1) for second in (-9, 1, 2, 61, 62, -8, 3, 63)
    ]
    path = write(tmp_path / "flows.parquet", records)
    pl.read_parquet(path).write_parquet(path, row_group_size=3)
    found, rows, _ = both(path, span=span, within=WINDOW)
    assert found is not None
    assert found.placed() == {WINDOW.start_ns}
    assert plain(found.frame(WINDOW)).equals(conform(rows[WINDOW.start_ns], "flows"))


@pytest.mark.parametrize(("most", "is_sound"), [(3, True), (2, False)])
def test_more_than_memory_should_hold_are_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, *, is_sound: bool
) -> None:
    monkeypatch.setattr(columnar, "MOST_ROWS", most)
    found, _, _ = both(write(tmp_path / "flows.parquet", [flow(second) for second in range(3)]))
    assert (found is not None) == is_sound


def test_row_groups_that_start_elsewhere_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "flows.parquet", [flow(second) for second in (-70, -65, 0, 5, 70, 75)])
    pl.read_parquet(path).write_parquet(path, row_group_size=2)
    read: list[int] = []
    reading = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, i, **more: read.append(i) or reading(self, i, **more)
    )
    found, rows, _ = both(path, within=WINDOW)
    assert found is not None
    assert read == [1]
    assert plain(found.frame(WINDOW)).equals(conform(rows[WINDOW.start_ns], "flows"))


def test_text_and_no_file_are_not_for_it() -> None:
    assert columnar.read([FlowFile("flows.csv", "csv")], length_ns=MINUTE_NS, within=ALL_TIME) is None
    assert columnar.read([], length_ns=MINUTE_NS, within=ALL_TIME) is None


@given(st.text("019afF.:%z_x\n٣", max_size=16))
@example("10.0.0.1")
@example("fe80::1%eth0")
@example("10.0.0.1\n")
@example("10.0.0.٣")
@settings(max_examples=30)
def test_an_address_is_one_to_both(text: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(staging_sql())
        (expected,) = connection.execute("SELECT is_address(?)", [text]).fetchone() or ()
    assert pl.Series([text]).str.contains(ADDRESS).item() == expected
