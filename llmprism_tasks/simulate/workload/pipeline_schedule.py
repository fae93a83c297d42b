"""The order in which a pp_stage works on its micro-batches, and what it exchanges with its neighbours between."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.simulate.workload.operations import BACKWARD, FORWARD, Post, Transfer, Wait


@dataclass(frozen=True)
class Pass:
    """The forward or backward pass of one micro-batch through one chunk of the model."""

    phase: str
    chunk: int
    micro_batch: int


Schedule = list[Pass | Post | Wait]


def schedule(pp_stage: int, pp: int, chunks: int, micro_batches: int) -> Schedule:
    """Return a pp_stage's schedule: 1F1B, interleaved where the stage has several chunks of the model."""
    if chunks == 1:
        return one_forward_one_backward(pp_stage, pp, micro_batches)
    return interleaved(pp_stage, pp, chunks, micro_batches)


def one_forward_one_backward(pp_stage: int, pp: int, micro_batches: int) -> Schedule:
    """Return warm-up forwards, then one forward one backward, then cool-down backwards.

    Source: Megatron-LM, megatron/core/pipeline_parallel/schedules.py, the schedule without interleaving; a send and
    the receive that follows it are one exchange there, too.
    """
    warm_up = min(pp - pp_stage - 1, micro_batches)
    before, after = pp_stage - 1, pp_stage + 1

    def exchange(*wanted: Transfer) -> Schedule:
        real = tuple(t for t in wanted if min(t[:2]) >= 0 and max(t[:2]) < pp and t[2] < micro_batches)
        return [Post(real), Wait(real)] if real else []

    operations = Schedule()
    for i in range(warm_up):
        operations += [*exchange((before, pp_stage, i)), Pass(FORWARD, 0, i), *exchange((pp_stage, after, i))]
    operations += exchange((before, pp_stage, warm_up))
    for k in range(micro_batches - warm_up):
        i = warm_up + k
        operations += [Pass(FORWARD, 0, i), *exchange((pp_stage, after, i), (after, pp_stage, k))]
        operations += [Pass(BACKWARD, 0, k), *exchange((pp_stage, before, k), (before, pp_stage, i + 1))]
    for k in range(micro_batches - warm_up, micro_batches):
        operations += [*exchange((after, pp_stage, k)), Pass(BACKWARD, 0, k), *exchange((pp_stage, before, k))]
    return operations


def interleaved(pp_stage: int, pp: int, chunks: int, micro_batches: int) -> Schedule:
    """Return 1F1B over virtual pp_stages, with sends and receives that overlap the computing.

    Micro-batches go through a chunk pp at a time. The input of the next pass is asked for before this one computes; its
    output is sent while the next one computes. The last stage's output goes on to the first stage's next chunk.
    Source: Megatron-LM, megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving
    with overlap_p2p_comm (Narayanan and others, 2021); pp divides the micro-batches.
    """
    total = chunks * micro_batches
    order = [(k % (pp * chunks) // pp, k // (pp * chunks) * pp + k % pp) for k in range(total)]
    forwards = [Pass(FORWARD, chunk, i) for chunk, i in order]
    backwards = [Pass(BACKWARD, chunks - 1 - chunk, i) for chunk, i in order]
    warm_up = min(2 * (pp - pp_stage - 1) + (chunks - 1) * pp, total)
    steady = [each for pair in zip(forwards[warm_up:], backwards, strict=False) for each in pair]
    passes = forwards[:warm_up] + steady + backwards[total - warm_up :]

    def ends(one: Pass) -> tuple[tuple[Transfer, ...], tuple[Transfer, ...]]:
        here, onward = one.chunk * pp + pp_stage, 1 if one.phase == FORWARD else -1
        wanted = (here - onward, here, one.micro_batch), (here, here + onward, one.micro_batch)
        before, after = (((t,) if min(t[:2]) >= 0 and max(t[:2]) < pp * chunks else ()) for t in wanted)
        return before, after

    operations: Schedule = [Post(ends(passes[0])[0])]
    for this, following in zip(passes, [*passes[1:], None], strict=True):
        before, after = ends(this)
        asked = ends(following)[0] if following else ()
        operations += [Post(asked), Wait(before), this, Post(after)]
    return operations
