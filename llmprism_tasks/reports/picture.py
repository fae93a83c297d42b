"""A picture of what a terminal would show, for pages where there is none."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console, RenderableType

FONT_FROM_AFAR = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
LINE_CLIP = re.compile(
    r' clip-path="url\(#llmprism-line-\d+\)"|<clipPath id="llmprism-line-\d+">.*?</clipPath>\s*', re.DOTALL
)
"""Lines are cut to the height of a font that may not be there; of another one, underscores would be lost."""


def save_svg(renderable: RenderableType, path: Path, *, title: str = "llmprism report", width: int = 100) -> None:
    """Write what a console `width` columns wide shows as an SVG file.

    The same content gives the same file, and it loads nothing from elsewhere: fonts are the reader's own.
    """
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(renderable)
    console.print()  # the picture ends with the last line's box, and that cuts underscores too
    drawn = console.export_svg(title=title, unique_id="llmprism")
    path.write_text(LINE_CLIP.sub("", FONT_FROM_AFAR.sub("", drawn)), encoding="utf-8")
