"""The Grafana dashboard: panels over the queries of sql/dashboards, for the DuckDB data source on a read copy."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from llmprism_tasks.warehouse.sql_files import texts

SOURCE = {"type": "motherduck-duckdb-datasource", "uid": "${source}"}

GRAFANAS = {
    "$from_ns": "${__from}::BIGINT * 1000000",
    "$to_ns": "${__to}::BIGINT * 1000000",
    "$job_id": "${job_id:sqlstring}",
}
"""What Grafana calls the parameters of the queries: its times are milliseconds, and several jobs may be chosen."""

COLUMNS = 24


class Panel(NamedTuple):
    """A panel: its query in sql/dashboards, how it is drawn, its unit, and its size in Grafana's grid."""

    title: str
    query: str
    kind: str
    unit: str
    width: int
    height: int
    stacked: bool = False


PANELS = (
    Panel("Incidents", "incidents", "table", "short", 24, 8),
    Panel("Lag and stopped windows", "lag", "stat", "short", 6, 5),
    Panel("Jobs", "jobs", "table", "short", 18, 5),
    Panel("Step time", "step_times", "timeseries", "s", 12, 8),
    Panel("Where the time goes", "time_split", "timeseries", "percentunit", 12, 8, stacked=True),
    Panel("GPU-seconds lost in each window", "lost_time", "timeseries", "s", 12, 8, stacked=True),
    Panel("Places by what their faults cost", "worst_places", "table", "short", 12, 8),
    Panel("Records and run time of each window", "windows", "timeseries", "short", 24, 7),
)


def dashboard() -> str:
    """Return the dashboard, to be imported in Grafana."""
    return json.dumps(
        {
            "title": "llmprism",
            "uid": "llmprism",
            "tags": ["llmprism"],
            "schemaVersion": 41,
            "editable": True,
            "refresh": "1m",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "utc",
            "templating": {"list": [_sources(), _jobs()]},
            "panels": _panels(),
        },
        indent=2,
    )


def _sources() -> dict[str, Any]:
    return {"name": "source", "label": "Read copy", "type": "datasource", "query": SOURCE["type"]}


def _jobs() -> dict[str, Any]:
    return {
        "name": "job_id",
        "label": "Jobs",
        "type": "query",
        "datasource": SOURCE,
        "query": query("job_names"),
        "refresh": 2,  # when the time range changes
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> list[dict[str, Any]]:
    """Lay the panels out from left to right, in rows."""
    laid, x, y, deepest = [], 0, 0, 0
    for number, panel in enumerate(PANELS, 1):
        if x + panel.width > COLUMNS:
            x, y, deepest = 0, y + deepest, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        laid.append(_panel(number, panel, place))
        x, deepest = x + panel.width, max(deepest, panel.height)
    return laid


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    drawn = {"stacking": {"mode": "normal"}, "fillOpacity": 60} if panel.stacked else {}
    target = {
        "refId": "A",
        "datasource": SOURCE,
        "editorMode": "code",
        "rawQuery": True,
        "format": "time_series" if panel.kind == "timeseries" else "table",
        "rawSql": query(panel.query),
    }
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "gridPos": place,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": drawn}, "overrides": []},
        "targets": [target],
    }


def query(name: str) -> str:
    """Return a query with Grafana's variables in the place of its parameters."""
    text = texts("dashboards")[name].strip().removesuffix(";")
    return re.sub(r"\$\w+", lambda parameter: GRAFANAS[parameter[0]], text)
