"""Streams: pairs of NICs, and their records of one size, with the rhythm that each has of its own."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import bursts, turns
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages import sizes, traffic
from llmprism_tasks.stages.remembered import remembered

PAIR = ["src_addr", "dst_addr"]
STREAM = [*PAIR, "size_class"]
"""What is looked at for a rhythm: a pair as a whole (`size_class` is -1), or its records of one size."""

WHOLE = -1
TURNS = -2
"""Stands for the size of a pair whose bursts are cut where it and the one that answers it begin anew."""

RHYTHM = ["threshold_ns", "period_ns", "mean_period_ns", "duration_ns", "clarity", "bursts"]
STEPPING = [*STREAM, "group", "threshold_ns", "group_period_ns", "clarity"]
"""What is needed of a stream to cut it into steps."""


@remembered
def stream_rhythms(flows: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find the period of each pair's bursts, and of those of its records that have one size.

    Gradients may share a pair with traffic that fills the step (context-parallel blocks, the all-gathers of sharded
    parameters, activations beside tied embeddings); their sizes tell them apart.

    Parameters
    ----------
    flows : bulk flows; several jobs and pairs mixed

    Returns
    -------
    a row per pair (`size_class` -1), one per size that recurs, and one per pair that turns (-2): `src_addr`,
    `dst_addr`, `size_class`, `threshold_ns` (a longer gap ends a burst), `period_ns`, `mean_period_ns`, `duration_ns`
    (of a burst; all NULL without a period), `clarity` (ratio of the quiet gap to the longest gap inside bursts),
    `bursts`, `flows`, `bytes`, `first_ns`, `last_ns` (first and last flow's start), and of the pair `common_size`
    (bytes) and `common_share` (ratio of bytes): of the size that carries most
    """
    whole = _rhythms(flows.with_columns(size_class=pl.lit(WHOLE, pl.Int64)), settings)
    classed = _classed(flows, settings)
    recurring = (
        (pl.len().over(STREAM) >= 2)
        & (pl.len().over(STREAM) < pl.len().over(PAIR))
        & (pl.col("bytes").sum().over(STREAM) >= settings.least_share * pl.col("bytes").sum().over(PAIR))
    )
    parts = _rhythms(classed.filter(recurring), settings).drop_nulls("period_ns")
    common = (
        classed.group_by(STREAM)
        .agg(common_bytes=pl.col("bytes").sum(), common_size=pl.col("bytes").median())
        .sort(*PAIR, "common_bytes", "size_class")
        .group_by(PAIR, maintain_order=True)
        .agg(pl.col("common_size").last(), common_share=pl.col("common_bytes").last() / pl.col("common_bytes").sum())
    )
    known = whole.join(common, on=PAIR)
    turning = _turning(flows, answered(known, settings), settings)
    turned = known.drop(RHYTHM, "size_class").join(
        turning.group_by(PAIR).agg(pl.col("size_class", *RHYTHM).first()).drop_nulls("period_ns"), on=PAIR
    )
    return pl.concat([known, parts.join(common, on=PAIR).select(known.columns), turned.select(known.columns)])


def cut(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the flows of streams with the `burst` of each.

    Parameters
    ----------
    flows : bulk flows; those of other streams are left out
    streams : STEPPING; those of turning pairs are cut at their turns, all others at gaps above their `threshold_ns`
    """
    return pl.concat([_cut_at_gaps(flows, streams, settings), _cut_at_turns(flows, streams, settings)], how="diagonal")


def answered(pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs of which one size is sent, and the same comes back: `src_addr`, `dst_addr`."""
    back = pairs.select(src_addr="dst_addr", dst_addr="src_addr", back_size="common_size", back_bytes="bytes")
    same_size = (pl.col("common_size") / pl.col("back_size") - 1).abs() <= settings.same_size
    same_bytes = (pl.col("bytes") / pl.col("back_bytes")).log().abs() <= settings.answer_bytes
    one_size = pairs.filter(pl.col("common_share") >= settings.one_size_share)
    return one_size.join(back, on=PAIR).filter(same_size, same_bytes).select(PAIR)


def _classed(flows: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    return sizes.with_class(sizes.in_one_piece(flows, settings.same_size), settings.same_size)


def _turning(flows: pl.DataFrame, pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Cut pairs and those that answer them at their turns: their flows, with RHYTHM, `size_class` and `burst`."""
    both = pl.concat([pairs, pairs.select(src_addr="dst_addr", dst_addr="src_addr")]).unique()
    ordered = (
        flows.join(both, on=PAIR, how="semi")
        .with_columns(low=pl.min_horizontal(PAIR), high=pl.max_horizontal(PAIR), size_class=pl.lit(TURNS, pl.Int64))
        .sort("low", "high", "flow_start_ns", "flow_end_ns")
    )
    links = ordered.group_by("low", "high", maintain_order=True).agg(pl.len())
    found, numbers = turns.turning_bursts(
        *_arrays(ordered),
        (ordered["src_addr"] == ordered["low"]).cast(pl.Int64).to_numpy(),
        _offsets(links["len"]),
        byte_tolerance=settings.byte_tolerance,
        pace_tolerance=settings.pace_tolerance,
        few_ratio=settings.few_quiet_ratio,
    )
    described = links.select("low", "high").with_columns(_columns(found))
    return ordered.with_columns(burst=pl.Series(numbers)).join(described, on=["low", "high"]).drop("low", "high")


def _columns(found: bursts.Rhythms) -> list[pl.Series]:
    return [
        pl.Series("threshold_ns", found.threshold).fill_nan(None),
        pl.Series("period_ns", found.period).fill_nan(None),
        pl.Series("mean_period_ns", found.mean_period).fill_nan(None),
        pl.Series("duration_ns", found.duration).fill_nan(None),
        pl.Series("clarity", found.clarity),
        pl.Series("bursts", found.bursts),
    ]


def _rhythms(flows: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    ordered = traffic.by_pair(flows, "size_class", "flow_start_ns")
    streams = ordered.group_by(STREAM, maintain_order=True).agg(
        flows=pl.len(),
        bytes=pl.col("bytes").sum(),
        first_ns=pl.col("flow_start_ns").min(),
        last_ns=pl.col("flow_start_ns").max(),
    )
    found = _quiet_gaps(ordered, streams["flows"], settings)
    return streams.with_columns(_columns(found))


def _quiet_gaps(ordered: pl.DataFrame, counts: pl.Series, settings: RhythmSettings) -> bursts.Rhythms:
    return bursts.quiet_gaps(
        *_arrays(ordered),
        _offsets(counts),
        shortest_gap=settings.shortest_quiet_ms * 1e6,
        clearest_ratio=settings.quiet_ratio,
        byte_tolerance=settings.byte_tolerance,
        pace_tolerance=settings.pace_tolerance,
        persistence=settings.period_persistence,
        few_ratio=settings.few_quiet_ratio,
    )


def _cut_at_gaps(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the flows of streams with the `burst` of each, cut at long gaps."""
    ordered = traffic.by_pair(_of_streams(flows, streams, settings), "size_class", "flow_start_ns")
    counts = ordered.group_by(STREAM, maintain_order=True).agg(pl.len(), pl.col("threshold_ns").first())
    starts, ends, sizes_ = _arrays(ordered)
    numbers = bursts.burst_numbers(starts, ends, sizes_, _offsets(counts["len"]), counts["threshold_ns"].to_numpy())
    return ordered.with_columns(burst=pl.Series(numbers))


def _cut_at_turns(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the flows of streams that are cut at their turns, with the `burst` of each."""
    chosen = streams.filter(pl.col("size_class") == TURNS)
    cut = _turning(flows, chosen.select(PAIR), settings).drop(RHYTHM)
    return cut.join(chosen, on=STREAM).filter(pl.col("burst") >= 0)


def _of_streams(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the flows of streams, with the streams' columns."""
    whole = streams.filter(pl.col("size_class") == WHOLE)
    parts = streams.filter(pl.col("size_class") >= 0)
    split = _classed(flows.join(parts.select(PAIR).unique(), on=PAIR, how="semi"), settings)
    return pl.concat([flows.join(whole, on=PAIR), split.join(parts, on=STREAM)], how="diagonal")


def _arrays(flows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(flows[column].to_numpy() for column in ("flow_start_ns", "flow_end_ns", "bytes"))  # type: ignore[return-value]


def _offsets(counts: pl.Series) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts.to_numpy())]).astype(np.int64)
