"""One host or NIC: whether a job's pauses are those of one that all others wait for, and no habit of the job.

A job that pauses on purpose pauses as a whole: nobody has begun what comes next. Where all others have, they wait for
the one that has not. A host that saves or evaluates alone is waited for, too, but it does so after equal numbers of
steps. So the pauses of one host that come at no fixed distance are stalls, however alike they are. So are those of one
NIC, whose rail alone has not sent what its sisters have: its link is down.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.robust import LEAST_RECURRENCES, LEAST_VOTERS, MAJORITY, Flags, Integers
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.pauses import habit
from llmprism_tasks.stages.diagnosis.pauses.standstill import (
    absent_hosts,
    before_silence,
    hosts_of,
    likeliest_of,
    odd_of_rails,
)
from llmprism_tasks.stages.diagnosis.step_times.course import Steps, course_of
from llmprism_tasks.stages.diagnosis.step_times.duration_model import WORTH_A_ROW
from llmprism_tasks.stages.liveness.last_exchange import factor_of_chance


class OneHost(NamedTuple):
    """The host, the steps in which it alone had not begun, shape (steps,), and how many steps show who."""

    host: str
    steps: Flags
    pauses: int

    @property
    def words(self) -> str:
        """How it shows."""
        shown = f"In {self.steps.sum()} of the {self.pauses} with the longest silences"
        return f"{shown} host {self.host} took no part in an exchange that all others had begun"


def find_one_host(steps: Steps, paused: Flags, evidence: Evidence) -> OneHost | None:
    """Return the host that stopped first in most pauses of a job, at no fixed distance; None if there is none.

    A pause no longer than the silences of usual steps does not show who was waited for: it is not told from these.

    Parameters
    ----------
    paused : which steps lost most of their time to a silence in which the job did not save
    """
    at = np.flatnonzero(paused)
    if not _are_erratic(steps, at):
        return None
    quick = steps.excess <= WORTH_A_ROW * steps.model.usual_ns
    longest = course_of(steps, quick, evidence).longest
    at = at[longest[at] > longest[quick].max(initial=0)]
    hosts = hosts_of(steps.job_id, evidence)
    each = [_absent(steps, int(step), hosts, evidence) for step in at]
    names = sorted({host for absent in each for host in absent})
    whole = {host: math.prod(absent.get(host, factor_of_chance(1)) for absent in each) for host in names}
    likeliest = likeliest_of(whole, len(set(hosts.values())))
    if likeliest is None:
        return None
    mine = at[[max(absent, key=absent.__getitem__, default=None) == likeliest[0] for absent in each]]
    if mine.size <= MAJORITY * at.size or not _are_erratic(steps, mine):
        return None
    return OneHost(likeliest[0], np.isin(np.arange(paused.size), mine), at.size)


class OneNic(NamedTuple):
    """The NIC, the steps in which its rail alone lacked a message, shape (steps,), how many pauses there are, and
    whether these are three at least and come at no fixed distance."""

    addr: str
    steps: Flags
    pauses: int
    erratic: bool

    @property
    def words(self) -> str:
        """How it shows."""
        lacks = "what it sends and what it is sent lacked what all other rails had sent"
        return f"In {self.steps.sum()} of {self.pauses} pauses NIC {self.addr} stopped first: {lacks}"


def find_one_nic(steps: Steps, paused: Flags, evidence: Evidence) -> OneNic | None:
    """Return the NIC that stopped alone in most pauses of a job, and in two at least; None if there is none.

    In one pause both ends of a link may lack what the others had sent. The end that flaps lacks it in all.

    Parameters
    ----------
    paused : as for `find_one_host`
    """
    at, hosts = np.flatnonzero(paused), hosts_of(steps.job_id, evidence)
    if at.size < 2 or max(Counter(hosts.values()).values(), default=0) < LEAST_VOTERS:
        return None  # no pair has sisters on other rails
    each = [_odd(steps, int(step), hosts, evidence) for step in at]
    counts = Counter(addr for odd in each for addr in odd)
    most = max(counts.values(), default=0)
    first = [addr for addr, count in counts.items() if count == most]
    if len(first) != 1 or most < 2 or most <= MAJORITY * at.size:
        return None
    mine = at[[first[0] in odd for odd in each]]
    erratic = at.size >= LEAST_RECURRENCES and not habit.is_equally_spaced(at, at)
    return OneNic(first[0], np.isin(np.arange(paused.size), mine), at.size, erratic)


def _are_erratic(steps: Steps, at: Integers) -> bool:
    """Return whether pauses come at no fixed distance, and are more than two habits explain, or all of one length."""
    many = at.size > habit.TWO_HABITS or (at.size >= LEAST_RECURRENCES and habit.are_alike(steps.excess[at]).all())
    return bool(many) and not habit.is_equally_spaced(at, at)


def _absent(steps: Steps, step: int, hosts: dict[str, str], evidence: Evidence) -> dict[str, float]:
    span = int(steps.starts[step]), int(steps.ends[step])
    found = before_silence(steps.job_id, span, steps.model.usual_ns, steps.starts.size, evidence)
    if found is None:
        return {}
    before, since = found
    return absent_hosts(before, (span[0], since), steps.starts.size, hosts)


def _odd(steps: Steps, step: int, hosts: dict[str, str], evidence: Evidence) -> list[str]:
    span = int(steps.starts[step]), int(steps.ends[step])
    found = before_silence(steps.job_id, span, steps.model.usual_ns, steps.starts.size, evidence)
    return [] if found is None else odd_of_rails(found[0], span[0], hosts)
