"""Two windows of one job with all that pages show: two pipeline stages on six hosts of two NICs, one host slow in the
second window. Every name can be another one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from small_windows import FIRST, SECOND, bookkept, frame

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.storage import incidents
from llmprism_tasks.warehouse.store import replace

Row = dict[str, Any]

WINDOWS = (FIRST, FIRST.shifted(1))
STEPS, STEP_NS, SLOW_NS = 5, 10 * SECOND, 3 * SECOND
HOSTS, NICS = 6, 2
HOSTILE = (
    '"><script>alert(1)</script><img src=x onerror=alert(1)><a href="javascript:alert(1)">'
    "'{{1237*1237}}\x00\x1b[31m\u202e"
)
"""A name that runs a script, calls a template, ends a text or turns it around, where it is not shown as a text."""


@dataclass(frozen=True)
class Names:
    """The job, the second host (the slow one), its first NIC, the words of others, and what cannot be told apart."""

    job: str = "gpt"
    host: str = "node-1"
    addr: str = "10.0.1.0"
    words: str = "It computes 1.5 times as long as its peers."
    candidates: list[str] | None = None

    def host_of(self, number: int) -> str:
        return self.host if number == 1 else f"node-{number}"

    def addr_of(self, host: int, nic: int) -> str:
        return self.addr if (host, nic) == (1, 0) else f"10.0.{host}.{nic}"


def write_windows(warehouse: Warehouse, names: Names | None = None) -> Names:
    """Write both windows; of the two, only the second has the slow host and its diagnosis."""
    names = names or Names()
    for number, window in enumerate(WINDOWS):
        tables = rows(window, names, slow=number == 1)
        frames = {table: frame(table, window, some) for table, some in tables.items()}
        replace(warehouse, window, frames, then=incidents.renew)
    return names


def rows(window: Window, names: Names, *, slow: bool) -> dict[str, list[Row]]:
    job = {"job_id": names.job}
    nics = [(host, nic) for host in range(HOSTS) for nic in range(NICS)]
    found: dict[str, list[Row]] = {"steps": [], "step_breakdown": [], "timeline": [], "flows": [], "pairs": []}
    for step in range(STEPS):
        start = window.start_ns + step * STEP_NS
        own = job | {"step_index": step, "start_ns": start, "end_ns": start + STEP_NS}
        found["steps"].append(own | {"addr": None})
        for host, nic in nics:
            late = SLOW_NS if slow and host == 1 else 0
            addr, peer = names.addr_of(host, nic), names.addr_of((host + 2) % HOSTS, nic)
            found["steps"].append(own | {"addr": addr})
            parts = {"compute_ns": 6 * SECOND + late, "communication_ns": SECOND, "bubble_ns": 0}
            waited = {"waiting_ns": 3 * SECOND - late, "waiting_for": names.addr, "unexplained_ns": 0}
            found["step_breakdown"].append(
                job | {"addr": addr, "step_index": step, "step_ns": STEP_NS} | parts | waited
            )
            sent = start + 6 * SECOND + late
            found["timeline"] += [
                job | {"addr": addr, "step_index": step, "peer": other, "phase": phase, "bytes": size}
                | {"start_ns": begin, "end_ns": end}
                for phase, begin, end, other, size in (
                    ("compute", start, sent, None, 0),
                    ("dp_sync", sent, start + STEP_NS, peer, 1_000_000),
                )
            ]  # fmt: skip
            found["flows"].append(
                {"flow_start_ns": sent, "flow_end_ns": start + STEP_NS - 1, "src_addr": addr, "dst_addr": peer}
                | {"src_port": 1000 + nic, "dst_port": 4791, "bytes": 1_000_000, "switch_path": [names.host]}
            )
    found["pairs"] = [
        job | {"src_addr": names.addr_of(host, nic), "dst_addr": names.addr_of((host + 2) % HOSTS, nic), "kind": "dp"}
        | {"flows": STEPS, "bytes": 5_000_000, "distinct_sizes": 1, "confidence": 0.9}
        for host, nic in nics
    ]  # fmt: skip
    layout = {"tp": 2, "pp": 2, "dp": 3, "period_ns": STEP_NS, "unlisted": [names.addr] if slow else None}
    found["jobs"] = [job | {"kind": "training", "endpoints": len(nics), "hosts": HOSTS, "confidence": 0.97} | layout]
    found["job_members"] = [
        job | {"addr": names.addr_of(host, nic), "host": names.host_of(host), "pp_stage": host % 2, "dp_group": nic}
        for host, nic in nics
    ]
    found["diagnoses"] = [diagnosis(window, names)] if slow else []
    found["windows"] = [bookkept(window, reason=names.words, rows_read=1_002, rows_quarantined=2, rows_duplicate=1)]
    found["flows_quarantine"] = [
        {"reason": "no_bytes", "source_file": names.host, "source_position": place, "record": names.words}
        for place in (1, 2)
    ]
    found["validation_results"] = [broken(names)]
    return found


def diagnosis(window: Window, names: Names) -> Row:
    return {
        "job_id": names.job, "kind": "slow_compute", "subject_type": "host", "subject": names.host,
        "start_ns": window.start_ns, "end_ns": window.end_ns, "score": 12.0, "severity": 0.5,
        "explanation": names.words, "confidence": 0.9, "rank": 1, "lost_gpu_s": 120.0, "recoverable_gpu_s": 100.0,
        "peers": [names.addr, "10.0.3.0"], "candidates": names.candidates, "odds": names.candidates and [0.7, 0.3],
        "evidence_sql": "SELECT flow_start_ns, flow_end_ns, src_addr, dst_addr, bytes, switch_path FROM flows "
        f"WHERE window_start_ns = {window.start_ns} ORDER BY flow_start_ns, src_addr",
    }  # fmt: skip


def broken(names: Names) -> Row:
    observed = {"observed_value": names.words, "rows": [{"job_id": names.job, names.words: names.host}]}
    return {
        "expectation": f"pairs.{names.words}", "column": names.words, "severity": "warning", "success": False,
        "observed": json.dumps(observed), "unexpected_count": 1,
    }  # fmt: skip
