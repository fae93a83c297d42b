"""Data Docs: Great Expectations' pages about a window, one folder for each validation, the newest of them kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.settings import Settings

HOUR_NS = 3600 * NANOSECONDS_PER_SECOND
KEPT = 100
"""Folders: two days of hourly ones, or those of fifty windows that fail, at half a megabyte each."""


def folder(settings: Settings) -> Path:
    """Return the folder of all Data Docs: `validation.docs`, or beside the warehouse or its data path."""
    place = settings.warehouse.data_path.rstrip("/") or settings.places.warehouse.removeprefix("ducklake:")
    return Path(settings.validation.docs or f"{place}.docs")


def pages(settings: Settings, window: Window, name: str) -> Path:
    """Return the folder of the pages about one validation of a window.

    Parameters
    ----------
    name : of the validation, such as `landed`
    """
    return folder(settings) / f"{window.start:%Y%m%dT%H%M%SZ}-{name}"


def delete(settings: Settings, window: Window) -> None:
    """Delete the pages about a window."""
    for name in ("landed", "results"):
        shutil.rmtree(pages(settings, window, name), ignore_errors=True)


def index(of: Path) -> Path:
    """Return the page to begin with, of the pages in a folder."""
    return of / "index.html"


def is_hourly(window: Window) -> bool:
    """Tell whether a window is the last of its hour, for which pages are built whether it holds or not."""
    return window.start_ns // HOUR_NS < window.end_ns // HOUR_NS


def make_room(of: Path) -> None:
    """Remove a folder's earlier pages, and those of the oldest windows, so that with new ones `KEPT` are left."""
    shutil.rmtree(of, ignore_errors=True)
    if of.parent.is_dir():
        for old in sorted(path for path in of.parent.iterdir() if path.is_dir())[: -(KEPT - 1)]:
            shutil.rmtree(old, ignore_errors=True)  # another process may be doing the same
