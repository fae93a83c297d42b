"""Fault catalogue: of each kind of diagnosis a phrase, whose work it is, and what the engineer on call does next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LINK = " - "
"""Separator of the two switches in a link's name."""

COMPUTE, NETWORK, STORAGE, SOFTWARE, SCHEDULE = "compute", "network", "storage", "software", "schedule"

LASTS = 2
"""Windows in which an incident must be seen before an action is advised: one slow minute may be chance."""

WAIT = "wait for a second window, for a single one may be chance. Then "
CHANCE = "nothing; only one window showed it, which may be chance."
EFFECT = "see to the incident that causes it."
"""Advice for an incident seen in fewer windows, while it is open and once it is closed; and for an effect."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes
    ----------
    work : which kind of work it asks for, so that it can go to the people who do it: `COMPUTE` (GPUs and hosts),
        `NETWORK`, `STORAGE` (and data loading), `SOFTWARE` (of the job: ended, restarted, or stood still for no reason
        that flows show), `SCHEDULE` (how work is divided: nothing is broken)
    words : what is wrong with the subject, as a verb phrase that follows the subject's name
    of_job : the same if the subject is a whole job; empty if `words` fits
    went_on : the same once the job goes on; empty if `words` fits
    next : what the engineer on call does next
    next_of_job, next_of_host : the same if the subject is a whole job, or a whole host; empty if `next` fits
    once_over : the same once the fault is over; empty if only its return needs action
    silent : whether the job is silent: then no step tells how much slower it is, and no bandwidth test who is at fault
    at_once : whether one window is enough to act. One slow minute may be chance; silence is not.
    hidden : whether its job hides it: then it is no suspect, and costs nothing yet
    """

    work: str
    words: str
    next: str
    silent: bool = False
    at_once: bool = False
    hidden: bool = False
    of_job: str = ""
    went_on: str = ""
    next_of_job: str = ""
    next_of_host: str = ""
    once_over: str = ""

    def next_for(self, subject_type: str, *, over: bool = False) -> str:
        """Return what to do about a subject of a type; `over` if the fault is over."""
        now = {"job": self.next_of_job, "host": self.next_of_host}.get(subject_type, "") or self.next
        return self.once_over or f"it is over, or has become the normal state; if it comes back, {now}" if over else now

    def phrase_for(self, subject_type: str, *, went_on: bool = False) -> str:
        """Return the phrase for a subject of a type; `went_on` if its job goes on again."""
        if went_on and self.went_on:
            return self.went_on
        return self.of_job or self.words if subject_type == "job" else self.words


KINDS: dict[str, Kind] = {
    "slow_compute": Kind(
        COMPUTE,
        "computes slowly",
        "check the GPU's clocks, temperature and errors, and what else runs on its host. "
        "If it lasts, move the job off that host.",
        of_job="has a host that computes slowly",
        next_of_job="check the clocks, temperature and errors of the GPUs of all the hosts that it names: they wait "
        "for each other over NVLink. If it lasts, move the job off the slow one.",
        next_of_host="check the clocks, temperature and errors of all its GPUs, and what else runs there. One slow GPU "
        "is enough: the others of its host wait for it, where no switch sees it. If it lasts, move the job off that "
        "host.",
    ),
    "slow_nic": Kind(
        NETWORK,
        "sends or receives slowly",
        "check the NIC's errors, pause frames, cable and PCIe width. If it lasts, move the job off that host.",
    ),
    "latent": Kind(
        NETWORK,
        "is slow, which its job hides so far",
        "check its errors, cable and speed before another job needs its full rate.",
        hidden=True,
    ),
    "straggler": Kind(
        COMPUTE,
        "holds up its job",
        "check its clocks, temperature and errors, and what else runs there, then its NIC. "
        "If it lasts, move the job off that host.",
        of_job="became slower, cause unknown",
        next_of_job="check what changed in the job and on its hosts when it began; the flows show no cause yet.",
    ),
    "degraded_switch": Kind(
        NETWORK, "slows the traffic through it", "check its ports' errors, speeds and queues. If it lasts, drain it."
    ),
    "switch_level": Kind(
        NETWORK,
        "has slow traffic through it",
        "check its ports' errors, speeds and queues, and what else the slow traffic has in common.",
    ),
    "slow_network": Kind(
        NETWORK,
        "or another device on the same path slows the traffic",
        "check the errors, speeds and queues of all the devices that it names, the likeliest first.",
        of_job="has a slow network",
        next_of_job="check the errors, speeds and queues of what its hosts have in common: leaves, uplinks, spines.",
    ),
    "degraded_link": Kind(
        NETWORK,
        "slows the traffic through it",
        "check the errors and speed of both its ports. If it lasts, take it out of routing.",
    ),
    "congestion": Kind(
        NETWORK,
        "is congested",
        "check how flows are hashed over its parallel links. Spread them, or move one of the jobs.",
    ),
    "link_flap": Kind(
        NETWORK,
        "goes down and comes back",
        "check the port's log, cable and optics. If it goes on, take it out of service.",
    ),
    "pipeline_imbalance": Kind(
        SCHEDULE,
        "takes longer than the other stages",
        "tell the tenant that the layers are not distributed evenly over the stages. No device is at fault.",
    ),
    "stalls": Kind(
        STORAGE,
        "stalls now and then",
        "tell the tenant to check data loading and garbage collection. If it is one host, check its disks and CPUs.",
    ),
    "uneven_micro_batches": Kind(
        SCHEDULE,
        "has steps of uneven length",
        "tell the tenant that the sequences differ in length. No device is at fault.",
    ),
    "checkpoint_stall": Kind(
        STORAGE,
        "stalls to save checkpoints",
        "check the load of the storage. Tell the tenant to save in the background.",
    ),
    "hang": Kind(
        COMPUTE,
        "has gone quiet",
        "check its processes, its GPUs' errors and its NICs. The job waits for it and will not go on by itself.",
        silent=True,
        at_once=True,
        went_on="had gone quiet",
        once_over="it is over, or longer than the look-back. Check its logs and its GPUs' and NICs' errors of that "
        "time before it comes back.",
    ),
    "stopped": Kind(
        SOFTWARE,
        "has stopped",
        "ask the tenant whether this was on purpose. If not, check its hosts' logs.",
        silent=True,
        at_once=True,
        went_on="had stopped",
        once_over="ask the tenant whether this was on purpose. If not, check its hosts' logs of that time.",
    ),
    "ended": Kind(
        SOFTWARE,
        "has ended, or hangs",
        "nothing if it has ended in order. If it still holds its GPUs, check its processes and its hosts' logs.",
        silent=True,
        went_on="had fallen silent",
        once_over="nothing if it ended in order. If not, check its hosts' logs of that time.",
    ),
    "cross_step": Kind(SOFTWARE, "has slow steps", "check what changed when it began; the flows show no cause yet."),
    "cross_group": Kind(
        NETWORK,
        "is slower than the other groups of its job",
        "check what its members have in common; the flows show no cause yet.",
    ),
}
"""In the order of `docs/diagnosis.md`, which explains how each kind is found."""


HIDDEN = tuple(name for name, kind in KINDS.items() if kind.hidden)
"""Kinds of what its job hides. SQL writes them out: `job_health_by_minute`, `find_incidents`."""


def work_of(kind: str) -> str | None:
    """Return which kind of work a kind of fault asks for; None for one that is not in the catalogue."""
    return KINDS[kind].work if kind in KINDS else None


def is_silent(kind: str) -> bool:
    """Return whether a kind of fault is that a job is silent; False for one that is not in the catalogue."""
    return kind in KINDS and KINDS[kind].silent


def advice(incident: Mapping[str, Any]) -> str | None:
    """Return what to do about an incident, a row of the view `incidents`; None for a kind that is not in the catalogue.

    Reports, pages and messages give this one advice.
    """
    kind, over = KINDS.get(incident["kind"]), incident["state"] == "closed" or incident["went_on"]
    if kind is None:
        return None
    if incident["effect_of"] is not None:
        return EFFECT
    once = not kind.at_once and incident["windows"] < LASTS
    if once and over:
        return CHANCE
    return (WAIT if once else "") + kind.next_for(incident["subject_type"], over=over)
