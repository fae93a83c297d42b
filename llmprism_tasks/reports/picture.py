"""Pictures: write what a terminal would show as an SVG file, for web pages."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console, RenderableType

FONT_FROM_AFAR = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
LINE_CLIP = re.compile(
    r' clip-path="url\(#llmprism-line-\d+\)"|<clipPath id="llmprism-line-\d+">.*?</clipPath>\s*', re.DOTALL
)
"""Lines are clipped to the height of a font that the reader may not have; in another font underscores would be lost."""


def save_svg(renderable: RenderableType, path: Path, *, title: str = "llmprism report", width: int = 100) -> None:
    """Write what a console of `width` columns shows to an SVG file.

    The same content gives the same file, and the file loads nothing: it uses the reader's own fonts.
    """
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(renderable)
    console.print()  # the picture ends with the clip box of the last line, which cuts underscores too
    drawn = console.export_svg(title=title, unique_id="llmprism")
    path.write_text(LINE_CLIP.sub("", FONT_FROM_AFAR.sub("", drawn)), encoding="utf-8")
