"""Location of `sql/` and `expectations/`, which lie beside the package: in a checkout, or in an installed copy."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from llmprism_tasks.contract.errors import SettingsError


def folder(name: str) -> Path:
    """Return the folder of a name: beside the package in a checkout, under `share/llmprism` when installed.

    Raises
    ------
    SettingsError : there is no such folder, because the installation is incomplete
    """
    checkout = Path(__file__).resolve().parents[2]
    places = [checkout, Path(sysconfig.get_path("data")) / "share" / "llmprism"]
    for place in places:
        if (place / name).is_dir():
            return place / name
    raise SettingsError(
        found=f"no folder {name}/ in {' or '.join(map(str, places))}",
        expected="the folders that are shipped with llmprism",
        todo="Install llmprism again, or run it from a checkout.",
    )
