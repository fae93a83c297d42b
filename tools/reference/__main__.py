"""`make reference`: write what docs/ has from the contract and from sql/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from accuracy.pages import diagnosis_page
from reference import grafana, tables_page

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _diagnosis() -> str:
    return diagnosis_page.explained_anew((DOCS / "diagnosis.md").read_text(encoding="utf-8"))


FILES: Mapping[str, Callable[[], str]] = {
    "dashboards/grafana.json": grafana.dashboard,
    "diagnosis.md": _diagnosis,
    "tables.md": tables_page.page,
}
"""Each file, and what makes it."""


def main() -> None:
    """Write all files."""
    for name, made in FILES.items():
        file = DOCS / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(made().rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
