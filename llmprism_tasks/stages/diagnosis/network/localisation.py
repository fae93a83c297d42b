"""Localisation: find the device that all slow transfers share and no quick transfer crosses (binary tomography).

A transfer at its usual pace clears every device it crosses. A slow pair accuses every device it crosses. In a ring
whose hops are all equally slow, every hop has the pace of the slowest, so the ring accuses all its devices and none in
particular. Devices that many paths share are discounted, and a device is named only if no other explains as much.
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
"""Types of devices, the likeliest first among those that the same transfers cross: a NIC can be slow without harm to
other transfers. `one_way` is one direction of a link."""

CULPRITS: dict[str, pl.DataType | type[pl.DataType]] = {
    "device_type": pl.String,
    "device": pl.String,
    "hops": pl.List(pl.UInt32),
    "rivals": pl.List(pl.String),
}


@dataclass(frozen=True)
class Suspicion:
    """The slow transfers, and the devices at fault.

    Attributes
    ----------
    crossings : each path of each hop, once per device that it crosses: `DEVICE`, `hop` (its number), `PLACE`, `now`,
        `usual`, `ratio`, `slow`
    culprits : `DEVICE`, `hops` (numbers of the slow hops that cross it), `rivals` (devices that may be slow instead);
        the device that explains most comes first
    """

    crossings: pl.DataFrame
    culprits: pl.DataFrame


def suspect(hops: pl.DataFrame, settings: DiagnosisSettings) -> Suspicion:
    """Name the most suspect device, then the most suspect one for the hops that are still unexplained.

    Parameters
    ----------
    hops : as `path_pace.compared` returns
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
    """Return each hop once per device that it crosses: its NICs, switches, links, and directions of links.

    A link is named by its two switches in alphabetical order, a direction by its switches in the order of the path.
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
    """Return the two switches of a link or of a direction; of another device, the device itself."""
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
    """Return whether a device explains the same slow units as the best one, and may be at fault instead of it.

    A device that the best one contains may be at fault if nothing clears it while something clears the best one: the
    best one's other traffic may then be slow because of it.
    """
    if row["explained"] != best["explained"]:
        return False
    if row["own"] != best["own"]:
        return not set(row["own"]) < set(best["own"]) or (best["cleared"] > 0 and row["cleared"] == 0)
    return not best["own"] or row["specific"] == best["specific"]


def _judged(crossings: pl.DataFrame, slow_rate: float) -> pl.DataFrame:
    """Count the hops that accuse and that clear each device.

    A hop at its usual pace clears its devices, unless that pace is no better than the pace of slow hops of its kind:
    such a hop is limited by something else, and further slowness would not show. A hop that sends early at its usual
    pace clears its devices, too. If hops of a ring are proven slow, only devices crossed by them can slow the ring.

    Returns
    -------
    `DEVICE`, `accused` (slow hops with a pace of their own; if none has one, hops of slow rings), `cleared` (hops that
    clear it), `slow_hops`, `hops` (their numbers), `own` (numbers of the slow hops with a pace of their own),
    `own_hops`, `explained` (the slow units), `units` (their number), `all_units` (number of slow units of its jobs)
    """
    alike = pl.col("slow").all().over("job_id", "unit")
    paced = (pl.col("kind") == "dp") & alike
    same = [*DEVICE, "job_id", "kind"]
    slow_units = pl.col("unit").filter("slow").n_unique().over("job_id")
    pace = pl.when("slow").then("now").median().over(same)
    quicker = pace.is_null() | (pl.col("now") * slow_rate <= pace)
    proven, crossed = (pl.col("proven").any().over(*which, "job_id", "unit") for which in ([], DEVICE))
    marked = crossings.with_columns(
        slow_units=slow_units,
        slow=pl.col("slow") & (crossed | ~proven),
        own=pl.col("slow") & ~paced & (crossed | ~proven),
        clears=~pl.col("slow") & (pl.col("innocent") | quicker),
        named=pl.concat_str("job_id", "unit", separator=" "),
        by_itself=pl.col("kind") != "dp",
    )
    of_jobs = (
        marked.filter("slow").unique([*DEVICE, "job_id"]).group_by(DEVICE).agg(all_units=pl.col("slow_units").sum())
    )
    return (
        marked.group_by(DEVICE)
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
