"""Configuration: defaults, a file, the environment and the command line -> checked settings, read once at the edge."""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.settings import PlaceSettings, Settings
from llmprism_tasks.settings.secrets import ALONE, read_secret, split_location

ENVIRONMENT_PREFIX = "LLMPRISM_"
SECTIONS = {section.name for section in fields(Settings)}

SECRETS = frozenset(
    (section.name, setting.name)
    for section in fields(Settings)
    for setting in fields(getattr(Settings(), section.name))
    if setting.metadata.get("secret")
)
"""Section and name of each setting whose value is never shown."""

HIDDEN = "(set, not shown)"
"""Stands for the value of a secret: what is printed ends in tickets and logs."""


@dataclass(frozen=True)
class Origin:
    """One setting as it would run: its value (`HIDDEN` for a secret), unit, reason and where the value came from."""

    section: str
    name: str
    value: object
    unit: str
    reason: str
    source: str


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Settings:
    """Build settings from defaults, a TOML file, environment variables and overrides; the later wins.

    Parameters
    ----------
    file : TOML with one table per section, such as `[window]` with `length_s = 60`
    environment : variables such as `LLMPRISM_WINDOW__LENGTH_S`; for a secret also one that names a file which
        holds it, such as `LLMPRISM_NOTIFY__WEBHOOK_FILE`
    overrides : `section.name` to text, from the command line

    Raises
    ------
    SettingsError : an unknown section or name, an unparsable value, or one out of its range
    """
    settings, _ = load_with_origins(file=file, environment=environment, overrides=overrides)
    return settings


def of_environment() -> Settings:
    """Return the settings from `LLMPRISM_*` variables and from the TOML file that `LLMPRISM_SETTINGS` names.

    Raises
    ------
    SettingsError : as for `load`
    """
    file = os.environ.get("LLMPRISM_SETTINGS")
    return load(file=Path(file) if file else None, environment=os.environ)


def load_with_origins(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> tuple[Settings, list[Origin]]:
    """Build settings as `load` does, and tell of each value where it came from."""
    given: dict[tuple[str, str], tuple[object, str]] = {}
    for layer in (_from_file(file), _from_environment(environment or {}), _from_overrides(overrides or {})):
        given.update(layer)
    _take_password_out(given)
    sections: dict[str, Any] = {}
    origins: list[Origin] = []
    for section in fields(Settings):
        kind = type(getattr(Settings(), section.name))
        values: dict[str, object] = {}
        for setting in fields(kind):
            raw, source = given.pop((section.name, setting.name), (setting.default, "default"))
            values[setting.name] = value = _checked(section.name, setting, raw, source)
            meta = setting.metadata
            shown = HIDDEN if value and meta.get("secret") else value
            origins.append(Origin(section.name, setting.name, shown, meta["unit"], meta["reason"], source))
        sections[section.name] = kind(**values)
    if given:
        (section_name, name), (_, source) = next(iter(given.items()))
        known = [f"{origin.section}.{origin.name}" for origin in origins]
        likely = difflib.get_close_matches(f"{section_name}.{name}", known, 1)
        raise SettingsError(
            found=f"unknown setting {section_name}.{name} in {source}",
            expected="one of the settings that `llmprism settings` lists",
            todo=f"Correct its spelling{f' ({likely[0]}?)' if likely else ''} or remove it.",
        )
    settings = Settings(**sections)
    _check_places(settings.places)
    return settings, origins


def _check_places(places: PlaceSettings) -> None:
    """Refuse an empty warehouse, and a read copy that would be published over the warehouse that it is copied from."""
    if not places.warehouse:
        raise SettingsError(
            found="places.warehouse, which is empty",
            expected="a DuckDB file, or a DuckLake",
            todo="Set it (--warehouse, LLMPRISM_PLACES__WAREHOUSE), or remove the variable.",
        )
    if places.read_copy and Path(places.read_copy).resolve() == Path(places.warehouse).resolve():
        raise SettingsError(
            found="places.read_copy, which is the file of places.warehouse",
            expected="a file of its own, to which results are copied",
            todo="Set places.read_copy to another file, or to nothing.",
        )


def _from_file(file: Path | None) -> dict[tuple[str, str], tuple[object, str]]:
    if file is None:
        return {}
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(
            found=f"settings file {file} that cannot be read ({error})",
            expected="TOML with one table per section",
            todo="Correct the file or leave it out.",
        ) from error
    return {
        (section, name): (value, str(file))
        for section, values in content.items()
        for name, value in (values.items() if isinstance(values, dict) else [("", values)])
    }


def _from_environment(environment: Mapping[str, str]) -> dict[tuple[str, str], tuple[object, str]]:
    found: dict[tuple[str, str], tuple[object, str]] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        section, double, name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        if double and (section, plain := name.removesuffix("_file")) in SECRETS and plain != name:
            if environment.get(variable[: -len("_FILE")]):
                raise SettingsError(
                    found=f"both variables {variable[: -len('_FILE')]} and {variable}",
                    expected="one of them",
                    todo="Remove the other.",
                )
            found[(section, plain)] = (read_secret(value, variable), variable)
        elif double:
            found.setdefault((section, name), (value, variable))  # an empty one does not hide its file
        elif (first := section.partition("_")[0]) in SECTIONS and first != section:
            # It would change nothing, and say nothing.
            meant = f"{ENVIRONMENT_PREFIX}{first}__{section.removeprefix(f'{first}_')}".upper()
            raise SettingsError(
                found=f"variable {variable}",
                expected="two underscores between section and name",
                todo=f"Call it {meant}, if that is what it was meant to set, or remove it.",
            )
    return found


def _take_password_out(given: dict[tuple[str, str], tuple[object, str]]) -> None:
    """Move a password in the location of the warehouse to the setting that is never shown.

    Raises
    ------
    SettingsError : it is the location of a database; the message does not repeat it, for it may hold a password
    """
    location, source = given.get(("places", "warehouse"), ("", ""))
    if isinstance(location, str):
        if alone := ALONE.match(location):
            raise SettingsError(
                found=f"places.warehouse from {source}, which begins with {alone[0]}",
                expected="a DuckDB file, or a DuckLake, as in ducklake:postgres:dbname=… host=…",
                todo="Correct the location.",
            )
        shown, password = split_location(location)
        if password:
            given["places", "warehouse"] = (shown, source)
            given["warehouse", "catalog_password"] = (password, source)


def _from_overrides(overrides: Mapping[str, str]) -> dict[tuple[str, str], tuple[object, str]]:
    return {
        (section, name): (value, f"--set {key}")
        for key, value in overrides.items()
        for section, _, name in [key.partition(".")]
    }


def _checked(section: str, setting: dataclasses.Field[Any], raw: object, source: str) -> object:
    meta, kind = setting.metadata, type(setting.default)
    where = f"{section}.{setting.name} = {HIDDEN if meta.get('secret') else repr(raw)} from {source}"
    if kind is str:
        choices, several = meta["choices"], meta["several"]
        words = [raw] if not isinstance(raw, str) or not several else [word.strip() for word in raw.split(",") if raw]
        if not isinstance(raw, str) or (choices and not set(words) <= set(choices)):
            expected = (" or ".join(choices) or "text") + (", with commas between several" if several else "")
            raise SettingsError(found=where, expected=expected, todo="Correct the value.")
        if "\0" in raw:  # no path, name or address has one; the system's functions would raise a ValueError
            raise SettingsError(found=where, expected="text without a NUL character", todo="Correct the value.")
        if raw and meta["begins"] and (not raw.startswith(meta["begins"]) or raw in meta["begins"]):
            begins = " or ".join(meta["begins"])
            raise SettingsError(found=where, expected=f"{begins} and what follows it", todo="Correct the value.")
        return raw
    span = f"a {'whole ' if kind is int else ''}number from {meta['low']:g} to {meta['high']:g} ({meta['unit']})"
    try:
        if isinstance(raw, bool):
            raise ValueError
        value = (int if kind is int else float)(str(raw))
        if isinstance(raw, float) and value != raw:
            raise ValueError
    except (TypeError, ValueError) as error:
        raise SettingsError(found=where, expected=span, todo="Correct the value.") from error
    if not meta["low"] <= value <= meta["high"]:
        raise SettingsError(found=where, expected=span, todo="Choose a value in the range.")
    return value
