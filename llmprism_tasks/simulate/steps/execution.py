"""The execution of the programs of all ranks of a job, for all its steps at once.

Within a step only durations differ from one step to the next, never the order of events. So one pass through the
programs, with arrays over steps and units in place of single times, does what an event queue would do step by step.
The units of a pp_stage run the same program; only pp_stages wait for each other's operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from llmprism_tasks.simulate.arrays import Reals
from llmprism_tasks.simulate.network.collectives import AllToAll, Burst, Collective, PipelineSends, RingExchange
from llmprism_tasks.simulate.workload.operations import (
    Await,
    Compute,
    Launch,
    Mark,
    Operation,
    Post,
    Program,
    Transfer,
    Wait,
)

Communicator = Collective | RingExchange | AllToAll


@dataclass(frozen=True)
class Durations:
    """What the execution looks up; the first axis of all results is the step.

    Attributes
    ----------
    compute : seconds of a computation in a pp_stage, shape (steps, units)
    factor : of a launch's time in a pp_stage, in the shape that its communicator wants
    routed : bytes that a call of the router sends in a pp_stage, shape (steps, rows)
    transfer : factor of a transfer's time, shape (steps, units)
    length : of a micro-batch, over the mean, shape (steps or 1, units)
    """

    compute: Callable[[Compute, int], Reals]
    factor: Callable[[Launch, int], Reals]
    routed: Callable[[int, int], Reals]
    transfer: Callable[[Transfer], Reals]
    length: Callable[[int], Reals]


@dataclass
class Execution:
    """The state of an execution: where each pp_stage's units are, and all that was sent on the way."""

    now: list[Reals]
    communicators: Mapping[tuple[str, int], Communicator]
    pipeline_sends: Mapping[tuple[int, int], PipelineSends]
    durations: Durations
    bursts: list[Burst] = field(default_factory=list)
    marks: dict[tuple[str, int], Reals] = field(default_factory=dict)
    posted: dict[Transfer, Reals] = field(default_factory=dict)
    arrived: dict[Transfer, Reals] = field(default_factory=dict)
    ends: dict[tuple[str, int], Reals] = field(default_factory=dict)

    def play(self, programs: Sequence[Program]) -> None:
        """Play one program per pp_stage to its end."""
        position = [0] * len(programs)
        while any(at < len(program) for at, program in zip(position, programs, strict=True)):
            for stage, program in enumerate(programs):
                while position[stage] < len(program) and self._step(program[position[stage]], stage):
                    position[stage] += 1

    def _step(self, op: Operation, stage: int) -> bool:
        """Do one operation; False if it must wait for another pp_stage's."""
        match op:
            case Compute():
                self.now[stage] = self.now[stage] + self.durations.compute(op, stage)
            case Post():
                for transfer in op.transfers:
                    self._post(transfer, stage)
            case Wait():
                if any(transfer not in self.arrived for transfer in op.transfers):
                    return False
                for transfer in op.transfers:
                    self.now[stage] = np.maximum(self.now[stage], self.arrived[transfer])
            case Launch():
                self._launch(op, stage)
            case Await():
                self.now[stage] = np.maximum(self.now[stage], self.ends[op.key, stage])
            case Mark():
                self.marks[op.name, stage] = self.now[stage]
        return True

    def _post(self, transfer: Transfer, stage: int) -> None:
        """Come to a transfer; a transfer is a rendezvous, so it starts when both of its ends have come to it."""
        if transfer not in self.posted:
            self.posted[transfer] = self.now[stage]
            return
        start = np.maximum(self.posted[transfer], self.now[stage])
        src, dst, micro_batch = transfer
        burst, self.arrived[transfer] = self.pipeline_sends[src % len(self.now), dst % len(self.now)].send(
            start, self.durations.transfer(transfer), self.durations.length(micro_batch)
        )
        self.bursts.append(burst)

    def _launch(self, op: Launch, stage: int) -> None:
        communicator, factor = self.communicators[op.use, stage], self.durations.factor(op, stage)
        ready = np.maximum(self.now[stage], self.ends[op.after, stage]) if op.after else self.now[stage]
        if isinstance(communicator, AllToAll):
            burst, end = communicator.launch(ready, self.durations.routed(op.load, stage), factor, back=op.back)
        else:
            burst, end = communicator.launch(ready, op.payload, factor)
        self.ends[op.key, stage] = end
        self.bursts.append(burst)
