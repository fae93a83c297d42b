"""The steps of groups whose pairs show them together: who is looked at, and which pairs take part in the steps.

What the steps are `templates/` says; `balance.py` says whether they are parts of a pipeline's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS
from llmprism_tasks.numerics import asof, grouped_sort, ragged
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups import balance
from llmprism_tasks.stages.step_division.groups.group_cut import (
    Cut,
    bytes_per_segment,
    steps_between_empty_pipelines,
    steps_by_template,
)
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Times, Traffic
from llmprism_tasks.stages.step_division.groups.sample import Sample, likeliest, samples
from llmprism_tasks.stages.step_division.groups.templates.fit import FOREVER
from llmprism_tasks.stages.step_division.groups.templates.levels import (
    NEARLY_ALL,
    Steps,
    takes_part,
)
from llmprism_tasks.stages.step_division.groups.templates.selection import Signs, repeated, repeated_at
from llmprism_tasks.stages.step_division.periodicity import answered
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.opposite import log_ratio, opposite

PRESENT_SHARE = 0.6
"""Ratio of the time that is typical of its group's pairs that a pair must be there for: a copy is not, and says nothing
of the steps."""

LEAST_PAIR_BYTES = 0.001
"""Ratio of the bytes of its group's largest pair that a pair must move to be looked at."""

HEAVY = pl.col("bytes") >= LEAST_PAIR_BYTES * pl.col("bytes").max().over("group")
"""Whether a pair moves at least `LEAST_PAIR_BYTES`."""


class Found(NamedTuple):
    """The steps of groups that show them together.

    Attributes
    ----------
    streams : `pair`, `group`, `group_period_ns`, `clarity`, `told`, `ended`, sorted by `pair`: those that take part in
        the steps, and whether silences or bytes tell that these are no parts of steps, and where they end
    until_ns, number : shape (segments,): up to when each goes, and which step it is, -1 for none; group by group
    low, high : shape (streams,): the segments of each one's group
    """

    streams: pl.DataFrame
    until_ns: Integers
    number: Integers
    low: Integers
    high: Integers

    def of(self, groups: pl.DataFrame) -> Found:
        """Return the steps of some groups: `group`."""
        kept = self.streams.select(pl.col("group").is_in(groups["group"].implode())).to_series()
        return self._replace(streams=self.streams.filter(kept), low=self.low[kept], high=self.high[kept])

    def numbers(self, pairs: Integers, starts: Integers, ends: Integers, offsets: Integers) -> Integers:
        """Return the step of each record, -1 for those of none: a record that lasts for all of the next segment, too.

        Parameters
        ----------
        pairs : shape (series,), of streams that take part
        starts, ends : ns, all series one after another
        offsets : shape (series + 1,): series i holds the records `offsets[i]` to `offsets[i + 1]`
        """
        stream = np.searchsorted(self.streams["pair"].to_numpy(), pairs)
        low, high = self.low[stream], self.high[stream]
        begins, over = (asof.first_from(times, offsets, self.until_ns, low, high) for times in (starts, ends))
        return np.where(over <= begins + 1, self.number[begins], -1)


def steps_together(
    flows: pl.DataFrame,
    pairs: pl.DataFrame,
    settings: RhythmSettings,
    *,
    by_bytes: bool = False,
    parts: pl.Series | None = None,
    turns: pl.DataFrame | None = None,
    turning: pl.Series | None = None,
) -> Found:
    """Find the steps of groups whose pairs show them together.

    Parameters
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    pairs : `pair`, `src_addr`, `dst_addr`, `group`, `bytes`, `first_ns`, `last_ns`, a row for each pair of the groups
    by_bytes : whether the byte clock may tell the steps where silences do not
    parts : groups that are pipelines: their steps end where nothing is under way, if nothing else tells them
    turns : `group`, `period_ns`, `alone`: how long links take from one turn to the next, and whether no other pairs
        send much
    turning : groups that are but lines of links: what the bytes tell of these is a step if they turn once in it, and
        else a micro-batch, for silences between micro-batches are longer than those inside, too

    Returns
    -------
    the steps of groups of which most bytes and most NICs take part in them, told or not
    """
    times, offsets, groups = _flow_arrays_and_groups(flows, pairs, parts)
    linked = set(_groups_with_links(pairs, settings)["group"])
    in_line = set(_groups_in_line(pairs, settings)["group"])
    turn_ns = {} if turns is None else dict(turns.select("group", "period_ns").rows())
    by_turns = set() if turning is None else set(turning)
    alone = set() if turns is None else set(turns.filter("alone")["group"])

    def find(traffic: Traffic, name: object) -> Steps | None:
        """Return the steps of the group of that name, as `repeated` does."""
        # In a ring alone equal buckets are told from steps by nothing, and the forward pass is as silent as a pause.
        by_pauses = name in linked and name not in in_line
        # Links of which activations are next to nothing beside gradients still turn in each step.
        by_passes = name not in linked and name not in turn_ns
        turn = turn_ns.get(name, np.nan)
        # Two hosts that share parameters send each other as much, too. But they are in rings, and nothing turns.
        by_whole = not (name in in_line or name in by_turns or name in turn_ns)
        steps = repeated(traffic, settings, Signs(by_bytes, by_passes, by_pauses, name in by_turns, by_whole, turn))
        # Single pairs tell the ends by gradients; each link of a pipeline is silent for longest somewhere else.
        if steps is not None and name in alone and steps.turns_once(turn):
            return steps._replace(told=True)
        return None if steps is not None and name in by_turns and not steps.told else steps

    found = [
        _find_group_steps(times, offsets, group, settings, partial(find, name=group.pairs["group"][0]))
        for group in groups
    ]
    return _keep_explained_groups(found, pairs, settings)


def _groups_with_links(pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups of which main pairs have as many bytes come back, as those of pipelines do: `group`."""
    main = balance.main_pairs(pairs, "group")
    both = main.join(opposite(main, "bytes", key=("group",)), on=["group", *nic_pairs.PAIR])
    return both.filter(log_ratio("bytes", "back_bytes") <= settings.answer_bytes).select("group").unique()


def _groups_in_line(pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups that are lines of NICs, whose pairs send messages of one size that come back: `group`.

    These are links of a pipeline, of which gradients are not seen, or two replicas. In a ring there are as many links
    as NICs.
    """
    back = answered(pairs, settings).select("pair", back=pl.lit(value=True))
    known = pairs.join(back, on="pair", how="left")
    nics = pl.concat_list(nic_pairs.PAIR).list.explode().n_unique()
    seen = known.group_by("group").agg(pl.col("back").count(), links=pl.len(), nics=nics)
    return seen.filter(pl.col("back") == pl.col("links"), pl.col("links") < 2 * pl.col("nics")).select("group")


def recut_at_step_ends(
    flows: pl.DataFrame,
    pairs: pl.DataFrame,
    steps: pl.DataFrame,
    alone: pl.Series,
    settings: RhythmSettings,
    *,
    reducing: Flags | None = None,
) -> Found:
    """Cut groups where their steps end, whoever found the steps (`step_ends`).

    Parameters
    ----------
    flows, pairs : as `steps_together` takes them; `pairs` as `stream_rhythms` returns, besides, with `pauses`:
        whether a pair synchronises gradients and is silent between its steps, beside pairs that are not; and with
        `ending`: whether what it sends ends steps
    steps : `group`, `end_ns`, ascending in each group: when the steps ended that were found
    alone : groups that send hardly anything but what ends their steps, which may be sharded parameters
    reducing : shape (flows,), which are gradients among tokens: of groups without pairs that pause, these alone tell

    Returns
    -------
    the steps of groups that are silent between them, that end elsewhere, and of which no pair is a pipeline's. Most of
    what ends steps has to take part in them
    """
    # Two hosts that share parameters send each other as much, as the stages of a pipeline do. But a pipeline sends
    # activations beside what ends its steps, and where nobody does, what never pauses is sharded.
    shards = pairs.filter("pauses", pl.col("group").is_in(alone.implode()))
    linked = answered(pairs.filter(HEAVY), settings).join(pairs.filter("pauses"), on="pair", how="anti")
    linked = pairs.join(linked, on="pair", how="semi").join(shards, on="group", how="anti").select("group").unique()
    asked = pairs.join(linked, on="group", how="anti", maintain_order="left")
    times, offsets, groups = _flow_arrays_and_groups(flows, asked, None)
    ends = {group: part["end_ns"].to_numpy() for (group,), part in steps.group_by("group", maintain_order=True)}
    names = [group.pairs["group"][0] for group in groups]
    pausing, sharded = asked.filter("pauses")["pair"].to_numpy(), set(alone.to_list())
    found = [
        _recut_group(
            *(times, offsets, group, ends.get(name, np.zeros(0, np.int64)), settings),
            by_passes=name in sharded,
            pausing=pausing,
            reducing=reducing,
        )
        for group, name in zip(groups, names, strict=True)
    ]
    return _keep_explained_groups(found, asked.filter("ending"), settings)


def _flow_arrays_and_groups(
    flows: pl.DataFrame, pairs: pl.DataFrame, parts: pl.Series | None
) -> tuple[Times, Integers, list[_Group]]:
    """Return the times and bytes of the flows, where each pair's begin, and the pairs of groups that are looked at."""
    offsets = nic_pairs.starts_of_pairs(flows)
    place = np.searchsorted(flows["pair"].to_numpy()[offsets[:-1]], pairs["pair"].to_numpy())
    begins, ends, sizes = (flows[name].to_numpy() for name in nic_pairs.TIMES)
    span, lasts = pl.col("last_ns") - pl.col("first_ns"), pl.col("lasts_ns")
    throughout = span >= PRESENT_SHARE * lasts.filter(HEAVY).median().over("group")
    timed = pairs.with_columns(lasts_ns=_times_of_nearly_all_bytes(begins, sizes, offsets)[place])
    looked_at = pairs.select("pair", "group", "src_addr", "dst_addr", place=place).filter(
        timed.select(throughout & HEAVY).to_series()
    )
    return (begins, ends, sizes), offsets, _split_into_groups(looked_at.sort("group", "pair"), parts)


def _times_of_nearly_all_bytes(begins: Integers, sizes: Integers, offsets: Integers) -> Floats:
    """Return how long each pair sends, as nearly all of its bytes have it: ns, shape (pairs,).

    What chatters for minutes before a job begins is next to nothing of them. Evenly sent bytes take as long in all as
    the middle ones do for their share.

    Parameters
    ----------
    begins, sizes : ns and bytes of all flows, those of a pair together, in the order of time
    offsets : shape (pairs + 1,), where each pair's begin
    """
    sent = np.concatenate([[0.0], np.cumsum(sizes)])
    low, high = sent[offsets[:-1]], sent[offsets[1:]]
    cut = (1 - NEARLY_ALL) / 2
    first, last = (
        begins[np.clip(np.searchsorted(sent, low + share * (high - low), "right") - 1, offsets[:-1], offsets[1:] - 1)]
        for share in (cut, 1 - cut)
    )
    return np.asarray((last - first) / NEARLY_ALL)


def _keep_explained_groups(found: list[Found | None], pairs: pl.DataFrame, settings: RhythmSettings) -> Found:
    """Return the steps of groups of which most bytes and most NICs take part in them."""
    none = pairs.clear().select(
        *("pair", "group"),
        group_period_ns=pl.lit(0.0),
        clarity=pl.lit(0.0),
        told=pl.lit(value=True),
        ended=pl.lit(value=True),
    )
    every = merge_steps([Found(none, *np.zeros((4, 0), np.int64)), *(one for one in found if one is not None)])
    return every.of(_explained_groups(every.streams, pairs, settings))


def _explained_groups(streams: pl.DataFrame, pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups of which most bytes, and most NICs, are of pairs that take part in the steps: `group`."""

    def measured(some: pl.DataFrame) -> pl.DataFrame:
        nics = pl.concat([some.select("group", addr=end) for end in nic_pairs.PAIR]).unique()
        bytes_ = some.group_by("group").agg(pl.col("bytes").sum())
        return nics.group_by("group").agg(nics=pl.len()).join(bytes_, on="group")

    known = pairs.join(streams.select("group").unique(), on="group", how="semi")
    theirs = measured(known.join(streams, on="pair", how="semi"))
    return theirs.join(measured(known), on="group", suffix="_in_all").filter(
        pl.col("bytes") >= MAJORITY * pl.col("bytes_in_all"),
        pl.col("nics") >= settings.least_support * pl.col("nics_in_all"),
    )


def merge_steps(found: list[Found]) -> Found:
    """Return the steps of several sets of groups as one."""
    before = np.cumsum([0, *(one.number.size for one in found)])
    low, high = (
        np.concatenate([getattr(one, name) + shift for one, shift in zip(found, before, strict=False)])
        for name in ("low", "high")
    )
    until, number = (np.concatenate([getattr(one, name) for one in found]) for name in ("until_ns", "number"))
    streams = pl.concat([one.streams for one in found])
    order = streams["pair"].arg_sort().to_numpy()
    return Found(streams[order], until, number, low[order], high[order])


class _Group(NamedTuple):
    """The pairs of a group that are looked at.

    Attributes
    ----------
    pairs : `pair`, `group`
    place : shape (pairs,), of each among those that the flows have
    sender : shape (pairs,), from 0
    back : shape (pairs,), as `balance.answers` returns
    is_piped : whether its steps end where nothing is under way, if nothing else tells them
    """

    pairs: pl.DataFrame
    place: Integers
    sender: Integers
    back: Integers
    is_piped: bool


def _split_into_groups(pairs: pl.DataFrame, piped: pl.Series | None) -> list[_Group]:
    """Return the groups of pairs: `pair`, `group`, `src_addr`, `dst_addr`, `place`, those of a group together. What
    Polars is to find is asked for all of them at once: some platforms have a thousand."""
    named = pairs.select("pair", "group")
    sender = pairs.select(pl.col("src_addr").rank("dense").over("group").cast(pl.Int64) - 1).to_series().to_numpy()
    flags = named["group"].is_in((named["group"].clear() if piped is None else piped).implode()).to_numpy()
    place, back = pairs["place"].to_numpy(), balance.answers(pairs)
    bounds = pairwise(ragged.bounds(pairs["group"].rle_id().to_numpy()))
    return [
        _Group(named[low:high], place[low:high], sender[low:high], back[low:high], bool(flags[low]))
        for low, high in bounds
    ]


def _find_group_steps(
    times: Times,
    offsets: Integers,
    group: _Group,
    settings: RhythmSettings,
    find: Callable[[Traffic], Steps | None],
) -> Found | None:
    """Return the steps of one group, given what finds them in its traffic, as `repeated` does."""
    sample, steps = likeliest(samples(times, offsets, group.place, group.sender), find)
    if sample is None:
        return None
    moved_until = partial(bytes_per_segment, times, offsets, group.place)
    cut = None if steps is None else steps_by_template(steps, moved_until(steps.until_ns), group.back, settings)
    if steps is not None and cut is not None:
        found = _steps_with_participants(cut, group, sample, told=steps.told, ended=steps.ended)
        return _end_early_for_busy_pairs(found, times, offsets, group, sample, steps)
    if group.is_piped or (steps is not None and steps.told):
        silences = sample.traffic.silences(settings.shortest_quiet_ms * NANOSECONDS_PER_MS)
        cut = steps_between_empty_pipelines(sample.traffic, silences, moved_until, group.back)
    return None if cut is None else _steps_with_participants(cut, group, sample)


def _recut_group(
    times: Times,
    offsets: Integers,
    group: _Group,
    ends: Integers,
    settings: RhythmSettings,
    *,
    by_passes: bool,
    pausing: Integers,
    reducing: Flags | None,
) -> Found | None:
    """Return the steps of one group, given when they ended as somebody found them, and the pairs of gradients that
    pause beside pairs that do not, or which records are gradients: what these send tells more than the passes."""
    pauses, gradients = np.isin(group.pairs["pair"].to_numpy(), pausing), None
    if pauses.any():
        gradients = _all_traffic_of(times, offsets, group, pauses)
    elif reducing is not None and reducing[grouped_sort.spread(offsets, group.place)[0]].any():
        kept = np.append(0, np.cumsum(reducing))[offsets]
        sends = np.diff(kept)[group.place] > 0
        begins, ends_of, sizes = (one[reducing] for one in times)
        gradients = _all_traffic_of((begins, ends_of, sizes), kept, group, sends)
    sample, steps = likeliest(
        samples(times, offsets, group.place, group.sender),
        lambda traffic: repeated_at(
            traffic, ends, settings, by_passes=by_passes and gradients is None, gradients=gradients
        ),
    )
    if sample is None or steps is None:
        return None
    cut = steps_by_template(steps, bytes_per_segment(times, offsets, group.place, steps.until_ns), group.back, settings)
    if cut is None:
        return None
    return _end_early_for_busy_pairs(_steps_with_participants(cut, group, sample), times, offsets, group, sample, steps)


def _all_traffic_of(times: Times, offsets: Integers, group: _Group, pairs: Flags) -> Traffic:
    """Return the traffic of some of the group's pairs, shape (pairs of the group,), be there pauses in it or not."""
    senders = np.unique(group.sender[pairs], return_inverse=True)[1]
    return samples(times, offsets, group.place[pairs], senders)[-1].traffic


def _end_early_for_busy_pairs(
    found: Found, times: Times, offsets: Integers, group: _Group, sample: Sample, steps: Steps
) -> Found:
    """End steps right after the pairs that are silent then, for pairs that are not.

    Where some pairs of the senders that are looked at never pause, such as those that gather parameters, others have
    such pairs, too, which send in the middle of that silence. After a last step that is whole they send what belongs to
    the next one.
    """
    if not sample.foreign.any():
        return found
    ends, until, is_over = steps.ends_ns[:-1], steps.until_ns[:-1], int(steps.whole[-1])
    edges = np.append(np.stack([ends, 2 * until - ends - 1], axis=1).ravel(), FOREVER)
    between = bytes_per_segment(times, offsets, group.place, edges)[:, 1::2] > 0
    busy = between.mean(axis=1) >= MAJORITY
    early = busy[np.searchsorted(group.pairs["pair"].to_numpy(), found.streams["pair"].to_numpy())]
    return found._replace(
        until_ns=np.concatenate([found.until_ns, ends, steps.ends_ns[-1:][:is_over], [FOREVER]]),
        number=np.concatenate([found.number, found.number, np.full(is_over, -1)]),
        low=found.low + early * (until.size + 1),
        high=found.high + early * (until.size + 1 + is_over),
    )


def _steps_with_participants(
    cut: Cut, group: _Group, sample: Sample, *, told: bool = True, ended: bool = False
) -> Found:
    """Return the steps of a group, with the pairs that take part in them."""
    steady = takes_part(cut.alike.T)
    steady[np.flatnonzero(sample.pairs)[sample.foreign]] = False
    streams = group.pairs.filter(pl.Series(steady)).with_columns(
        group_period_ns=pl.lit(cut.period_ns), clarity=pl.lit(cut.clarity), told=pl.lit(told), ended=pl.lit(ended)
    )
    low, high = np.zeros(streams.height, np.int64), np.full(streams.height, cut.until_ns.size)
    return Found(streams, cut.until_ns, cut.number, low, high)
