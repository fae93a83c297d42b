"""Examination: all checks of a machine and its warehouse, one after another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import llmprism_tasks
from llmprism_tasks.reports.doctor import exposure, scheduler, software, storage, traffic
from llmprism_tasks.reports.doctor.finding import OK, Finding
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.connect import configured


def examine(
    settings: Settings, environment: Mapping[str, str], *, nics: Collection[str], delays_s: Sequence[float]
) -> Iterator[Finding]:
    """Run all checks; nothing is changed.

    Parameters
    ----------
    nics : addresses of the topology
    delays_s : for each of the newest flow files, seconds from the end of the window in its name to its last change
    """
    yield from software.look_at_versions()
    yield software.look_at_kernels(Path(llmprism_tasks.__file__).parent, environment)
    warehouse = configured(settings)
    schema = storage.look_at_schema(warehouse)
    yield schema
    if schema.state == OK:
        yield from storage.look(warehouse, settings)
        yield from traffic.look(warehouse, nics, settings)
    yield traffic.deliveries(delays_s, lateness_s=settings.window.allowed_lateness_s)
    yield from scheduler.look(environment)
    yield from exposure.look_at_ports()
    yield from exposure.look_at_secrets(environment, scheduler.home(environment))
