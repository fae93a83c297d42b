"""Write flow records to files of every format, for tests of the landing."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from llmprism_tasks.contract.frames import schema
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window

MINUTE_NS = 60 * NANOSECONDS_PER_SECOND
LATENESS_NS = 15 * NANOSECONDS_PER_SECOND
WINDOW = Window(1_760_000_400 * NANOSECONDS_PER_SECOND, MINUTE_NS)  # 2025-10-09 09:00
NAMES = [column.name for column in FLOW_COLUMNS]

Record = Mapping[str, object]


def flow(offset_s: float = 0.0, **changes: object) -> dict[str, object]:
    """Return a good record that starts so many seconds after WINDOW's start; None takes a field's value away."""
    start_ns = WINDOW.start_ns + round(offset_s * NANOSECONDS_PER_SECOND)
    record: dict[str, object] = {
        "flow_start_ns": start_ns,
        "flow_end_ns": start_ns + 1_000_000,
        "src_addr": "10.0.0.1",
        "dst_addr": "10.0.0.2",
        "src_port": 50_000,
        "dst_port": 4791,
        "protocol": 17,
        "bytes": 4_194_304,
        "packets": 1024,
        "switch_path": ["leaf0", "spine0", "leaf1"],
    }
    return record | changes


def write(path: Path, records: Sequence[Record]) -> Path:
    """Write records in the format that the path's endings tell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pl.DataFrame(records, schema=schema(FLOW_COLUMNS)).write_parquet(path)
    else:
        pack(path, (csv_text if ".csv" in path.suffixes else json_text)(records).encode())
    return path


def pack(path: Path, content: bytes) -> Path:
    """Write bytes, compressed as the path's last ending tells."""
    if path.suffix == ".gz":
        content = gzip.compress(content)
    elif path.suffix == ".zst":
        content = pa.Codec("zstd").compress(content, asbytes=True)
    path.write_bytes(content)
    return path


def csv_text(records: Sequence[Record], names: Sequence[str] = NAMES) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for record in records:
        fields = [record.get(name) for name in names]
        writer.writerow([json.dumps(field) if isinstance(field, list) else field for field in fields])
    return text.getvalue()


def json_text(records: Sequence[Record]) -> str:
    return "".join(json.dumps(dict(record)) + "\n" for record in records)
