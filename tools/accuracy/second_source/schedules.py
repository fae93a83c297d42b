"""The order in which a pipeline stage works."""

from __future__ import annotations

Operation = tuple[str, int, int]
"""Forward or backward ("F", "B"), part of the model on the stage, and micro-batch."""


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
