"""Reading a section of a scenario file into the dataclass that declares it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from llmprism_tasks.contract.errors import SettingsError

NO_END_S = 1e9  # seconds; later than any run's end

Section = TypeVar("Section")


def indices(reason: str) -> Any:
    """Declare a set of numbers, given as text such as `0-3,6` or as a list."""
    return field(default=(), metadata={"unit": "indices", "reason": reason})


def wrong(found: str, expected: str) -> SettingsError:
    """Return the error of a scenario file that says what was found and what was expected."""
    return SettingsError(found=found, expected=expected, todo="Correct the scenario file.")


def known(where: str, raw: object, names: set[str]) -> None:
    """Refuse what is no table of the file, and keys that nobody knows.

    Raises
    ------
    SettingsError : naming the place and the key
    """
    if not isinstance(raw, Mapping):
        raise wrong(f"{where} = {raw!r}", "a table of keys")
    for key in raw:
        if key not in names:
            raise wrong(f"{where}: key {key}", f"one of {', '.join(sorted(names))}")


def tables(content: Mapping[str, Any], key: str) -> list[tuple[int, Any]]:
    """Return the tables of a list of tables in the file, numbered from 0; none where the file has none.

    Raises
    ------
    SettingsError : if the key holds something else
    """
    raw = content.get(key, [])
    if not isinstance(raw, list):
        raise wrong(f"{key} = {raw!r}", f"tables written [[{key}]]")
    return list(enumerate(raw))


def section(kind: type[Section], raw: Any, where: str) -> Section:
    """Return a section of the file as a value of its class; keys that the file leaves out have their defaults.

    Raises
    ------
    SettingsError : if a key is unknown or its value is out of bounds
    """
    declared = {setting.name: setting for setting in fields(kind)}  # type: ignore[arg-type]
    known(where, raw, set(declared))
    return kind(**{name: _value(f"{where}.{name} = {value!r}", declared[name], value) for name, value in raw.items()})


def _value(where: str, setting: dataclasses.Field[Any], raw: Any) -> Any:
    meta, default = setting.metadata, setting.default
    if meta["unit"] == "indices":
        return _indices(where, raw)
    if isinstance(default, str):
        choices = meta["choices"]
        if not isinstance(raw, str) or (choices and raw not in choices):
            raise wrong(where, " or ".join(choices) or "text")
        return raw
    wanted = int if isinstance(default, int) else (int, float)
    if isinstance(raw, bool) or not isinstance(raw, wanted) or not meta["low"] <= raw <= meta["high"]:
        whole = "a whole number" if wanted is int else "a number"
        raise wrong(where, f"{whole} from {meta['low']:g} to {meta['high']:g} {meta['unit']}")
    return int(raw) if wanted is int else float(raw)


def _indices(where: str, raw: Any) -> tuple[int, ...]:
    parts = raw.split(",") if isinstance(raw, str) else [str(part) for part in raw] if isinstance(raw, list) else []
    try:
        spans = [[int(end) for end in part.split("-")] for part in parts]
        found = tuple(value for span in spans for value in range(span[0], span[-1] + 1))
        usable = all(len(span) < 3 and span[0] <= span[-1] for span in spans) and len(set(found)) == len(found) > 0
    except ValueError:
        usable = False
    if not usable:
        raise wrong(where, "different numbers, as text such as 0-3,6 or as a list")
    return found
