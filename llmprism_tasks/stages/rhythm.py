"""The joint rhythm of a group of NICs: its period, and the steps that its periodic bursts make together.

Every training step synchronises all replicas, so each data-parallel pair is quiet once per step, whatever else it does. One
pair's records are few and may be lost, split or merged; the pairs of one job tell the same story many times. Here the
bursts of all pairs that share the job's period are lined up, each shifted by its own typical delay (later pipeline stages
synchronise earlier), and bursts that then fall together are one step.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import bursts
from llmprism_tasks.settings import RhythmSettings

PAIR = ["src_addr", "dst_addr"]


def pair_rhythms(flows: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find the period of each pair's bursts.

    Parameters
    ----------
    flows : bulk flows; several jobs and pairs mixed

    Returns
    -------
    one row per pair, sorted: `src_addr`, `dst_addr`, `threshold_ns` (a longer gap ends a burst), `period_ns` (both NULL
    without a period), `clarity` (ratio of the quiet gap to the longest gap inside bursts), `flows`, `bytes`
    """
    ordered = flows.sort(*PAIR, "flow_start_ns", "flow_end_ns", "bytes")
    pairs = ordered.group_by(PAIR, maintain_order=True).agg(flows=pl.len(), bytes=pl.col("bytes").sum())
    threshold, period, clarity = bursts.quiet_gaps(
        *_arrays(ordered),
        _offsets(pairs["flows"]),
        shortest_gap=settings.shortest_quiet_ms * 1e6,
        clearest_ratio=settings.quiet_ratio,
        byte_tolerance=settings.byte_tolerance,
        pace_tolerance=settings.pace_tolerance,
    )
    return pairs.with_columns(
        threshold_ns=pl.Series(threshold).fill_nan(None),
        period_ns=pl.Series(period).fill_nan(None),
        clarity=pl.Series(clarity),
    )


def group_periods(rhythms: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find each group's period: the longest that pairs touching most of its NICs agree on.

    The longest, because pipeline pairs also repeat once per micro-batch; agreed on by most, because a NIC that does not
    take part in it cannot be in the step.

    Parameters
    ----------
    rhythms : as `pair_rhythms` returns, with a column `group`

    Returns
    -------
    `group`, `period_ns`; groups without a common period are absent
    """
    periodic = rhythms.filter(pl.col("period_ns").is_not_null()).with_columns(
        slot=(pl.col("period_ns").log() / np.log1p(settings.same_period)).floor().cast(pl.Int64)
    )
    ends = _ends(rhythms).group_by("group").agg(endpoints=pl.col("addr").n_unique())
    slots = pl.concat([periodic.with_columns(pl.col("slot") + shift) for shift in (-1, 0, 1)])
    support = (
        _ends(slots, "slot", "period_ns", "clarity")
        .group_by("group", "slot")
        .agg(supporters=pl.col("addr").n_unique(), period_ns=pl.col("period_ns").median())
        .join(ends, on="group")
        .filter(pl.col("supporters") >= settings.period_support * pl.col("endpoints"))
    )
    longest = support.sort("group", "period_ns").group_by("group", maintain_order=True).last()
    agreed = periodic.join(longest.select("group", around=pl.col("period_ns")), on="group").filter(
        _same_period("period_ns", "around", settings)
    )
    return agreed.group_by("group").agg(pl.col("period_ns").median()).sort("group")


def in_period(rhythms: pl.DataFrame, periods: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs whose own period is their group's; the group's becomes `group_period_ns`."""
    return rhythms.join(periods.rename({"period_ns": "group_period_ns"}), on="group").filter(
        _same_period("period_ns", "group_period_ns", settings)
    )


def flow_steps(flows: pl.DataFrame, pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Number the steps of each group and say to which of them each flow of its periodic pairs belongs.

    Parameters
    ----------
    flows : bulk flows with `group`; flows of pairs not in `pairs` are left out
    pairs : `src_addr`, `dst_addr`, `group`, `threshold_ns`, `group_period_ns`, `clarity`

    Returns
    -------
    the flows with `step`: counted from 0 in each group, in the order of time. Bursts that carry less than
    `least_step` of a typical step's bytes and belong to no other (the broadcast of the first weights) are left out, unless
    they are cut off by the beginning of the data.
    """
    ordered = flows.join(pairs.select(*PAIR, "threshold_ns", "group_period_ns", "clarity"), on=PAIR).sort(
        *PAIR, "flow_start_ns", "flow_end_ns", "bytes"
    )
    counts = ordered.group_by(PAIR, maintain_order=True).agg(pl.len(), pl.col("threshold_ns").first())
    starts, ends, _ = _arrays(ordered)
    numbers = bursts.burst_numbers(starts, ends, _offsets(counts["len"]), counts["threshold_ns"].to_numpy())
    numbered = ordered.with_columns(burst=pl.Series(numbers))
    table = _line_up(
        numbered.group_by("group", *PAIR, "burst").agg(
            start_ns=pl.col("flow_start_ns").min(),
            end_ns=pl.col("flow_end_ns").max(),
            bytes=pl.col("bytes").sum(),
            period_ns=pl.col("group_period_ns").first(),
            clarity=pl.col("clarity").first(),
        )
    )
    steps = _whole_steps(table, settings)
    return numbered.join(steps, on=["group", *PAIR, "burst"]).drop("burst", "threshold_ns", "clarity")


def _line_up(table: pl.DataFrame) -> pl.DataFrame:
    """Give bursts of one group that fall together, once each pair's typical delay is taken off, one number `beat`."""
    sizes = table.group_by("group", *PAIR).agg(pl.len(), pl.col("clarity").first())
    leaders = sizes.sort("group", "len", "clarity", *PAIR, descending=[False, True, True, False, False])
    leaders = leaders.group_by("group", maintain_order=True).first().select("group", *PAIR)
    leading = table.join(leaders, on=["group", *PAIR], how="semi").select("group", "end_ns", leader_ns="end_ns")
    delayed = (
        table.sort("end_ns")
        .join_asof(leading.sort("end_ns"), on="end_ns", by="group", strategy="nearest", check_sortedness=False)
        .with_columns(delay=(pl.col("end_ns") - pl.col("leader_ns")).median().over("group", *PAIR))
        .with_columns(moment=pl.col("end_ns") - pl.col("delay"))
        .sort("group", "moment", *PAIR)
    )
    apart = (pl.col("moment") - pl.col("moment").shift()).over("group") > pl.col("period_ns") / 4
    return delayed.with_columns(beat=apart.fill_null(value=False).cast(pl.Int64).cum_sum().over("group"))


def _whole_steps(table: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Join beats that are parts of one step, drop those that are none, and number the rest."""
    beats = table.group_by("group", "beat").agg(pl.col("bytes").sum(), pl.col("start_ns").min()).sort("group", "beat")
    share = pl.col("bytes") / pl.col("bytes").median().over("group")
    beats = beats.with_columns(share=share, first_ns=pl.col("start_ns").min().over("group"))
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
    data_start = beats["first_ns"].min()
    whole = (
        beats.with_columns(whole=pl.Series(new).cast(pl.Int64).cum_sum())
        .with_columns(whole_share=pl.col("share").sum().over("whole"))
        .filter((pl.col("whole_share") >= settings.least_step) | (pl.col("start_ns") <= data_start + settings.shortest_quiet_ms * 1e6))
        .with_columns(step=(pl.col("whole").rank("dense").over("group") - 1).cast(pl.Int64))
    )
    return table.join(whole.select("group", "beat", "step"), on=["group", "beat"]).select("group", *PAIR, "burst", "step")


def _same_period(left: str, right: str, settings: RhythmSettings) -> pl.Expr:
    return (pl.col(left) / pl.col(right)).log().abs() <= np.log1p(settings.same_period)


def _ends(pairs: pl.DataFrame, *columns: str) -> pl.DataFrame:
    return pl.concat([pairs.select("group", *columns, addr=pl.col(end)) for end in PAIR])


def _arrays(flows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(flows[column].to_numpy() for column in ("flow_start_ns", "flow_end_ns", "bytes"))  # type: ignore[return-value]


def _offsets(counts: pl.Series) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts.to_numpy())]).astype(np.int64)
