"""Localisation: find the device that all slow transfers share and no quick transfer crosses (binary tomography).

Each slow transfer says "one of my devices is faulty", and each quick one "none of mine". In a ring whose hops are all
equally slow, every hop has the pace of the slowest, so the whole ring says so once. The answer is the posterior over
single faulty devices and pairs of them, with few faults expected beforehand and some noise in both kinds of evidence
(a noisy-OR with a sparse prior, as in Nguyen and Thiran, "The boolean solution to the congested IP link location
problem", INFOCOM 2007).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.numerics.graphs import strong_components
from llmprism_tasks.numerics.robust import MAJORITY, Floats
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.network.hop_comparison import JUDGED, LEAST_SIGMA
from llmprism_tasks.stages.diagnosis.network.path_pace import HOP_ON_PATH, RING
from llmprism_tasks.stages.traffic.nic_pairs import PAIR

DEVICE = ["device_type", "device"]

PRIOR = {"addr": 1e-4, "sends": 3e-5, "receives": 3e-5, "link": 1e-5, "one_way": 3e-6, "switch": 3e-6, "host": 3e-7}
"""How often a device of each type is faulty. Only the order and the distance of the types matter: a NIC can be slow
without harm to other transfers, a link hits fewer than its switch. `sends` and `receives` are a NIC in one direction,
`one_way` is one direction of a link. All NICs of a host are seldom slow together, but likelier so than any two by
chance."""

ONE_DIRECTION = ("sends", "receives")
NIC_TYPES = ("addr", *ONE_DIRECTION)
"""Types of devices that are NICs."""

SLOW_BY_CHANCE = 1e-4
"""How often a transfer is slow although all its devices are well."""

FAULT_UNFELT = 0.01
"""How often a transfer is quick although one of its devices is faulty."""

SLOW_LOG_ODDS = math.log((1 - FAULT_UNFELT) / SLOW_BY_CHANCE)
QUICK_LOG_ODDS = math.log((1 - SLOW_BY_CHANCE) / FAULT_UNFELT)
"""What one slow transfer adds to, and one quick transfer takes from, the logarithm of a fault's odds."""

PAIRED_DEVICES = 48
"""Most devices of which pairs are considered, the likeliest ones; the others cannot change the first digits."""

PROBABILITY_DIGITS = 6
"""Digits of a probability from which two differ, rather than by rounding."""

NEGLIGIBLE_PROBABILITY = 0.01
"""Probability below which a device is no candidate."""

MOST_NAMED = 8
"""Most devices that are named together; a longer list helps nobody who has to look at them."""

CULPRIT_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "device_type": pl.String,
    "device": pl.String,
    "hops": pl.List(pl.UInt32),
    "candidates": pl.List(pl.String),
    "odds": pl.List(pl.Float64),
    "transfers": pl.UInt32,
    "own": pl.UInt32,
}


@dataclass(frozen=True)
class Suspicion:
    """The slow transfers, and the devices at fault.

    Attributes
    ----------
    crossings : each path of each hop, once per device that it crosses: `DEVICE`, `hop` (its number), `HOP_ON_PATH`,
        `now`, `usual`, `ratio`, `slow`
    culprits : `DEVICE`, `hops` (numbers of the slow hops that cross it), `candidates` (what may be at fault, itself
        among them; the two directions of a link are one), `odds` (their probabilities, which add up to 1), `transfers`
        (how many slow transfers it explains; a ring that is slow alike is one), `own` (how many slow hops of it have a
        pace of their own); the device that explains most comes first
    """

    crossings: pl.DataFrame
    culprits: pl.DataFrame


def suspect(hops: pl.DataFrame, members: pl.DataFrame, settings: DiagnosisSettings) -> Suspicion:
    """Name the most suspect device, then the most suspect one for the hops that are still unexplained.

    Parameters
    ----------
    hops : as `hop_comparison.compared` returns
    members : `addr`, `host`
    """
    crossings = left = devices(_with_hints(hops).with_row_index("hop"), members)
    culprits: list[dict[str, Any]] = []
    while (found := _most_suspect(left, settings)) is not None:
        culprits.append(found)
        # All rings of a job may go through a host of it, and wait there.
        which = ["job_id"] if found["device_type"] == "host" else ["job_id", "unit"]
        waiting = _around_with(left.filter("slow"), found["hops"])
        explained = left.filter(pl.col("hop").is_in([*found["hops"], *waiting])).select(which).unique()
        slow = left.filter("slow").join(explained, on=which, how="anti")
        left = pl.concat([left.filter(~pl.col("slow")), slow])
    return Suspicion(crossings, pl.DataFrame(culprits, schema=CULPRIT_SCHEMA))


def _around_with(slow: pl.DataFrame, hops: list[int]) -> list[int]:
    """Return the slow hops that lead around a ring with some of `hops`, at their pace: they wait for these.

    A ring need not be known as a unit: its hops may carry other traffic, too, such as tokens. On a ring each NIC sends
    over one hop.

    Parameters
    ----------
    slow : crossings
    """
    differs = (pl.col("now").log().diff() > LEAST_SIGMA) | (pl.col("job_id") != pl.col("job_id").shift())
    paced = slow.unique("hop").sort("job_id", "now", "hop").with_columns(alike=differs.fill_null(value=True).cum_sum())
    numbers = pl.concat(paced.select(pl.struct("alike", addr=end)) for end in PAIR).to_series().rank("dense") - 1
    source, target = np.split(numbers.to_numpy().astype(np.int64), 2)
    labels = strong_components(source, target, len(numbers))
    circuit = pl.Series(labels[source])
    around = paced.with_columns(circuit=circuit).filter(labels[source] == labels[target])
    pairs, nics = pl.struct(PAIR).n_unique().over("circuit"), pl.col("src_addr").n_unique().over("circuit")
    together = pl.col("hop").is_in(hops).any().over("circuit")
    return around.filter(together & (pairs == nics))["hop"].to_list()


def _with_hints(hops: pl.DataFrame) -> pl.DataFrame:
    """Add `hint`: by how much a hop of a ring that is slow alike speaks for its devices, a logarithm of odds.

    Members of a ring that wait for another one show their own pace by chance only. The fewer of them do not, the more
    each of these hops hints at its devices. So do hops as slow as the slowest, the fewer they are: a device lets data
    pass at its own rate. A hop that is quicker than that speaks against its devices. NULL for all other hops.
    """
    alike = pl.when("slow").then(pl.col("near").exp()).otherwise(0.0).mean().over(RING)
    hint = (pl.col("near") - alike.log()).clip(math.log(FAULT_UNFELT))
    return hops.with_columns(hint=pl.when(pl.col("slow") & pl.col("ring_bound") & ~pl.col("proven")).then(hint))


def devices(hops: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return each hop once per device that it crosses: NICs, switches and links, NICs and links in its direction, and
    hosts of which several NICs are seen.

    A link is named by its two switches in alphabetical order, a direction by its switches in the order of the path.
    """
    facts = ["hop", *HOP_ON_PATH, "now", "usual", "ratio", *JUDGED, "hint"]
    switches = (
        hops.explode("switch_path", empty_as_null=True)
        .drop_nulls("switch_path")
        .with_columns(before=pl.col("switch_path").shift().over("hop"))
    )
    ends = ["before", "switch_path"]
    link = pl.concat_str(pl.min_horizontal(ends), pl.max_horizontal(ends), separator=" - ")
    hosts = members.select("addr", "host").unique("addr")
    in_hosts = pl.concat(hops.select(*facts, addr=end).join(hosts, on="addr") for end in PAIR)
    in_hosts = in_hosts.filter(pl.col("addr").n_unique().over("host") > 1)
    crossed = [
        in_hosts.select(*facts, device_type=pl.lit("host"), device="host"),
        *(
            hops.select(*facts, device_type=pl.lit(of_nic), device=end)
            for end, way in (("src_addr", "sends"), ("dst_addr", "receives"))
            for of_nic in ("addr", way)
        ),
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


def subject(device: str) -> str:
    """Return the name of a device; a link, in both its directions, has one."""
    return " - ".join(sorted(ends(device))) if " to " in device else device


def subject_type(culprit: dict[str, Any]) -> str:
    """Return what a row of `Suspicion.culprits` is to users: `addr`, `link` or `switch`."""
    device_type = str(culprit["device_type"])
    return "addr" if device_type in NIC_TYPES else device_type.replace("one_way", "link")


def certainty(culprit: dict[str, Any]) -> float:
    """Return the probability that a row of `Suspicion.culprits` is at fault."""
    odds = dict(zip(culprit["candidates"], culprit["odds"], strict=True))
    return float(odds[subject(culprit["device"])])


def alternatives(culprit: dict[str, Any]) -> dict[str, Any]:
    """Return the `candidates` and `odds` of a diagnosis; None where there is one device."""
    several = len(culprit["candidates"]) > 1
    return {name: culprit[name] if several else None for name in ("candidates", "odds")}


def listed(culprit: dict[str, Any]) -> str:
    """Return the words for the devices that may be at fault."""
    return ", ".join(f"{name} ({odds:.0%})" for name, odds in zip(culprit["candidates"], culprit["odds"], strict=True))


def _most_suspect(crossings: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, Any] | None:
    """Return the device that most likely explains the slow hops; None if no device crosses enough of them.

    A single hop of a ring that is slow alike says nothing of its devices, for the slow hop of the ring was not seen.
    Several such rings say nothing of hosts, for each host may have NICs in all of them. Of devices that are as suspect,
    it is the one whose slow hops have one pace: a device lets data pass at its own rate.
    """
    judged = _count_accusations(crossings, settings.slow_rate).filter(
        pl.col("accused") >= settings.persistence * (pl.col("accused") + pl.col("cleared")),
        ((pl.col("slow_hops") > 1) & (pl.col("device_type") != "host")) | (pl.col("own_hops") > 0),
        pl.col("units") >= MAJORITY * pl.col("all_units"),
    )
    if judged.is_empty():
        return None
    prior = pl.col("device_type").replace_strict(PRIOR, return_dtype=pl.Float64).log()
    fault = (
        SLOW_LOG_ODDS * pl.col("accusing").list.len() + pl.col("hinted") - QUICK_LOG_ODDS * pl.col("cleared") + prior
    )
    ordered = judged.with_columns(prior=prior, fault=fault).sort(
        "fault", "spread", *DEVICE, descending=[True, False, False, False]
    )
    best = ordered.row(0, named=True)
    instead = ordered.filter(pl.col("accusing").list.set_intersection(best["accusing"]).list.len() > 0)
    odds = _posterior(instead.head(PAIRED_DEVICES), best)
    told = {"candidates": list(odds), "odds": list(odds.values()), "transfers": len(best["accusing"])}
    told["own"] = best["own_hops"]
    return {name: best[name] for name in (*DEVICE, "hops")} | told


def _posterior(suspects: pl.DataFrame, best: dict[str, Any]) -> dict[str, float]:
    """Return the probability of each device to be at fault for some slow transfers, the likeliest first.

    Parameters
    ----------
    suspects : as `_count_accusations` returns, with `prior` (its logarithm)
    best : the one whose slow transfers are to be explained
    """
    prior = suspects["prior"].to_numpy()
    # Entry (i, j) is the hypothesis that just i and j are faulty, or i alone if they are the same.
    weight = prior[:, None] + prior[None, :] - np.diag(prior)
    weight += SLOW_LOG_ODDS * _union_counts(_crossing_matrix(suspects["accusing"], best["accusing"]))
    weight -= QUICK_LOG_ODDS * _union_counts(_crossing_matrix(suspects["clearing"]))
    hints = suspects.select("hints").with_row_index("device").explode("hints").drop_nulls().unnest("hints")
    hints = hints.filter(pl.col("transfer").is_in(best["accusing"])).sort("hop")
    if hints.height:
        of_device = hints.group_by("device").agg("hop")
        hops = pl.DataFrame({"device": range(suspects.height)}, schema={"device": pl.UInt32}).join(
            of_device, on="device", how="left", maintain_order="left"
        )
        says = hints.unique("hop", maintain_order=True)["hint"].to_numpy()
        weight += _union_counts(_crossing_matrix(hops["hop"], hints["hop"].unique().to_list()), says)
    share = np.exp(weight - weight.max())
    by_device = share.sum(axis=1)
    found = (
        suspects.select(subject=pl.col("device").map_elements(subject, pl.String), odds=pl.Series(by_device))
        .group_by("subject", maintain_order=True)
        .agg(pl.col("odds").sum())
        .with_columns(pl.col("odds") / pl.col("odds").sum())
    )
    first = pl.col("subject") == subject(suspects["device"][0])
    kept = found.filter(first | (pl.col("odds") >= NEGLIGIBLE_PROBABILITY)).with_columns(
        pl.col("odds") / pl.col("odds").sum()
    )
    return dict(
        kept.sort(
            pl.col("odds").round(PROBABILITY_DIGITS), ~first, descending=[True, False], maintain_order=True
        ).rows()
    )


def _crossing_matrix(numbers: pl.Series, of: list[int] | None = None) -> Floats:
    """Return which transfer crosses which device, shape (devices, transfers); of the transfers `of`, or of all."""
    rows = pl.DataFrame({"number": numbers}).with_row_index("device").explode("number").drop_nulls()
    names = rows["number"].unique().sort() if of is None else pl.Series(sorted(of), dtype=rows["number"].dtype)
    rows = rows.join(pl.DataFrame({"number": names}).with_row_index("at"), on="number")
    found = np.zeros((len(numbers), len(names)))
    found[rows["device"].to_numpy(), rows["at"].to_numpy()] = 1
    return found


def _union_counts(crossed: Floats, counts: Floats | float = 1.0) -> Floats:
    """Return how many transfers cross one or the other of two devices, shape (devices, devices).

    Parameters
    ----------
    counts : for how much each transfer counts
    """
    counted = crossed * counts
    each: Floats = counted.sum(axis=1)
    either: Floats = each[:, None] + each[None, :] - counted @ crossed.T
    return either


def _count_accusations(crossings: pl.DataFrame, slow_rate: float) -> pl.DataFrame:
    """Count the hops that accuse and that clear each device.

    A hop at its usual pace clears its devices, unless that pace is no better than the pace of slow hops of its kind:
    such a hop is limited by something else, and further slowness would not show. It does show in a hop that is slower
    as it waits for a slow one of its ring, but is not slow itself. A hop that sends early at its usual pace clears its
    devices, too. If hops of a ring are proven slow, its others tell nothing: they wait for these.

    Returns
    -------
    `DEVICE`, `accused` (slow hops with a pace of their own; if none has one, hops of slow rings), `cleared` (hops that
    clear it), `slow_hops`, `peers` (pairs with a slow hop of its own), `spread` (the slowest pace of its slow hops over
    the quickest), `hops` (numbers of the slow hops), `units` (how many slow units cross it), `all_units` (number of
    slow units of its jobs), `accusing` (numbers of the transfers that accuse it: the hop itself, or one hop of a ring
    that is slow alike, for all of them), `clearing` (numbers of the hops that clear it), `hints` (each slow hop of a
    ring that is slow alike: `hop`, `transfer`, and its `hint`), `hinted` (their sum)
    """
    same = [*DEVICE, "job_id", "kind"]
    pace = pl.when("slow").then("now").median().over(same)
    # Of hops that share a slow NIC or link one gets more of it than another, so a hop that is slow, though less, does
    # not show that it is well. Ports of a switch are not shared so.
    slower = pl.col("ratio") >= slow_rate
    shared = (pl.col("device_type") != "switch") & slower
    waits = slower & pl.col("slow").any().over(RING)
    quicker = (pace.is_null() | (pl.col("now") * slow_rate <= pace) | waits) & ~shared
    tells = pl.col("proven") | ~pl.col("proven").any().over("job_id", "unit")
    first = pl.col("hop").min().over(RING)
    marked = crossings.with_columns(
        slow_units=pl.col("unit").filter("slow").n_unique().over("job_id"),
        slow=pl.col("slow") & tells,
        own=pl.col("slow") & (~pl.col("ring_bound") | pl.col("proven")) & tells,
        clears=~pl.col("slow") & (pl.col("innocent") | quicker),
        transfer=pl.when(pl.col("ring_bound") & ~pl.col("proven")).then(first).otherwise("hop"),
        by_itself=pl.col("kind") != "dp",
        hint=pl.when(tells).then("hint"),
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
            peers=pl.struct("src_addr", "dst_addr").filter("own").n_unique(),
            spread=pl.col("now").filter("slow").max() / pl.col("now").filter("slow").min(),
            heard=(pl.col("own") | (pl.col("clears") & pl.col("by_itself"))).any(),
            hops=pl.col("hop").filter("slow").sort(),
            accusing=pl.col("transfer").filter("slow").unique().sort(),
            clearing=pl.col("hop").filter("clears").sort(),
            units=pl.struct("job_id", "unit").filter("slow").n_unique(),
            hints=pl.struct("hop", "transfer", "hint").filter(pl.col("hint").is_not_null()),
            hinted=pl.col("hint").sum(),
        )
        .join(of_jobs, on=DEVICE)
        .with_columns(accused=pl.when("heard").then("own_hops").otherwise("slow_hops"))
    )
