"""Evidence SQL: the query on the warehouse that returns the flows behind a diagnosis.

The query is stored with the diagnosis, for an engineer to read and change: all values are written out, and the column
`of_subject` marks the subject's own flows among those of its peers.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from llmprism_tasks.contract.fault_catalogue import LINK
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.settings import Settings

Row = dict[str, Any]


@dataclass(frozen=True)
class Traffic:
    """The flows of a job by which a kind of fault is judged.

    Attributes
    ----------
    kinds : kinds of their pairs; empty for all
    past : whether flows of the look-back count, or only those between the diagnosis's `start_ns` and `end_ns`
    """

    kinds: tuple[str, ...] = ()
    past: bool = False


WORK_TRAFFIC = Traffic(("dp", "pp"))
RATE_TRAFFIC = Traffic(("dp", "pp", "ep", "cp"), past=True)

TRAFFIC: dict[str, Traffic] = {
    "slow_compute": WORK_TRAFFIC,
    "straggler": WORK_TRAFFIC,
    "pipeline_imbalance": WORK_TRAFFIC,
    "slow_nic": RATE_TRAFFIC,
    "degraded_switch": RATE_TRAFFIC,
    "degraded_link": RATE_TRAFFIC,
    "congestion": RATE_TRAFFIC,
    "link_flap": RATE_TRAFFIC,
    "switch_level": RATE_TRAFFIC,
    "slow_network": RATE_TRAFFIC,
    "latent": RATE_TRAFFIC,
    "cross_group": RATE_TRAFFIC,
    "cross_step": Traffic(("dp", "pp"), past=True),
}
"""Kinds that are missing here are judged by all traffic, look-back included; silence is one of them."""

ALL_TRAFFIC = Traffic(past=True)

ENDING_WITH_A_FLOW = ("checkpoint_stall", "stopped")
"""Kinds whose `end_ns` is the start of the flow with which the job goes on; that flow is included."""

OF_SUBJECT = {
    "addr": "addr = {subject}",
    "host": "host = {subject}",
    "pp_stage": "coalesce(pp_stage::VARCHAR = {subject}, FALSE)",
    "dp_group": "coalesce(dp_group IN (SELECT dp_group FROM members WHERE addr = {subject}), FALSE)",
}
"""Condition for the members of the job that belong to a subject of each type."""

AMONG_PEERS = {
    "addr": "addr IN (FROM peers)",
    "host": "host IN (FROM peers) OR addr IN (FROM peers)",
    "pp_stage": "pp_stage::VARCHAR IN (FROM peers)",
    "dp_group": "dp_group IN (SELECT dp_group FROM members WHERE addr IN (FROM peers))",
}
"""Condition for the members that belong to the subject's peers."""

CROSSING = {
    "switch": "list_contains(flows.switch_path, {subject})",
    "link": "abs(list_position(flows.switch_path, {one}) - list_position(flows.switch_path, {other})) = 1",
}
"""Condition for the flows that cross a subject of each type."""

PEERS = """\
peers AS (
    SELECT unnest(peers)
    FROM diagnoses
    WHERE window_start_ns = {window} AND job_id = {job}
        AND kind = {kind} AND subject_type = {subject_type} AND subject = {subject}
),

"""

OF_JOB = """\
-- {title}: its flows.
SELECT pairs.kind, flows.*
FROM flows
INNER JOIN pairs ON flows.src_addr = pairs.src_addr AND flows.dst_addr = pairs.dst_addr
WHERE pairs.window_start_ns = {window}
    AND pairs.job_id = {job}
    AND {flows}
ORDER BY flows.flow_start_ns, flows.src_addr, flows.dst_addr"""

OF_PAUSES = """\
-- {title}: its flows, and what its members write to others than any job's (kind NULL).
WITH members AS (
    SELECT job_id, addr FROM job_members WHERE window_start_ns = {window}
)

SELECT pairs.kind, flows.*
FROM flows
LEFT JOIN pairs ON flows.src_addr = pairs.src_addr AND flows.dst_addr = pairs.dst_addr
    AND pairs.window_start_ns = {window} AND pairs.job_id = {job}
WHERE (
        pairs.job_id IS NOT NULL
        OR flows.src_addr IN (SELECT addr FROM members WHERE job_id = {job})
        AND flows.dst_addr NOT IN (SELECT addr FROM members)
    )
    AND {flows}
ORDER BY flows.flow_start_ns, flows.src_addr, flows.dst_addr"""

OF_NICS = """\
-- {title}: its flows (of_subject) and those of its peers.
WITH members AS (
    SELECT * FROM job_members WHERE window_start_ns = {window} AND job_id = {job}
),

{peers}nics AS (
    SELECT addr, {of_subject} AS of_subject
    FROM members
    WHERE {of_nics}
)

SELECT
    coalesce(sender.of_subject, FALSE) OR coalesce(receiver.of_subject, FALSE) AS of_subject,
    pairs.kind,
    flows.*
FROM flows
INNER JOIN pairs ON flows.src_addr = pairs.src_addr AND flows.dst_addr = pairs.dst_addr
LEFT JOIN nics AS sender ON flows.src_addr = sender.addr
LEFT JOIN nics AS receiver ON flows.dst_addr = receiver.addr
WHERE pairs.window_start_ns = {window}
    AND pairs.job_id = {job}
    AND (sender.addr IS NOT NULL OR receiver.addr IS NOT NULL)
    AND {flows}
ORDER BY flows.flow_start_ns, flows.src_addr, flows.dst_addr"""

NICS_GONE = {
    "addr": "SELECT {subject} AS addr",
    "host": "SELECT DISTINCT addr FROM job_members WHERE window_start_ns BETWEEN {first_window} AND {window} "
    "AND host = {subject}",
}
"""The NICs of a subject that has left its job."""

OF_GONE = """\
-- {title}: its last flows (of_subject), and the job's own before and since.
WITH gone AS (
    {gone}
),

nics AS (
    SELECT addr FROM job_members WHERE window_start_ns = {window} AND job_id = {job}
    UNION
    FROM gone
)

SELECT
    flows.src_addr IN (FROM gone) OR flows.dst_addr IN (FROM gone) AS of_subject,
    flows.*
FROM flows
WHERE flows.src_addr IN (FROM nics)
    AND flows.dst_addr IN (FROM nics)
    AND {flows}
ORDER BY flows.flow_start_ns, flows.src_addr, flows.dst_addr"""

OF_PATHS = """\
-- {title}: the flows of all jobs that cross it (of_subject), and the job's others.
SELECT
    coalesce({crossing}, FALSE) AS of_subject,
    pairs.job_id,
    pairs.kind,
    flows.*
FROM flows
INNER JOIN pairs ON flows.src_addr = pairs.src_addr AND flows.dst_addr = pairs.dst_addr
WHERE pairs.window_start_ns = {window}
    AND (of_subject OR pairs.job_id = {job})
    AND {flows}
ORDER BY flows.flow_start_ns, flows.src_addr, flows.dst_addr"""


def query(found: Row, since_ns: int, window: Window, settings: Settings) -> str:
    """Return the query for the flows by which a diagnosis was judged, sorted by time.

    Parameters
    ----------
    found : a finding, a row of `evidence.FINDING_SCHEMA`
    since_ns : start of the first flow that the window's run read, look-back included

    Returns
    -------
    SQL for DuckDB and DuckLake, over `flows`, `pairs`, `job_members` and `diagnoses`
    """
    traffic = TRAFFIC.get(found["kind"], ALL_TRAFFIC)
    one, _, other = found["subject"].partition(LINK)
    values = {
        "title": _title(found),
        "window": str(window.start_ns),
        "one": _literal(one),
        "other": _literal(other),
        "flows": "\n    AND ".join(_conditions(found, traffic, since_ns, window, settings)),
    } | {name: _literal(found[name]) for name in ("job_id", "kind", "subject_type", "subject")}
    values["job"] = values["job_id"]
    subject_type = found["subject_type"]
    if subject_type == "job":
        return (OF_PAUSES if found["kind"] == "checkpoint_stall" else OF_JOB).format(**values)
    if subject_type in CROSSING:
        return OF_PATHS.format(crossing=CROSSING[subject_type].format(**values), **values)
    if found["kind"] == "stopped":
        first_ns = _first_ns(found, since_ns, window)
        first_window = str(first_ns - first_ns % window.length_ns)
        return OF_GONE.format(gone=NICS_GONE[subject_type].format(first_window=first_window, **values), **values)
    own = OF_SUBJECT[subject_type].format(**values)
    if found["peers"] is None:
        return OF_NICS.format(peers="", of_subject=own, of_nics="of_subject", **values)
    either = f"of_subject OR {AMONG_PEERS[subject_type]}"
    return OF_NICS.format(peers=PEERS.format(**values), of_subject=own, of_nics=either, **values)


def _conditions(found: Row, traffic: Traffic, since_ns: int, window: Window, settings: Settings) -> list[str]:
    first_ns = _first_ns(found, since_ns, window) if traffic.past else found["start_ns"]
    before = "<=" if found["kind"] in ENDING_WITH_A_FLOW else "<"
    conditions = [
        f"flows.window_start_ns BETWEEN {first_ns - first_ns % window.length_ns} AND {window.start_ns}",
        f"flows.flow_start_ns >= {first_ns}",
        f"flows.flow_start_ns {before} {found['end_ns']}",
        f"flows.bytes > {settings.traffic.control_bytes}",
    ]
    if traffic.kinds:
        conditions.append(f"pairs.kind IN ({', '.join(map(_literal, traffic.kinds))})")
    return conditions


def _first_ns(found: Row, since_ns: int, window: Window) -> int:
    """Return the start of the flows that show a fault, ns.

    If the fault was over when the job's present run began, that is one window before the fault.
    """
    return since_ns if since_ns <= found["start_ns"] else found["start_ns"] - window.length_ns


def _title(found: Row) -> str:
    start, end = (
        dt.datetime.fromtimestamp(found[name] / NANOSECONDS_PER_SECOND, tz=dt.UTC) for name in ("start_ns", "end_ns")
    )
    who = " ".join(f"{found['subject_type']} {found['subject']}".split())
    return f"{found['kind']} of {who}, {start:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S} UTC"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
