"""Fault catalogue: a phrase for each kind of diagnosis, and what the engineer on call does next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes
    ----------
    words : what is wrong with the subject, as a verb phrase that follows the subject's name
    of_job : the same if the subject is a whole job; empty if `words` fits
    went_on : the same once the job goes on; empty if `words` fits
    next : what the engineer on call does next
    next_of_job : the same if the subject is a whole job; empty if `next` fits
    once_over : the same once the fault is over; empty if only its return needs action
    at_once : whether one window is enough to act. One slow minute may be chance; silence is not.
    """

    words: str
    next: str
    at_once: bool = False
    of_job: str = ""
    went_on: str = ""
    next_of_job: str = ""
    once_over: str = ""

    def next_for(self, subject_type: str, *, over: bool = False) -> str:
        """Return what to do about a subject of a type; `over` if the fault is over."""
        now = self.next_of_job or self.next if subject_type == "job" else self.next
        return self.once_over or f"it is over, or has become usual; should it come back, {now}" if over else now

    def said_of(self, subject_type: str, *, went_on: bool = False) -> str:
        """Return the phrase for a subject of a type; `went_on` if its job goes on again."""
        if went_on and self.went_on:
            return self.went_on
        return self.of_job or self.words if subject_type == "job" else self.words


KINDS: dict[str, Kind] = {
    "slow_compute": Kind(
        "computes slowly",
        "look at the GPU's clocks, temperature and errors and at what else runs on its host; "
        "if it lasts, move the job off that host.",
    ),
    "slow_nic": Kind(
        "sends or receives slowly",
        "look at the NIC's errors, pauses, cable and PCIe width; if it lasts, move the job off that host.",
    ),
    "straggler": Kind(
        "holds up its job",
        "look at its clocks, temperature and errors and at what else runs there, then at its NIC; "
        "if it lasts, move the job off that host.",
        of_job="has become slower, for no cause that is known",
        next_of_job="look at what changed when it began, in the job and on its hosts; flows name nobody yet.",
    ),
    "degraded_switch": Kind(
        "slows the traffic through it", "look at its ports' errors, speeds and queues; if it lasts, drain it."
    ),
    "switch_level": Kind(
        "has slow traffic through it",
        "look at its ports' errors, speeds and queues, and at what the slow traffic has in common besides it.",
    ),
    "degraded_link": Kind(
        "slows the traffic through it",
        "look at the errors and speed of both its ports; if it lasts, take it out of routing.",
    ),
    "congestion": Kind(
        "carries more than it can",
        "look at how flows are hashed over its parallel links; spread them, or move one of the jobs.",
    ),
    "link_flap": Kind(
        "goes down and comes back", "look at the port's log, cable and optics; if it goes on, take it out of service."
    ),
    "pipeline_imbalance": Kind(
        "takes longer than the other stages",
        "tell the tenant: layers are not spread evenly over the stages. No device is at fault.",
    ),
    "stalls": Kind(
        "stands still now and then",
        "tell the tenant: look at data loading and garbage collection; if always one host, at its disks and CPUs.",
    ),
    "uneven_micro_batches": Kind(
        "has steps of uneven length", "tell the tenant: sequences of uneven length. No device is at fault."
    ),
    "checkpoint_stall": Kind(
        "stands still to save checkpoints", "look at the storage's load; tell the tenant to save in the background."
    ),
    "hang": Kind(
        "has gone quiet",
        "look at its processes, its GPUs' errors and its NICs: the job waits for it, and will not go on by itself.",
        at_once=True,
        went_on="had gone quiet",
        once_over="it is over, or longer than the look-back; look at its logs and its GPUs' and NICs' errors of that "
        "time before it comes back.",
    ),
    "stopped": Kind(
        "has stopped",
        "ask the tenant whether it was meant to; if not, look at its hosts' logs.",
        at_once=True,
        went_on="had stopped",
        once_over="ask the tenant whether it was meant to; if not, look at its hosts' logs of that time.",
    ),
    "cross_step": Kind("has slow steps", "look at what changed when it began; flows name nobody yet."),
    "cross_group": Kind(
        "is slower than the other groups of its job", "look at what its members have in common; flows name nobody yet."
    ),
}
"""In the order of `docs/diagnosis.md`, which explains how each kind is found."""
