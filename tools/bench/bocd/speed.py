"""`python -m bench.bocd.speed`: observations a second that change-point detection takes in, on one core."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np

from bench.bocd import textbook
from llmprism_tasks.stages.published.kernels.bocpd import Prior, start_posterior

SERIES, LENGTH = 2_000, 200
"""Series of noise around levels that last for 5 to 100 observations."""

REPEATS = 9
IN_PYTHON = 10
"""Series that the Python loop is given."""

CASES = {
    "defaults, a change in a hundred": (0.01, Prior(0.0, 1.0)),
    "defaults, a change in ten": (0.1, Prior(0.0, 1.0)),
    "an unsure belief in the scale": (0.01, Prior(0.0, 1.0, mean_weight=1.0, scale_weight=10.0)),
}


def speeds() -> list[dict[str, Any]]:
    """Return, for each case, observations a second of the kernel (median and best of repeats) and of the Python loop.

    Time is the process's own on the one thread there is, so that other work on the machine does not count as much.
    """
    return [{"case": case, **_speed(hazard, prior)} for case, (hazard, prior) in CASES.items()]


def _speed(hazard: float, prior: Prior) -> dict[str, Any]:
    values = np.stack([_series(seed) for seed in range(SERIES)])
    offsets = np.arange(0, values.size + 1, LENGTH)
    start_posterior(values[0], hazard=hazard, prior=prior)  # compiled by now
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        posterior = start_posterior(values.ravel(), offsets, hazard=hazard, prior=prior)
        taken.append(time.process_time() - began)
    began = time.process_time()
    plain = [textbook.start_posterior(values[one], hazard=hazard, prior=prior) for one in range(IN_PYTHON)]
    python_s = time.process_time() - began
    sample = posterior.reshape(values.shape)[:IN_PYTHON]
    return {
        "observations": values.size,
        "per_s": values.size / statistics.median(taken),
        "best_per_s": values.size / min(taken),
        "python_per_s": IN_PYTHON * LENGTH / python_s,
        "marks": int((sample > 0.95).sum()),
        "other_marks": int(((np.stack(plain) > 0.95) != (sample > 0.95)).sum()),
    }


def _series(seed: int) -> textbook.Floats:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, 100, LENGTH // 5)
    levels = np.repeat(rng.integers(-8, 9, len(lengths)), lengths)[:LENGTH]
    return levels + rng.normal(0, 0.7, LENGTH)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(speeds()))
