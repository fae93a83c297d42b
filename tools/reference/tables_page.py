"""The page of tables: each table and view with what a row is, its key, its columns with their units, and a query."""

from __future__ import annotations

import re
import tempfile

from llmprism_tasks.contract.columns import Table
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.sql_files import texts

HEAD = """# Tables and views

Made by `make reference` from `llmprism_tasks/contract/tables.py` and `sql/`. Run queries with `llmprism sql QUERY`.

Times end in `_ns`: nanoseconds since 1970, UTC; intervals are half-open, `[start, end)`. Durations end in `_ns` or
`_s`. Sizes are bytes, costs (`_gpu_s`) GPU-seconds, shares (`_ratio`) 0 to 1. A table's rows belong to the window in
`window_start_ns`, and a run of the window replaces them. `NULL` means not known, or what the column says.
"""

EXAMPLES = {
    "flows": "SELECT src_addr, sum(bytes) AS bytes FROM flows GROUP BY ALL ORDER BY bytes DESC LIMIT 10",
    "flows_quarantine": "SELECT reason, count(*) AS records FROM flows_quarantine GROUP BY ALL ORDER BY records DESC",
    "windows": "SELECT window_start_ns, status, reason FROM windows WHERE status <> 'done'",
    "validation_results": "SELECT expectation, unexpected_count, observed FROM validation_results WHERE NOT success",
    "jobs": "SELECT job_id, endpoints, tp, pp, dp, confidence FROM jobs ORDER BY window_start_ns DESC LIMIT 10",
    "job_members": "SELECT addr, host, pp_stage, dp_group FROM job_members WHERE job_id = 'JOB'",
    "pair_steps": "SELECT src_addr, dst_addr, avg(bytes) AS bytes FROM pair_steps GROUP BY ALL",
    "pairs": "SELECT kind, count(*) AS pairs, sum(bytes) AS bytes FROM pairs GROUP BY kind",
    "steps": "SELECT step_index, (end_ns - start_ns) / 1e9 AS s FROM steps WHERE job_id = 'JOB' AND addr IS NULL",
    "timeline": "SELECT phase, sum(end_ns - start_ns) / 1e9 AS s FROM timeline WHERE addr = 'ADDR' GROUP BY phase",
    "step_breakdown": "SELECT addr, avg(compute_ns) / 1e9 AS s FROM step_breakdown GROUP BY addr ORDER BY s DESC",
    "diagnoses": "SELECT kind, subject, severity, explanation FROM diagnoses WHERE rank = 1 ORDER BY lost_gpu_s DESC",
    "notifications": "SELECT change, outcome, detail FROM notifications ORDER BY told_ns DESC LIMIT 10",
    "aside_jobs": "SELECT window_start, job_id, expectations FROM aside_jobs",
    "incidents": "SELECT state, kind, subject, started, lost_gpu_s FROM incidents ORDER BY lost_gpu_s DESC",
    "job_health_by_minute": "SELECT window_start, median_step_s FROM job_health_by_minute WHERE job_id = 'JOB'",
    "step_split_by_job": "SELECT window_start, compute_ratio, waiting_ratio, most_waited_for FROM step_split_by_job",
    "step_times_by_job": "SELECT step_start, duration_s FROM step_times_by_job ORDER BY duration_s DESC LIMIT 10",
    "slowest_subjects": "SELECT subject, kinds, windows_diagnosed, lost_gpu_s FROM slowest_subjects LIMIT 10",
}
"""A question for each table or view; of the others, the first rows."""

COMMENT = re.compile(r"^-- ?", re.MULTILINE)


def page() -> str:
    """Return the page."""
    with tempfile.TemporaryDirectory() as folder:
        empty = open_warehouse(Warehouse(f"{folder}/empty.duckdb", lock_wait_s=1))
        views = [_view(name, text, empty) for name, text in sorted(texts("views").items())]
    return "\n".join([HEAD, "## Tables", "", *map(_table, TABLES), "## Views", "", *views])


def example(name: str) -> str:
    """Return the example query of a table or view."""
    return EXAMPLES.get(name, f"SELECT * FROM {name} LIMIT 10")


def _table(table: Table) -> str:
    columns = [
        f"| `{one.name}` | {one.type}{', may be NULL' * one.optional} | {one.meaning} |" for one in table.columns
    ]
    key = ", ".join(f"`{name}`" for name in table.key)
    meaning = table.meaning[0].upper() + table.meaning[1:]
    head = [
        f"### {table.name}",
        "",
        f"{meaning}. Key: {key}.",
        "",
        "| column | type | meaning |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*head, *columns, "", *_query(table.name)])


def _view(name: str, text: str, empty: Warehouse) -> str:
    header = text.partition("CREATE ")[0].strip()
    described = store.query(empty, f"DESCRIBE {name}").select("column_name", "column_type").rows()
    columns = ", ".join(f"`{column}` {kind}" for column, kind in described)
    return "\n".join([f"### {name}", "", COMMENT.sub("", header), "", f"Columns: {columns}.", "", *_query(name)])


def _query(name: str) -> list[str]:
    return ["```sql", example(name), "```", ""]
