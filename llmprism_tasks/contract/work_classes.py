"""Work classes: which kind of work a diagnosis asks for, so that it can go to the people who do it."""

from __future__ import annotations

COMPUTE, NETWORK, STORAGE, SOFTWARE, SCHEDULE = "compute", "network", "storage", "software", "schedule"

WORK_CLASSES: dict[str, str] = {
    "slow_compute": COMPUTE,
    "straggler": COMPUTE,
    "hang": COMPUTE,
    "slow_nic": NETWORK,
    "degraded_switch": NETWORK,
    "switch_level": NETWORK,
    "degraded_link": NETWORK,
    "slow_network": NETWORK,
    "latent": NETWORK,
    "congestion": NETWORK,
    "link_flap": NETWORK,
    "cross_group": NETWORK,
    "stalls": STORAGE,
    "checkpoint_stall": STORAGE,
    "stopped": SOFTWARE,
    "ended": SOFTWARE,
    "cross_step": SOFTWARE,
    "pipeline_imbalance": SCHEDULE,
    "uneven_micro_batches": SCHEDULE,
}
"""By kind: `compute` (GPUs and hosts), `network`, `storage` (and data loading), `software` (of the job: ended,
restarted, or stood still for no reason that flows show), `schedule` (how work is divided: nothing is broken)."""


def work_class(kind: str) -> str | None:
    """Return the class of a kind; None for a kind that has none."""
    return WORK_CLASSES.get(kind)
