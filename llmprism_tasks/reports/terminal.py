"""Terminal report: incidents for the engineer on call, the worst first; then the jobs; then what was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from llmprism_tasks.contract.fault_catalogue import KINDS, is_silent
from llmprism_tasks.reports import minute_states
from llmprism_tasks.reports.minute_states import Coverage
from llmprism_tasks.reports.missing_nics import unlisted_warning

Row = dict[str, Any]

WIDTH = 100

SUBJECTS = {
    "addr": "GPU {subject}",
    "host": "Host {subject}",
    "switch": "Switch {subject}",
    "link": "Link {subject}",
    "dp_group": "Data-parallel group {subject}",
    "pp_stage": "Pipeline stage {subject}",
    "job": "Job {subject}",
}

MOST_ROWS = 12
"""Incidents and set-aside jobs shown. More than these have one cause that the report cannot name, or a program reads
the JSON."""

UNDER_WAY = 3
"""Windows that may be under way while all is well: so many runs of live minutes work side by side."""

WHERE_WIDTH = 18
"""Columns needed for a range of hosts: `node0008-node0011`."""

EVIDENCE_EXPIRED = (
    "-- The flows behind this incident have expired (retention.flows_h); the query returns none of them.\n"
)

WITHHELD = (
    "Their results failed these critical checks and were withheld. Other jobs are unaffected. "
    "This is a bug in llmprism: please report it, with SELECT * FROM validation_results WHERE NOT success. "
    "When it is fixed, run these windows again."
)
"""Text about jobs that were set aside."""

COLUMNS = (
    "median, 95 %: half of the steps, and 95 of 100, take no longer. sure: how likely it is that the row is right."
)
"""Text below the table of jobs."""

LIST_BROKEN = (
    'To list them: llmprism sql "SELECT expectation, severity, count(*) AS windows, sum(unexpected_count) AS rows '
    'FROM validation_results WHERE NOT success GROUP BY ALL" with the --warehouse of this report. '
    "The notes in expectations/ say why each should hold, and what to do if it does not."
)


def render(summary: Row) -> RenderableType:
    """Return a report of a `summarise` value, at most 100 columns wide; it can be understood without colours."""
    if summary["span"] is None:
        return _wide(
            Text("The warehouse is empty: no window was landed. Next: llmprism analyze --flows … --topology …")
        )
    parts: list[RenderableType] = [_heading(summary), Text(), _verdict(summary)]
    incidents = summary["incidents"]
    parts += _missing(Coverage(**summary["coverage"]), priced=bool(incidents))
    parts += [*_set_aside(summary["set_aside"]), *_unlisted(summary["jobs"])]
    for number, incident in enumerate(incidents[:MOST_ROWS], 1):
        parts += [Text(), _incident(number, incident)]
    if len(incidents) > MOST_ROWS:
        parts += [
            Text(),
            Text(f"And {len(incidents) - MOST_ROWS:,} lesser incidents: llmprism report --format json lists all."),
        ]
    if summary["jobs"]:
        parts += [Text(), _jobs(summary["jobs"]), Text(COLUMNS, "dim")]
    return _wide(Group(*parts, Text(), *_windows(summary["windows"])))


def proofs(summary: Row) -> str:
    """Return the queries for the flows behind the incidents shown, in the report's order, as SQL."""
    shown = [one for one in summary["incidents"][:MOST_ROWS] if one["evidence_sql"] is not None]
    return "\n\n".join(f"{EVIDENCE_EXPIRED if one['evidence_expired'] else ''}{one['evidence_sql']};" for one in shown)


def _wide(renderable: RenderableType) -> RenderableType:
    return Constrain(renderable, WIDTH)


def _heading(summary: Row) -> Text:
    start, end = summary["span"]["start"], summary["span"]["end"]
    until = end[11:16] if start[:10] == end[:10] else f"{end[:10]} {end[11:16]}"
    gpus = sum(job["endpoints"] for job in summary["jobs"])
    when = f"{start[:10]} {start[11:16]} to {until} UTC"
    what = f"{count(len(summary['jobs']), 'job')} on {count(gpus, 'GPU')}" if summary["jobs"] else "no jobs"
    return Text.assemble(("llmprism", "bold"), f"  {when}, {what}")


def _verdict(summary: Row) -> Text:
    incidents, windows = summary["incidents"], summary["windows"]
    done, stopped, seen = windows["status"].get("done", 0), windows["status"].get("stopped", 0), windows["looked_at"]
    if incidents:
        still = sum(incident["state"] == "open" for incident in incidents)
        if len(incidents) == 1:
            return Text(f"1 incident, {'open' if still else 'closed'}.", "bold")
        return Text(f"{count(len(incidents), 'incident')}, {still:,} of them open.", "bold")
    if not seen:
        why = "no record was landed for a window that was run to its end" if done else "no window was run to its end"
        return Text(f"Nothing could be diagnosed: {why}.", "bold")
    if not summary["jobs"] and not summary["set_aside"]:
        none = f"No job was seen in {count(seen, 'window')}, so there was nothing to diagnose."
        return Text(f"{none} If jobs are running, check that the topology has the addresses of the flows.", "bold")
    found = f"no fault was found in {count(seen, 'window')}"
    rest = [f"{count(stopped, 'window')} could not be checked"] if stopped else []
    unfinished = windows["all"] - done - stopped
    if unfinished > min(UNDER_WAY, done):
        rest.append(f"{count(unfinished, 'window')} are not run to the end")
    if done > seen:
        rest.append(f"{count(done - seen, 'window')} had no records")
    if windows["doubtful"]:
        rest.append(
            f"many records of {count(windows['doubtful'], 'window')} were refused or came twice, which may hide faults"
        )
    if summary["set_aside"] or any(
        job["unlisted"] or (job["kind"] == "training" and not job["steps"]) for job in summary["jobs"]
    ):
        rest.append("some jobs could not be checked completely")
    return Text(
        f"{found.capitalize()}; {', '.join(rest)}." if rest else f"Nothing is wrong: {found}.",
        "bold" if rest else "bold green",
    )


def _incident(number: int, incident: Row) -> RenderableType:
    """Lay out an incident: its number and, beside it, headline and loss, time, explanation, effects and advice."""
    lines: list[RenderableType] = [
        Text.assemble((headline(incident), "bold"), (f": {loss(incident)}", "bold red")),
        Text(_when(incident), "dim"),
        Text(incident["explanation"]),
    ]
    lines += [_label("Also", f"{headline(also)}: {loss(also)}.") for also in incident["also"]]
    if incident["next"] is not None:
        lines.append(_label("Next", incident["next"]))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", width=3)
    grid.add_column(ratio=1)
    grid.add_row(Text(str(number), "bold"), Group(*lines))
    return grid


def _label(label: str, text: str) -> Text:
    return Text.assemble((f"{label}: ", "bold"), text)


def headline(incident: Row) -> str:
    """Return who an incident is about and what is wrong, such as `Host node0006 computes slowly`."""
    subject = SUBJECTS.get(incident["subject_type"], "{subject_type} {subject}").format(**incident)
    where = f" on {incident['host']}" if incident["subject_type"] == "addr" and incident["host"] else ""
    kind = KINDS.get(incident["kind"])
    words = (
        incident["kind"].replace("_", " ")
        if kind is None
        else kind.phrase_for(incident["subject_type"], went_on=incident["went_on"])
    )
    return f"{subject}{where} {words}"


def loss(incident: Row) -> str:
    """Return how much slower an incident makes its job, and what it costs."""
    severity, lost = incident["peak_severity"], incident["lost_gpu_s"]
    worst = " in the worst window" if incident["windows"] > 1 else ""
    slow = "the loss is unknown" if severity is None else f"steps {1 + severity:.2f} times as long{worst}"
    if is_silent(incident["kind"]):
        slow = "no step ended during it" if incident["went_on"] else "no step ends"
    if lost is None:
        return slow
    if is_silent(incident["kind"]):
        return f"{slow}, {cost(lost)} lost"
    back = "" if incident["recoverable_gpu_s"] is None else f", {cost(incident['recoverable_gpu_s'])} of it recoverable"
    return f"{slow}, {cost(lost)} lost{back}"


def cost(gpu_s: float) -> str:
    """Return GPU-seconds as text, in hours from one hour on."""
    return f"{gpu_s:,.0f} GPU-seconds" if gpu_s < 3600 else f"{gpu_s / 3600:,.1f} GPU-hours"


def _when(incident: Row) -> str:
    first, last = incident["started"], incident["last_seen"]
    day = "" if first[:10] == last[:10] else f"{last[:10]} "
    still = "still at" if incident["state"] == "open" and not incident["went_on"] else "until"
    quiet = ""
    if still == "still at" and not incident["seen_last"]:
        still, quiet = "last seen at", ", not in the latest window, so it may be over"
    jobs = f"Job{'' if len(incident['jobs']) == 1 else 's'} {', '.join(incident['jobs'])}"
    of_what = "sure" if is_silent(incident["kind"]) else "of the loss explained"
    sure = "" if incident["confidence"] is None else f", {incident['confidence']:.0%} {of_what}"
    when = f"since {first[:10]} {first[11:19]}, {still} {day}{last[11:19]} UTC{quiet}"
    return f"{jobs}, {when}; in {count(incident['windows'], 'window')}{sure}; {incident['incident_id']}"


def _jobs(jobs: list[Row]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    for name in ("job", "GPUs", "hosts", "layout", "steps", "median", "95 %", "sure"):
        text = name in ("job", "layout")
        table.add_column(name, justify="left" if text else "right", no_wrap=not text)
    table.add_column("where", ratio=1, width=WHERE_WIDTH, overflow="fold")
    for job in jobs:
        ended = "" if job["seen_last"] else f", last seen {job['last_window'][11:16]}"
        table.add_row(
            Text(job["job_id"], overflow="fold"),
            f"{job['endpoints']:,}",
            f"{job['hosts']:,}",
            layout(job),
            f"{job['steps']:,}",
            duration(job["median_step_s"]),
            duration(job["p95_step_s"]),
            "" if job["confidence"] is None else f"{job['confidence']:.0%}",
            Text(job["host_names"] + ended),
        )
    return table


def _missing(covered: Coverage, *, priced: bool) -> list[RenderableType]:
    """Return the lines about expected minutes that are not done; empty if there are none."""
    if covered.done >= covered.expected and not covered.unseen:
        return []
    price = [minute_states.part_of_the_price(covered)] if priced and covered.done < covered.expected else []
    listed = ["llmprism due lists them."] if covered.due else []
    listed += [minute_states.NOT_LOOKED_FOR] if covered.unseen else []
    return [Text(), _label("Not complete", " ".join([minute_states.sentence(covered), *price, *listed]))]


def _set_aside(jobs: list[Row]) -> list[RenderableType]:
    """Return the lines about jobs whose results were withheld in some windows; empty if there are none."""
    if not jobs:
        return []
    named = [
        f"{job['job_id']} in {count(job['windows'], 'window')}, the last {job['last_window'][:10]} "
        f"{job['last_window'][11:16]} UTC ({', '.join(job['expectations'])})"
        for job in jobs[:MOST_ROWS]
    ]
    more = [f"and {len(jobs) - MOST_ROWS:,} more"] if len(jobs) > MOST_ROWS else []
    return [Text(), _label("Set aside", f"{'; '.join([*named, *more])}. {WITHHELD}")]


def _unlisted(jobs: list[Row]) -> list[RenderableType]:
    """Return the warning about addresses that train although the topology lacks them; empty if there are none."""
    unlisted = {job["job_id"]: job["unlisted"] for job in jobs if job["unlisted"]}
    return [Text(), _label("Warning", unlisted_warning(unlisted))] if unlisted else []


def layout(job: Row) -> str:
    """Return a job's degrees of parallelism, such as `tp8 pp2 dp4`."""
    if job["kind"] != "training":
        return "no training"
    degrees = [f"{name}{job[name]}" for name in ("tp", "pp", "dp") if job[name] is not None]
    degrees += [f"{name}{job[name]}" for name in ("cp", "ep") if (job[name] or 1) > 1]
    return " ".join([*degrees, *(["sharded"] if job["sharded"] else [])]) or "unknown"


def _windows(windows: Row) -> list[RenderableType]:
    """Return the bookkeeping in one line, and one more line for each problem in it."""
    statuses = ", ".join(f"{number:,} {status}" for status, number in sorted(windows["status"].items()))
    run = "" if windows["median_run_s"] is None else f" in {duration(windows['median_run_s'])} each"
    records = f"{windows['read']:,} records: {windows['landed']:,} landed, {windows['quarantined']:,} quarantined"
    lines = [f"{count(windows['all'], 'window')} ({statuses}){run}; {records}."]
    if windows["reasons"]:
        lines.append("Quarantined: " + ", ".join(f"{n:,} {reason}" for reason, n in windows["reasons"].items()) + ".")
    if windows["without_records"]:
        latest = _minute(windows["without_records"][-1])
        lines.append(
            f"Without records: {count(len(windows['without_records']), 'window')}, the latest {latest}. "
            "If flows arrived late, run these windows again: llmprism analyze, or airflow backfill create."
        )
    if windows["flows_expired"]:
        lines.append(
            f"Expired: flows and refused records of {count(windows['flows_expired'], 'window')}, after "
            "retention.flows_h; the results are kept."
        )
    if not windows["add_up"]:
        lines.append(
            "The record counts do not add up: landed plus quarantined is not read. See view window_bookkeeping."
        )
    if windows["broken_by_severity"]:
        lines.append(f"{_broken(windows['broken_by_severity'])} {LIST_BROKEN}")
    lines += [f"Stopped: {_minute(one['window'])}, {one['reason']}" for one in windows["stopped"]]
    return [Text(line) for line in lines]


def _broken(by_severity: Mapping[str, int]) -> str:
    """Return how many checks failed, of which severity, and whether that matters."""
    severities = ", ".join(f"{number:,} {severity}" for severity, number in sorted(by_severity.items()))
    serious = by_severity.get("critical", 0)
    matters = "a critical one withheld results" if serious else "none is critical, so nothing was withheld"
    return f"{count(sum(by_severity.values()), 'check')} failed ({severities}): {matters}."


def _minute(moment: str) -> str:
    return f"{moment[:16].replace('T', ' ')} UTC"


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the right form."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def duration(seconds: float | None) -> str:
    """Return seconds as text with its unit; empty for None."""
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 99.995 else f"{seconds:.0f} s"
