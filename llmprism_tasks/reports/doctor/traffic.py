"""Traffic: whether the topology knows the flows' addresses, clocks agree, and all minutes were run."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.reports import minute_states
from llmprism_tasks.reports.doctor.finding import Finding, judged
from llmprism_tasks.reports.minute_states import Coverage, sentence
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse import landed_flows, store
from llmprism_tasks.warehouse.connect import Warehouse

SEEN_RATIO = 0.9
"""Share of the topology's NICs below which those never seen are more than idle or broken hosts."""

LISTED_RATIO = 0.5
"""Share of the flows' addresses below which the rest is more than storage and management."""

AHEAD_S = 2
"""Seconds by which a record may seem to come from the future: clocks kept by NTP differ by milliseconds."""

BACKLOG_WINDOWS = 10
"""Minutes that may wait to be run: a few come late on any day."""

RECENT_WINDOWS = 60
"""Windows of which the addresses are compared."""


def coverage(nics: Collection[str], seen: Collection[str], unlisted: Collection[str]) -> Iterator[Finding]:
    """Compare a topology with the flows of the last windows.

    Parameters
    ----------
    nics : addresses of the topology
    seen : addresses of the flows
    unlisted : addresses outside the topology that train with its NICs
    """
    if not nics:  # it could not be read, which is said elsewhere
        return
    if not seen:
        yield judged("topology", f"{len(nics):,} NICs, and no flows to compare with")
        return
    listed = len(set(seen) & set(nics))
    found = f"{listed:,} of the {len(seen):,} addresses in the flows are listed"
    alike = "Check that topology and flows write addresses alike, and that it is the right topology."
    few = "" if listed >= LISTED_RATIO * len(seen) else f"{alike} Storage and management need not be listed."
    yield judged("topology", found, problem="" if listed else alike, warning=few)
    rare = "" if listed >= SEEN_RATIO * len(nics) else "See whether all switches send their records here."
    yield judged("NICs", f"{listed:,} of the {len(nics):,} that are listed were seen", warning=rare)
    some = ", ".join(sorted(unlisted)[:5])
    if unlisted:
        found = f"{len(unlisted):,} that train with listed ones are missing from the topology, such as {some}"
        yield judged("NICs", found, warning="Add them with their hosts, and run the windows again.")


def clocks(newest_ns: int | None, *, now_ns: int) -> Finding:
    """Compare the newest record with this machine's clock."""
    if newest_ns is None:
        return judged("clock of the flows", "no flows to compare with")
    age_s = (now_ns - newest_ns) / NANOSECONDS_PER_SECOND
    found = (
        f"the newest record is {_duration(age_s)} old" if age_s >= 0 else f"a record is {-age_s:.0f} s in the future"
    )
    wrong = "Set the clocks of switches, collector and this machine by NTP; windows would never be ready."
    return judged("clock of the flows", found, problem="" if age_s > -AHEAD_S else wrong)


def deliveries(delays_s: Sequence[float], *, lateness_s: float) -> Finding:
    """Judge when files of windows were last written.

    Parameters
    ----------
    delays_s : for each of the newest files, seconds from the end of the window in its name to its last change
    """
    if not delays_s:
        return judged("delivery of flows", "no files with a window in their names to look at")
    late, early = max(delays_s), min(delays_s)
    found = f"the last {len(delays_s)} files were written {early:.0f} to {late:.0f} s after their windows' ends"
    if early < -AHEAD_S:
        todo = "The collector's clock is ahead, or its files are named for something else than a window's start."
    elif late > lateness_s:
        todo = f"Raise window.allowed_lateness_s ({lateness_s:g}), if files usually come so late."
    else:
        todo = ""
    return judged("delivery of flows", found, warning=todo)


def backlog(counted: Coverage) -> Finding:
    """Judge how many minutes wait to be run."""
    found = sentence(counted)
    if counted.given_up:
        todo = f"{counted.given_up:,} were tried in vain: llmprism due lists them; the logs of their runs say why."
    elif counted.due_count > BACKLOG_WINDOWS:
        todo = "See llmprism due. They are caught up by themselves; more cores, or fewer other tasks, make it quicker."
    else:
        todo = minute_states.NOT_LOOKED_FOR if counted.unseen else ""
    return judged("backlog", found, warning=todo)


def look(warehouse: Warehouse, nics: Collection[str], settings: Settings) -> Iterator[Finding]:
    """Check the flows of the last windows."""
    span_ns = RECENT_WINDOWS * settings.window.length_ns
    newest = store.query(warehouse, "SELECT max(window_end_ns) AS ns FROM windows").item()
    if newest is None:
        yield from coverage(nics, (), ())
        return
    span = Window(newest - span_ns, span_ns)
    unlisted = store.read(warehouse, "jobs", span, columns=["unlisted"])["unlisted"].explode().drop_nulls().unique()
    yield from coverage(nics, landed_flows.addresses(warehouse, span), unlisted.to_list())
    latest = f"SELECT max(flow_start_ns) AS ns FROM flows WHERE window_start_ns >= {span.start_ns}"
    now_ns = time.time_ns()
    yield clocks(store.query(warehouse, latest).item(), now_ns=now_ns)
    states = minute_states.read_states(warehouse, settings, now_ns=now_ns)
    yield backlog(minute_states.coverage(states, settings, now_ns=now_ns))


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
