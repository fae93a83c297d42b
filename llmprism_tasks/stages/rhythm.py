"""The joint rhythm of a group of NICs: its period, and the steps that its periodic bursts make together.

Every training step synchronises all replicas, so each data-parallel pair is quiet once per step, whatever else it
does. One pair's records are few and may be lost, split or merged; the pairs of one job tell the same story many
times. Here the bursts of all pairs that share the job's period are lined up, each shifted by its own typical delay
(later pipeline stages synchronise earlier), and bursts that then fall together are one step.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import bursts, turns
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages import sizes, traffic
from llmprism_tasks.stages.first_burst import first_bursts
from llmprism_tasks.windows import NANOSECONDS_PER_SECOND

PAIR = ["src_addr", "dst_addr"]
STREAM = [*PAIR, "size_class"]
"""What is looked at for a rhythm: a pair as a whole (`size_class` is -1), or its records of one size."""
WHOLE = -1
TURNS = -2
"""Stands for the size of a pair whose bursts are cut where it and the one that answers it begin anew."""

ELSEWHERE = 0.25
"""Ratio of the period from which on two streams end at different places of the step: pipeline stages synchronise within
a fifth of it, the forward pass ends a third of it from either end."""

RHYTHM = ["threshold_ns", "period_ns", "mean_period_ns", "duration_ns", "clarity", "bursts"]
STEPPING = [*STREAM, "group", "threshold_ns", "group_period_ns", "clarity"]
"""What is needed of a stream to cut it into steps."""

BRIEF = 0.05
"""Ratio of the period up to which a burst is one message, or one round of messages, and no phase of the step."""

CUT_OFF = 1
"""Bursts that a stream may show less than another because the data begin, or end, between the two."""

OVER = 2.0
"""Periods of silence after which a stream is not waiting for its next burst any more."""


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
    turning = _turning(flows, _answered(known, settings), settings)
    turned = known.drop(RHYTHM, "size_class").join(
        turning.group_by(PAIR).agg(pl.col("size_class", *RHYTHM).first()).drop_nulls("period_ns"), on=PAIR
    )
    return pl.concat([known, parts.join(common, on=PAIR).select(known.columns), turned.select(known.columns)])


def _classed(flows: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    return sizes.with_class(sizes.in_one_piece(flows, settings.same_size), settings.same_size)


def _answered(pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs of which one size is sent, and the same comes back: `src_addr`, `dst_addr`."""
    back = pairs.select(src_addr="dst_addr", dst_addr="src_addr", back_size="common_size", back_bytes="bytes")
    same_size = (pl.col("common_size") / pl.col("back_size") - 1).abs() <= settings.same_size
    same_bytes = (pl.col("bytes") / pl.col("back_bytes")).log().abs() <= settings.answer_bytes
    one_size = pairs.filter(pl.col("common_share") >= settings.one_size_share)
    return one_size.join(back, on=PAIR).filter(same_size, same_bytes).select(PAIR)


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


def group_periods(
    flows: pl.DataFrame, rhythms: pl.DataFrame, settings: RhythmSettings, *, until_ns: int = 0
) -> pl.DataFrame:
    """Find each group's period: the longest of those that about the most of its NICs agree on.

    The longest, because pipeline pairs also repeat once per micro-batch; agreed on by most, because a NIC that does not
    take part in it cannot be in the step. A period in which next to nothing moves, that does not go on for most of the
    time or is over after seconds (buckets of one burst), or beside which most bytes follow none, is not the step's:
    better no steps than invented ones.

    Where half of the steps seen are slower than the others, chance decides to which half a pair's median belongs; their
    mean is the same for all. A period seen two or three times counts where no other is.

    Parameters
    ----------
    flows : the flows that `rhythms` was found in
    rhythms : as `stream_rhythms` returns, with a column `group`
    until_ns : what is seen ends here: the buckets of a first burst are no steps if silence follows them

    Returns
    -------
    `group`, `period_ns`; groups without a common period are absent
    """
    first, last = pl.col("first_ns").min().over("group"), pl.col("last_ns").max().over("group")
    lasts, seen = pl.col("bursts") * pl.col("period_ns"), pl.lit(until_ns) - first
    at_work = pl.lit(until_ns) - pl.col("last_ns") <= OVER * pl.col("period_ns")
    long = lasts >= settings.least_run_s * NANOSECONDS_PER_SECOND
    goes_on = (lasts >= settings.period_persistence * (last - first)) & (lasts >= settings.least_run * seen)
    periodic = rhythms.filter((goes_on & (at_work | long)).fill_null(value=False))
    several, few = (periodic.filter((pl.col("bursts") > bursts.FEW) == many) for many in (True, False))
    found = _agreed(flows, rhythms, several, settings)
    for others in (several.with_columns(period_ns="mean_period_ns"), few):
        left = others.join(found, on="group", how="anti")
        found = pl.concat([found, _agreed(flows, rhythms, left, settings)])
    return found.sort("group")


def _agreed(
    flows: pl.DataFrame, rhythms: pl.DataFrame, periodic: pl.DataFrame, settings: RhythmSettings
) -> pl.DataFrame:
    """Return the period of each group whose NICs agree on one: `group`, `period_ns`."""
    slotted = periodic.with_columns(
        slot=(pl.col("period_ns").log() / np.log1p(settings.same_period)).floor().cast(pl.Int64)
    )
    ends = _ends(rhythms).group_by("group").agg(endpoints=pl.col("addr").n_unique())
    slots = pl.concat([slotted.with_columns(pl.col("slot") + shift) for shift in (-1, 0, 1)])
    total = rhythms.filter(pl.col("size_class") == WHOLE).group_by("group").agg(total=pl.col("bytes").sum())
    carried = slots.group_by("group", "slot").agg(carried=pl.col("bytes").sum()).join(total, on="group")
    support = (
        _ends(slots, "slot", "period_ns", "clarity")
        .group_by("group", "slot")
        .agg(supporters=pl.col("addr").n_unique(), period_ns=pl.col("period_ns").median())
        .join(ends, on="group")
        .join(carried.filter(pl.col("carried") >= settings.least_share * pl.col("total")), on=["group", "slot"])
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

    It explains streams that repeat with it, or faster, and pairs that send about as often in each period (experts,
    whose bytes never repeat): if it was seen often, for among many pairs that send at random some always seem to have
    one, and so often as those two or three times all send.
    """
    around, size_class = periods.select("group", around=pl.col("period_ns")), pl.col("size_class")
    pairs = rhythms.filter(pl.col("size_class") == WHOLE).join(around, on="group")
    repeats = (
        periodic.join(around, on="group")
        .filter(pl.col("period_ns") <= pl.col("around") * (1 + settings.same_period))
        .group_by(PAIR)
        .agg(
            repeating=pl.max_horizontal(
                _bytes_of(WHOLE), _bytes_of(TURNS), pl.col("bytes").filter(size_class >= 0).sum()
            )
        )
    )
    often = periodic.filter(pl.col("bursts") > bursts.FEW).select("group").unique()
    rest = pairs.join(repeats, on=PAIR, how="anti").join(often, on="group", how="semi")
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
        .select(*PAIR, repeating="bytes")
    )
    known = pl.concat([repeats, steady])
    return (
        pairs.join(known, on=PAIR, how="left")
        .group_by("group")
        .agg(explained=pl.col("repeating").sum() / pl.col("bytes").sum())
    )


def _bytes_of(size_class: int) -> pl.Expr:
    return pl.col("bytes").filter(pl.col("size_class") == size_class).sum()


def in_period(rhythms: pl.DataFrame, periods: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the streams whose own period is their group's, which becomes `group_period_ns`.

    Of a pair that has it as a whole its parts are left out, unless they alone are quiet for most of the period: they
    are its gradients, and other traffic fills the step.
    """
    fits = _same_period("period_ns", "group_period_ns", settings) | _same_period(
        "mean_period_ns", "group_period_ns", settings
    )
    kept = rhythms.join(periods.rename({"period_ns": "group_period_ns"}), on="group").filter(fits)
    part = pl.col("size_class") >= 0
    # Records of one size that the collector merged or split in some steps are not there in all of them.
    complete = ~part | (pl.col("bursts") + CUT_OFF >= settings.least_whole * pl.col("bursts").max().over(PAIR))
    compact = pl.col("duration_ns") <= settings.compact * pl.col("group_period_ns")
    return (
        kept.with_columns(compact=compact & complete)
        .filter(pl.col("compact") | ~pl.col("compact").any().over(PAIR))
        .filter(~part | part.all().over(PAIR))
        .filter((pl.col("size_class") != TURNS) | ~(pl.col("size_class") == WHOLE).any().over(PAIR))
        .drop("compact")
    )


def flow_steps(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Number the steps of each group and say to which of them each flow of its periodic streams belongs.

    Parameters
    ----------
    flows : bulk flows; those of streams not in `streams` are left out
    streams : `src_addr`, `dst_addr`, `size_class`, `group`, `threshold_ns`, `group_period_ns`, `clarity`

    Returns
    -------
    the flows with `group` and `step`: counted from 0 in each group, in the order of time. Bursts that carry less than
    `least_step` of a typical step's bytes and belong to no other (the broadcast of the first weights) are left out,
    unless they are cut off by the beginning of the first window with flows of the group: where the data begin is for
    each group to say, since groups may be looked at one by one.
    """
    needed = streams.select(STEPPING)
    numbered = pl.concat(
        [_cut_at_gaps(flows, needed, settings), _cut_at_turns(flows, needed, settings)], how="diagonal"
    )
    table = _line_up(
        numbered.group_by("group", *STREAM, "burst").agg(
            start_ns=pl.col("flow_start_ns").min(),
            end_ns=pl.col("flow_end_ns").max(),
            bytes=pl.col("bytes").sum(),
            window_start_ns=pl.col("window_start_ns").min(),
            period_ns=pl.col("group_period_ns").first(),
            threshold_ns=pl.col("threshold_ns").first(),
            clarity=pl.col("clarity").first(),
        ),
        settings,
    )
    steps = table.join(_whole_steps(table, settings), on=["group", "beat"]).select("group", *STREAM, "burst", "step")
    return numbered.join(steps, on=["group", *STREAM, "burst"]).drop("burst", "threshold_ns", "clarity", "size_class")


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


def of_jobs(
    flows: pl.DataFrame, settings: RhythmSettings, *, pairs: pl.DataFrame | None = None, until_ns: int = 0
) -> pl.DataFrame:
    """Number the steps of jobs by the flows of their periodic streams.

    Parameters
    ----------
    flows : bulk flows with `job_id`
    pairs : `src_addr`, `dst_addr` of the pairs to go by; without it, all that share their job's period
    until_ns : as for `group_periods`

    Returns
    -------
    as `flow_steps`, with `job_id` for `group`. Pairs that are named but too broken to show the period themselves are
    cut at the gap typical of their job's others.
    """
    found = stream_rhythms(flows, settings).join(flows.select(*PAIR, group="job_id").unique(), on=PAIR)
    flows = flows.rename({"job_id": "group"})
    return steps_of_groups(flows, found, settings, pairs=pairs, until_ns=until_ns).rename({"group": "job_id"})


def steps_of_groups(
    flows: pl.DataFrame,
    found: pl.DataFrame,
    settings: RhythmSettings,
    *,
    pairs: pl.DataFrame | None = None,
    until_ns: int = 0,
) -> pl.DataFrame:
    """Number the steps of groups by the flows of their periodic streams.

    A group whose pairs just repeat with the micro-batches of a pipeline has none.

    Parameters
    ----------
    flows : bulk flows with `group`
    found : as `stream_rhythms` returns, with a column `group`
    pairs : `src_addr`, `dst_addr` of the pairs to go by; without it, all that share their group's period
    until_ns : as for `group_periods`

    Returns
    -------
    as `flow_steps`
    """
    periods = group_periods(flows, found, settings, until_ns=until_ns)
    turning = found.filter(pl.col("size_class") == TURNS).join(periods.select("group", around="period_ns"), on="group")
    shown = turning.filter(_same_period("period_ns", "around", settings)).select("group").unique()
    lines = _lines(in_period(found, periods, settings), settings).join(shown, on="group", how="anti")
    periods = periods.join(lines, on="group", how="anti")
    streams = _named_streams(found, periods, pairs, settings).select(STEPPING)
    known = pl.concat([periods.select("group"), lines.select("group")])
    once = _seen_once(flows, found.join(known, on="group", how="anti"), pairs, settings, until_ns)
    return flow_steps(flows.drop("group"), pl.concat([streams, once]), settings)


def _seen_once(
    flows: pl.DataFrame, found: pl.DataFrame, pairs: pl.DataFrame | None, settings: RhythmSettings, until_ns: int
) -> pl.DataFrame:
    """Return the streams of groups without a period that show the end of one step: STEPPING."""
    once = first_bursts(
        flows.join(found.select("group").unique(), on="group", how="semi"), found, settings, until_ns=until_ns
    )
    if pairs is not None:
        once = once.join(pairs, on=PAIR, how="semi")
    return once.with_columns(size_class=pl.lit(WHOLE, pl.Int64), clarity=pl.lit(0.0)).select(STEPPING)


def _lines(streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find the groups whose streams are all a pipeline's: `group`.

    They have one size, as much comes back, and they link three NICs or more in a line, none with more than two
    neighbours. Unless they also turn, they just repeat with its micro-batches.
    """
    answered = _answered(streams.filter(pl.col("size_class") == WHOLE), settings).with_columns(answered=True)
    pairs = (
        streams.filter(pl.col("size_class") != TURNS)
        .select("group", *PAIR)
        .unique()
        .join(answered, on=PAIR, how="left")
    )
    neighbours = _ends(pairs).group_by("group", "addr").agg(neighbours=pl.len())
    shape = neighbours.group_by("group").agg(
        nics=pl.len(), most=pl.col("neighbours").max(), ends=pl.col("neighbours").sum()
    )
    return (
        pairs.group_by("group")
        .agg(answered=pl.col("answered").fill_null(value=False).mean())
        .join(shape, on="group")
        .filter(
            pl.col("answered") >= settings.least_support,
            pl.col("most") == 4,  # two neighbours, each in both directions
            pl.col("ends") < 4 * pl.col("nics"),
        )
        .select("group")
    )


def _named_streams(
    found: pl.DataFrame, periods: pl.DataFrame, pairs: pl.DataFrame | None, settings: RhythmSettings
) -> pl.DataFrame:
    """Return the streams in their group's period, or those of given pairs whether they show it or not."""
    chosen = in_period(found, periods, settings)
    if pairs is None:
        return chosen
    fitting = chosen.join(pairs, on=PAIR, how="semi")
    # No gap is typical of a group whose pairs are cut at their turns: what does not turn cannot be cut.
    typical = (
        fitting.group_by("group")
        .agg(
            pl.col("threshold_ns").median(),
            pl.col("group_period_ns").first(),
            turns=pl.col("size_class").min() == TURNS,
        )
        .filter(~pl.col("turns"))
        .drop("turns")
    )
    broken = (
        found.filter(pl.col("size_class") == WHOLE)
        .join(pairs, on=PAIR, how="semi")
        .join(fitting, on=PAIR, how="anti")
        .drop("threshold_ns")
        .join(typical, on="group")
    )
    return pl.concat([fitting, broken.select(fitting.columns)])


def _line_up(table: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Give bursts of one group that fall together, once each pair's typical delay is taken off, one number `beat`.

    Parts of pairs that end elsewhere in the step than the group's leader are left out: they are what goes on in one
    half of it, such as parameters that are gathered in the forward pass.
    """
    stream = ["group", *STREAM]
    leading = table.join(_leaders(table, settings), on=stream, how="semi").select("group", "end_ns", leader_ns="end_ns")
    delayed = (
        table.sort("end_ns")
        .join_asof(leading.sort("end_ns"), on="end_ns", by="group", strategy="nearest", check_sortedness=False)
        .with_columns(phase=(pl.col("end_ns") - pl.col("leader_ns")) / pl.col("period_ns"))
        .with_columns(typical=_typical_phase().over(stream))
        .filter((pl.col("size_class") < 0) | (pl.col("typical").abs() <= ELSEWHERE))
        .with_columns(moment=pl.col("end_ns") - pl.col("typical") * pl.col("period_ns"))
        .sort("group", "moment", *STREAM)
    )
    apart = (pl.col("moment") - pl.col("moment").shift()).over("group") > pl.col("period_ns") / 4
    return delayed.with_columns(beat=apart.fill_null(value=False).cast(pl.Int64).cum_sum().over("group"))


def _leaders(table: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Choose the stream of each group by which the others are lined up.

    It is the one that shows most steps; among parts, of those that show about as many the briefest: what comes once a
    step, its first gather or its last reduction, marks where steps meet. Where no part is brief, the one that carries
    most is there in every window, and always leads to the same place in the step.
    """
    part, most = pl.col("size_class") >= 0, pl.col("shown").max().over("group", "part")
    brief = pl.col("part") & (pl.col("lasts") <= BRIEF * pl.col("period_ns"))
    chosen = (
        table.group_by("group", *STREAM)
        .agg(
            pl.col("clarity", "period_ns").first(),
            pl.col("bytes").median(),
            shown=pl.len(),
            lasts=(pl.col("end_ns") - pl.col("start_ns")).median(),
        )
        .with_columns(part=part)
        .with_columns(
            shown=pl.when("part").then(pl.col("shown") + CUT_OFF >= settings.least_whole * most).otherwise("shown"),
            brief=brief,
            lasts=pl.when(brief).then("lasts").otherwise(0.0),
            bytes=pl.when(pl.col("part") & ~brief).then("bytes").otherwise(0.0),
        )
    )
    order = ["group", "part", "shown", "brief", "lasts", "bytes", "clarity", *STREAM]
    falling = [name in ("shown", "brief", "bytes", "clarity") for name in order]
    return (
        chosen.sort(order, descending=falling).group_by("group", maintain_order=True).first().select("group", *STREAM)
    )


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
    return whole.select("group", "beat", "step")


def _same_period(left: str, right: str, settings: RhythmSettings) -> pl.Expr:
    same: pl.Expr = (pl.col(left) / pl.col(right)).log().abs() <= float(np.log1p(settings.same_period))
    return same


def _ends(pairs: pl.DataFrame, *columns: str) -> pl.DataFrame:
    return pl.concat([pairs.select("group", *columns, addr=pl.col(end)) for end in PAIR])


def _arrays(flows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(flows[column].to_numpy() for column in ("flow_start_ns", "flow_end_ns", "bytes"))  # type: ignore[return-value]


def _offsets(counts: pl.Series) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts.to_numpy())]).astype(np.int64)
