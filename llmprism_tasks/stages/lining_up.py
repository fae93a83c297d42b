"""Lining up: the bursts of a group's streams that fall together make its steps."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import segments
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.periods import CUT_OFF

ELSEWHERE = 0.25
"""Ratio of the period from which on two streams end at different places of the step: pipeline stages synchronise within
a fifth of it, the forward pass ends a third of it from either end."""

BRIEF = 0.05
"""Ratio of the period up to which a burst is one message, or one round of messages, and no phase of the step."""

FAR_OFF = 1.5
"""Ratio of periods, one way or the other, of steps that have another pace, since somebody became slow or before that;
jitter is far below."""

MOST = 0.5
"""Ratio of a beat's bytes that came whole in the beat before, too, above which the two are not of one step."""

DIGITS = 9
"""Digits of a sum of ratios that do not depend on their order."""


def line_up(table: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Give bursts of one group that fall together, once each pair's typical delay is taken off, one number `beat`.

    Steps meet where no stream ends for longest: the ends of one step follow each other, and in the forward pass of the
    next there are none.

    Parts of pairs that end elsewhere in the step than the group's leader are left out: they are what goes on in one
    half of it, such as parameters that are gathered in the forward pass.

    Parameters
    ----------
    table : a row per burst: `stream` (a number in the order of addresses and sizes), `pair`, `group`, `size_class`,
        `period_ns`, `threshold_ns`, `clarity` of it, `start_ns`, `end_ns`, `bytes`, `window_start_ns`

    Returns
    -------
    the bursts that are not left out, with `beat` and `pace_ns`, as of `_with_delays`
    """
    ranked = _ranked(table, settings)
    first = ranked.group_by("group", maintain_order=True).first()
    phased = _with_delays(table, first)
    leaders = _supported(phased, ranked, settings)
    if not leaders.equals(first):
        phased = _with_delays(table, leaders)
    of_streams = phased.unique("stream").filter((pl.col("size_class") < 0) | (pl.col("typical").abs() <= ELSEWHERE))
    late = _in_one_turn(of_streams).select("stream", late=pl.col("typical") - pl.col("of_leader"))
    moments = phased.join(late, on="stream").select(
        "row", "group", "stream", "pace_ns", moment=pl.col("end_ns") - pl.col("late") * pl.col("pace_ns")
    )
    apart = (pl.col("moment") - pl.col("moment").shift()).over("group") > pl.col("pace_ns") / 4
    beats = moments.sort("moment", "stream").select(
        "row", "pace_ns", beat=apart.fill_null(value=False).cast(pl.Int64).cum_sum().over("group")
    )
    row, beat, pace = beats["row"].to_numpy(), np.full(table.height, -1), np.empty(table.height)
    beat[row], pace[row] = beats["beat"].to_numpy(), beats["pace_ns"].to_numpy()
    return table.with_columns(beat=beat, pace_ns=pace).filter(pl.col("beat") >= 0)


def whole_steps(table: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Join beats that are parts of one step, drop those that are none, and number the rest.

    A beat has the share of a step that its streams have on average of what is typical of each; of whole pairs, each
    counts as often as it is there. Where some are of one size only, it is at least that of its bytes in all that is
    sent for each time that any comes: where the collector splits records, sizes that most steps have are not there
    in some. Half may come apart from the other half in most steps, since one ring became slow; then that is no step.
    What comes whole, and whole again in the next beat, comes once a step, however little it is of what used to come.
    """
    beats = _beats(table, settings)
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
    cut_off = pl.col("start_ns") - pl.col("since_ns") <= pl.col("quiet_ns")
    # Of the latest beat the rest may be still to come: it is for the next window to say what it was.
    latest = pl.col("beat") == pl.col("beat").max().over("group")
    whole = (
        beats.with_columns(whole=pl.Series(new).cast(pl.Int64).cum_sum())
        .with_columns(whole_share=pl.col("share").sum().over("whole"))
        .filter((pl.col("whole_share") >= settings.least_step) | cut_off | (pl.col("again") & ~latest))
        .with_columns(step=(pl.col("whole").rank("dense").over("group") - 1).cast(pl.Int64))
    )
    return whole.select("group", "beat", "step")


def _beats(table: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the beats of each group in order: `group`, `beat`, `start_ns`, `share` (of a step), `again` (whether most
    of it came whole in the beat before, too), `quiet_ns` and `since_ns` (of the group)."""
    streams = _in_beats(table)
    sizes, stream, beat = (streams[name].to_numpy() for name in ("bytes", "stream", "beat"))
    of_stream = segments.bounds(stream)
    usual = segments.spread(segments.medians(sizes, of_stream), of_stream)
    of_typical = np.minimum(sizes / usual, 1.0)
    complete = of_typical >= settings.least_whole
    again = np.append(False, complete[1:] & complete[:-1] & (stream[1:] == stream[:-1]) & (np.diff(beat) == 1))
    streams = streams.with_columns(of_typical=of_typical, again=np.where(again, sizes, 0))
    often = streams.group_by("group", "stream").agg(pl.col("part").first(), pl.col("of_typical").sum(), often=pl.len())
    as_often = pl.when(pl.col("part").any()).then(pl.len()).otherwise(pl.col("often").sum() / pl.col("often").max())
    present = often.group_by("group").agg(present=as_often, times=pl.col("of_typical").max())
    return (
        streams.join(present, on="group", maintain_order="left")
        .with_columns(carried=pl.col("of_typical") / pl.col("present"))
        .group_by("group", "beat")
        .agg(
            pl.col("bytes", "carried").sum(),
            pl.col("start_ns", "threshold_ns", "window_start_ns").min(),
            pl.col("part").any(),
            pl.col("times").first(),
            again=pl.col("again").sum() > MOST * pl.col("bytes").sum(),
        )
        .sort("group", "beat")
        .with_columns(
            pl.col("carried").round(DIGITS),
            of_bytes=pl.col("bytes") / (pl.col("bytes").sum().over("group") / pl.col("times")),
        )
        .with_columns(
            share=pl.when(pl.col("part").any().over("group"))
            .then(pl.max_horizontal("carried", "of_bytes"))
            .otherwise("carried"),
            quiet_ns=pl.col("threshold_ns").min().over("group"),
            since_ns=pl.col("window_start_ns").min().over("group"),
        )
    )


def _in_beats(table: pl.DataFrame) -> pl.DataFrame:
    """Sum up what each stream does in each beat: `group`, `stream`, `beat`, `bytes`, `start_ns`, `threshold_ns`,
    `window_start_ns` and `part` (whether it is one size of a pair), by stream and beat."""
    earliest = ["start_ns", "threshold_ns", "window_start_ns"]
    order = np.lexsort([table[name].to_numpy() for name in ("beat", "stream")])
    bursts = table.select("group", "stream", "beat", "bytes", *earliest, part=pl.col("size_class") >= 0)[order]
    offsets = segments.bounds(*(bursts[name].to_numpy() for name in ("stream", "beat")))
    first = offsets[:-1]
    return bursts[first].with_columns(
        bytes=segments.sums(bursts["bytes"].to_numpy(), offsets),
        **{name: np.minimum.reduceat(bursts[name].to_numpy(), first) for name in earliest},
    )


def _with_delays(table: pl.DataFrame, leaders: pl.DataFrame) -> pl.DataFrame:
    """Say of bursts what is `typical` of their stream: by how much of a period it ends after its group's leader.

    `pace_ns` is that period: the group's, or, among steps that are far shorter or far longer, what the leader's are
    there: the longer of the two beside it, or the shorter, for it may show part of a step, or lack one.

    Returns
    -------
    `row` (of the table), `group`, `stream`, `pair`, `size_class`, `end_ns`, `pace_ns`, `typical`
    """
    leading = table.join(leaders, on="stream", how="semi").sort("end_ns")
    since = (pl.col("end_ns") - pl.col("end_ns").shift()).over("group")
    beside = ("since_ns", pl.col("since_ns").shift(-1).over("group"))
    leading = leading.select("group", "end_ns", leader_ns="end_ns", since_ns=since).with_columns(
        longer_ns=pl.max_horizontal(beside), shorter_ns=pl.min_horizontal(beside)
    )
    far_shorter = FAR_OFF * pl.col("longer_ns") < pl.col("period_ns")
    far_longer = pl.col("shorter_ns") > FAR_OFF * pl.col("period_ns")
    pace = pl.when(far_shorter).then("longer_ns").when(far_longer).then("shorter_ns").otherwise("period_ns")
    bursts = table.select("group", "stream", "pair", "size_class", "end_ns", "period_ns", row=pl.int_range(pl.len()))
    return (
        bursts.sort("end_ns")
        .join_asof(leading, on="end_ns", by="group", strategy="nearest", check_sortedness=False)
        .with_columns(pace_ns=pace)
        .with_columns(phase=(pl.col("end_ns") - pl.col("leader_ns")) / pl.col("pace_ns"))
        .with_columns(typical=_typical_phase().over("stream"))
        .select("row", "group", "stream", "pair", "size_class", "end_ns", "pace_ns", "typical")
    )


def _supported(phased: pl.DataFrame, ranked: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the first stream of each group that may lead; among brief parts, of those that about the most pairs have.

    They all have what comes once a step, at about the same time of it; of the buckets before it, the collector's pieces
    hide one size here and another one there.

    Parameters
    ----------
    phased : as `_with_delays` returns, by any leaders
    ranked : as `_ranked` returns
    """
    first = ranked.group_by("group", maintain_order=True).first()
    slots = round(1 / BRIEF)
    marks = ranked.filter("part", "brief", pl.col("shown") > 0)
    if marks.is_empty():
        return first
    at = phased.unique("stream").select("stream", "pair", slot=(pl.col("typical") * slots).floor().cast(pl.Int64))
    marks = marks.join(at, on="stream", maintain_order="left")
    near = [marks.with_columns((pl.col("slot") + shift) % slots) for shift in (-1, 0, 1)]
    support = pl.concat(near).group_by("group", "slot").agg(pairs=pl.col("pair").n_unique())
    leading = (
        marks.with_columns(pl.col("slot") % slots)
        .join(support, on=["group", "slot"], maintain_order="left")
        .filter(pl.col("pairs") >= settings.period_support * pl.col("pairs").max().over("group"))
        .join(first.filter("brief"), on="group", how="semi")
    )
    brief = leading.select(ranked.columns).group_by("group", maintain_order=True).first()
    return pl.concat([brief, first.join(brief, on="group", how="anti")]).sort("group")


def _ranked(table: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Order the streams of each group by how well the others are lined up by them.

    The first is the one that shows most steps; among parts, of those that show about as many the briefest: what comes
    once a step, its first gather or its last reduction, marks where steps meet. Where no part is brief, the one that
    carries most is there in every window, and always leads to the same place in the step.

    Returns
    -------
    sorted: `group`, `stream`, `part`, `shown` (about as many as any; of whole pairs, how many) and `brief`
    """
    part = pl.col("size_class") >= 0
    periods = (pl.col("last_ns").max() - pl.col("first_ns").min()).over("group") / pl.col("period_ns")
    most = pl.min_horizontal(pl.col("shown").max().over("group", "part"), periods + CUT_OFF)
    brief = pl.col("part") & (pl.col("lasts") <= BRIEF * pl.col("period_ns"))
    chosen = (
        table.group_by("stream")
        .agg(
            pl.col("group", "size_class", "clarity", "period_ns").first(),
            pl.col("bytes").median(),
            shown=pl.len(),
            first_ns=pl.col("end_ns").min(),
            last_ns=pl.col("end_ns").max(),
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
    order = ["group", "part", "shown", "brief", "lasts", "bytes", "clarity", "stream"]
    falling = [name in ("shown", "brief", "bytes", "clarity") for name in order]
    return chosen.sort(order, descending=falling).select("group", "stream", "part", "shown", "brief")


def _typical_phase() -> pl.Expr:
    """Return the median of phases on a circle: just under half a period late and just over it are neighbours."""
    turn = 2 * np.pi * pl.col("phase")
    centre = pl.arctan2(turn.sin().mean(), turn.cos().mean()) / (2 * np.pi)
    off = pl.col("phase") - centre
    typical: pl.Expr = centre + (off - off.round()).median()
    return typical


def _in_one_turn(streams: pl.DataFrame) -> pl.DataFrame:
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
