"""The loops in Python that all is compared with, our own and a public package's, find what the kernel finds."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from bench.bocd import library, textbook
from llmprism_tasks.stages.published.kernels.bocpd import Prior, start_posterior


@pytest.mark.parametrize("plain", [library, textbook])
def test_it_is_the_kernels_answer(plain: ModuleType) -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(level, 0.7, 12) for level in (0, 6, -3, 5)])
    for scale_weight, mean_weight in ((10.0, 1.0), (1000.0, 0.01)):
        prior = Prior(0, 1, mean_weight, scale_weight)
        posterior = plain.start_posterior(values, hazard=0.1, prior=prior)
        kernel = start_posterior(values, hazard=0.1, prior=prior, negligible=0)
        np.testing.assert_allclose(posterior, kernel, rtol=1e-7, atol=1e-12)
        assert (posterior > 0.95).any()


@pytest.mark.parametrize("plain", [library, textbook])
@pytest.mark.parametrize("count", [0, 1])
def test_nothing_and_one_observation(plain: ModuleType, count: int) -> None:
    posterior = plain.start_posterior(np.zeros(count), hazard=0.1, prior=Prior(0, 1, 1.0, 2.0))
    assert posterior.tolist() == [0.0] * count
