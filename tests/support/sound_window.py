"""Rows of every table for one window, as a healthy run would leave them, and ways to change them."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from llmprism_tasks import __version__
from llmprism_tasks.contract import frames
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.contract.windows import Window

WINDOW = Window(1_800_000_000_000_000_000, 60_000_000_000)
START, END = WINDOW.start_ns, WINDOW.end_ns
SUITES = tuple(table.name for table in TABLES if table.name not in ("validation_results", "notifications", "mutes"))
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
        "flow_files": [
            {"source_file": file, "size_bytes": 99, "modified_ns": 1, "digest": "d", "records": count, "copy_of": first}
            for file, count, first in (("f.csv", 5, None), ("g.csv", 0, "f.csv"))
        ],
        "flow_file_windows": [{"source_file": "f.csv", "records": 5, "digest": "d", "landed": True}],
        "windows": [
            {"window_end_ns": window.end_ns, "status": "landed", "rows_read": 5, "rows_landed": 4}
            | {"rows_quarantined": 1, "rows_duplicate": 1, "stage_ns": "{}", "software_version": __version__}
            | {"flows_digest": "4 7"}
        ],
        "minutes": [{"expected_ns": start, "expected_by": "schedule", "begun_ns": start, "runs": 0, "tries": 0}],
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


def changed(table: str, **values: object) -> Callable[[dict[str, pl.DataFrame]], pl.DataFrame]:
    """Change columns in all rows of a table; a value is an expression or a constant."""
    columns = {name: value if isinstance(value, pl.Expr) else pl.lit(value) for name, value in values.items()}
    return lambda rows: rows[table].with_columns(**columns)


def repeated(table: str, **values: object) -> Callable[[dict[str, pl.DataFrame]], pl.DataFrame]:
    """Add changed copies of a table's rows."""
    return lambda rows: pl.concat([rows[table], changed(table, **values)(rows)], how="vertical_relaxed")
