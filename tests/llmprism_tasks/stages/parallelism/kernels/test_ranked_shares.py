"""The parts of wholes are ranked, added and looked up as a plain loop does it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.kernels import ranked_shares

PARTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.1, 0.2, 0.4]), st.sampled_from([1.0, 3.0, math.nan])))


@given(PARTS)
def test_parts_are_ranked_and_the_largest_that_has_a_value_gives_it(parts: list[tuple[int, float, float]]) -> None:
    """Whole, share, value."""
    wholes = np.array([part[0] for part in parts], np.int64)
    share, values = (np.array([part[i] for part in parts], np.float64) for i in (1, 2))
    ranks = ranked_shares.ranked(wholes, 5, share)
    expected = [
        sorted((i for i in range(len(parts)) if wholes[i] == whole), key=lambda i: share[i]) for whole in range(5)
    ]
    places, offsets = ranks
    assert [places[low:high].tolist() for low, high in pairwise(offsets)] == expected
    known = [[values[i] for i in some if not math.isnan(values[i])] for some in expected]
    found = ranked_shares.of_largest(values, *ranks).tolist()
    assert [None if math.isnan(one) else one for one in found] == [some[-1] if some else None for some in known]
    assert ranked_shares.sums(share, *ranks).tolist() == [sum(share[some].tolist()) for some in expected]
