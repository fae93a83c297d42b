"""Every number that can be set: default, unit, range and reason in one place, read once at the edge."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from llmprism_tasks.errors import SettingsError
from llmprism_tasks.windows import NANOSECONDS_PER_SECOND

ENVIRONMENT_PREFIX = "LLMPRISM_"


def number(default: float, *, unit: str, low: float, high: float, reason: str) -> Any:
    """Declare a numeric setting with its unit, its range (both ends allowed) and why it is what it is."""
    return field(default=default, metadata={"unit": unit, "low": low, "high": high, "reason": reason})


def text(default: str, *, reason: str, choices: tuple[str, ...] = ()) -> Any:
    """Declare a text setting; `choices` is empty when any text will do."""
    return field(default=default, metadata={"unit": "text", "choices": choices, "reason": reason})


@dataclass(frozen=True)
class WindowSettings:
    """How time is cut, how far back a window looks and how long it waits."""

    length_s: int = number(60, unit="s", low=1, high=3600, reason="the published system reports by the minute")
    lookback_windows: int = number(
        5,
        unit="windows",
        low=0,
        high=60,
        reason="five minutes hold three whole steps of 90 s, the longest that are to come out whole",
    )
    allowed_lateness_s: int = number(
        15, unit="s", low=0, high=3600, reason="how long after its end a window waits for records still on their way"
    )

    @property
    def length_ns(self) -> int:
        return self.length_s * NANOSECONDS_PER_SECOND

    @property
    def allowed_lateness_ns(self) -> int:
        return self.allowed_lateness_s * NANOSECONDS_PER_SECOND


@dataclass(frozen=True)
class PlaceSettings:
    """Where flows and topology come from and where results go."""

    flows: str = text(
        "flows",
        reason="a file, a folder, or a pattern with the window's start, such as flows/{window:%Y%m%dT%H%M}.parquet",
    )
    topology: str = text("topology.csv", reason="the NIC table, CSV or Parquet")
    warehouse: str = text("llmprism.duckdb", reason="a DuckDB file, or a DuckLake as ducklake:…")


@dataclass(frozen=True)
class WarehouseSettings:
    """Patience with other processes."""

    lock_wait_s: float = number(
        60.0, unit="s", low=0, high=3600, reason="a window's largest write takes seconds, and a few may queue"
    )


@dataclass(frozen=True)
class BatchSettings:
    """When the work on a window's jobs is divided among tasks."""

    flows: int = number(
        500_000,
        unit="flows",
        low=1,
        high=1_000_000_000,
        reason="a task costs half a second before it works; a batch's work (look-back included) should cost far more",
    )
    most: int = number(
        4, unit="batches", low=1, high=1024, reason="more tasks than cores only queue; Airflow maps at most 1024"
    )


@dataclass(frozen=True)
class Settings:
    """All settings, one section each; a stage is handed its own section."""

    window: WindowSettings = field(default_factory=WindowSettings)
    places: PlaceSettings = field(default_factory=PlaceSettings)
    warehouse: WarehouseSettings = field(default_factory=WarehouseSettings)
    batches: BatchSettings = field(default_factory=BatchSettings)


@dataclass(frozen=True)
class Origin:
    """One setting as it would run: its value, unit, reason and where the value came from."""

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
    environment : variables such as `LLMPRISM_WINDOW__LENGTH_S`
    overrides : `section.name` to text, from the command line

    Raises
    ------
    SettingsError : an unknown section or name, an unparsable value, or one out of its range
    """
    settings, _ = load_with_origins(file=file, environment=environment, overrides=overrides)
    return settings


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
    sections: dict[str, Any] = {}
    origins: list[Origin] = []
    for section in fields(Settings):
        kind = type(getattr(Settings(), section.name))
        values: dict[str, object] = {}
        for setting in fields(kind):
            raw, source = given.pop((section.name, setting.name), (setting.default, "default"))
            values[setting.name] = value = _checked(section.name, setting, raw, source)
            meta = setting.metadata
            origins.append(Origin(section.name, setting.name, value, meta["unit"], meta["reason"], source))
        sections[section.name] = kind(**values)
    if given:
        (section_name, name), (_, source) = next(iter(given.items()))
        raise SettingsError(
            found=f"setting {section_name}.{name} in {source}",
            expected="one of the settings that `llmprism settings` lists",
            todo="Correct its spelling or remove it.",
        )
    return Settings(**sections), origins


def _from_file(file: Path | None) -> dict[tuple[str, str], tuple[object, str]]:
    if file is None:
        return {}
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
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
        if variable.startswith(ENVIRONMENT_PREFIX) and "__" in variable:
            section, _, name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
            found[(section, name)] = (value, variable)
    return found


def _from_overrides(overrides: Mapping[str, str]) -> dict[tuple[str, str], tuple[object, str]]:
    return {
        (section, name): (value, f"--set {key}")
        for key, value in overrides.items()
        for section, _, name in [key.partition(".")]
    }


def _checked(section: str, setting: dataclasses.Field[Any], raw: object, source: str) -> object:
    meta, kind = setting.metadata, type(setting.default)
    where = f"{section}.{setting.name} = {raw!r} from {source}"
    if kind is str:
        choices = meta["choices"]
        if not isinstance(raw, str) or (choices and raw not in choices):
            raise SettingsError(found=where, expected=" or ".join(choices) or "text", todo="Correct the value.")
        return raw
    span = f"a number from {meta['low']:g} to {meta['high']:g} {meta['unit']}"
    try:
        if isinstance(raw, bool):
            raise ValueError
        value = kind(raw)  # type: ignore[call-overload]
        if isinstance(raw, float) and value != raw:
            raise ValueError
    except (TypeError, ValueError) as error:
        raise SettingsError(found=where, expected=f"{span}, as {kind.__name__}", todo="Correct the value.") from error
    if not meta["low"] <= value <= meta["high"]:
        raise SettingsError(found=where, expected=span, todo="Choose a value in the range.")
    return value
