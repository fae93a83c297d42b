"""The suites of `expectations/`: one for each table, named for it, as Great Expectations' JSON has them."""

from __future__ import annotations

import json
from typing import Any

from llmprism_tasks.contract import shipped_files
from llmprism_tasks.contract.errors import ContractError


def suite(table: str) -> dict[str, Any]:
    """Return a table's suite.

    Raises
    ------
    ContractError : there is no such suite, or an expectation of it has no name
    """
    suites = shipped_files.folder("expectations")
    path = suites / f"{table}.json"
    if not path.is_file():
        raise ContractError(
            found=f"no suite {path.name}",
            expected=f"one of {', '.join(sorted(file.stem for file in suites.glob('*.json')))}",
            todo="Name a table that has a suite, or write one.",
        )
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if not all(expectation.get("meta", {}).get("name") for expectation in loaded["expectations"]):
        raise ContractError(
            found=f"an expectation without a name in {path.name}",
            expected='each expectation with "meta": {"name": …}',
            todo="Name it: results are kept by that name.",
        )
    return loaded
