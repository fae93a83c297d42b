"""Files: a job's timeline in the formats that other tools read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import ALL_TIME
from llmprism_tasks.reports.timeline import kineto, picture
from llmprism_tasks.reports.timeline.lanes import Lanes
from llmprism_tasks.reports.timeline.reading import last_steps, read_lanes
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse

ENDINGS = {"perfetto": ".json.gz", "kineto": "", "csv": ".csv", "svg": ".svg"}
"""Formats, and how the names of their files end; `kineto` is a folder with a file for each NIC."""

LAST_STEPS = 5
"""Steps that are shown where no beginning is given: enough to tell a slow GPU from a slow step."""


def lanes_to_show(
    warehouse: Warehouse,
    job_id: str,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    addrs: Sequence[str] | None = None,
) -> Lanes:
    """Return the lanes of a job in a time; without `start_ns` the last `LAST_STEPS` steps that began before `end_ns`.

    Raises
    ------
    InputError : the job has no steps then, or none of these NICs, or too many rows
    """
    until_ns = ALL_TIME.end_ns if end_ns is None else end_ns
    since_ns = last_steps(warehouse, job_id, until_ns, LAST_STEPS) if start_ns is None else start_ns
    found = read_lanes(warehouse, job_id, since_ns, until_ns, addrs=addrs)
    if found.slices.is_empty():
        jobs = store.query(warehouse, "SELECT DISTINCT job_id FROM steps ORDER BY job_id")["job_id"]
        raise InputError(
            found=f"no steps of {job_id}" + ("" if addrs is None else f" on {', '.join(addrs)}") + " in this time",
            expected=f"a job with steps: {', '.join(jobs) or 'there is none'}",
            todo="Name another job, time or NIC; `llmprism report` shows the jobs.",
        )
    return found


def write(lanes: Lanes, form: str, out: Path) -> None:
    """Write lanes in one of the formats to a file, or for `kineto` to a folder, which is made.

    Raises
    ------
    InputError : the place cannot be written to, or there are too many NICs for a picture
    """
    if form == "svg" and lanes.nics.height > picture.MOST_NICS:
        raise InputError(
            found=f"{lanes.nics.height:,} NICs for one picture",
            expected=f"at most {picture.MOST_NICS}",
            todo="Name some with --nics, or write all with --format perfetto.",
        )
    try:
        if form == "kineto":
            out.mkdir(parents=True, exist_ok=True)
            kineto.write_each(lanes, out)
        elif form == "perfetto":
            kineto.write_all(lanes, out)
        elif form == "svg":
            out.write_text(picture.svg(lanes), encoding="utf-8")
        else:
            lanes.slices.join(lanes.nics, on="addr", maintain_order="left").write_csv(out)
    except OSError as error:
        raise InputError(
            found=f"{out} cannot be written ({error.strerror})",
            expected="a place for the timeline",
            todo="Name another with --out.",
        ) from error
