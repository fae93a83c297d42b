"""Lining up: the bursts of a group's streams that fall together make its steps."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import grouped_sort, ragged
from llmprism_tasks.numerics.robust import MAJORITY, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.rhythm_rows import CUT_OFF_BURSTS
from llmprism_tasks.stages.step_division.kernels import circular_delay

OTHER_PLACE = 0.25
"""Ratio of the period from which on two streams end at different places of the step: pipeline stages synchronise within
a fifth of it, the forward pass ends a third of it from either end."""

ONE_MESSAGE = 0.05
"""Ratio of the period up to which a burst is one message, or one round of messages, and no phase of the step."""

OTHER_PACE = 1.5
"""Ratio of periods, one way or the other, of steps that have another pace, since somebody became slow or before that;
jitter is far below."""

SUM_DIGITS = 9
"""Digits of a sum of ratios that do not depend on their order."""


def line_up(bursts: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Give bursts of one group that fall together, once each pair's typical delay is taken off, one number `beat`.

    Steps meet where no stream ends for longest: the ends of one step follow each other, and in the forward pass of the
    next there are none.

    Parts of pairs that end elsewhere in the step than the group's leader are left out: they are what goes on in one
    half of it, such as parameters that are gathered in the forward pass.

    Parameters
    ----------
    bursts : in the order of streams: `stream`, `start_ns`, `end_ns`, `bytes`, `window_start_ns`
    streams : in the order of addresses and sizes: `pair`, `group`, `size_class`, `period_ns` (that of the group),
        `threshold_ns`, `clarity`

    Returns
    -------
    the bursts that are not left out, with `beat`, counted through all groups in their order, `pace_ns`, as of
    `_phases_and_pace`, and `moment_ns`, their end without the typical delay of their stream
    """
    number, ends = (bursts[name].to_numpy() for name in ("stream", "end_ns"))
    offsets = ragged.bounds(number)
    seen = streams.with_columns(stream=pl.int_range(pl.len()))[number[offsets[:-1]]]
    seen = seen.with_columns(group=pl.col("group").rank("dense").cast(pl.Int64) - 1)
    phased, pace = _phases_and_pace(ends, offsets, seen, _leaders(bursts, offsets, seen, settings))
    of_streams = phased.filter((pl.col("size_class") < 0) | (pl.col("typical").abs() <= OTHER_PLACE))
    delays = _unwrap_phases(of_streams).select("stream", late=pl.col("typical") - pl.col("of_leader"))
    late = np.full(streams.height, np.nan)
    late[delays["stream"].to_numpy()] = delays["late"].to_numpy()
    moment = ends - late[number] * pace
    kept = np.flatnonzero(~np.isnan(moment))
    order = kept[grouped_sort.moment_order(moment[kept])]
    group = np.repeat(seen["group"].to_numpy(), np.diff(offsets))[order]
    places, begins = grouped_sort.collected(group, seen["group"].n_unique())
    order = order[places]
    apart = np.diff(moment[order], prepend=0) > pace[order] / 4
    apart[begins[:-1][np.diff(begins) > 0]] = True
    beat = np.empty(number.size, np.int64)
    beat[order] = apart.cumsum() - 1
    return bursts[kept].with_columns(beat=beat[kept], pace_ns=pace[kept], moment_ns=moment[kept])


def whole_steps(bursts: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Join beats that are parts of one step, drop beats that are no step, and number the rest: `beat`, `step`.

    The share of a beat is the mean, over its streams, of the bytes that came divided by the bytes that are typical of
    the stream; a stream of whole pairs counts by how often it comes. Where some streams are of one message size only,
    the share is at least that of the beat's bytes in the bytes of a typical step, because a collector that splits
    records leaves some sizes out of some steps. A ring that became slow may come apart from the others in most steps;
    its half is then no step. Traffic that comes whole in two beats in a row comes once a step, however little of the
    former traffic it is.

    Parameters
    ----------
    bursts, streams : as `line_up` returns, and as it takes them
    """
    beats = _beats(bursts, streams, settings)
    new = np.ones(beats.height, dtype=bool)
    group, part, repeats = (beats[name].to_numpy() for name in ("group", "share", "again"))
    total = 0.0
    for i in range(beats.height):  # beats of all jobs: a few hundred a minute and job
        joins = i > 0 and group[i] == group[i - 1] and total < settings.least_whole
        if joins and not repeats[i] and total + part[i] <= 1 + settings.byte_tolerance:
            new[i] = False
            total += part[i]
        else:
            total = part[i]
    cut_off = (pl.col("start_ns") - pl.col("since_ns") <= pl.col("quiet_ns")) | _is_end_of_cut_off_step(settings)
    # The rest of the latest beat may be still to come: the next window decides what it was.
    latest = pl.col("beat") == pl.col("beat").max().over("group")
    whole = (
        beats.with_columns(whole=pl.Series(new).cast(pl.Int64).cum_sum())
        .with_columns(whole_share=pl.col("share").sum().over("whole"))
        .filter((pl.col("whole_share") >= settings.least_step) | cut_off | (pl.col("again") & ~latest))
        .with_columns(step=(pl.col("whole").rank("dense").over("group") - 1).cast(pl.Int64))
    )
    return whole.select("beat", "step")


def _is_end_of_cut_off_step(settings: RhythmSettings) -> pl.Expr:
    """Return whether a beat is the end of a step that began before the data, and is therefore not seen whole.

    It is the first beat of its group, starts within a period of the data's beginning, and one period before the next
    beat; one stream at least has all of its bytes.
    """
    apart = (pl.col("moment_ns").shift(-1).over("group") - pl.col("moment_ns")) / pl.col("pace_ns")
    return (
        (pl.col("beat") == pl.col("beat").min().over("group"))
        & (pl.col("start_ns") - pl.col("since_ns") < pl.col("pace_ns"))
        & ((apart - 1).abs() <= settings.same_period)
        & pl.col("complete")
    )


def _beats(bursts: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the beats in order: `group`, `beat`, `start_ns`, `share` (of a step), `again` (whether most of it came
    whole in the beat before, too), `complete` (whether one stream has all of its bytes), `moment_ns`, `pace_ns`, and
    `quiet_ns` and `since_ns` (of the group)."""
    together = _sum_by_stream_and_beat(bursts)
    sizes, stream, beat = (together[name].to_numpy() for name in ("bytes", "stream", "beat"))
    of_stream = ragged.bounds(stream)
    usual = ragged.spread(ragged.medians(sizes, of_stream), of_stream)
    of_typical = np.minimum(sizes / usual, 1.0)
    complete = of_typical >= settings.least_whole
    again = np.append(False, complete[1:] & complete[:-1] & (stream[1:] == stream[:-1]) & (np.diff(beat) == 1))
    counts = np.diff(of_stream)
    seen = streams.select("group", "threshold_ns", part=pl.col("size_class") >= 0)[stream[of_stream[:-1]]]
    # A step whose bytes come in two bursts counts once, however many bursts that makes.
    often = seen.with_columns(often=np.bincount(np.repeat(np.arange(counts.size), counts), of_typical))
    as_often = pl.when(pl.col("part").any()).then(pl.len()).otherwise(pl.col("often").sum() / pl.col("often").median())
    present = often.select("group", present=as_often.over("group"))["present"].to_numpy()
    places, of_beat = grouped_sort.collected(beat, int(beat.max(initial=-1)) + 1)
    first = places[of_beat[:-1]]
    bytes_ = ragged.sums(sizes[places], of_beat)
    return (
        often.select(
            "group",
            times=pl.col("often").max().over("group"),
            parted=pl.col("part").any().over("group"),
            quiet_ns=pl.col("threshold_ns").min().over("group"),
        )[np.repeat(np.arange(counts.size), counts)[first]]
        .with_columns(
            beat=np.arange(first.size),
            start_ns=np.minimum.reduceat(together["start_ns"].to_numpy()[places], of_beat[:-1]),
            since_ns=np.minimum.reduceat(together["window_start_ns"].to_numpy()[places], of_beat[:-1]),
            moment_ns=np.maximum.reduceat(together["moment_ns"].to_numpy()[places], of_beat[:-1]),
            pace_ns=np.maximum.reduceat(together["pace_ns"].to_numpy()[places], of_beat[:-1]),
            complete=ragged.sums(complete[places].astype(np.int64), of_beat) > 0,
            bytes=bytes_,
            carried=np.bincount(beat, of_typical / np.repeat(present, counts)),
            again=ragged.sums(np.where(again, sizes, 0)[places], of_beat) > MAJORITY * bytes_,
        )
        .with_columns(
            pl.col("carried").round(SUM_DIGITS),
            of_bytes=pl.col("bytes") / (pl.col("bytes").sum().over("group") / pl.col("times")),
            since_ns=pl.col("since_ns").min().over("group"),
        )
        .with_columns(
            share=pl.when("parted").then(pl.max_horizontal("carried", "of_bytes")).otherwise("carried"),
        )
    )


def _sum_by_stream_and_beat(bursts: pl.DataFrame) -> pl.DataFrame:
    """Sum up what each stream does in each beat: `stream`, `beat`, `bytes`, `start_ns` and `window_start_ns`, by stream
    and beat."""
    stream, beat = (bursts[name].to_numpy() for name in ("stream", "beat"))
    if ((beat[1:] < beat[:-1]) & (stream[1:] == stream[:-1])).any():
        bursts = bursts[np.lexsort((beat, stream))]
    stream, beat = (bursts[name].to_numpy() for name in ("stream", "beat"))
    offsets = ragged.bounds(stream, beat)
    if offsets.size == bursts.height + 1:
        return bursts
    first = offsets[:-1]
    return bursts[first].with_columns(
        bytes=ragged.sums(bursts["bytes"].to_numpy(), offsets),
        **{name: np.minimum.reduceat(bursts[name].to_numpy(), first) for name in ("start_ns", "window_start_ns")},
    )


def _phases_and_pace(
    ends: Integers, offsets: Integers, seen: pl.DataFrame, leaders: pl.DataFrame
) -> tuple[pl.DataFrame, Floats]:
    """Say of streams what is `typical` of each: by how much of a period it ends after its group's leader.

    That period is the pace of each burst: the group's, or, among steps that are far shorter or far longer, what the
    leader's are there: the longer of the two beside it, or the shorter, for it may show part of a step, or lack one.

    Parameters
    ----------
    ends, offsets : of the bursts of the streams
    seen : `stream`, `group` (numbers from 0), `period_ns`
    leaders : `stream`, of each group in order

    Returns
    -------
    `seen` with `typical`, and the pace of each burst, ns
    """
    led = np.searchsorted(seen["stream"].to_numpy(), leaders["stream"].to_numpy())
    rows, of_group = grouped_sort.spread(offsets, led)
    leading = ends[rows]
    leading = leading[np.lexsort((leading, np.repeat(np.arange(led.size), np.diff(of_group))))]
    before = np.diff(leading, prepend=0).astype(np.float64)
    before[of_group[:-1]] = np.nan
    before[before == 0] = np.nan  # a record that was sent to the collector twice, or two in one tick of its clock
    beside = (before, np.append(before[1:], np.nan))
    longer, shorter = np.fmax(*beside), np.fmin(*beside)
    period = np.repeat(seen["period_ns"].to_numpy()[led], np.diff(of_group))
    far_longer = np.where(shorter > OTHER_PACE * period, shorter, period)
    pace = np.where(OTHER_PACE * longer < period, longer, far_longer)
    typical, paces = circular_delay.typical_phases(ends, offsets, seen["group"].to_numpy(), leading, of_group, pace)
    return seen.with_columns(typical=typical), paces


def _leaders(bursts: pl.DataFrame, offsets: Integers, seen: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the stream of each group by which the others are lined up: `group`, `stream`.

    It is the one that shows most steps; among parts, of those that show about as many the briefest: what comes once a
    step, its first gather or its last reduction, marks where steps meet. Where no part is brief, the one that carries
    most is there in every window, and always leads to the same place in the step.
    """
    part = pl.col("size_class") >= 0
    periods = (pl.col("last_ns").max() - pl.col("first_ns").min()).over("group") / pl.col("period_ns")
    most = pl.min_horizontal(pl.col("shown").max().over("group", "part"), periods + CUT_OFF_BURSTS)
    brief = pl.col("part") & (pl.col("lasts") <= ONE_MESSAGE * pl.col("period_ns"))
    starts, ends, sizes = (bursts[name].to_numpy() for name in ("start_ns", "end_ns", "bytes"))
    chosen = (
        seen.with_columns(
            bytes=ragged.medians(sizes, offsets),
            shown=np.diff(offsets),
            first_ns=-ragged.largest(-ends, offsets),
            last_ns=ragged.largest(ends, offsets),
            lasts=ragged.medians(ends - starts, offsets),
        )
        .with_columns(part=part)
        .with_columns(
            shown=pl.when("part")
            .then(pl.col("shown") + CUT_OFF_BURSTS >= settings.least_whole * most)
            .otherwise("shown"),
            brief=brief,
            lasts=pl.when(brief).then("lasts").otherwise(0.0),
            bytes=pl.when(pl.col("part") & ~brief).then("bytes").otherwise(0.0),
        )
    )
    order = ["group", "part", "shown", "brief", "lasts", "bytes", "clarity", "stream"]
    falling = [name in ("shown", "brief", "bytes", "clarity") for name in order]
    ranked = chosen.sort(order, descending=falling)
    return ranked.unique("group", keep="first", maintain_order=True).select("group", "stream")


def _unwrap_phases(streams: pl.DataFrame) -> pl.DataFrame:
    """Count the `typical` phases of each group from the end of the longest part of a turn that has none, and add what
    this makes of its leader's, which is 0: `of_leader`; a row per stream."""
    following = pl.col("typical").shift(-1).over("group").fill_null(pl.col("typical").first().over("group") + 1)
    phases = streams.select("group", "typical").unique().sort("group", "typical").with_columns(following=following)
    longest = (pl.col("following") - pl.col("typical")).arg_max()
    origins = phases.group_by("group").agg(origin=pl.col("following").get(longest))
    counted = (
        pl.col("origin") + since - since.floor() for since in (pl.col("typical") - pl.col("origin"), -pl.col("origin"))
    )
    typical, of_leader = counted
    return streams.join(origins, on="group").with_columns(typical=typical, of_leader=of_leader)
