"""The background writer works in order, is done at the block's end, and stops at the first failure."""

from __future__ import annotations

import threading

import pytest

from llmprism_tasks.execution.writer import background_writer


def test_each_piece_is_done_after_those_before_it_and_all_at_the_end() -> None:
    done: list[int] = []
    goes_on = threading.Event()
    with background_writer() as writer:
        writer.submit(lambda: done.append(1 if goes_on.wait(10) else 0))
        writer.submit(lambda: done.append(2))
        assert done == []  # the caller is not held up
        goes_on.set()
    assert done == [1, 2]


def test_nothing_is_done_after_a_failure_which_is_raised() -> None:
    done: list[int] = []

    def fail() -> None:
        raise OSError("disk full")

    def give() -> None:
        with background_writer() as writer:
            writer.submit(lambda: done.append(1))
            writer.submit(fail)
            writer.submit(lambda: done.append(2))

    with pytest.raises(OSError, match="disk full"):
        give()
    assert done == [1]


def test_what_was_given_before_the_caller_failed_is_done() -> None:
    done: list[int] = []

    def give_and_fail() -> None:
        with background_writer() as writer:
            writer.submit(lambda: done.append(1))
            raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        give_and_fail()
    assert done == [1]


def test_who_waited_for_a_failure_may_go_on() -> None:
    done: list[int] = []

    def fail() -> None:
        raise OSError("disk full")

    with background_writer() as writer:
        writer.submit(fail)
        writer.submit(lambda: done.append(1))
        with pytest.raises(OSError, match="disk full"):
            writer.wait()
        writer.submit(lambda: done.append(2))
        writer.wait()
    assert done == [2]
