"""The order in which a pipeline stage works."""

from __future__ import annotations

Operation = tuple[str, int, int]
"""Forward, backward, or gradients of weights ("F", "B", "W"); part of the model on the stage; and micro-batch."""


def gpipe(micro_batches: int) -> list[Operation]:
    """Return what a stage does in a step if all forward passes come first (GPipe, Huang et al. 2019)."""
    return [(kind, 0, number) for kind in ("F", "B") for number in range(micro_batches)]


def zero_bubble(stage: int, pp: int, micro_batches: int) -> list[Operation]:
    """Return what a stage does in a step if gradients of weights wait until there is time (ZB-H1, Qi et al. 2023).

    As many of them are put off as the stage has forward passes under way, so that it keeps no more than in 1F1B.
    """
    order: list[Operation] = []
    put_off = pp - stage - 1
    done = 0
    for operation in operations(stage, pp, 1, micro_batches):
        order.append(operation)
        if operation[0] == "B" and operation[2] >= put_off:
            order.append(("W", 0, done))
            done += 1
    return order + [("W", 0, number) for number in range(done, micro_batches)]


def operations(stage: int, pp: int, chunks: int, micro_batches: int) -> list[Operation]:
    """Return what a stage does in a step: 1F1B, interleaved if there are several chunks (Narayanan et al. 2021).

    Parameters
    ----------
    micro_batches : a multiple of `pp` if there are several chunks
    """
    work = [_turn(place, pp, chunks) for place in range(micro_batches * chunks)]
    forward = [("F", chunk, number) for chunk, number in work]
    backward = [("B", chunks - 1 - chunk, number) for chunk, number in work]
    warm = pp - stage - 1 if chunks == 1 else 2 * (pp - stage - 1) + (chunks - 1) * pp
    warm = min(warm, len(forward))
    order = forward[:warm]
    for one, other in zip(forward[warm:], backward, strict=False):
        order += [one, other]
    return order + backward[len(forward) - warm :]


def _turn(place: int, pp: int, chunks: int) -> tuple[int, int]:
    """Return the chunk and micro-batch of a stage's n-th forward pass: `pp` micro-batches per chunk, by turns."""
    if chunks == 1:
        return 0, place
    round_, rest = divmod(place, pp * chunks)
    return rest // pp, round_ * pp + rest % pp
