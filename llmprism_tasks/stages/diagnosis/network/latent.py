"""Latent: a device that is slow while its job hides it behind computing, and that will cost more in another job.

No step is longer, so only the pace tells: that of the device's transfers against those of peers that do equal work, and
against its own past. Several pairs of a NIC must agree, in both directions: a sender that computes between packets, or
a receiver that is late, slows one direction only. Of a link or switch, several transfers must have become slower, and
not those of one host alone; which of the links and switches on one path it is, its traffic alone cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from llmprism_tasks.numerics.robust import SURE
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.network.best_pace import became_slow, earlier_verdicts, verdicts
from llmprism_tasks.stages.diagnosis.network.localisation import (
    MOST_NAMED,
    ONE_DIRECTION,
    alternatives,
    certainty,
    listed,
    subject,
    subject_type,
    suspect,
)
from llmprism_tasks.stages.traffic.nic_pairs import PAIR

Row = dict[str, Any]

SHARED_NIC_RATIO = 0.1
"""Ratio of the bytes of others to those of the job from which a NIC may be slow because it is shared."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the NICs, links and switches whose best pace is far below that of their peers or of their own past.

    `score` is the ratio of time per byte to that of peers or past. `severity` is 0: what it costs is in the price.
    """
    judged = evidence.once(verdicts, settings)
    rows: list[Row] = []
    for (job_id,), hops in judged.filter(pl.col("slow").any().over("job_id")).group_by("job_id", maintain_order=True):
        steps = evidence.history.filter(pl.col("job_id") == job_id, "current")
        span = {"start_ns": steps["start_ns"].min(), "end_ns": steps["end_ns"].max()}
        # What became slow and what always was are different faults; some roles are always slower than others.
        for slow_hops in (became_slow(settings), ~became_slow(settings)):
            known = hops.filter(~pl.col("slow") | slow_hops)
            rows.extend(row | span for row in _latent_rows(str(job_id), known, evidence, settings))
    rows.extend(_earlier_rows({(row["job_id"], row["subject"]) for row in rows}, evidence, settings))
    return pl.DataFrame([{name: row.get(name) for name in FINDING_SCHEMA} for row in rows], schema=FINDING_SCHEMA)


def _earlier_rows(told: set[tuple[str, str]], evidence: Evidence, settings: DiagnosisSettings) -> Iterator[Row]:
    """Return rows of devices that became slow and are well again at the end of the window, but for those of `told`."""
    for spans, judged in earlier_verdicts(evidence, settings):
        hops = judged.filter(~pl.col("slow") | became_slow(settings)).filter(pl.col("slow").any().over("job_id"))
        for (job_id,), of_job in hops.group_by("job_id", maintain_order=True):
            span = spans.filter(pl.col("job_id") == job_id).select("start_ns", "end_ns").row(0, named=True)
            for row in _latent_rows(str(job_id), of_job, evidence, settings):
                if (row["job_id"], row["subject"]) not in told:
                    told.add((row["job_id"], row["subject"]))
                    yield row | span


def _latent_rows(job_id: str, hops: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> Iterator[Row]:
    for culprit in suspect(hops, evidence.members, settings).culprits.iter_rows(named=True):
        of_nic = culprit["device_type"] in ("addr", "host")
        slow = hops[culprit["hops"]]
        sure = certainty(culprit) >= SURE
        if culprit["device_type"] in ONE_DIRECTION or (of_nic and not sure) or len(culprit["candidates"]) > MOST_NAMED:
            continue
        if (
            all(_is_slow_nic(hops, addr, evidence, settings) for addr in _nics(culprit, slow, evidence))
            if of_nic
            else _has_slowed_down(slow, culprit, settings) and not _share_a_host(slow, evidence)
        ):
            yield (
                _row(job_id, culprit, slow) | alternatives(culprit) | {"peers": _peers(hops, slow) if of_nic else None}
            )


def _nics(culprit: Row, slow: pl.DataFrame, evidence: Evidence) -> list[str]:
    """Return the NICs of a culprit that is a NIC or a host, of those with slow hops."""
    if culprit["device_type"] == "addr":
        return [str(culprit["device"])]
    ends = pl.concat([slow[end] for end in PAIR])
    of_host = evidence.members.filter(pl.col("host") == culprit["device"], pl.col("addr").is_in(ends.implode()))
    return of_host["addr"].unique().sort().to_list()


def _is_slow_nic(hops: pl.DataFrame, addr: str, evidence: Evidence, settings: DiagnosisSettings) -> bool:
    mine = hops.filter(_has_end_at(addr))
    return _is_slow_both_ways(mine, addr, settings) and not _is_shared(mine, addr, evidence)


def _has_slowed_down(slow: pl.DataFrame, culprit: Row, settings: DiagnosisSettings) -> bool:
    """Return whether several transfers through a link or switch became slower: some always share a link with others."""
    since = slow["by_past"].median()
    return culprit["transfers"] > 1 and since is not None and float(since) >= math.log(settings.latent_rate)  # type: ignore[arg-type]


def _share_a_host(slow: pl.DataFrame, evidence: Evidence) -> bool:
    """Return whether all slow hops have an end at one host: then it is the host that was late, or is slow."""
    hosts = dict(evidence.members.select("addr", "host").rows())
    ends = [slow.select(host=pl.col(end).replace_strict(hosts, default=None)).with_row_index("hop") for end in PAIR]
    seen = pl.concat(ends).drop_nulls().unique().group_by("host").len()
    return bool((seen["len"] == slow.height).any())


def _has_end_at(addr: str) -> pl.Expr:
    return (pl.col("src_addr") == addr) | (pl.col("dst_addr") == addr)


def _is_slow_both_ways(mine: pl.DataFrame, addr: str, settings: DiagnosisSettings) -> bool:
    """Return whether most pairs of a NIC are slow, of those that it sends to and of those that it receives from."""
    pairs = mine.group_by("src_addr", "dst_addr").agg(pl.col("slow").any())
    ways = pairs.group_by(sends=pl.col("src_addr") == addr).agg(pl.col("slow").mean())
    return ways.height == len(("sends", "receives")) and bool((ways["slow"] >= settings.persistence).all())


def _is_shared(mine: pl.DataFrame, addr: str, evidence: Evidence) -> bool:
    """Return whether others move so much through a NIC that it may be slow because of them."""
    job_id = mine["job_id"][0]
    now = pl.col("flow_start_ns") >= evidence.window.start_ns
    others = evidence.beside.filter(now, pl.col("job_id") == job_id, pl.col("addr") == addr)["bytes"].sum()
    own = evidence.flows.filter(now, pl.col("job_id") == job_id, _has_end_at(addr))["bytes"].sum()
    return float(others) >= SHARED_NIC_RATIO * float(own)


def _peers(hops: pl.DataFrame, slow: pl.DataFrame) -> list[str] | None:
    """Return the NICs with equal work that are quick; None if there are none."""
    alike = hops.filter(~pl.col("slow"), pl.col("of_class").is_in(slow["of_class"].implode()))
    ends = pl.concat([alike["src_addr"], alike["dst_addr"]]).unique()
    slowed = pl.concat([slow["src_addr"], slow["dst_addr"]])
    return ends.filter(~ends.is_in(slowed.implode())).sort().to_list() or None


def _row(job_id: str, culprit: Row, slow: pl.DataFrame) -> Row:
    device = subject(culprit["device"])
    ratio, pace = slow.select(pl.col("ratio", "now").median()).row(0)
    pairs = slow.select("src_addr", "dst_addr").unique().height
    far = pl.col("by_peers", "by_past").median().exp()
    against = [
        f"{times:.1f} times the time per byte {whose}"
        for times, whose in zip(slow.select(far).row(0), ("of its peers", "that it took before"), strict=True)
        if times is not None
    ]
    which = "" if certainty(culprit) >= SURE else f" The slow one may be any of {listed(culprit)}."
    return {
        "job_id": job_id,
        "kind": "latent",
        "subject_type": subject_type(culprit),
        "subject": device,
        "score": ratio,
        "severity": 0.0,
        "explanation": f"{device} lets data pass at {8 / pace:.2f} Gbit/s at best, {' and '.join(against)}, in {pairs} "
        f"pairs of NICs. The job loses little to it, as long as computing hides it.{which}",
    }
