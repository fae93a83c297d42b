"""Suspects: which device all slow transfers share and no quick one crosses.

A transfer at its usual pace clears all devices that it crosses. A pair that is slow accuses all of them. A ring whose
hops are all slow alike accuses everything on it, but nothing in particular: every hop has the pace of the slowest. So
devices that many paths share are discounted, and one is named only where no other explains as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.network.path_pace import PLACE
from llmprism_tasks.stages.diagnosis.ranking import MOST

DEVICE = ["device_type", "device"]
SPECIFIC = {"addr": 0, "link": 1, "one_way": 2, "switch": 3}
"""Types of devices. Of those that the same transfers cross the first is likeliest: it can be slow without harm to
others. `one_way` is a direction of a link."""

CULPRITS: dict[str, pl.DataType | type[pl.DataType]] = {
    "device_type": pl.String,
    "device": pl.String,
    "hops": pl.List(pl.UInt32),
    "rivals": pl.List(pl.String),
}


@dataclass(frozen=True)
class Suspicion:
    """What is slow, and whose fault it is.

    Attributes
    ----------
    crossings : each path of each hop once for every device that it crosses: `DEVICE`, `hop` (its number), `PLACE`,
        `now`, `usual`, `ratio`, `slow`
    culprits : `DEVICE`, `hops` (numbers of the slow ones that cross it), `rivals` (devices that might be slow instead);
        those that explain most come first
    """

    crossings: pl.DataFrame
    culprits: pl.DataFrame


def suspect(hops: pl.DataFrame, settings: DiagnosisSettings) -> Suspicion:
    """Name the most suspect device, then the next among what it leaves unexplained.

    Parameters
    ----------
    hops : as `hops.compared` returns
    """
    crossings = left = devices(hops.with_row_index("hop"))
    culprits: list[dict[str, Any]] = []
    while (found := _most_suspect(left, settings)) is not None:
        culprits.append(found)
        explained = left.filter(pl.col("hop").is_in(found["hops"])).select("job_id", "unit").unique()
        slow = left.filter("slow").join(explained, on=["job_id", "unit"], how="anti")
        left = pl.concat([left.filter(~pl.col("slow")), slow])
    return Suspicion(crossings, pl.DataFrame(culprits, schema=CULPRITS))


def devices(hops: pl.DataFrame) -> pl.DataFrame:
    """Return each hop once for every device that it crosses: its NICs, switches, links, and links in its direction.

    A link is named by its two switches in the order of their names, a direction by them in the order of the path.
    """
    facts = ["hop", *PLACE, "now", "usual", "ratio", "slow", "innocent", "proven"]
    switches = (
        hops.explode("switch_path", empty_as_null=True)
        .drop_nulls("switch_path")
        .with_columns(before=pl.col("switch_path").shift().over("hop"))
    )
    ends = ["before", "switch_path"]
    link = pl.concat_str(pl.min_horizontal(ends), pl.max_horizontal(ends), separator=" - ")
    crossed = [
        *(hops.select(*facts, device_type=pl.lit("addr"), device=end) for end in ("src_addr", "dst_addr")),
        switches.select(*facts, device_type=pl.lit("switch"), device="switch_path"),
        switches.drop_nulls("before").select(*facts, device_type=pl.lit("link"), device=link),
        switches.drop_nulls("before").select(
            *facts, device_type=pl.lit("one_way"), device=pl.concat_str(ends, separator=" to ")
        ),
    ]
    return pl.concat(crossed).unique([*DEVICE, "hop"]).sort(*DEVICE, "hop")


def ends(device: str) -> set[str]:
    """Return the switches of a link, in whichever direction; of another device, itself."""
    return set(device.replace(" to ", " - ").split(" - "))


def _most_suspect(crossings: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, Any] | None:
    judged = _judged(crossings, settings.slow_rate).filter(
        pl.col("accused") >= settings.persistence * (pl.col("accused") + pl.col("cleared")),
        pl.col("slow_hops") >= settings.least_transfers,
        pl.col("units") >= MOST * pl.col("all_units"),
    )
    if judged.is_empty():
        return None
    specific = pl.col("device_type").replace_strict(SPECIFIC, return_dtype=pl.Int8)
    ordered = judged.with_columns(specific=specific).sort(
        "units", "own_hops", "specific", *DEVICE, descending=[True, True, False, False, False]
    )
    best = ordered.row(0, named=True)
    as_many = ordered.filter(pl.col("units") == best["units"]).rows(named=True)[1:]
    rivals = sorted(str(row["device"]) for row in as_many if _may_be_instead(row, best))
    return {name: best[name] for name in (*DEVICE, "hops")} | {"rivals": rivals}


def _may_be_instead(row: dict[str, Any], best: dict[str, Any]) -> bool:
    """Tell whether a device explains what the best one does as well, and not only as a part of it or around it.

    A part of it does if nothing clears it, while something clears the best: the rest may be slow for its sake.
    """
    if row["explained"] != best["explained"]:
        return False
    if row["own"] != best["own"]:
        return not set(row["own"]) < set(best["own"]) or (best["cleared"] > 0 and row["cleared"] == 0)
    return not best["own"] or row["specific"] == best["specific"]


def _judged(crossings: pl.DataFrame, slow_rate: float) -> pl.DataFrame:
    """Count for each device what accuses it and what clears it.

    A hop of its usual pace clears the device, unless its pace is no better than that of the slow ones of its kind:
    something else keeps it there, and more would not be noticed. So does one that pushes at its usual pace. Where hops
    of a ring are proven slow, what crosses none of them is not what slows the ring.

    Returns
    -------
    `DEVICE`, `accused` (slow hops with a pace of their own, or, where nothing has one, those of slow rings),
    `cleared` (hops that clear it), `slow_hops`, `hops` (their numbers), `own` (of those with a pace of their own),
    `own_hops`, `explained` (the slow units), `units` (how many), `all_units` (how many slow ones its
    jobs have)
    """
    alike = pl.col("slow").all().over("job_id", "unit")
    paced = (pl.col("kind") == "dp") & alike
    same = [*DEVICE, "job_id", "kind"]
    slow_units = pl.col("unit").filter("slow").n_unique().over("job_id")
    pace = pl.when("slow").then("now").median().over(same)
    quicker = pace.is_null() | (pl.col("now") * slow_rate <= pace)
    proven, crossed = (pl.col("proven").any().over(*which, "job_id", "unit") for which in ([], DEVICE))
    told = crossings.with_columns(
        slow_units=slow_units,
        slow=pl.col("slow") & (crossed | ~proven),
        own=pl.col("slow") & ~paced & (crossed | ~proven),
        clears=~pl.col("slow") & (pl.col("innocent") | quicker),
        named=pl.concat_str("job_id", "unit", separator=" "),
        by_itself=pl.col("kind") != "dp",
    )
    of_jobs = told.filter("slow").unique([*DEVICE, "job_id"]).group_by(DEVICE).agg(all_units=pl.col("slow_units").sum())
    return (
        told.group_by(DEVICE)
        .agg(
            cleared=pl.col("clears").sum(),
            slow_hops=pl.col("slow").sum(),
            own_hops=pl.col("own").sum(),
            heard=(pl.col("own") | (pl.col("clears") & pl.col("by_itself"))).any(),
            hops=pl.col("hop").filter("slow").sort(),
            own=pl.col("hop").filter("own").sort(),
            explained=pl.col("named").filter("slow").unique().sort(),
        )
        .with_columns(
            accused=pl.when("heard").then("own_hops").otherwise("slow_hops"), units=pl.col("explained").list.len()
        )
        .join(of_jobs, on=DEVICE)
    )
