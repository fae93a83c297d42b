"""The plain loop that all is compared with finds what the kernel finds."""

from __future__ import annotations

import numpy as np

from bench import textbook
from llmprism_tasks.methods.changepoint import Prior, start_posterior


def test_it_is_the_kernels_answer() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(level, 0.7, 12) for level in (0, 6, -3, 5)])
    for scale_weight, mean_weight in ((10.0, 1.0), (1000.0, 0.01)):
        prior = Prior(0, 1, mean_weight, scale_weight)
        plain = textbook.start_posterior(values, hazard=0.1, prior=prior)
        kernel = start_posterior(values, hazard=0.1, prior=prior, negligible=0)
        np.testing.assert_allclose(plain, kernel, rtol=1e-7, atol=1e-12)
        assert (plain > 0.95).any()


def test_nothing_and_one_observation() -> None:
    for count in (0, 1):
        plain = textbook.start_posterior(np.zeros(count), hazard=0.1, prior=Prior(0, 1, 1.0, 2.0))
        assert plain.tolist() == [0.0] * count
