"""Logarithms and exponentials agree with numpy's to the last digits, over all the range that is promised."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.jit import vector_subroutine
from llmprism_tasks.stages.published.kernels.log_functions import LEAST_EXPONENT, exponentials, logarithms

Floats = npt.NDArray[np.float64]


@vector_subroutine
def both(values: Floats, exponents: Floats) -> tuple[Floats, Floats]:
    """Call them as kernels do, which may write to their arrays."""
    copied, room = values.copy(), np.empty(len(values))
    logs, powers = np.empty(len(values)), np.empty(len(values))
    logarithms(copied.view(np.int64), room.view(np.int64), room, logs, len(values))
    exponentials(exponents.copy(), room.view(np.int64), room, powers, len(values))
    return logs, powers


def are_those_of_numpy(values: Floats, exponents: Floats) -> bool:
    logs, powers = both(values, exponents)
    alike = np.allclose(powers, np.exp(exponents), rtol=1e-15, atol=0)
    return alike and np.allclose(logs, np.log(values), rtol=1e-15, atol=1e-15)


def test_no_numbers_have_none() -> None:
    assert are_those_of_numpy(np.empty(0), np.empty(0))


def test_the_ends_of_the_range() -> None:
    values = np.array(
        [np.finfo(np.float64).tiny, np.finfo(np.float64).max, 1.0, np.nextafter(1, 0), np.nextafter(1, 2)]
    )
    assert are_those_of_numpy(values, np.array([LEAST_EXPONENT, -LEAST_EXPONENT, 0.0, -1e-300, 1e-300]))


@given(st.lists(st.tuples(st.floats(1e-307, 1e307), st.floats(LEAST_EXPONENT, 0)), max_size=40))
def test_they_are_those_of_numpy(pairs: list[tuple[float, float]]) -> None:
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    assert are_those_of_numpy(np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1]))
