"""A file that cannot be read fails the landing with its name, the position, what was found and what was expected."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from flowfiles import LATENESS_NS, MINUTE_NS, WINDOW, csv_text, flow, pack, write

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.frames import schema
from llmprism_tasks.contract.tables import FLOW_COLUMNS, TABLES
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import landing

RECORDS = [flow(seconds / 100) for seconds in range(2000)]


def parquet(path: Path, *changes: pl.Expr, drop: str = "", records: list[dict[str, object]] = RECORDS) -> None:
    pl.DataFrame(records, schema=schema(FLOW_COLUMNS)).with_columns(*changes).drop(drop or []).write_parquet(path)


def truncated_parquet(path: Path) -> None:
    parquet(path)
    path.write_bytes(path.read_bytes()[:-500])


def damaged_parquet(path: Path) -> None:
    parquet(path)
    content = bytearray(path.read_bytes())
    content[4:2000] = b"\xff" * 1996
    path.write_bytes(bytes(content))


def named_in_no_encoding(path: Path) -> None:
    parquet(path)
    path.write_bytes(path.read_bytes().replace(b"dst_port", b"\x8ast_port"))


def truncated_text(path: Path) -> None:
    pack(path, csv_text(RECORDS).encode())
    path.write_bytes(path.read_bytes()[:-500])


def without_checksum(path: Path) -> None:
    path.write_bytes(gzip.compress(csv_text(RECORDS).encode())[:-4])


def header_without_bytes(path: Path) -> None:
    path.write_text(csv_text(RECORDS).replace("bytes", "octets", 1), encoding="utf-8")


def latin_1(path: Path) -> None:
    path.write_bytes(csv_text([flow(0), flow(1, switch_path="Mönch")]).encode("latin-1"))


Case = tuple[str, Callable[[Path], object], str, str]
CASES: dict[str, Case] = {
    "truncated Parquet": ("flows.parquet", truncated_parquet, "No magic bytes", "a whole parquet file"),
    "damaged Parquet": ("flows.parquet", damaged_parquet, "bytes: ", "a whole parquet file"),
    "a name that is no UTF-8": ("flows.parquet", named_in_no_encoding, "Invalid unicode", "a whole parquet file"),
    "empty Parquet": ("flows.parquet", lambda path: path.write_bytes(b""), "a file of 0 bytes", "a whole parquet file"),
    "text named Parquet": (
        "flows.parquet",
        lambda path: path.write_text("hello " * 9),
        "a file of 54 bytes",
        "parquet",
    ),
    "Parquet without a column": (
        "flows.parquet",
        lambda path: parquet(path, drop="flow_end_ns"),
        "schema: has no column flow_end_ns, only flow_start_ns",
        "the columns flow_start_ns, flow_end_ns, src_addr, dst_addr, bytes",
    ),
    "Parquet with times as text": (
        "flows.parquet",
        lambda path: parquet(path, pl.col("flow_end_ns").cast(pl.String)),
        "column flow_end_ns: is VARCHAR",
        "BIGINT (last packet, never before the first, in nanoseconds since 1970 UTC)",
    ),
    "Parquet with times as timestamps": (
        "flows.parquet",
        lambda path: parquet(path, pl.col("flow_start_ns").cast(pl.Datetime("ns"))),
        "column flow_start_ns: is TIMESTAMP",
        "BIGINT",
    ),
    "Parquet with times as fractions": (
        "flows.parquet",
        lambda path: parquet(path, pl.col("flow_start_ns").cast(pl.Float64)),
        "column flow_start_ns: is DOUBLE",
        "BIGINT",
    ),
    "Parquet with addresses as numbers": (
        "flows.parquet",
        lambda path: parquet(path, pl.lit(167_772_161).alias("src_addr")),
        "column src_addr: is INTEGER",
        "VARCHAR",
    ),
    "truncated gzip": ("flows.csv.gz", truncated_text, "after byte ", "a whole gzip file"),
    "gzip without its checksum": ("flows.csv.gz", without_checksum, "Truncated", "a whole gzip file"),
    "text named gzip": ("flows.csv.gz", lambda path: path.write_text("a,b\n"), "after byte 0", "a whole gzip file"),
    "truncated zstd": ("flows.csv.zst", truncated_text, "after byte ", "a whole zstd file"),
    "empty CSV": (
        "flows.csv",
        lambda path: path.write_bytes(b""),
        "line 1 (header): names no columns: the file is empty",
        "the columns",
    ),
    "CSV with semicolons": (
        "flows.csv",
        lambda path: path.write_text(csv_text(RECORDS).replace(",", ";")),
        "as if ';' were between the fields",
        "commas between the fields",
    ),
    "CSV with tabs": (
        "flows.csv",
        lambda path: path.write_text(csv_text(RECORDS).replace(",", "\t")),
        "were between the fields",
        "commas between the fields",
    ),
    "CSV without header": (
        "flows.csv",
        lambda path: path.write_text(csv_text(RECORDS).partition("\n")[2]),
        "line 1 (header): has no column",
        "the columns",
    ),
    "CSV without a column": ("flows.csv", header_without_bytes, "line 1 (header): has no column bytes", "the columns"),
    "CSV that names a column twice": (
        "flows.csv",
        lambda path: path.write_text(csv_text(RECORDS).replace("packets", "bytes", 1)),
        "names bytes twice",
        "each column once",
    ),
    "not UTF-8": ("flows.csv", latin_1, "line 3: text that is not UTF-8", "lines of UTF-8 text"),
    "not text": ("flows.jsonl", lambda path: path.write_bytes(bytes(range(256)) * 9), "line ", "UTF-8 text"),
}


def everything(warehouse: Warehouse) -> dict[str, list[tuple[object, ...]]]:
    found = store.read_each(warehouse, {table.name: WINDOW for table in TABLES})
    return {name: frame.rows() for name, frame in found.items()}


@pytest.mark.parametrize(("name", "make", "found", "expected"), CASES.values(), ids=CASES.keys())
def test_it_is_named_and_nothing_is_changed(
    warehouse: Warehouse, tmp_path: Path, name: str, make: Callable[[Path], object], found: str, expected: str
) -> None:
    folder = tmp_path / "flows"
    write(folder / "a-good.csv", [flow(0), flow(1, bytes=0)])
    landing.land(warehouse, WINDOW, str(folder), lateness_ns=LATENESS_NS)
    before = everything(warehouse)
    make(folder / name)
    for land in (
        lambda: landing.land(warehouse, WINDOW, str(folder), lateness_ns=LATENESS_NS),
        lambda: landing.land_all(warehouse, str(folder), length_ns=MINUTE_NS),
    ):
        with pytest.raises(InputError) as caught:
            land()
        assert caught.value.found.startswith(f"{folder / name}, ")
        assert found in caught.value.found
        assert expected in caught.value.expected
        assert "Nothing was written" in caught.value.todo
        assert everything(warehouse) == before


def test_what_is_not_there_or_of_unknown_format_is_named(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "flows.xlsx").write_bytes(b"PK")
    for name, found in (("nowhere.csv", "no file or folder"), ("flows.xlsx", "unknown format")):
        with pytest.raises(InputError, match=found) as caught:
            landing.land(warehouse, WINDOW, str(tmp_path / name), lateness_ns=LATENESS_NS)
        assert name in caught.value.found


def test_bytes_that_pandas_wrote_as_fractions_are_read_and_what_is_missing_is_quarantined(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """A column of whole numbers of which one is missing becomes one of fractions, with NaN in it."""
    path = tmp_path / "flows.parquet"
    frame = pl.DataFrame([flow(number) for number in range(3)])
    sizes = pl.Series("bytes", [float(frame["bytes"][0]), float("nan"), 1.5])
    frame.with_columns(sizes).write_parquet(path)
    landing.land(warehouse, WINDOW, str(path), lateness_ns=LATENESS_NS)
    assert store.read(warehouse, "flows", WINDOW)["bytes"].to_list() == [frame["bytes"][0]]
    assert store.read(warehouse, "flows_quarantine", WINDOW)["reason"].to_list() == ["not_a_number"] * 2


def test_a_parquet_may_lack_optional_columns_or_hold_other_whole_numbers(warehouse: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "flows.parquet"
    frame = pl.DataFrame([flow(0)]).select("flow_start_ns", "flow_end_ns", "src_addr", "dst_addr", "bytes", "src_port")
    frame.cast({"flow_start_ns": pl.UInt64, "bytes": pl.Int32, "src_port": pl.Float64}).write_parquet(path)
    landing.land(warehouse, WINDOW, str(path), lateness_ns=LATENESS_NS)
    optional = {"dst_port": None, "protocol": None, "packets": None, "switch_path": None}
    assert store.read(warehouse, "flows", WINDOW).drop("window_start_ns").to_dicts() == [flow(0) | optional]
