"""What can go wrong on a platform: a fault's kind, whom it strikes, when and how hard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from llmprism_tasks.settings.schema import number, text
from llmprism_tasks.simulate.scenario.sections import NO_END_S

OF_A_RANK = ("slow_gpu", "slow_nic", "link_flap")
OF_A_JOB = (*OF_A_RANK, "slow_stage", "checkpoint_stall", "data_loader_stalls")
OF_A_LINK = ("degraded_link", "ecmp_collision")
SLOWS_COMPUTING = ("slow_gpu", "slow_stage")
STALLS = ("checkpoint_stall", "data_loader_stalls")


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong; a job's step feels what is there when the step begins.

    `slow_gpu` and `slow_stage` make a rank, or all ranks of a pp_stage, compute longer by `factor`. `slow_nic`,
    `degraded_switch` and `degraded_link` multiply rates by `factor`: of a rank's NIC, of all that crosses a switch, of
    all that crosses a link either way. `ecmp_collision` does so to what crosses a link one way, from `switch` to
    `neighbour`, as the flows of a tenant that the hash puts there do. `link_flap` is a NIC whose link is lost again and
    again. `checkpoint_stall` makes every `steps`-th step (those of the job's habit, if it saves) wait for `pause_s`
    longer; `data_loader_stalls` makes one rank, a random one each time, wait so in one of `steps` steps on average.
    """

    kind: str = text(
        "slow_gpu",
        choices=("degraded_switch", *OF_A_JOB, *OF_A_LINK),
        reason="what goes wrong",
    )
    job: str = text("", reason="the job, for what strikes a job, a rank or a pp_stage")
    rank: int = number(0, unit="rank", low=0, high=10**6, reason="the job's rank whose GPU or NIC it is")
    pp_stage: int = number(0, unit="index", low=0, high=10**4, reason="slow_stage: the job's pipeline stage")
    switch: str = text("", reason="the leaf or spine")
    neighbour: str = text("", reason="the link's other switch")
    start_s: float = number(
        0.0, unit="s", low=0, high=NO_END_S, reason="start, after the run's (in a feed: the loop's) start"
    )
    end_s: float = number(NO_END_S, unit="s", low=0, high=NO_END_S, reason="end, exclusive")
    factor: float = number(1.3, unit="ratio", low=0.01, high=100, reason="on computing, >= 1, or on rates, <= 1")
    every_s: float = number(
        0.0, unit="s", low=0, high=NO_END_S, reason="it comes and goes with this period; 0: it stays"
    )
    down_s: float = number(1.0, unit="s", low=0, high=NO_END_S, reason="how long it is there in each such period")
    steps: int = number(4, unit="steps", low=1, high=10**6, reason="one in so many steps stalls")
    pause_s: float = number(1.0, unit="s", low=0, high=NO_END_S, reason="how much longer a stall waits")

    def active_at(self, time_s: float) -> bool:
        """Tell whether it is there at a time, in seconds after the run's start."""
        if not self.start_s <= time_s < self.end_s:
            return False
        return not self.every_s or (time_s - self.start_s) % self.every_s < self.down_s


def crosses(fault: Fault, path: Sequence[str]) -> bool:
    """Tell whether a path of switches feels a fault of a switch or a link."""
    if fault.kind == "degraded_switch":
        return fault.switch in path
    link = (fault.switch, fault.neighbour)
    hops = list(pairwise(path))
    return link in hops or (fault.kind == "degraded_link" and link[::-1] in hops)
