"""Errors of the operating system: each is known by number or words, and says whether waiting can help."""

from __future__ import annotations

import errno
import os

import pytest

from llmprism_tasks.contract import system_errors
from llmprism_tasks.contract.errors import InputError, LlmprismError, TransientError


@pytest.mark.parametrize("number", system_errors.TROUBLES, ids=errno.errorcode.get)
def test_it_is_known_from_the_system_and_from_a_library_that_repeats_it(number: int) -> None:
    words = os.strerror(number)
    own = system_errors.typed(OSError(number, words, "/data/x"))
    repeated = system_errors.typed(ValueError(f'Could not write file "/data/x": {words}'), "warehouse x")
    assert own is not None
    assert repeated is not None
    assert (own.found, repeated.found) == (f"/data/x: {words}", f"warehouse x: {words}")
    assert type(own) is type(repeated)
    assert (own.expected, own.todo) == (repeated.expected, repeated.todo)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, ""), TransientError),
        (OSError(errno.EDQUOT, ""), TransientError),
        (OSError(errno.ESTALE, ""), TransientError),
        (MemoryError(), TransientError),
        (OSError(errno.EXDEV, ""), TransientError),  # none that is known: it may pass
        (PermissionError(errno.EACCES, ""), InputError),
        (OSError(errno.EROFS, ""), InputError),
        (OSError(errno.ENAMETOOLONG, ""), InputError),
        (OSError(errno.EFBIG, ""), InputError),
    ],
)
def test_only_what_may_pass_is_worth_waiting_for(error: Exception, kind: type[LlmprismError]) -> None:
    with pytest.raises(LlmprismError) as raised, system_errors.named():
        raise error
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [KeyError("x"), ValueError("no space"), BrokenPipeError(errno.EPIPE, ""), OSError("no number")]
)
def test_a_bug_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, system_errors.named():
        raise error
    assert raised.value is error
