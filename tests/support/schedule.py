"""The 1F1B schedule of a pipeline, by hand: when each stage ends each of its passes."""

from __future__ import annotations


def operations(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """Return a stage's forward and backward passes in the order of the 1F1B schedule."""
    warm_up = min(stages - 1 - stage, micro_batches)
    order = [("F", i) for i in range(warm_up)]
    for i in range(micro_batches - warm_up):
        order += [("F", warm_up + i), ("B", i)]
    return order + [("B", i) for i in range(micro_batches - warm_up, micro_batches)]


def pass_times(
    stages: int, micro_batches: int, *, forward: float, backward: float
) -> dict[tuple[str, int, int], float]:
    """Return when each pass of one step ends, by (pass, stage, micro-batch), in ms after the step's beginning."""
    waiting = {stage: operations(stage, stages, micro_batches) for stage in range(stages)}
    free = dict.fromkeys(range(stages), 0.0)
    done: dict[tuple[str, int, int], float] = {}
    while any(waiting.values()):
        for stage, order in waiting.items():
            while order:
                what, i = order[0]
                source = stage - 1 if what == "F" else stage + 1
                if 0 <= source < stages and (what, source, i) not in done:
                    break
                came = done.get((what, source, i), -1.0) + 1
                free[stage] = max(free[stage], came) + (forward if what == "F" else backward)
                done[what, stage, i] = free[stage]
                del order[0]
    return done
