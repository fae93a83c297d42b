"""Names of folders and of a file's other columns mean nothing: the same records land, whatever they are called."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from empty_warehouse import empty_warehouse
from flowfiles import LATENESS_NS, WINDOW, flow, write

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import landing

FOLDERS = "bytes=999/src_addr=10.6.6.6/switch_path=evil/malformed=true/source_position=7/file=3"
"""One in the other: a reader that takes columns from names takes them from all folders on the way."""

SOUND = [flow(0), flow(1)]
UNSOUND = [flow(0), flow(1, bytes=0), flow(2)]


def landed(folder: Path, path: Path) -> list[list[tuple[object, ...]]]:
    warehouse = empty_warehouse(folder / "warehouse.duckdb")
    landing.land(warehouse, WINDOW, str(path), lateness_ns=LATENESS_NS)
    found = store.read_each(warehouse, dict.fromkeys(("flows", "flows_quarantine"), WINDOW))
    return [found["flows"].rows(), found["flows_quarantine"].drop("source_file").rows()]


@pytest.mark.parametrize("records", [SOUND, UNSOUND], ids=["sound", "unsound"])
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".csv.gz"])
def test_a_folder_s_name_gives_no_column(tmp_path: Path, ending: str, records: list[dict[str, object]]) -> None:
    (tmp_path / "plain").mkdir()
    expected = landed(tmp_path / "plain", write(tmp_path / "plain" / f"x{ending}", records))
    assert [len(rows) for rows in expected] == ([2, 0] if records is SOUND else [2, 1])
    assert landed(tmp_path, write(tmp_path / FOLDERS / f"x{ending}", records)) == expected


@pytest.mark.parametrize("name", ["malformed", "source_position", "source", "source_record", "Bytes", "whole_record_0"])
def test_another_column_of_a_file_stands_for_none_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").mkdir()
    expected = landed(tmp_path / "plain", write(tmp_path / "plain" / "x.parquet", UNSOUND))
    path = write(tmp_path / "x.parquet", UNSOUND)
    pl.read_parquet(path).with_columns(pl.lit(5).alias(name)).write_parquet(path)
    flows, quarantined = landed(tmp_path, path)
    assert (flows, [row[:3] for row in quarantined]) == (expected[0], [row[:3] for row in expected[1]])


def test_a_name_that_the_reader_keeps_for_itself_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", UNSOUND)
    pl.read_parquet(path).with_columns(file_row_number=5).write_parquet(path)
    with pytest.raises(InputError, match="file_row_number: has a name that DuckDB keeps for itself"):
        landing.land(warehouse, WINDOW, str(path), lateness_ns=LATENESS_NS)
