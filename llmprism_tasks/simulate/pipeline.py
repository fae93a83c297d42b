"""The 1F1B pipeline schedule, event by event, for all steps of a job at once.

Within a step only durations differ from one step to the next, never the order of events. So one walk through the
order, with arrays over steps and replicas in place of single times, does what an event queue would do step by step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.fabric import Reals

Transfer = tuple[int, int, int]  # direction (0 activations onward, 1 gradients back), boundary, micro-batch
FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Operation:
    """One operation of a pp_stage: computing a micro-batch, or transfers that all must end before it goes on."""

    compute: str = ""
    micro_batch: int = 0
    transfers: tuple[Transfer, ...] = ()


@dataclass(frozen=True)
class PipelineTimes:
    """When things happen, in seconds; the first axis is the step.

    Attributes
    ----------
    transfer_start : shape (steps, 2, pp - 1, dp, micro-batches)
    last_backward : start of the last backward, shape (steps, pp, dp)
    end : when a rank has nothing left to do, shape (steps, pp, dp)
    """

    transfer_start: Reals
    last_backward: Reals
    end: Reals


def program(pp_stage: int, pp: int, micro_batches: int) -> list[Operation]:
    """Return a pp_stage's operations in order: warm-up forwards, one forward one backward, cool-down backwards.

    Source: Megatron-LM, megatron/core/pipeline_parallel/schedules.py, the schedule without interleaving; a send and
    the receive that follows it are one exchange there, too.
    """
    warm_up = min(pp - pp_stage - 1, micro_batches)

    def exchange(*wanted: Transfer) -> Operation:
        real = tuple(transfer for transfer in wanted if 0 <= transfer[1] < pp - 1 and transfer[2] < micro_batches)
        return Operation(transfers=real)

    before, after = pp_stage - 1, pp_stage
    operations: list[Operation] = []
    for i in range(warm_up):
        operations += [exchange((0, before, i)), Operation(FORWARD, i), exchange((0, after, i))]
    operations.append(exchange((0, before, warm_up)))
    for k in range(micro_batches - warm_up):
        i = warm_up + k
        operations += [Operation(FORWARD, i), exchange((0, after, i), (1, after, k))]
        operations += [Operation(BACKWARD, k), exchange((1, before, k), (0, before, i + 1))]
    for k in range(micro_batches - warm_up, micro_batches):
        operations += [exchange((1, after, k)), Operation(BACKWARD, k), exchange((1, before, k))]
    return operations


def run_pipeline(start: Reals, forward: Reals, backward: Reals, transfer: Reals) -> PipelineTimes:
    """Play the schedule; a transfer is a rendezvous, so it starts when both of its ends have come to it.

    Parameters
    ----------
    start : when each rank begins, shape (steps, pp, dp)
    forward, backward : compute times, shape (steps, pp, dp, micro-batches)
    transfer : how long each transfer takes, shape (steps, 2, pp - 1, dp, micro-batches)
    """
    steps, pp, dp, micro_batches = forward.shape
    times = PipelineTimes(
        transfer_start=np.zeros((steps, 2, max(pp - 1, 0), dp, micro_batches)),
        last_backward=np.zeros((steps, pp, dp)),
        end=start.copy(),
    )
    programs = [program(stage, pp, micro_batches) for stage in range(pp)]
    position = [0] * pp
    arrived: dict[Transfer, dict[int, Reals]] = {}
    while any(position[stage] < len(programs[stage]) for stage in range(pp)):
        for stage in range(pp):
            while position[stage] < len(programs[stage]):
                operation = programs[stage][position[stage]]
                if operation.compute:
                    _compute(times, operation, stage, forward if operation.compute == FORWARD else backward)
                elif not _exchange(times, operation, stage, arrived, transfer):
                    break
                position[stage] += 1
    return times


def _compute(times: PipelineTimes, operation: Operation, stage: int, durations: Reals) -> None:
    if operation.compute == BACKWARD and operation.micro_batch == durations.shape[3] - 1:
        times.last_backward[:, stage] = times.end[:, stage]
    times.end[:, stage] += durations[:, stage, :, operation.micro_batch]


def _exchange(
    times: PipelineTimes,
    operation: Operation,
    stage: int,
    arrived: dict[Transfer, dict[int, Reals]],
    transfer: Reals,
) -> bool:
    """Come to an exchange; True once both ends of all its transfers have, and the stage may go on."""
    for key in operation.transfers:
        arrived.setdefault(key, {}).setdefault(stage, times.end[:, stage].copy())
    if any(len(arrived[key]) < 2 for key in operation.transfers):
        return False
    for direction, boundary, micro_batch in operation.transfers:
        here, there = arrived[direction, boundary, micro_batch].values()
        begin = np.maximum(here, there)
        times.transfer_start[:, direction, boundary, :, micro_batch] = begin
        np.maximum(
            times.end[:, stage], begin + transfer[:, direction, boundary, :, micro_batch], out=times.end[:, stage]
        )
    return True
