"""The joint rhythm of a group of NICs: its period, and the steps that its periodic bursts make together.

Every training step synchronises all replicas, so each data-parallel pair is quiet once per step, whatever else it
does. One pair's records are few and may be lost, split or merged; the pairs of one job tell the same story many
times. Here the bursts of all pairs that share the job's period are lined up, each shifted by its own typical delay
(later pipeline stages synchronise earlier), and bursts that then fall together are one step.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import bursts
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages import traffic

PAIR = ["src_addr", "dst_addr"]


def pair_rhythms(flows: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find the period of each pair's bursts.

    Parameters
    ----------
    flows : bulk flows; several jobs and pairs mixed

    Returns
    -------
    one row per pair: `src_addr`, `dst_addr`, `threshold_ns` (a longer gap ends a burst), `period_ns` (both NULL
    without a period), `clarity` (ratio of the quiet gap to the longest gap inside bursts), `bursts`, `flows`, `bytes`,
    `first_ns`, `last_ns` (first and last flow's start)
    """
    ordered = traffic.by_pair(flows, "flow_start_ns")
    pairs = ordered.group_by(PAIR, maintain_order=True).agg(
        flows=pl.len(),
        bytes=pl.col("bytes").sum(),
        first_ns=pl.col("flow_start_ns").min(),
        last_ns=pl.col("flow_start_ns").max(),
    )
    threshold, period, clarity, count = bursts.quiet_gaps(
        *_arrays(ordered),
        _offsets(pairs["flows"]),
        shortest_gap=settings.shortest_quiet_ms * 1e6,
        clearest_ratio=settings.quiet_ratio,
        byte_tolerance=settings.byte_tolerance,
        pace_tolerance=settings.pace_tolerance,
        persistence=settings.period_persistence,
    )
    return pairs.with_columns(
        threshold_ns=pl.Series(threshold).fill_nan(None),
        period_ns=pl.Series(period).fill_nan(None),
        clarity=pl.Series(clarity),
        bursts=pl.Series(count),
    )


def group_periods(flows: pl.DataFrame, rhythms: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find each group's period: the longest of those that about the most of its NICs agree on.

    The longest, because pipeline pairs also repeat once per micro-batch; agreed on by most, because a NIC that does not
    take part in it cannot be in the step. A period that does not go on for most of the time (buckets of one burst), or
    beside which most bytes follow none, is not the step's: better no steps than invented ones.

    Parameters
    ----------
    flows : the flows that `rhythms` was found in
    rhythms : as `pair_rhythms` returns, with a column `group`

    Returns
    -------
    `group`, `period_ns`; groups without a common period are absent
    """
    span = pl.col("last_ns").max().over("group") - pl.col("first_ns").min().over("group")
    goes_on = pl.col("bursts") * pl.col("period_ns") >= settings.period_persistence * span
    periodic = rhythms.filter(goes_on.fill_null(value=False)).with_columns(
        slot=(pl.col("period_ns").log() / np.log1p(settings.same_period)).floor().cast(pl.Int64)
    )
    ends = _ends(rhythms).group_by("group").agg(endpoints=pl.col("addr").n_unique())
    slots = pl.concat([periodic.with_columns(pl.col("slot") + shift) for shift in (-1, 0, 1)])
    support = (
        _ends(slots, "slot", "period_ns", "clarity")
        .group_by("group", "slot")
        .agg(supporters=pl.col("addr").n_unique(), period_ns=pl.col("period_ns").median())
        .join(ends, on="group")
        .filter(pl.col("supporters") >= settings.least_support * pl.col("endpoints"))
        .filter(pl.col("supporters") >= settings.period_support * pl.col("supporters").max().over("group"))
    )
    longest = support.sort("group", "period_ns").group_by("group", maintain_order=True).last()
    agreed = periodic.join(longest.select("group", around=pl.col("period_ns")), on="group").filter(
        _same_period("period_ns", "around", settings)
    )
    enough = _explained(flows, rhythms, periodic, longest, settings).filter(
        pl.col("explained") >= settings.least_explained
    )
    return agreed.join(enough, on="group", how="semi").group_by("group").agg(pl.col("period_ns").median()).sort("group")


def _explained(
    flows: pl.DataFrame, rhythms: pl.DataFrame, periodic: pl.DataFrame, periods: pl.DataFrame, settings: RhythmSettings
) -> pl.DataFrame:
    """Return for each group the share of bytes that its period explains: `group`, `explained`.

    It explains pairs that repeat with it, or faster, and those that send about as often in each period (experts, whose
    bytes never repeat).
    """
    pairs = rhythms.join(periods.select("group", around=pl.col("period_ns")), on="group")
    repeats = periodic.join(pairs.select(*PAIR, "around"), on=PAIR).filter(
        pl.col("period_ns") <= pl.col("around") * (1 + settings.same_period)
    )
    rest = pairs.join(repeats, on=PAIR, how="anti")
    slots = flows.join(rest.select(*PAIR, "first_ns", "around"), on=PAIR).group_by(
        *PAIR, ((pl.col("flow_start_ns") - pl.col("first_ns")) / pl.col("around")).floor().alias("slot")
    )
    counts = (
        slots.len().group_by(PAIR).agg(total=pl.col("len").sum(), squares=(pl.col("len").cast(pl.Float64) ** 2).sum())
    )
    periods_of = (pl.col("last_ns") - pl.col("first_ns")) / pl.col("around")
    mean = pl.col("total") / periods_of
    steady = (
        rest.join(counts, on=PAIR)
        .filter(periods_of >= 2, pl.col("squares") / periods_of <= mean**2 * (1 + settings.steady_variation**2))
        .select(*PAIR)
    )
    known = pl.concat([repeats.select(*PAIR), steady]).with_columns(known=True)
    return (
        pairs.join(known, on=PAIR, how="left")
        .group_by("group")
        .agg(explained=pl.col("bytes").filter("known").sum() / pl.col("bytes").sum())
    )


def in_period(rhythms: pl.DataFrame, periods: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs whose own period is their group's; the group's becomes `group_period_ns`."""
    return rhythms.join(periods.rename({"period_ns": "group_period_ns"}), on="group").filter(
        _same_period("period_ns", "group_period_ns", settings)
    )


def flow_steps(flows: pl.DataFrame, pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Number the steps of each group and say to which of them each flow of its periodic pairs belongs.

    Parameters
    ----------
    flows : bulk flows; those of pairs not in `pairs` are left out
    pairs : `src_addr`, `dst_addr`, `group`, `threshold_ns`, `group_period_ns`, `clarity`

    Returns
    -------
    the flows with `group` and `step`: counted from 0 in each group, in the order of time. Bursts that carry less than
    `least_step` of a typical step's bytes and belong to no other (the broadcast of the first weights) are left out,
    unless they are cut off by the beginning of the first window with flows of the group: where the data begin is for
    each group to say, since groups may be looked at one by one.
    """
    ordered = traffic.by_pair(
        flows.join(pairs.select(*PAIR, "group", "threshold_ns", "group_period_ns", "clarity"), on=PAIR), "flow_start_ns"
    )
    counts = ordered.group_by(PAIR, maintain_order=True).agg(pl.len(), pl.col("threshold_ns").first())
    starts, ends, sizes = _arrays(ordered)
    numbers = bursts.burst_numbers(starts, ends, sizes, _offsets(counts["len"]), counts["threshold_ns"].to_numpy())
    numbered = ordered.with_columns(burst=pl.Series(numbers))
    table = _line_up(
        numbered.group_by("group", *PAIR, "burst").agg(
            start_ns=pl.col("flow_start_ns").min(),
            end_ns=pl.col("flow_end_ns").max(),
            bytes=pl.col("bytes").sum(),
            window_start_ns=pl.col("window_start_ns").min(),
            period_ns=pl.col("group_period_ns").first(),
            threshold_ns=pl.col("threshold_ns").first(),
            clarity=pl.col("clarity").first(),
        )
    )
    steps = _whole_steps(table, settings)
    return numbered.join(steps, on=["group", *PAIR, "burst"]).drop("burst", "threshold_ns", "clarity")


def of_jobs(flows: pl.DataFrame, settings: RhythmSettings, *, pairs: pl.DataFrame | None = None) -> pl.DataFrame:
    """Number the steps of jobs by the flows of their periodic pairs.

    Parameters
    ----------
    flows : bulk flows with `job_id`
    pairs : `src_addr`, `dst_addr` of the pairs to go by; without it, all that share their job's period

    Returns
    -------
    as `flow_steps`, with `job_id` for `group`. Pairs that are named but too broken to show the period themselves are
    cut at the gap typical of their job's others.
    """
    rhythms = pair_rhythms(flows, settings).join(flows.select(*PAIR, group="job_id").unique(), on=PAIR)
    periods = group_periods(flows, rhythms, settings)
    if pairs is None:
        chosen = in_period(rhythms, periods, settings)
    else:
        named = rhythms.join(pairs, on=PAIR, how="semi")
        typical = (
            in_period(named, periods, settings)
            .group_by("group")
            .agg(pl.col("threshold_ns").median().alias("typical_ns"), pl.col("group_period_ns").first())
        )
        fits = pl.col("period_ns").is_not_null() & _same_period("period_ns", "group_period_ns", settings)
        chosen = named.join(typical, on="group").with_columns(
            threshold_ns=pl.when(fits).then("threshold_ns").otherwise("typical_ns")
        )
    return flow_steps(flows.drop("job_id"), chosen, settings).rename({"group": "job_id"})


def _line_up(table: pl.DataFrame) -> pl.DataFrame:
    """Give bursts of one group that fall together, once each pair's typical delay is taken off, one number `beat`."""
    sizes = table.group_by("group", *PAIR).agg(pl.len(), pl.col("clarity").first())
    leaders = sizes.sort("group", "len", "clarity", *PAIR, descending=[False, True, True, False, False])
    leaders = leaders.group_by("group", maintain_order=True).first().select("group", *PAIR)
    leading = table.join(leaders, on=["group", *PAIR], how="semi").select("group", "end_ns", leader_ns="end_ns")
    delayed = (
        table.sort("end_ns")
        .join_asof(leading.sort("end_ns"), on="end_ns", by="group", strategy="nearest", check_sortedness=False)
        .with_columns(phase=(pl.col("end_ns") - pl.col("leader_ns")) / pl.col("period_ns"))
        .with_columns(delay=_typical_phase().over("group", *PAIR) * pl.col("period_ns"))
        .with_columns(moment=pl.col("end_ns") - pl.col("delay"))
        .sort("group", "moment", *PAIR)
    )
    apart = (pl.col("moment") - pl.col("moment").shift()).over("group") > pl.col("period_ns") / 4
    return delayed.with_columns(beat=apart.fill_null(value=False).cast(pl.Int64).cum_sum().over("group"))


def _typical_phase() -> pl.Expr:
    """Return the median of phases on a circle: just under half a period late and just over it are neighbours."""
    turn = 2 * np.pi * pl.col("phase")
    centre = pl.arctan2(turn.sin().mean(), turn.cos().mean()) / (2 * np.pi)
    off = pl.col("phase") - centre
    typical: pl.Expr = centre + (off - off.round()).median()
    return typical


def _whole_steps(table: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Join beats that are parts of one step, drop those that are none, and number the rest."""
    beats = (
        table.group_by("group", "beat")
        .agg(pl.col("bytes").sum(), pl.col("start_ns", "threshold_ns", "window_start_ns").min())
        .sort("group", "beat")
        .with_columns(
            share=pl.col("bytes") / pl.col("bytes").median().over("group"),
            quiet_ns=pl.col("threshold_ns").min().over("group"),
            since_ns=pl.col("window_start_ns").min().over("group"),
        )
    )
    new = np.ones(beats.height, dtype=bool)
    group, part = beats["group"].to_numpy(), beats["share"].to_numpy()
    total = 0.0
    for i in range(beats.height):  # beats of all jobs: a few hundred a minute and job
        joins = i > 0 and group[i] == group[i - 1] and total < settings.least_whole
        if joins and total + part[i] <= 1 + settings.byte_tolerance:
            new[i] = False
            total += part[i]
        else:
            total = part[i]
    cut_off = pl.col("start_ns") - pl.col("since_ns") <= pl.col("quiet_ns")
    whole = (
        beats.with_columns(whole=pl.Series(new).cast(pl.Int64).cum_sum())
        .with_columns(whole_share=pl.col("share").sum().over("whole"))
        .filter((pl.col("whole_share") >= settings.least_step) | cut_off)
        .with_columns(step=(pl.col("whole").rank("dense").over("group") - 1).cast(pl.Int64))
    )
    return table.join(whole.select("group", "beat", "step"), on=["group", "beat"]).select(
        "group", *PAIR, "burst", "step"
    )


def _same_period(left: str, right: str, settings: RhythmSettings) -> pl.Expr:
    same: pl.Expr = (pl.col(left) / pl.col(right)).log().abs() <= float(np.log1p(settings.same_period))
    return same


def _ends(pairs: pl.DataFrame, *columns: str) -> pl.DataFrame:
    return pl.concat([pairs.select("group", *columns, addr=pl.col(end)) for end in PAIR])


def _arrays(flows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(flows[column].to_numpy() for column in ("flow_start_ns", "flow_end_ns", "bytes"))  # type: ignore[return-value]


def _offsets(counts: pl.Series) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts.to_numpy())]).astype(np.int64)
