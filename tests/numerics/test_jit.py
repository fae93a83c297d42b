"""Kernels: what was compiled once is loaded in another process, before it is called if wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmprism_tasks.numerics.loading import stamp

KERNELS = """
import numpy as np
from llmprism_tasks.methods.compiled import compiled

@compiled
def fill(values, number):
    values[:] = number

@compiled
def filled(like, number):
    values = np.empty_like(like)
    fill(values, number)
    return values

@compiled
def element(values, place):
    if place >= values.size:
        raise ValueError(values.size, "elements")
    return values[place]
"""
USE = """
import numpy as np, numba.core.event as event, sys
from llmprism_tasks.methods.compiled import load_all
import kernels

if "wrong" in sys.argv:
    try:
        kernels.element(np.arange(3), 3)
    except ValueError as error:
        print(*error.args)
if "ahead" in sys.argv:
    load_all()
    print(len(kernels.filled._dispatcher.overloads), len(kernels.fill._dispatcher.overloads))
with event.install_recorder("numba:compile") as compiling:
    assert (kernels.filled(np.arange(3), 7) == 7).all()
functions = {one.data["dispatcher"].py_func for _, one in compiling.buffer}
print(*sorted(one.__name__ for one in functions if one.__module__ == "kernels"))
"""


@pytest.fixture
def use(tmp_path: Path) -> Callable[..., list[str]]:
    (tmp_path / "kernels.py").write_text(KERNELS)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(*words: str) -> list[str]:
        command = [sys.executable, "-c", USE, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    return run


def test_a_kernel_is_compiled_once_and_can_be_loaded_before_it_is_called(use: Callable[..., list[str]]) -> None:
    assert use("ahead") == ["0", "0", "fill", "filled"]  # nothing to load yet, and nothing is compiled ahead
    assert use() == []
    assert use("ahead") == ["1", "0"]  # what only kernels call is part of them already


def test_what_was_compiled_before_goes_into_kernels_that_are_compiled_later(
    use: Callable[..., list[str]], tmp_path: Path
) -> None:
    use()
    for kept in (tmp_path / "cache").rglob("kernels.filled-*"):
        kept.unlink()
    assert use() == ["filled"]
    assert use() == []


def test_what_is_kept_can_be_loaded_by_numba_itself(use: Callable[..., list[str]], tmp_path: Path) -> None:
    use()
    kept = b"".join(file.read_bytes() for file in (tmp_path / "cache").rglob("*.nbc"))
    assert b"_rebuild_env" in kept
    assert b"_surroundings" not in kept


def test_what_is_loaded_raises_what_it_raised(use: Callable[..., list[str]]) -> None:
    for _ in range(2):
        assert use("wrong")[:2] == ["3", "elements"]


OF_A_TUPLE = """
from typing import NamedTuple
import numpy as np, sys
from llmprism_tasks.methods.compiled import compiled, load_all

class TUPLE(NamedTuple):
    values: object

@compiled
def first(given):
    return given.values[0]

if "ahead" in sys.argv:
    load_all()
print(first(TUPLE(np.arange(7, 9))))
"""


@pytest.mark.parametrize("words", [[], ["ahead"]], ids=["when_called", "ahead"])
def test_what_was_compiled_for_a_tuple_that_is_gone_is_compiled_anew(tmp_path: Path, words: list[str]) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for name in ("Before", "Before", "After"):
        (tmp_path / "kernels.py").write_text(OF_A_TUPLE.replace("TUPLE", name))
        command = [sys.executable, "-c", "import kernels", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


@pytest.mark.parametrize("words", [(), ("ahead",)], ids=["when_called", "ahead"])
@pytest.mark.parametrize("kind", ["nbc", "nbi"])
@pytest.mark.parametrize("spoilt", [b"", b"no machine code"])
def test_what_is_spoilt_is_compiled_anew(
    use: Callable[..., list[str]], tmp_path: Path, words: tuple[str, ...], kind: str, spoilt: bytes
) -> None:
    use()
    for kept in (tmp_path / "cache").rglob(f"kernels.filled-*.{kind}"):
        kept.write_bytes(spoilt)
    use(*words)
    assert use() == []


def test_kernels_are_compiled_anew_with_what_they_may_call(tmp_path: Path) -> None:
    (tmp_path / "sorting.py").write_text("1")
    before = stamp(tmp_path)
    assert stamp(tmp_path) == before
    (tmp_path / "sorting.py").write_text("2")
    stamp.cache_clear()
    assert stamp(tmp_path) != before
