"""Kernels take arrays however they lie in memory, are compiled once, and are loaded from Numba's cache after that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from llmprism_tasks.numerics.jit import FLOAT64, FLOAT64S, INT64S, kernel, named_tuple, subroutine

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Pair(NamedTuple):
    numbers: Integers
    weights: Floats


@subroutine
def total(numbers: Integers) -> int:
    found = 0
    for number in numbers:
        found += number
    return found


@kernel(INT64S)
def summed(numbers: Integers) -> int:
    return total(numbers)


@kernel(named_tuple(Pair, INT64S, FLOAT64S), FLOAT64)
def weighted(pair: Pair, by: float) -> float:
    return float((pair.numbers * pair.weights).sum() / by)


def _fixed(numbers: Integers) -> Integers:
    numbers.flags.writeable = False
    return numbers


@pytest.mark.parametrize(
    "numbers",
    [np.arange(4), _fixed(np.arange(4)), np.arange(8)[:4], np.repeat(np.arange(4), 2)[::2], np.arange(4)[::-1]],
    ids=["own", "read_only", "part", "every_other", "backwards"],
)
def test_an_array_may_lie_in_memory_in_any_way(numbers: Integers) -> None:
    writeable = numbers.flags.writeable
    assert summed(numbers) == 6
    assert weighted(Pair(numbers, np.ones(4)), 1.0) == 6.0
    assert numbers.flags.writeable == writeable


def test_an_array_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        summed(np.arange(4.0))


def test_a_division_by_zero_is_infinite() -> None:
    assert weighted(Pair(np.ones(1, np.int64), np.ones(1)), 0.0) == np.inf


KERNELS = """
from llmprism_tasks.numerics.jit import INT64S, kernel, subroutine

@subroutine
def first(numbers):
    if not numbers.size:
        raise ValueError("no numbers")
    return numbers[0]

@kernel(INT64S)
def doubled(numbers):
    return first(numbers) * 2
"""
USE = """
import numpy as np
import kernels
print(kernels.doubled(np.arange(3, 9)))
try:
    kernels.doubled(np.arange(0))
except ValueError as error:
    print(error)
"""


@pytest.fixture
def used(tmp_path: Path) -> Callable[[], list[str]]:
    """Use kernels in a process of their own; returns what Numba says of its cache."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    variables = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DEBUG_CACHE": "1"}

    def run() -> list[str]:
        command = [sys.executable, "-c", USE]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
        said = done.stdout.splitlines()
        assert said[-2:] == ["6", "no numbers"]
        return [line for line in said if "data " in line]

    return run


def test_a_kernel_is_compiled_once_with_its_subroutines(used: Callable[[], list[str]]) -> None:
    (saved,) = used()
    assert "data saved" in saved
    (loaded,) = used()
    assert "data loaded" in loaded


def test_a_changed_kernel_is_compiled_again(used: Callable[[], list[str]], tmp_path: Path) -> None:
    used()
    (tmp_path / "kernels.py").write_text(f"{KERNELS}\nCHANGED = True\n")
    assert any("data saved" in line for line in used())
