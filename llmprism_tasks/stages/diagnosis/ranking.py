"""Ranking: turn the detectors' findings into diagnoses: drop explained ones, order them, add a rank and a query."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl

from llmprism_tasks.contract.fault_catalogue import HIDDEN, NETWORK, work_of
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics.robust import EVEN_ODDS, MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.diagnosis import evidence_sql
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.parallelism.layout.job_layout import one_ring_or_several

Row = dict[str, Any]

DEVICES = ("addr", "host", "link", "switch")
"""Types of subjects that can be at fault. Jobs, data-parallel groups and pipeline stages only show an effect."""

KINDS_WITHOUT_CAUSE = ("straggler", "slow_network")
"""Kinds that name a slow subject, but not the cause."""

KINDS_OF_SLOW_COMPUTE = ("slow_compute", "straggler")
"""Kinds that say of a device that it computes slowly, for what it sends comes late."""

KINDS_OF_EFFECT = ("cross_step", "cross_group")
"""Kinds that describe an effect on a job."""

KINDS_AMONG_PEERS = ("slow_compute", "pipeline_imbalance", *HIDDEN)
"""Kinds found by comparing members that do the same work; only the layout says which members do."""

KINDS_OF_STEPS = ("straggler", *KINDS_OF_EFFECT, *KINDS_AMONG_PEERS)
"""Kinds found by comparing steps with each other, or what is done in them; only who trains has steps."""

DIAGNOSIS_KEY = ["job_id", "kind", "subject_type", "subject"]
"""Key of a diagnosis within a window."""


def deduplicate(found: pl.DataFrame) -> pl.DataFrame:
    """Keep the first of several findings of one kind and subject; the detector that knows most comes first."""
    return found.unique(DIAGNOSIS_KEY, keep="first", maintain_order=True)


def drop_unlikely_layouts(found: pl.DataFrame, stalling: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Drop findings that compare members of jobs whose layout is not likelier right than wrong, or is not known.

    A finding is no surer than what the comparison rests on: that these members are one job, that its pairs are of these
    kinds (both `confidence`), and that these pairs carry all it sends (`explained_bytes`). Whether a ring is one of
    several or a channel of a single one does not matter, for its members do the same work either way. Nor does it
    matter where parameters are gathered along rings, though the degrees are not known then: without stages and experts,
    all members compute all layers. Where the layout is not known, what was compared with its own past stands. Of a job
    that is no likelier to train than not, nothing is told that rests on its steps: inference has rhythms, too.

    Parameters
    ----------
    stalling : the findings of `stalls.find`, which compares members. They cannot be told by their kind:
        `job_stalls.find`, which compares none, has findings of that kind, too
    jobs : the window's jobs: `job_id`, their degrees (`dp` NULL if the layout is not known), `sharded`,
        `explained_bytes` (NULL if nothing was sent), `confidence` and `recognition_confidence` (NULL if nobody judged)
    """
    gathered = (pl.col("sharded") & (pl.col("pp") == 1) & (pl.col("ep") == 1)).fill_null(value=False)
    doubt = pl.when(pl.col("dp").is_null() & gathered).then(EVEN_ODDS).otherwise(one_ring_or_several())
    # A layout that is no likelier right than wrong counts as not known.
    likely = pl.col("confidence") / doubt * pl.col("explained_bytes").fill_null(1.0) > MAJORITY
    judged = jobs.filter(pl.col("confidence").is_not_null())
    wrong, unknown = (
        judged.filter(which).select("job_id")
        for which in (pl.col("dp").is_not_null() & ~likely, pl.col("dp").is_null() & ~(gathered & likely))
    )
    among = found.filter(pl.col("kind").is_in(KINDS_AMONG_PEERS))
    alone = among.filter(pl.col("peers").is_not_null()).join(unknown, on="job_id", how="semi")
    doubted = [rows.join(wrong, on="job_id", how="semi") for rows in (among, stalling)]
    rhythmic = jobs.filter(pl.col("recognition_confidence") <= MAJORITY).select("job_id")
    of_steps = found.filter(pl.col("kind").is_in(KINDS_OF_STEPS)).join(rhythmic, on="job_id", how="semi")
    return found.join(pl.concat([alone, *doubted, of_steps]), on=DIAGNOSIS_KEY, how="anti", maintain_order="left")


def assemble(found: pl.DataFrame, evidence: Evidence, settings: Settings) -> pl.DataFrame:
    """Turn findings into diagnoses.

    Parameters
    ----------
    found : rows of `evidence.FINDING_SCHEMA`, in any order

    Returns
    -------
    the findings that no other finding explains, with `rank` and `evidence_sql`, the worst first
    """
    nothing = pl.DataFrame(schema=FINDING_SCHEMA | {"rank": pl.Int32, "evidence_sql": pl.String})
    if found.is_empty():
        return nothing
    hosts = {(job_id, addr): host for job_id, addr, host in evidence.members.select("job_id", "addr", "host").rows()}
    rows = ranked(unexplained(not_waiting(worst_per_device(found.to_dicts(), hosts), hosts)))
    begins = dict(evidence.of_jobs(found["job_id"]).group_by("job_id").agg(pl.col("flow_start_ns").min()).iter_rows())
    for row in rows:
        window, since_ns = evidence.window, begins.get(row["job_id"])
        if since_ns is None:  # a silent job has its pairs in the window in which it still sent
            window = Window.containing(row["start_ns"], window.length_ns)
            since_ns = window.lookback(settings.window.lookback_windows).start_ns
        row["evidence_sql"] = evidence_sql.query(row, since_ns, window, settings)
    return pl.DataFrame(rows, schema=nothing.schema)


def worst_per_device(found: list[Row], hosts: dict[tuple[str, str], str]) -> list[Row]:
    """Keep the worst of several findings about one device at one time; a host and a NIC in it are one device.

    A link or switch that slows one job is no news in another that hides it, nor in the job itself.

    Parameters
    ----------
    hosts : host by job and NIC
    """
    kept: list[Row] = []
    for row in sorted(found, key=_worst_first):
        known = row["kind"] in HIDDEN and any(_is_explained_by(row, worse) for worse in kept)
        if row["subject_type"] not in DEVICES or not (
            known or any(_is_same_device(row, worse, hosts) for worse in kept)
        ):
            kept.append(row)
    return kept


def unexplained(found: list[Row]) -> list[Row]:
    """Drop findings without a known cause if a known cause takes most of the same job's loss at the same time.

    A path that all slow transfers share is no known cause, but says more than a `straggler`, and either of the whole
    job says more than that its steps became longer.
    """
    of_jobs = [row for row in found if row["kind"] in KINDS_WITHOUT_CAUSE and row["subject_type"] == "job"]
    surely = [row for row in found if row["kind"] not in KINDS_OF_EFFECT and (row["confidence"] or 0) >= MAJORITY]

    def explains(cause: Row, row: Row) -> bool:
        more = cause["kind"] == "slow_network" and row["kind"] == "straggler"
        known = cause["kind"] not in KINDS_WITHOUT_CAUSE  # an unknown cause explains nothing
        return row["job_id"] == cause["job_id"] and _is_overlapping(row, cause) and (known or more)

    def is_said_better(row: Row) -> bool:
        longer = row["kind"] == "cross_step" and row["steps"] is None
        return longer and any(row["job_id"] == other["job_id"] and _is_overlapping(row, other) for other in of_jobs)

    def is_explained(row: Row) -> bool:
        return row["kind"] in KINDS_WITHOUT_CAUSE and any(explains(cause, row) for cause in surely)

    return [row for row in found if not (is_explained(row) or is_said_better(row))]


def not_waiting(found: list[Row], hosts: dict[tuple[str, str], str]) -> list[Row]:
    """Drop devices and stages that seem to compute slowly while slow transfers of another device take most of their
    job's loss.

    A transfer that takes longer for the same bytes is measured. That a GPU computes is inferred from what it does not
    send, and whoever waits for data over a slow path, or for a receiver that does, sends later. Both stand if their
    shares of the loss do not add up to more than all of it, or if the device was slow for most of its time before the
    path was, or after.

    Parameters
    ----------
    hosts : host by job and NIC
    """
    devices = [row for row in found if row["subject_type"] in DEVICES and row["kind"] not in HIDDEN]
    moves = [row for row in devices if work_of(row["kind"]) == NETWORK and (row["confidence"] or 0) >= MAJORITY]

    def waits_for(row: Row, cause: Row) -> bool:
        span = [max(row["start_ns"], cause["start_ns"]), min(row["end_ns"], cause["end_ns"])]
        mostly = span[1] - span[0] >= MAJORITY * (row["end_ns"] - row["start_ns"])
        together = row["job_id"] == cause["job_id"] and mostly
        too_much = (row["confidence"] or 0) + cause["confidence"] > 1
        return together and too_much and not _is_same_device(row, cause, hosts)

    def waits(row: Row) -> bool:
        seems_slow = row["kind"] in KINDS_OF_SLOW_COMPUTE and row["subject_type"] in DEVICES
        seems_slow |= row["kind"] == "pipeline_imbalance"
        return seems_slow and any(waits_for(row, cause) for cause in moves)

    return [row for row in found if not waits(row)]


def ranked(found: list[Row]) -> list[Row]:
    """Number the suspects of each job from 1, the worst; what is no device, or hidden, has no `rank`."""
    places: dict[str, int] = defaultdict(int)
    ordered = []
    for row in sorted(found, key=_worst_first):
        suspect = row["subject_type"] in DEVICES and row["kind"] not in HIDDEN
        places[row["job_id"]] += suspect
        ordered.append(row | {"rank": places[row["job_id"]] if suspect else None})
    return ordered


def _is_same_device(row: Row, other: Row, hosts: dict[tuple[str, str], str]) -> bool:
    if row["job_id"] != other["job_id"] or not _is_overlapping(row, other):
        return False
    one, two = ((row["subject_type"], row["subject"]), (other["subject_type"], other["subject"]))
    within = {("host", hosts.get((row["job_id"], name))) for kind, name in (one, two) if kind == "addr"}
    return one == two or bool({one, two} & within)


def _is_explained_by(hidden: Row, told: Row) -> bool:
    """Return whether what was told may be what is hidden: faults are rare, so one is likelier than two."""
    if told["kind"] in HIDDEN or told["subject_type"] not in DEVICES:
        return False
    same = all(hidden[name] == told[name] for name in ("subject_type", "subject"))
    # Only a slow path explains that data pass slowly; who computes slowly does not.
    return same or (
        work_of(told["kind"]) == NETWORK and not _may_be_at_fault(hidden).isdisjoint(_may_be_at_fault(told))
    )


def _may_be_at_fault(row: Row) -> set[str]:
    return set(row["candidates"] or [row["subject"]])


def _is_overlapping(row: Row, other: Row) -> bool:
    return bool(row["start_ns"] < other["end_ns"] and other["start_ns"] < row["end_ns"])


def _worst_first(row: Row) -> tuple[Any, ...]:
    """Sort by the share of time that the subject is known to cost; unknown costs come last."""
    names = (row["job_id"], row["kind"], row["subject_type"], row["subject"])
    return (-row["severity"] * (row["confidence"] or 0), -row["score"], *names)
