"""Memory is kept as is said here, unless somebody has said otherwise; and Polars' allocator takes it as meant."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

from llmprism_tasks import memory


def test_what_somebody_has_said_stands() -> None:
    theirs = {memory.VARIABLE: "dirty_decay_ms:1"}
    memory.keep(theirs)
    assert theirs == {memory.VARIABLE: "dirty_decay_ms:1"}


def test_the_allocator_knows_all_the_words() -> None:
    """It says what it does not know, on standard error, and goes on."""
    for spoilt in (False, True):
        environment = dict(os.environ)
        memory.keep(environment)
        environment[memory.VARIABLE] += ",dirty_decay_seconds:1" if spoilt else ""
        done = subprocess.run(
            [sys.executable, "-c", "import polars; polars.int_range(0, 10, eager=True)"],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ("Invalid conf" in done.stderr) == spoilt


def test_garbage_in_circles_is_looked_for_seldom_and_found_all_the_same() -> None:
    before = gc.get_threshold()
    try:
        memory.seldom_look()
        assert gc.get_threshold()[0] == memory.SELDOM
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
