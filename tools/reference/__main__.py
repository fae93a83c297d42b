"""`make reference`: write the files of docs/ that are made from the contract and from sql/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from reference import grafana, tables_page

DOCS = Path(__file__).resolve().parents[2] / "docs"

FILES: Mapping[str, Callable[[], str]] = {"dashboards/grafana.json": grafana.dashboard, "tables.md": tables_page.page}
"""Each file, and what makes it."""


def main() -> None:
    """Write all files."""
    for name, made in FILES.items():
        file = DOCS / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(made().rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
