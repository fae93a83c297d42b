"""A picture of what a terminal would show, for pages where there is none."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console, RenderableType

FONT_FROM_AFAR = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def save_svg(renderable: RenderableType, path: Path, *, title: str = "llmprism report", width: int = 100) -> None:
    """Write what a console `width` columns wide shows as an SVG file.

    The same content gives the same file, and it loads nothing from elsewhere: fonts are the reader's own.
    """
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(renderable)
    path.write_text(FONT_FROM_AFAR.sub("", console.export_svg(title=title, unique_id="llmprism")), encoding="utf-8")
