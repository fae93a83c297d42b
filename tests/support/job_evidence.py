"""Evidence about small jobs, made by hand: when each NIC begins to send, how long steps take, how fast rings move."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import polars as pl
from handmade import MB, MS, WINDOW, Row, flows, members

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.traffic.nic_pairs import PAIR

STEP = 1000
"""Length of a step, in ms."""

DEFAULT = DiagnosisSettings()

HISTORY: dict[str, type[pl.DataType]] = {
    "job_id": pl.String,
    "step_index": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "current": pl.Boolean,
}


def kinds(job: str = "j", **rows: Iterable[Row]) -> pl.DataFrame:
    """Return flows of one job, by the kind of their pairs."""
    return pl.concat([flows(some).with_columns(job_id=pl.lit(job), kind=pl.lit(kind)) for kind, some in rows.items()])


def coded(flows: pl.DataFrame) -> pl.DataFrame:
    """Return flows with codes for jobs and addresses, as evidence has them."""
    texts = as_texts(flows)
    addrs = pl.Enum(pl.concat([texts[end] for end in PAIR]).unique().sort())
    return texts.with_columns(pl.col(PAIR).cast(addrs), pl.col("job_id").cast(pl.Enum(texts["job_id"].unique().sort())))


def as_texts(flows: pl.DataFrame) -> pl.DataFrame:
    """Return flows with the names of jobs and addresses, as the table has them."""
    return flows.with_columns(pl.col("job_id", *PAIR).cast(pl.String))


def with_flows(evidence: Evidence, more: pl.DataFrame) -> Evidence:
    """Return evidence with some more flows, in order of their starts."""
    flows = pl.concat([as_texts(evidence.flows), more.select(evidence.flows.columns)], how="vertical_relaxed")
    return dataclasses.replace(evidence, flows=coded(flows.sort("flow_start_ns", maintain_order=True)))


def history(lengths: Sequence[float], *, current: int | None = None, job: str = "j") -> pl.DataFrame:
    """Return a job's steps of these lengths, in ms; the last `current` of them (all if None) ended in the window, the
    first of which begins with it and is step 0."""
    before = 0 if current is None else len(lengths) - current
    ends = [WINDOW.start_ns - round(sum(lengths[:before]) * MS)]
    for length in lengths:
        ends.append(ends[-1] + round(length * MS))
    rows = [(job, i - before, start, end, i >= before) for i, (start, end) in enumerate(pairwise(ends))]
    return pl.DataFrame(rows, schema=HISTORY, orient="row")


def groups(*components: Iterable[str], job: str = "j") -> pl.DataFrame:
    """Return data-parallel groups."""
    rows = [(job, addr, number) for number, addrs in enumerate(components) for addr in addrs]
    return pl.DataFrame(rows, schema={"job_id": pl.String, "addr": pl.String, "component": pl.Int64}, orient="row")


def steps(addrs: Iterable[str], count: int, job: str = "j", lengths: Sequence[float] = ()) -> pl.DataFrame:
    """Return steps in the window, one after another: of these lengths, in ms, or of a second each."""
    spans = history(lengths or [STEP] * count).select("start_ns", "end_ns").rows()
    rows = [(job, addr, i, start, end, True) for addr in addrs for i, (start, end) in enumerate(spans)]
    columns = {"job_id": pl.String, "addr": pl.String, "step_index": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(rows, schema={**columns, "current": pl.Boolean}, orient="row")


def working(
    rings: Sequence[Mapping[str, Sequence[float]]],
    *,
    hosts: Mapping[str, str] | None = None,
    lookback: Sequence[float] = (),
    pp: Iterable[Row] = (),
    paid: bool = True,
) -> Evidence:
    """Return evidence about a job whose rings synchronise once a step of a second.

    Parameters
    ----------
    rings : of each ring's NICs, in order, when each is ready in each step, in ms after the step's start: a hop begins
        when both its ends are
    hosts : each NIC's host; without it, each has one of its own
    lookback : lengths of the job's steps before the window, in ms
    pp : pipeline records
    paid : whether a step is as much longer as its latest NIC is later than that of the earliest step
    """
    latest = [max(ready) for ready in zip(*(begins for ring in rings for begins in ring.values()), strict=True)]
    lengths = [STEP + paid * (late - min(latest)) for late in latest]
    begins = [sum(lengths[:step]) for step in range(len(lengths))]
    rows = [
        (begins[step] + max(ready), begins[step] + lengths[step] - 50, addr, peer, 8 * MB)
        for ring in rings
        for addr, peer in zip(ring, [*list(ring)[1:], next(iter(ring))], strict=True)
        for step, ready in enumerate(zip(ring[addr], ring[peer], strict=True))
    ]
    addrs = [addr for ring in rings for addr in ring]
    return Evidence(
        flows=coded(kinds(dp=rows, pp=pp)),
        steps=steps(addrs, len(lengths), lengths=lengths),
        history=history([*lookback, *lengths], current=len(lengths)),
        groups=groups(*rings),
        members=members({"j": {addr: (hosts or {}).get(addr, f"host-{addr}") for addr in addrs}}).drop(
            "window_start_ns"
        ),
        window=WINDOW,
    )


def moving(
    rings: Mapping[str, float],
    pairs: Mapping[str, float] | None = None,
    *,
    paths: Mapping[str, Sequence[str]] | None = None,
    before: Mapping[str, float] | None = None,
    records: int = 12,
    size: int = 10 * MB,
    lengths: Sequence[float] = (),
    job: str = "j",
) -> Evidence:
    """Return evidence about a job that moves data.

    Parameters
    ----------
    rings : the rate of each ring, in Gbit/s, by its NICs, a letter each
    pairs : likewise of pipeline pairs
    paths : the switches that the records of a ring or pair cross, all of them; without it, paths are not known
    before : rates in the look-back; without it, nothing moved then
    records : of each ring and pair, in the window
    """
    parts = []
    for moment, rates in ((WINDOW, {**rings, **(pairs or {})}), (WINDOW.shifted(-1), before or {})):
        for part, rate in rates.items():
            kind = "pp" if part in (pairs or {}) else "dp"
            parts.append(
                _moved(part, rate, records, size, moment).with_columns(
                    kind=pl.lit(kind),
                    switch_path=pl.lit((paths or {}).get(part), dtype=pl.List(pl.String)),
                )
            )
    addrs = sorted({addr for part in (*rings, *(pairs or {})) for addr in part})
    return Evidence(
        flows=coded(pl.concat(parts).with_columns(job_id=pl.lit(job))),
        steps=steps(addrs, 1, job),
        history=history(lengths or [STEP] * 20, job=job),
        groups=groups(*rings, job=job),
        members=members({job: {addr: f"host-{addr}" for addr in addrs}}).drop("window_start_ns"),
        window=WINDOW,
    )


def lengthened(evidence: Evidence, more_ms: Mapping[int, float]) -> Evidence:
    """Return evidence of which some steps are so much longer, and end what they end later."""
    steps_, flows_ = _longer(evidence.steps, more_ms), _later(evidence.flows, more_ms)
    return dataclasses.replace(evidence, steps=steps_, flows=flows_)


def together(*jobs: Evidence) -> Evidence:
    """Return the evidence about several jobs as one."""
    frames = {
        name: pl.concat([getattr(job, name) for job in jobs], how="diagonal")
        for name in ("steps", "history", "groups", "members")
    }
    texts = [as_texts(job.flows) for job in jobs]
    return Evidence(**frames, flows=coded(pl.concat(texts, how="diagonal")), window=jobs[0].window)


def shuffled(evidence: Evidence, seed: int) -> Evidence:
    """Return the evidence with the rows of all frames in another order; a job's history is sorted by contract."""
    frames = {
        name: getattr(evidence, name).sample(fraction=1, shuffle=True, seed=seed)
        for name in ("flows", "steps", "groups", "members")
    }
    return Evidence(**frames, history=evidence.history, window=evidence.window)


def without_rows(evidence: Evidence) -> Evidence:
    """Return evidence with the same columns about nothing."""
    frames = {name: getattr(evidence, name).clear() for name in ("flows", "steps", "history", "groups", "members")}
    return Evidence(**frames, window=evidence.window)


def _before(step: pl.Expr, more_ms: Mapping[int, float]) -> pl.Expr:
    total: pl.Expr = pl.lit(0, dtype=pl.Int64)
    for at, more in more_ms.items():
        total = total + pl.when(step > at).then(round(more * MS)).otherwise(0)
    return total


def _longer(steps: pl.DataFrame, more_ms: Mapping[int, float]) -> pl.DataFrame:
    step = pl.col("step_index")
    return steps.with_columns(
        start_ns=pl.col("start_ns") + _before(step, more_ms), end_ns=pl.col("end_ns") + _before(step + 1, more_ms)
    )


def _later(flows: pl.DataFrame, more_ms: Mapping[int, float]) -> pl.DataFrame:
    """Move the flows of later steps, and let those of a longer step end with it."""
    begin = pl.col("flow_start_ns") - pl.col("window_start_ns")
    step = begin // (STEP * MS)
    return flows.with_columns(
        flow_start_ns=pl.col("flow_start_ns") + _before(step, more_ms),
        flow_end_ns=pl.col("flow_end_ns") + _before(step + 1, more_ms),
    )


def _moved(part: str, rate: float, records: int, size: int, moment: Window) -> pl.DataFrame:
    """Return records one after another, around the ring or from the pair's first to its second NIC.

    Every third record waits inside and takes twice as long: waiting is not a path's pace.
    """
    length = size * 8 / rate / MS
    hops = [*pairwise(part), (part[-1], part[0])] if len(part) > 2 else [(part[0], part[1])]
    rows = [
        (100.0 * i, 100.0 * i + length * (2 if i % 3 == 2 else 1), *hops[i % len(hops)], size) for i in range(records)
    ]
    return flows(rows, base=moment)
