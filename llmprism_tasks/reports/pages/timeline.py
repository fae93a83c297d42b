"""Timeline: what each NIC of a job did in a few steps, as lanes that a browser draws; and the flows behind a slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from llmprism_tasks.contract.errors import InputError, RequestError
from llmprism_tasks.contract.fault_catalogue import LINK
from llmprism_tasks.contract.frames import empty
from llmprism_tasks.reports.pages.markup import data, iso, render, shown
from llmprism_tasks.reports.pages.ranges import LASTS, LONGEST_S, Range, asked_range, listed
from llmprism_tasks.reports.timeline.lanes import KINDS, lanes
from llmprism_tasks.warehouse.asking import Asked, asking
from llmprism_tasks.warehouse.connect import Warehouse

Row = dict[str, Any]
Frames = dict[str, pl.DataFrame]

STEPS, MOST_STEPS = 3, 12
"""Steps that are drawn at once, unless more are asked for; of more, a slice has too few pixels to be seen."""

LANES, MOST_LANES = 64, 256
"""NICs that are drawn at once, unless more are asked for; of more, lanes are thinner than a letter."""

MOST_SLICES, MOST_MEMBERS, MOST_FLOWS = 120_000, 8_192, 200
LONGEST_NUMBER = 19
"""Digits of a number in a query: a BIGINT has no more."""

BORDER_NS = 1_000_000
"""Computing is inferred from the gap between flows; flows that end or begin within 1 ms of the gap are its borders."""


class Place(NamedTuple):
    """What a timeline shows: a job in a window, the steps from one to another, and the NICs."""

    job_id: str
    window_start_ns: int
    first_step: int
    last_step: int
    lanes: list[Row]
    block: int
    blocks: int


def show(warehouse: Warehouse, query: Mapping[str, str], *, now_ns: int, alone: bool = False) -> str:
    """Return the page of a job's window.

    Raises
    ------
    InputError : there is no such job in the window, or a number cannot be read
    QueryTooLong, WarehouseBusy : as `asking`
    """
    with asking(warehouse, longest_s=LONGEST_S) as ask:
        asked, frames, place = read(ask, query)
    chosen = {name: query[name] for name in ("host", "stage", "nics") if query.get(name)}
    return page(frames, asked, place, now_ns=now_ns, took_s=ask.took_s, chosen=chosen, alone=alone)


def read(ask: Asked, query: Mapping[str, str]) -> tuple[Range, Frames, Place]:
    """Read what a timeline shows, and choose its steps and NICs where the query does not."""
    if not ask.has("timeline"):
        raise InputError(
            found="a read copy, which has no timelines",
            expected="the warehouse that it was copied from",
            todo="Open this page of the warehouse itself.",
        )
    asked = asked_range(ask, query)
    job_id = query.get("job", "")
    window = whole(query, "window")
    if window is not None:
        asked = Range(window, window + asked.window_ns, "", asked.window_ns, asked.newest_ns, asked.done_ns)
    job = ask("jobs", **asked.values, job_id=job_id, most=1)
    if job.is_empty():
        raise InputError(
            found=f"no job {shown(job_id)} in this range",
            expected="a job that was seen in it",
            todo="Choose a job from the first page, or another range.",
        )
    start = int(job["window_start_ns"][0])
    span = {"from_ns": start, "to_ns": start + asked.window_ns}
    frames: Frames = {
        "job": job,
        "members": ask("members", window_start_ns=start, job_id=job_id, most=MOST_MEMBERS),
        "steps": ask("job_steps", **span, job_id=job_id, most=2_000),
        "diagnoses": ask("diagnoses", first_ns=start, last_ns=start, jobs=[job_id], most=100),
        "splits": ask(
            "member_splits", **listed([start + n * asked.window_ns for n in (-1, 0, 1)]), job_id=job_id, most=200_000
        ),
        "beside": ask("neighbours", window_start_ns=start, length_ns=asked.window_ns, job_id=job_id),
    }
    frames["behind"] = behind(ask, frames["diagnoses"].filter(pl.col("rank") == 1), start)
    place = choose(frames, job_id, start, query)
    drawn = frames["steps"].filter(pl.col("step_index").is_between(place.first_step, place.last_step))
    if drawn.height:
        near = {
            "job_id": job_id, "first_ns": start - asked.window_ns, "last_ns": start + asked.window_ns,
            "addrs": [lane["addr"] for lane in place.lanes], "most": MOST_SLICES,
        }  # fmt: skip
        first, last = drawn["start_ns"].min(), drawn["end_ns"].max()
        longest = (drawn["end_ns"] - drawn["start_ns"]).max()
        # A NIC begins and ends a step before its job does, by less than a step.
        around = {"start_ns": first - longest, "end_ns": last + longest}  # type: ignore[operator]
        frames["nic_steps"] = ask("nic_steps", **near, **around)
        frames["phases"] = ask("timeline", **near, **around)
    return asked, frames, place


def whole(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of a query; None if it is not there.

    Raises
    ------
    RequestError : it is no whole number, or not one that a BIGINT holds
    """
    text = query.get(name)
    if not text:
        return None
    digits = text.removeprefix("-")
    readable = digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_NUMBER
    if not readable or not -(2**63) <= int(text) < 2**63:
        raise RequestError(found=f"{name}={shown(text, 40)}", expected="a whole number", todo="Follow a link instead.")
    return int(text)


def behind(ask: Asked, named: pl.DataFrame, window_start_ns: int) -> pl.DataFrame:
    """Return the NICs that are connected to the switches and links of some rows: most of their bytes cross them.

    Parameters
    ----------
    named : `job_id`, `subject_type` and `subject` of diagnoses or incidents

    Returns
    -------
    `subject` and `addr`; none in a read copy, which has no flows, nor of a device that all NICs of the job are
    connected to, for it tells none of them apart
    """
    found = [pl.DataFrame(schema={"subject": pl.String, "addr": pl.String})]
    devices = named.filter(pl.col("subject_type").is_in(["switch", "link"]))
    for row in devices.iter_rows(named=True) if ask.has("flows") else ():
        values = {"window_start_ns": window_start_ns, "job_id": row["job_id"], "most": MOST_MEMBERS}
        nics = ask("nics_behind", **ends(row["subject"]), **values)
        found.append(nics.filter(~pl.col("of_all")).select(pl.lit(row["subject"]).alias("subject"), "addr"))
    return pl.concat(found)


def ends(subject: str) -> Row:
    """Return a switch, or the two switches of a link, as queries take them."""
    one, _, other = subject.partition(LINK)
    return {"switch": one, "other": other or None}


def suspects(diagnoses: pl.DataFrame, members: pl.DataFrame, behind: pl.DataFrame) -> dict[str, str]:
    """Return the NICs that first suspects are, that belong to them or are connected to them, each with the explanation.

    Parameters
    ----------
    diagnoses : of one job, the worst suspect first; effects, which have no rank, accuse nobody
    members : the job's NICs
    behind : as `behind` returns
    """
    named: dict[str, str] = {}
    columns = {"addr": "addr", "host": "host", "pp_stage": "pp_stage", "dp_group": "dp_group"}
    for row in diagnoses.filter(pl.col("rank") == 1).iter_rows(named=True):
        column = columns.get(row["subject_type"])
        nics = (
            behind.filter(pl.col("subject") == row["subject"])
            if column is None
            else members.filter(pl.col(column).cast(pl.String) == row["subject"])
        )
        for addr in nics["addr"]:
            named.setdefault(addr, row["explanation"])
    return named


def choose(frames: Frames, job_id: str, window_start_ns: int, query: Mapping[str, str]) -> Place:
    """Choose the steps in the middle of the window and the block of NICs with the first suspect, unless asked."""
    accused = suspects(frames["diagnoses"], frames["members"], frames["behind"])
    lanes = [row | {"suspect": row["addr"] in accused} for row in frames["members"].iter_rows(named=True)]
    host, stage = query.get("host"), whole(query, "stage")
    if host:
        lanes = [lane for lane in lanes if lane["host"] == host]
    if stage is not None:
        lanes = [lane for lane in lanes if lane["pp_stage"] == stage]
    size = min(max(whole(query, "nics") or LANES, 1), MOST_LANES)
    blocks = max(-(-len(lanes) // size), 1)
    block = whole(query, "block")
    if block is None:
        block = next((number // size for number, lane in enumerate(lanes) if lane["suspect"]), 0)
    block = min(max(block, 0), blocks - 1)

    indices = frames["steps"]["step_index"].to_list() or [0]
    wanted = min(max(whole(query, "steps") or STEPS, 1), MOST_STEPS)
    first = whole(query, "step")
    if first is None:
        first = indices[max((len(indices) - wanted) // 2, 0)]
    last = min(first + wanted - 1, max(first, indices[-1]))
    return Place(job_id, window_start_ns, first, last, lanes[block * size : (block + 1) * size], block, blocks)


def page(
    frames: Frames,
    asked: Range,
    place: Place,
    *,
    now_ns: int,
    took_s: Mapping[str, float],
    chosen: Mapping[str, str] | None = None,
    alone: bool = False,
) -> str:
    """Return the page as HTML; `chosen` is what a reader chose of host, stage and number of NICs."""
    chosen = chosen or {}
    accused = suspects(frames["diagnoses"], frames["members"], frames["behind"])
    job = frames["job"].row(0, named=True)
    indices = frames["steps"]["step_index"].to_list() or [0]
    beside = frames["beside"].row(0, named=True)
    return render(
        "timeline.html",
        scripts=["timeline.js"],
        title=f"Timeline of {shown(place.job_id)}",
        here="timeline",
        asked=asked,
        lasts=LASTS,
        now_ns=now_ns,
        took_s=took_s,
        alone=alone,
        job=job,
        place=place,
        first_index=indices[0],
        last_index=indices[-1],
        beside=beside,
        accused=accused,
        diagnoses=frames["diagnoses"].filter(pl.col("rank") == 1).to_dicts(),
        ranking=ranking(frames["splits"], place, accused),
        hosts=frames["members"]["host"].unique().sort().to_list()[:500],
        stages=sorted(stage for stage in frames["members"]["pp_stage"].unique().to_list() if stage is not None),
        chosen=chosen,
        cut="phases" in frames and frames["phases"].height >= MOST_SLICES,
        payload=data(payload(frames, place, window_ns=asked.window_ns)),
    )


def payload(frames: Frames, place: Place, *, window_ns: int) -> Row:
    """Return the lanes as a browser draws them: times in ns from `zero_ns`, names once, slices as columns.

    `steps` are the job's own steps; a slice's `lane`, `phase` and `peer` count from 0, `peer` -1 is none, as is
    `micro_batch` -1.
    """
    steps = frames["steps"].filter(pl.col("step_index").is_between(place.first_step, place.last_step))
    zero = int(steps["start_ns"].min() or place.window_start_ns)  # type: ignore[arg-type]
    end = int(steps["end_ns"].max() or place.window_start_ns + window_ns)  # type: ignore[arg-type]
    tables = {
        "jobs": frames["job"], "job_members": frames["members"], "step_breakdown": frames["splits"],
        "diagnoses": frames["diagnoses"],
        "steps": frames.get("nic_steps", empty("steps")), "timeline": frames.get("phases", empty("timeline")),
    }  # fmt: skip
    drawn = lanes(tables, zero + 1, end - 1)
    own = drawn.steps.filter(pl.col("addr").is_null()).select("step", "step_index")
    slices = drawn.slices.join(own, on="step", how="left", maintain_order="left")
    numbers = {lane["addr"]: number for number, lane in enumerate(place.lanes)}
    peers = slices["peer"].drop_nulls().unique().sort().to_list()
    return {
        "job": place.job_id,
        "zero_ns": str(zero),
        "span_ns": end - zero,
        "phases": list(KINDS),
        "peers": peers,
        "lanes": [
            {
                "addr": lane["addr"], "name": shown(lane["addr"], 24), "host": shown(lane["host"], 24),
                "stage": lane["pp_stage"], "suspect": lane["suspect"],
            }
            for lane in place.lanes
        ],
        "steps": [
            {"index": row["step_index"], "start": row["start_ns"] - zero, "end": row["end_ns"] - zero}
            for row in steps.iter_rows(named=True)
        ],
        "slices": {
            "lane": _numbered(slices["addr"], list(numbers)),
            "phase": _numbered(slices["kind"], list(KINDS)),
            "peer": _numbered(slices["peer"], peers),
            "start": (slices["start_ns"] - zero).to_list(),
            "end": (slices["end_ns"] - zero).to_list(),
            "bytes": slices["bytes"].to_list(),
            "step": slices["step_index"].fill_null(-1).to_list(),
            "direction": _numbered(slices["direction"], ["forward", "backward"]),
            "micro_batch": slices["micro_batch"].fill_null(-1).to_list(),
        },
    }  # fmt: skip


def _numbered(texts: pl.Series, known: Sequence[str]) -> list[int]:
    """Return the place of each text among those known, -1 for NULL and others."""
    codes = {text: number for number, text in enumerate(known)}
    return [codes.get(text, -1) for text in texts.to_list()]


def ranking(splits: pl.DataFrame, place: Place, accused: Mapping[str, str]) -> list[Row]:
    """Return the NICs of the lanes with means per step in s: suspects, then who computes longest for its stage."""
    drawn = splits.filter(
        pl.col("window_start_ns") == place.window_start_ns,
        pl.col("step_index").is_between(place.first_step, place.last_step),
        pl.col("addr").is_in([lane["addr"] for lane in place.lanes]),
    )
    parts = ("step", "compute", "communication", "bubble", "waiting", "unexplained")
    means = drawn.group_by("addr", "host", "pp_stage").agg(
        *(pl.col(f"{part}_ns").mean().truediv(1e9).alias(f"{part}_s") for part in parts),
        pl.col("waiting_for").drop_nulls().mode().sort().first(),
    )
    usual = pl.col("compute_s").median().over("pp_stage")
    return (
        means.with_columns(
            longer=(pl.col("compute_s") - usual) / usual, accused=pl.col("addr").is_in(list(accused))
        ).sort("accused", "longer", "addr", descending=[True, True, False])
    ).to_dicts()


def flows(warehouse: Warehouse, query: Mapping[str, str]) -> Row:
    """Return the flows behind a slice, for JSON: of `addr` from `start` to `end` ns, with `peer` if given.

    Raises
    ------
    InputError : a number is missing or cannot be read
    """
    start, end, addr = whole(query, "start"), whole(query, "end"), query.get("addr")
    if start is None or end is None or not addr:
        raise RequestError(found="a slice without addr, start or end", expected="all three", todo="Click a slice.")
    border = 0 if query.get("peer") else BORDER_NS
    with asking(warehouse, longest_s=LONGEST_S) as ask:
        window_ns = asked_range(ask, {}).window_ns
        found = ask(
            "slice_flows", addr=addr, peer=query.get("peer") or None, start_ns=start - border, end_ns=end + border,
            first_window_ns=start - start % window_ns - window_ns, last_window_ns=end, most=MOST_FLOWS,
        )  # fmt: skip
    return {
        "columns": ["start", "ms", "from", "to", "ports", "bytes", "path"],
        "rows": [
            [
                iso(row["flow_start_ns"])[11:],
                round((row["flow_end_ns"] - row["flow_start_ns"]) / 1e6, 3),
                shown(row["src_addr"]),
                shown(row["dst_addr"]),
                f"{row['src_port']} → {row['dst_port']}" if row["src_port"] is not None else "",
                row["bytes"],
                shown(row["path"], 200),
            ]
            for row in found.iter_rows(named=True)
        ],
        "more": found.height >= MOST_FLOWS,
    }
