"""A scenario: the fabric, the jobs on it, what goes wrong and how the collector sees it, read from a small TOML file.

A file has a `[fabric]`, one `[[jobs]]` per tenant, any number of `[[faults]]` and an optional `[collector]`. Jobs may
come, go and change (`[[lives]]`, `[[restarts]]`), have `[[habits]]`, and share the platform with other `[[tenants]]`,
a `[storage]` and a `[background]`. What each key means, its unit and its range stand beside the fields here, in `jobs`
and in `surroundings`. All have defaults, but a job's or tenant's `name` and `hosts`.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.settings.schema import number, text
from llmprism_tasks.simulate.faults import Fault, check_faults
from llmprism_tasks.simulate.jobs import Job, misfit
from llmprism_tasks.simulate.lifecycle import Stay, check_stays, stays
from llmprism_tasks.simulate.sections import known, section, tables, wrong
from llmprism_tasks.simulate.surroundings import Background, Collector, Habit, Life, Restart, Storage, Tenant

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


@dataclass(frozen=True)
class Fabric:
    """A leaf-spine network; every host has one NIC per GPU, every leaf one link to every spine."""

    hosts: int = number(4, unit="hosts", low=1, high=65536, reason="machines on the fabric, used or not")
    gpus_per_host: int = number(8, unit="GPUs", low=1, high=64, reason="GPUs of a host, each with a NIC of its own")
    leaves: str = text(
        "rail",
        choices=("rail", "top_of_rack"),
        reason="rail: NICs of the same index share a leaf; top_of_rack: NICs of the same hosts do",
    )
    hosts_per_leaf: int = number(
        4, unit="hosts", low=1, high=1024, reason="hosts cabled to one leaf, or group of rails"
    )
    spines: int = number(4, unit="switches", low=1, high=1024, reason="spine switches, each linked to every leaf")
    link_gbps: float = number(400.0, unit="Gbit/s", low=1, high=10_000, reason="a NIC's rate, each way")
    uplink_gbps: float = number(
        1600.0, unit="Gbit/s", low=1, high=100_000, reason="rate of one leaf's link to one spine"
    )

    @property
    def pods(self) -> int:
        """Groups of hosts that share their leaves."""
        return math.ceil(self.hosts / self.hosts_per_leaf)

    def leaf(self, host: int, gpu: int) -> str:
        """Return the leaf switch a NIC is cabled to."""
        pod = host // self.hosts_per_leaf
        return f"leaf-{pod * self.gpus_per_host + gpu if self.leaves == 'rail' else pod:03d}"

    def spine(self, index: int) -> str:
        return f"spine-{index:02d}"

    @property
    def switches(self) -> frozenset[str]:
        leaves = {self.leaf(host, gpu) for host in range(self.hosts) for gpu in range(self.gpus_per_host)}
        return frozenset(leaves | {self.spine(index) for index in range(self.spines)})


_SINGLE = {"fabric", "storage", "background", "collector", "loop_minutes"}


@dataclass(frozen=True)
class Scenario:
    """Everything a simulation needs but its seed and span."""

    name: str
    fabric: Fabric
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...] = ()
    lives: tuple[Life, ...] = ()
    restarts: tuple[Restart, ...] = ()
    habits: tuple[Habit, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    storage: Storage = field(default_factory=Storage)
    background: Background = field(default_factory=Background)
    collector: Collector = field(default_factory=Collector)
    loop_minutes: int = 10

    @property
    def stays(self) -> list[Stay]:
        """Where each job is when."""
        return stays(self.jobs, self.lives, self.restarts)

    def habit(self, job: str) -> Habit:
        """Return a job's habit."""
        return next((habit for habit in self.habits if habit.job == job), Habit(job=job))


def load_scenario(scenario: str) -> Scenario:
    """Read a scenario by its name in `scenarios/` or by the path of its file.

    Raises
    ------
    SettingsError : no such file, not TOML, an unknown key, a value out of its range, or parts that do not fit together
    """
    path = Path(scenario) if scenario.endswith(".toml") else SCENARIOS / f"{scenario}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        known = ", ".join(sorted(file.stem for file in SCENARIOS.glob("*.toml")))
        raise SettingsError(
            found=f"scenario {scenario} that cannot be read ({error})",
            expected=f"one of {known}, or the path of such a TOML file",
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
    _check_jobs(built)
    check_stays(name, built.fabric, built.jobs, built.lives, built.restarts)
    _check_tenants(built)
    check_faults(built)
    return built


def _check_jobs(scenario: Scenario) -> None:
    if not (scenario.jobs or scenario.tenants):
        raise wrong(f"{scenario.name}: neither [[jobs]] nor [[tenants]]", "somebody on the fabric")
    names = set[str]()
    for job in scenario.jobs:
        where = f"{scenario.name}: job {job.name!r}"
        if not job.name or job.name in names:
            raise wrong(where, "a name of its own for each job")
        names.add(job.name)
        if wanted := misfit(job):
            raise wrong(where, wanted)


def _check_tenants(scenario: Scenario) -> None:
    names = {job.name for job in scenario.jobs}
    for habit in scenario.habits:
        if habit.job not in names:
            raise wrong(f"{scenario.name}: a habit of job {habit.job!r}", f"one of {', '.join(sorted(names))}")
    taken = {(host, gpu) for stay in scenario.stays for host in stay.job.hosts for gpu in stay.job.gpus}
    for tenant in scenario.tenants:
        where, places = f"{scenario.name}: tenant {tenant.name!r}", {(h, g) for h in tenant.hosts for g in tenant.gpus}
        if not tenant.name or tenant.name in names or len(tenant.hosts) < 2:
            raise wrong(where, "a name of its own, and at least two hosts")
        names.add(tenant.name)
        fits = all(h < scenario.fabric.hosts and g < scenario.fabric.gpus_per_host for h, g in places)
        if not fits or places & taken:
            raise wrong(f"{where} on hosts {tenant.hosts}", "GPUs of the fabric that no job or other tenant uses")
        taken |= places
