"""The reference: digests of every answer for each input and way of analysing it, in one small JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from accuracy.equality.answers import ANSWERS, Digests

WHOLE = "whole"
"""The way that others are told by: of them, only answers that differ from its are kept."""

INPUTS = "inputs"
"""In the place of a way: the digest of what was analysed, and the windows' starts in nanoseconds."""

ABSENT = "-"
"""In the place of a digest where a window has no rows."""

Entry: TypeAlias = dict[str, dict[str, str]]
"""What there is of an input: by way and answer, the windows' digests in order, with a blank between them."""


def read(file: Path) -> dict[str, Entry]:
    """Return the entries by input; none if there is no file."""
    entries: dict[str, Entry] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return entries


def write(file: Path, entries: Mapping[str, Entry]) -> None:
    """Write entries, a line for each answer, so that a difference between two versions can be read."""
    file.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n", encoding="utf-8")


def entry_of(digest: str, found: Mapping[str, Digests]) -> Entry:
    """Return an input's entry.

    Parameters
    ----------
    digest : of what was analysed
    found : the answers' digests by way, `WHOLE` among them
    """
    windows = sorted({window for digests in found.values() for of_answer in digests.values() for window in of_answer})
    texts = {
        way: {answer: " ".join(of.get(window, ABSENT) for window in windows) for answer, of in digests.items()}
        for way, digests in found.items()
    }
    entry = {INPUTS: {"windows": " ".join(map(str, windows)), "digest": digest}}
    for way, of_way in texts.items():
        entry[way] = {
            answer: text for answer, text in of_way.items() if way == WHOLE or text != texts[WHOLE].get(answer)
        }
    return entry


def digests(entry: Entry, way: str) -> Digests:
    """Return what `entry_of` was told of a way."""
    windows = [int(window) for window in entry[INPUTS]["windows"].split()]
    texts = entry[WHOLE] | entry[way]
    return {
        answer: {window: digest for window, digest in zip(windows, text.split(), strict=True) if digest != ABSENT}
        for answer, text in texts.items()
    }


def changed(expected: Digests, met: Digests) -> dict[str, list[int]]:
    """Return the windows of which answers differ, by answer, for those that do."""
    found = {
        answer: [
            window
            for window in sorted({*expected.get(answer, {}), *met.get(answer, {})})
            if expected.get(answer, {}).get(window) != met.get(answer, {}).get(window)
        ]
        for answer in ANSWERS
    }
    return {answer: windows for answer, windows in found.items() if windows}
