"""Metrics: how jobs and the pipeline are, in Prometheus' text format, as of the latest finished window.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import statement
from llmprism_tasks.warehouse.store import frame

MOST_INCIDENTS = 500
"""Open incidents that are told, so that a broken fabric does not flood a time-series database."""


class Gauge(NamedTuple):
    """A gauge: its name after `llmprism_`, the column with its values, its help, and a label that it adds."""

    name: str
    column: str
    help: str
    label: tuple[str, str] | None = None


PARTS = ("compute", "communication", "bubble", "waiting", "unexplained")

WINDOW_GAUGES = (
    Gauge("latest_window_end_timestamp_seconds", "end_s", "End of the latest finished window; time() minus it is lag"),
    Gauge("latest_window_landed_records", "landed", "Flow records accepted in the latest finished window"),
    Gauge("latest_window_quarantined_records", "quarantined", "Flow records refused in the latest finished window"),
    Gauge("latest_window_stages_seconds", "stages_s", "Run time of all stages of the latest finished window"),
    Gauge("stopped_windows", "stopped", "Windows in the warehouse that a critical check stopped"),
)
JOB_GAUGES = (
    Gauge("job_gpus", "endpoints", "GPUs of the job"),
    Gauge("job_steps", "steps", "Steps of the job that ended in the window"),
    Gauge("job_step_median_seconds", "median_step_s", "Median duration of the job's steps in the window"),
    Gauge("job_step_longest_seconds", "longest_step_s", "Longest duration of the job's steps in the window"),
    Gauge("job_confidence_ratio", "confidence", "Confidence that job and layout were recognised rightly, 0 to 1"),
    Gauge("job_worst_severity_ratio", "worst_severity", "Time lost by the worst fault of the job in the window"),
    Gauge("job_lost_gpu_seconds", "lost_gpu_s", "GPU-seconds that the job lost in the window"),
    *(
        Gauge("job_time_ratio", f"{part}_ratio", "Share of the job's step time in the window, by part", ("part", part))
        for part in PARTS
    ),
)
INCIDENT_GAUGES = (
    Gauge("incident_severity_ratio", "peak_severity", "Time lost in the worst window of an open incident: 0.3 is 30 %"),
    Gauge("incident_lost_gpu_seconds", "lost_gpu_s", "GPU-seconds lost to an open incident so far"),
    Gauge("incident_start_timestamp_seconds", "start_s", "Begin of an open incident"),
    Gauge("incident_last_seen_timestamp_seconds", "last_seen_s", "When an open incident was last seen"),
)


def exposition(warehouse: Warehouse, *, now_ns: int) -> str:
    """Return the metrics of a warehouse as text; a gauge without a value has no line.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch, at which mutes are looked at
    """
    with warehouse.reading() as connection:

        def rows(of: str, **values: object) -> pl.DataFrame:
            return frame(connection.execute(statement(f"metrics_of_{of}"), values))

        windows = rows("windows")
        jobs = rows("jobs", window_start_ns=windows["window_start_ns"][0])  # a subquery would read all windows
        incidents = rows("incidents", now_ns=now_ns, most=MOST_INCIDENTS)
    open_now = pl.DataFrame({"open": incidents.height})
    lines = [
        *_lines(WINDOW_GAUGES, windows, ()),
        *_lines(JOB_GAUGES, jobs, ("job_id",)),
        *_lines((Gauge("open_incidents", "open", "Open incidents, but for effects of others"),), open_now, ()),
        *_lines(
            INCIDENT_GAUGES, incidents, ("incident_id", "kind", "job_id", "subject_type", "subject", "host", "muted")
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def _lines(gauges: tuple[Gauge, ...], rows: pl.DataFrame, labels: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of gauges; those of one name follow each other, after its help and type."""
    told = ""
    for gauge in gauges:
        name = f"llmprism_{gauge.name}"
        if name != told:
            yield f"# HELP {name} {gauge.help}."
            yield f"# TYPE {name} gauge"
            told = name
        for row in rows.iter_rows(named=True):
            if row[gauge.column] is not None:
                pairs = [*((label, str(row[label])) for label in labels), *([gauge.label] if gauge.label else [])]
                yield f"{name}{_braced(pairs)} {_number(row[gauge.column])}"


def _braced(pairs: list[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf"
