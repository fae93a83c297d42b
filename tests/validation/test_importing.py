"""Great Expectations is imported aside, while somebody may need it already."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASIDE = """
import sys, threading
from llmprism_tasks.validation import importing
threading.Thread(target=importing.ours).start()
while importing.OURS not in sys.modules:
    pass
print(callable(importing.{function}().hold))
"""


@pytest.mark.parametrize("function", ["ours", "brought"])
def test_who_comes_while_it_is_imported_gets_all_of_it(function: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ASIDE.format(function=function)], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "True\n", ran.stderr
