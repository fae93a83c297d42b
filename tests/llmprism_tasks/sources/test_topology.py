"""The NIC table is read whole or refused with the file, the row, what was found and what was expected."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.sources.topology import SCHEMA, read_topology

GOOD = "addr,host,gpu,leaf_switch,pod\n10.0.0.2,h1,1,leaf0,p\n10.0.0.1,h1,0,leaf0,p\n"


def csv(folder: Path, text: str) -> str:
    path = folder / "topology.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_rows_come_sorted_with_the_contracts_types(tmp_path: Path) -> None:
    frame = read_topology(csv(tmp_path, GOOD))
    assert frame.schema == SCHEMA
    assert frame.rows() == [("10.0.0.1", "h1", 0, "leaf0", "p"), ("10.0.0.2", "h1", 1, "leaf0", "p")]


def test_csv_and_parquet_give_the_same_rows(tmp_path: Path) -> None:
    expected = read_topology(csv(tmp_path, GOOD))
    path = tmp_path / "topology.parquet"
    expected.with_columns(rack=pl.lit("r")).write_parquet(path)
    assert read_topology(str(path)).equals(expected)


def test_optional_columns_may_be_missing_or_empty(tmp_path: Path) -> None:
    assert read_topology(csv(tmp_path, "host,addr\nh1,10.0.0.1\n")).rows() == [("10.0.0.1", "h1", None, None, None)]
    assert read_topology(csv(tmp_path, "addr,host,gpu\n10.0.0.1,h1,\n"))["gpu"].to_list() == [None]


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    assert read_topology(csv(tmp_path, "addr,host\n")).height == 0


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("", "cannot be read", "CSV or Parquet"),
        ("addr,gpu\n10.0.0.1,0\n", "no column host, only addr, gpu", "addr, host"),
        ("addr,host\n10.0.0.1,h1\n,h1\n", "row 2: addr=", "addr and host in every row"),
        ("addr,host,gpu\n10.0.0.1,h1,first\n", "row 1: addr=10.0.0.1", "whole-numbered"),
        ("addr,host\n10.0.0.1,h1\n10.0.0.1,h2\n", "row 2: addr=10.0.0.1", "each addr once"),
        ("addr,host\n10.0.0.1,h1,surplus\n", "cannot be read", "CSV or Parquet"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_row(tmp_path: Path, text: str, found: str, expected: str) -> None:
    path = csv(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_topology(path)
    assert path in caught.value.found
    assert found in caught.value.found
    assert expected in caught.value.expected


def test_a_truncated_parquet_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "topology.parquet"
    read_topology(csv(tmp_path, GOOD)).write_parquet(path)
    path.write_bytes(path.read_bytes()[:100])
    for name in (path, tmp_path / "nowhere.csv"):
        with pytest.raises(InputError, match=name.name):
            read_topology(str(name))


def test_control_characters_are_removed_from_names_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = csv(
        tmp_path, "addr,host,gpu,leaf_switch,pod\n10.0.0.1,h\x1b[31m1,0,l\u202eeaf\x9b0,p\x07\n10.0.0.2,h2,1,leaf1,q\n"
    )
    for _ in range(2):
        assert read_topology(path).rows() == [
            ("10.0.0.1", "h[31m1", 0, "leaf0", "p"),
            ("10.0.0.2", "h2", 1, "leaf1", "q"),
        ]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: removed control characters from names in host, leaf_switch, pod"
    ]


@pytest.mark.parametrize("twin", ["h\x1b1", "h\u200e1"])
def test_names_that_differ_in_control_characters_alone_are_refused(tmp_path: Path, twin: str) -> None:
    path = csv(tmp_path, f"addr,host\n10.0.0.1,h1\n10.0.0.2,{twin}\n10.0.0.3,h1\n")
    with pytest.raises(InputError, match=r"row 2: .*names that differ in more than control characters"):
        read_topology(path)
