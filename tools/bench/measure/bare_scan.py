"""The least that any analysis does: a scan of the records and a group for each pair.

Run as `python -m bench.measure.bare_scan FILE...`.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence

import duckdb

QUERY = """
SELECT src_addr, dst_addr, count(*), sum(bytes), min(flow_start_ns), max(flow_end_ns)
FROM read_parquet($files)
GROUP BY src_addr, dst_addr
"""


def scan(files: Sequence[str]) -> dict[str, float]:
    """Run the query with DuckDB's defaults; returns what it took and how many `pairs` there were."""
    with duckdb.connect() as connection:
        wall, cpu = time.monotonic(), time.process_time()
        rows = connection.execute(QUERY, {"files": list(files)}).fetchall()
        taken = {"wall_s": time.monotonic() - wall, "cpu_s": time.process_time() - cpu, "pairs": len(rows)}
    return taken | {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(scan(sys.argv[1:])))
