"""Job: its steps over time with incidents, where their time goes, who computes longer, and its layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.reports.pages import charts, now, timeline
from llmprism_tasks.reports.pages.charts import Band, Chart, Shade
from llmprism_tasks.reports.pages.markup import PARTS, data, render, shown
from llmprism_tasks.reports.pages.ranges import LASTS, LONGEST_S, SLICES, Range, asked_range, listed, sample
from llmprism_tasks.warehouse.asking import asking
from llmprism_tasks.warehouse.connect import Warehouse

Row = dict[str, Any]
Frames = dict[str, pl.DataFrame]

EACH_STEP_S = 7_200
"""Longest range, in seconds, in which each step is drawn; over a longer one, each slice's typical step is."""

MOST_SPLITS = 60
"""Windows of which the split of time is read: of a longer range, so many at equal distances."""

HEAT_WINDOWS, HEAT_STEPS, HEAT_NICS = 6, 60, 128
"""Newest windows and steps of the heat map, and its rows; of more NICs, those that compute longest are shown."""

HEAT_PX, LABEL_PX = 576, 14
"""Height of all rows of a heat map where they are many, so that it fits on a screen, and of one label, in pixels."""

HEAT_LIMIT = 30
"""Percent at which the colours of the heat map end: a GPU a third slower is as bad as the eye needs to see."""

MOST_STEPS, MOST_ROWS = 20_000, 250_000


def show(warehouse: Warehouse, query: Mapping[str, str], *, now_ns: int, alone: bool = False) -> str:
    """Return the page of a job over a range.

    Raises
    ------
    InputError : there is no such job in the range
    QueryTooLong, WarehouseBusy : as `asking`
    """
    job_id = query.get("id", "")
    with asking(warehouse, longest_s=LONGEST_S) as ask:
        asked = asked_range(ask, query)
        named = {"job_id": job_id, "most": MOST_STEPS}
        job = ask("jobs", **asked.values, job_id=job_id, most=1)
        if job.is_empty():
            raise InputError(
                found=f"no job {shown(job_id)} in this range",
                expected="a job that was seen in it",
                todo="Choose a job from the first page or from llmprism report, or a longer range.",
            )
        frames: Frames = {"job": job}
        windows = ask("job_windows", **asked.values, **named)["window_start_ns"]
        some = listed(sample(windows, MOST_SPLITS))
        newest = int(job["window_start_ns"][0])
        if _each_step(asked):
            frames["steps"] = ask("job_steps", **asked.values, **named)
        else:
            frames["paces"] = ask(
                now.paces_of(asked), **asked.values, slice_ns=asked.slice_ns(SLICES), jobs=[job_id], most=2 * SLICES
            )
        frames["splits"] = ask("splits", **some, jobs=[job_id], most=MOST_SPLITS)
        frames["pairs"] = ask("pair_kinds", **some, job_id=job_id, most=MOST_SPLITS * 8)
        frames["members"] = ask("members", window_start_ns=newest, job_id=job_id, most=timeline.MOST_MEMBERS)
        last = listed(windows.to_list()[-_heat_windows(job.row(0, named=True)) :])
        frames["heat"] = ask("member_splits", **last, job_id=job_id, most=MOST_ROWS)
        frames["diagnoses"] = ask("diagnoses", first_ns=newest, last_ns=newest, jobs=[job_id], most=100)
        frames["behind"] = timeline.behind(ask, frames["diagnoses"].filter(pl.col("rank") == 1), newest)
        frames["incidents"] = ask(
            "incidents", **asked.values, now_ns=now_ns, incident_id=None, job_id=job_id, most=now.MOST_INCIDENTS
        )
    return page(frames, asked, now_ns=now_ns, took_s=ask.took_s, alone=alone)


def _each_step(asked: Range) -> bool:
    return asked.to_ns - asked.from_ns <= EACH_STEP_S * 1_000_000_000


def _heat_windows(job: Row) -> int:
    """Return how many windows fill the heat map, and no more than that many rows have room for."""
    steps = max(60e9 / job["period_ns"], 1) if job["period_ns"] else 10
    return max(1, min(HEAT_WINDOWS, int(HEAT_STEPS / steps) + 1, int(MOST_ROWS / (steps * job["endpoints"]))))


def page(frames: Frames, asked: Range, *, now_ns: int, took_s: Mapping[str, float], alone: bool = False) -> str:
    """Return the page as HTML; the frames are rows of the queries of these names in `sql/pages`."""
    job = frames["job"].row(0, named=True)
    incidents = now.folded(frames["incidents"], asked)
    accused = timeline.suspects(frames["diagnoses"], frames["members"], frames["behind"])
    drawn = drawings(frames, asked, accused)
    return render(
        "job.html",
        scripts=["plotly.min.js", "charts.js"],
        title=f"Job {shown(job['job_id'])}",
        here="job",
        asked=asked,
        lasts=LASTS,
        now_ns=now_ns,
        took_s=took_s,
        alone=alone,
        fresh=asked.last != "",
        job=job,
        incidents=incidents,
        charts=[{"name": name, **one._asdict(), "json": data(one.figure)} for name, one in drawn.items()],
        grid=grid(frames["members"], accused),
        accused=len(accused),
        figures=figures(frames),
    )


def drawings(frames: Frames, asked: Range, accused: Mapping[str, str]) -> dict[str, Chart]:
    """Return the charts of a job, by name."""
    shades = [
        Shade(row["start_ns"], row["last_seen_ns"], shown(f"{row['subject']} {row['kind'].replace('_', ' ')}", 60))
        for row in frames["incidents"].iter_rows(named=True)
        if row["effect_of"] is None
    ]
    found = {"steps": _steps(frames, asked, shades)}
    splits = frames["splits"]
    if splits.height:
        parts: dict[str, Sequence[float]] = {part: splits[f"{part}_s"].to_list() for part in PARTS}
        starts = splits["window_start_ns"].to_list()
        every = "" if splits.height < MOST_SPLITS else f" {MOST_SPLITS} windows at equal distances are read."
        found["split"] = Chart(
            "Where a step's time goes",
            "Mean seconds per GPU and step, stacked: computing, communication, bubble, waiting, the unexplained."
            + every,
            charts.areas(
                [*starts, starts[-1] + asked.window_ns],
                {part: [*values, values[-1]] for part, values in parts.items()},
                unit="s per step",
                shades=shades,
                span=(asked.from_ns, asked.to_ns),
            ),
        )
    if frames["heat"].height:
        found["heat"] = _heat(frames["heat"], accused)
    if frames["pairs"].height:
        found["pairs"] = _pairs(frames["pairs"], asked)
    return found


def _steps(frames: Frames, asked: Range, shades: list[Shade]) -> Chart:
    title, span = "Step time, incidents shaded", (asked.from_ns, asked.to_ns)
    if "steps" in frames:
        steps = frames["steps"]
        series = [("step time", "--line", steps["end_ns"].to_list(), steps["duration_s"].to_list())]
        tells = f"Each of {steps.height:,} steps at its end."
        return Chart(title, tells, charts.lines(series, unit="s", shades=shades, span=span, markers=steps.height < 300))
    paces = frames["paces"]
    times = paces["slice_ns"].to_list()
    series = [
        ("longest", "--muted-line", times, paces["longest_step_s"].to_list()),
        ("typical", "--line", times, paces["median_step_s"].to_list()),
        ("shortest", "--muted-line", times, paces["shortest_step_s"].to_list()),
    ]
    tells = f"The typical, shortest and longest step in each {asked.slice_ns() / asked.window_ns:.0f} minutes."
    return Chart(title, tells, charts.lines(series, unit="s", shades=shades, span=span))


def longer(splits: pl.DataFrame) -> pl.DataFrame:
    """Return how much longer each NIC computes in each step than the median of its pipeline stage, in percent.

    Returns
    -------
    `addr`, `host`, `end_ns` of the job's step, `longer`; NULL where the stage computes nothing in the step
    """
    usual = pl.col("compute_ns").median().over("window_start_ns", "step_index", "pp_stage")
    ratio = pl.when(usual > 0).then(100 * (pl.col("compute_ns") / usual - 1))
    return splits.select("addr", "host", "pp_stage", "end_ns", longer=ratio)


def _heat(splits: pl.DataFrame, accused: Mapping[str, str]) -> Chart:
    told = longer(splits)
    ends = told["end_ns"].unique().sort().to_list()[-HEAT_STEPS:]
    told = told.filter(pl.col("end_ns") >= ends[0])
    everybody = told["addr"].n_unique()
    means = told.group_by("addr").agg(pl.col("longer").mean()).sort("longer", "addr", descending=[True, False])
    kept = means.head(HEAT_NICS)["addr"]
    places = (
        splits.filter(pl.col("addr").is_in(kept.to_list()))
        .unique("addr", keep="last", maintain_order=True)
        .sort("pp_stage", "host", "addr", nulls_last=True)
    )
    cells = {(row["addr"], row["end_ns"]): row["longer"] for row in told.iter_rows(named=True)}
    rows = [[_round(cells.get((addr, end))) for end in ends] for addr in places["addr"]]
    names = [f"{shown(host, 24)} {shown(addr, 45)}" for host, addr in places.select("host", "addr").iter_rows()]
    cut = f" {HEAT_NICS} of {everybody:,} GPUs are shown, those that compute longest." if everybody > HEAT_NICS else ""
    row_px = max(7, min(14, HEAT_PX // len(names)))
    marked = " The first suspect is framed." if accused else ""
    return Chart(
        "Who computes longer",
        f"GPUs against the last {len(ends)} steps: how much longer each computes than the median of its pipeline stage "
        f"in that step. Hosts are in the order of stages.{marked}{cut}",
        charts.heat(ends, names, rows, bands=_bands(places, accused, row_px), unit="than its stage", limit=HEAT_LIMIT),
        height=100 + row_px * len(names),
    )


def _bands(places: pl.DataFrame, accused: Mapping[str, str], row_px: int) -> list[Band]:
    """Return the rows of each host; of hosts whose labels would overlap, the first has one, and a suspect always."""
    runs = (
        places.select("host", "pp_stage", suspect=pl.col("addr").is_in(list(accused)))
        .with_row_index("row")
        .group_by(run=pl.struct("host", "pp_stage", "suspect").rle_id(), maintain_order=True)
        .agg(pl.col("host", "pp_stage", "suspect").first(), first=pl.col("row").min(), last=pl.col("row").max())
        .with_columns(opens=pl.col("pp_stage").ne_missing(pl.col("pp_stage").shift()))
    )
    bands: list[Band] = []
    free = 0  # pixels from the top, where the next label has room
    for run in runs.iter_rows(named=True):
        has_room = run["first"] * row_px >= free
        free = run["first"] * row_px + LABEL_PX if has_room else free
        label = f"{'▶ ' if run['suspect'] else ''}{shown(run['host'], 24)}" if has_room or run["suspect"] else ""
        opens = run["opens"] and run["first"] > 0
        bands.append(Band(label, run["first"], run["last"], run["suspect"], opens))
    return bands


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


KIND_COLOURS = {"dp": "--dp_sync", "pp": "--pp_send", "ep": "--pp_recv", "cp": "--line", "tp": "--bubble"}
KIND_WORDS = {
    "dp": "gradients (dp)", "pp": "pipeline (pp)", "ep": "experts (ep)", "cp": "context (cp)", "tp": "tensor (tp)",
}  # fmt: skip


def _pairs(pairs: pl.DataFrame, asked: Range) -> Chart:
    series = []
    for (kind,), rows in pairs.group_by("kind", maintain_order=True):
        rates = [rate or None for rate in rows["bytes"] * 8 / (asked.window_ns / 1e9) / 1e9]
        middles = (rows["window_start_ns"] + asked.window_ns // 2).to_list()
        series.append((KIND_WORDS.get(kind, kind), KIND_COLOURS.get(kind, "--other"), middles, rates))
    return Chart(
        "Bandwidth by kind of pair",
        "What all pairs of a kind carry together, mean over each window. Each line of the grid is ten times the one "
        "below it; less than a ten-thousandth of the largest is not drawn.",
        charts.lines(
            series, unit="Gbit/s", span=(asked.from_ns, asked.to_ns), markers=True, hover=".3g", by_decades=True
        ),
        height=240,
    )


def grid(members: pl.DataFrame, accused: Mapping[str, str]) -> list[Row]:
    """Return a row for each host of a job, with its NICs in order."""
    return [
        {
            "host": host,
            "cells": [row | {"suspect": row["addr"] in accused} for row in rows.iter_rows(named=True)],
        }
        for (host,), rows in members.sort("host", "addr").group_by("host", maintain_order=True)
    ]


def figures(frames: Frames) -> Row:
    """Return the numbers on top of the page: steps drawn, their median and the 95 % longest in s, and the split."""
    steps = frames.get("steps")
    splits = frames["splits"]
    means = splits.select(
        (pl.col(f"{part}_s").dot("member_steps") / pl.col("step_s").dot("member_steps")).alias(part) for part in PARTS
    )
    return {
        "steps": None if steps is None else steps.height,
        "median_step_s": None if steps is None else steps["duration_s"].median(),
        "p95_step_s": None if steps is None else steps["duration_s"].quantile(0.95, "linear"),
        "split": means.row(0, named=True) if splits.height else dict.fromkeys(PARTS),
    }
