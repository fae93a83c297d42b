"""Each fault of the page on reliability names a test that is there."""

from __future__ import annotations

import pytest
from places import TESTS

from reliability.faults import FAULTS


@pytest.mark.parametrize("test", [test for _, test in FAULTS])
def test_it_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8")
