"""A scenario read from a small TOML file, and the scenarios that come with the package.

A file has a `[fabric]`, one `[[jobs]]` per tenant, any number of `[[faults]]` and an optional `[collector]`. Jobs may
come, go and change (`[[lives]]`, `[[restarts]]`), have `[[habits]]`, and share the platform with other `[[tenants]]`,
a `[storage]` and a `[background]`. What each key means, its unit and its range stand beside the fields of the
dataclasses in this folder. All have defaults, but a job's or tenant's `name` and `hosts`.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.simulate.scenario.checks import check_scenario
from llmprism_tasks.simulate.scenario.collector import Collector
from llmprism_tasks.simulate.scenario.fabric import Fabric
from llmprism_tasks.simulate.scenario.faults import Fault
from llmprism_tasks.simulate.scenario.lifecycle import Life, Restart
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.sections import known, section, tables, wrong
from llmprism_tasks.simulate.scenario.surroundings import Background, Habit, Storage, Tenant
from llmprism_tasks.simulate.scenario.training_job import Job

PRESETS = Path(__file__).resolve().parent / "presets"
"""Folder of the scenarios that come with the package, in subfolders by subject; their names differ."""

_SINGLE = {"fabric", "storage", "background", "collector", "loop_minutes"}


def presets() -> dict[str, Path]:
    """Return the file of each scenario that comes with the package, by name, in the order of names."""
    return {file.stem: file for file in sorted(PRESETS.rglob("*.toml"), key=lambda file: file.stem)}


def load_scenario(scenario: str) -> Scenario:
    """Read a scenario by its name among the presets or by the path of its file.

    Raises
    ------
    SettingsError : no such file, not TOML, an unknown key, a value out of its range, or parts that do not fit together
    """
    shipped = presets()
    path = Path(scenario) if scenario.endswith(".toml") else shipped.get(scenario, Path(scenario))
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(
            found=f"scenario {scenario} that cannot be read ({error})",
            expected=f"one of {', '.join(shipped)}, or the path of such a TOML file",
            todo="Correct the name or the file.",
        ) from error
    return build_scenario(path.stem, content)


def build_scenario(name: str, content: Mapping[str, Any]) -> Scenario:
    """Build a scenario from the content of its file, and check that its parts fit together."""
    known(name, content, {"jobs", "faults", "lives", "restarts", "habits", "tenants"} | _SINGLE)
    loop = content.get("loop_minutes", Scenario.loop_minutes)
    if isinstance(loop, bool) or not isinstance(loop, int) or not 1 <= loop <= 1440:
        raise wrong(f"{name}: loop_minutes = {loop!r}", "a whole number of minutes from 1 to 1440")
    built = Scenario(
        name=name,
        fabric=section(Fabric, content.get("fabric", {}), f"{name}: fabric"),
        jobs=tuple(section(Job, raw, f"{name}: jobs[{i}]") for i, raw in tables(content, "jobs")),
        faults=tuple(section(Fault, raw, f"{name}: faults[{i}]") for i, raw in tables(content, "faults")),
        lives=tuple(section(Life, raw, f"{name}: lives[{i}]") for i, raw in tables(content, "lives")),
        restarts=tuple(section(Restart, raw, f"{name}: restarts[{i}]") for i, raw in tables(content, "restarts")),
        habits=tuple(section(Habit, raw, f"{name}: habits[{i}]") for i, raw in tables(content, "habits")),
        tenants=tuple(section(Tenant, raw, f"{name}: tenants[{i}]") for i, raw in tables(content, "tenants")),
        background=section(Background, content.get("background", {}), f"{name}: background"),
        storage=section(Storage, content.get("storage", {}), f"{name}: storage"),
        collector=section(Collector, content.get("collector", {}), f"{name}: collector"),
        loop_minutes=loop,
    )
    full = tuple(
        dataclasses.replace(job, gpus=job.gpus or tuple(range(built.fabric.gpus_per_host))) for job in built.jobs
    )
    whole = tuple(
        dataclasses.replace(tenant, gpus=tenant.gpus or tuple(range(built.fabric.gpus_per_host)))
        for tenant in built.tenants
    )
    built = dataclasses.replace(built, jobs=full, tenants=whole)
    check_scenario(built)
    return built
