"""Host lists: many host names on one line, in Slurm's notation: node[0000-0015,0020]."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

NUMBERED = re.compile(r"(.*?)(\d+)$")


def abbreviated(names: Iterable[str]) -> str:
    """Join host names; names that differ only in their last number are written as ranges.

    Numbers of different width are kept apart, so that `node9` and `node09` stay two hosts. Empty for no names.
    """
    found = {name: NUMBERED.fullmatch(name) for name in sorted(set(names))}
    written = [name for name, match in found.items() if match is None]
    parts = [(match[1], match[2]) for match in found.values() if match is not None]
    padded = {(prefix, len(digits)) for prefix, digits in parts if digits.startswith("0") and digits != "0"}
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for prefix, digits in parts:
        numbers[prefix, len(digits) if (prefix, len(digits)) in padded else 0].append(int(digits))
    for (prefix, width), members in numbers.items():
        ranges = ",".join(_ranges(sorted(members), width))
        written.append(f"{prefix}[{ranges}]" if len(members) > 1 else f"{prefix}{ranges}")
    return ", ".join(sorted(written))


def _ranges(numbers: list[int], width: int) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ["-".join(f"{end:0{width}d}" for end in sorted({run[0], run[-1]})) for run in runs]
