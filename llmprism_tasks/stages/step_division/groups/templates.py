"""Templates: the steps of a group as what comes again on all of its streams at once, whatever time it takes.

In every training step each NIC sends the same bytes, even where its peers' shares differ, as those of experts do. Here
all pairs of a group are cut together, at moments when none of them sends: a template says how many bytes each NIC sends
in a step, and the best cuts make most segments like it (`kernels/template_cuts.py`). Templates are proposed by cutting
at silences of different lengths, and each is made better by the segments that it finds. Parts of a step (buckets,
micro-batches) and several steps together come again as well: the template of the steps is the smallest one between
whose segments the silences stand out from those inside. Where none does, there is no answer, and the pairs are asked
one by one. Where these do not answer either, the byte clock says how many bytes a step is (`byte_clock.py`). Where
bytes come back later than in the segment that they were sent in, segments are parts of steps, and the steps of a
pipeline are what lies between the silences at which nothing is under way (`balance.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.numerics import asof, grouped_sort, ragged
from llmprism_tasks.numerics.robust import Flags, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups import balance, byte_clock, step_ends
from llmprism_tasks.stages.step_division.kernels.regularity import FEW
from llmprism_tasks.stages.step_division.kernels.template_cuts import best_cuts
from llmprism_tasks.stages.step_division.periodicity import answered
from llmprism_tasks.stages.traffic import nic_pairs

MOST = 0.75
"""Ratio that stands for nearly all: of the streams alike in a step, of the segments that are steps, of the bytes that
steps explain. Lost records leave more, foreign traffic and chance less."""

HALF = 0.5
"""Ratio from which on something is there rather than not: a step of which records are lost, a stream that takes part in
steps, silences inside them."""

CLEAR = 2.0
"""How many standard deviations of their logarithms the silences between steps must be above those inside them. In
training whose ranks all synchronise it is 2.1 to 12, least in pipelines with replicas and in rings of context; of
buckets, micro-batches and several steps together 0 to 2. Seen in the captures that the model was built with."""

LONGER = 0.7
"""The same where the byte clock tells the steps, too: optimizer and first layer are computed between them, and bursts
of micro-batches and layers are nearer to each other. Steps of captured training have 0.9 to 2.3; micro-batches and hops
of a ring that the byte clock took for steps, since a minute held less than three of these, -0.3 to 0.5."""

ALL = 0.95
"""Ratio of the bytes that a template must explain to be one of steps where its silences are not clear: layers of a
sharded model were seen to explain 0.6 to 0.92, its steps 0.96 to 1."""

JITTER = 0.05
"""Least variance of the logarithm of silences: they differ by a fifth whatever causes them."""

SAMPLE = 32
"""Pairs of a group that are looked at, as far as `FEWEST` senders have no more: they all tell of the same steps."""

FEWEST = 8
"""Senders that are looked at, at least: one or two may be disturbed."""

THROUGHOUT = 0.6
"""Ratio of the time that is typical of its group's pairs that a pair must be there for: a copy is not, and says nothing
of the steps."""

BRIEF = 0.25
"""Ratio of the typical pause of a group's pairs below which a pause is none."""

ENDLESS = 10
"""Typical pauses of a group's pairs that what one of them sends without a pause may last: gradients and blocks are
sent between computing, and last about as long as that; through a NIC at an eighth of its rate a few times as long.
Copies of files go on for tens of seconds."""

LEAST = 0.001
"""Ratio of the bytes of its group's largest pair that a pair must move to be looked at."""

SILENCES_PER_STEP = 8
"""Silences for each step that cuts are chosen from, the longest ones."""

ALL_PER_STEP = 32
"""The same where the byte clock tells the steps: a step has fewer layers or micro-batches, and it may begin after none
of its longest silences."""

LEVELS = 24
"""Lengths of silences at which segments are looked at for templates, each a few less than the one before."""

PROPOSED = 12
"""Templates that are tried, those that explain most first."""

STRETCHES = 1024
"""Stretches of a group's traffic that are asked what is moved in a step."""

TURNS = 2
"""Times that a template is made better."""

LAST = np.iinfo(np.int64).max
"""Up to when the last segment goes."""

NANOSECONDS_PER_MS = 1e6

SAME = 0.05
"""Ratio within which two templates are the same, and segments one template's."""


_Times = tuple[Integers, Integers, Integers]
"""Starts and ends, ns, and bytes of flows."""


class Found(NamedTuple):
    """The steps of groups that show them together.

    Attributes
    ----------
    streams : `pair`, `group`, `group_period_ns`, `clarity`, `told`, sorted by `pair`: those that take part in the
        steps, and whether silences or bytes tell that these are no parts of steps
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


class _Silences(NamedTuple):
    """Silences of a group, in order of time: the records that begin after each, and the logarithm of its length over
    the shortest that counts."""

    at: Integers
    length: Floats

    def longest(self, count: int) -> _Silences:
        """Return some of them."""
        if self.at.size <= count:
            return self
        chosen = np.sort(np.argsort(-self.length, kind="stable")[:count])
        return _Silences(self.at[chosen], self.length[chosen])


class _Traffic(NamedTuple):
    """Records of several senders in order of their starts.

    Attributes
    ----------
    stream, pair : the sender and the pair of each, from 0. What a sender moves to all its peers is the same in every
        step also where experts' shares differ
    starts, ends, latest, sizes : ns and bytes; `latest` is the last end of each and all before it
    """

    stream: Integers
    pair: Integers
    starts: Integers
    latest: Integers
    ends: Integers
    sizes: Integers

    def of(self, kept: Flags) -> _Traffic:
        """Return some of the records."""
        stream, pair = (np.unique(which[kept], return_inverse=True)[1] for which in (self.stream, self.pair))
        ends = self.ends[kept]
        return _Traffic(stream, pair, self.starts[kept], np.maximum.accumulate(ends), ends, self.sizes[kept])

    def silences(self, shortest_ns: float) -> _Silences:
        """Return when none of the streams sends for longer than that."""
        silence = np.append(0, self.starts[1:] - self.latest[:-1])
        at = np.flatnonzero(silence > shortest_ns)
        return _Silences(at, np.log(silence[at] / shortest_ns))

    def moved(self, at: Integers) -> Floats:
        """Return what each stream moved before the first record, before some others and in all, shape (places,
        streams)."""
        streams = int(self.stream.max()) + 1
        part = np.repeat(np.arange(at.size + 1), np.diff(np.concatenate([[0], at, [self.stream.size]])))
        each = np.bincount(part * streams + self.stream, self.sizes, (at.size + 1) * streams)
        return np.concatenate([np.zeros((1, streams)), np.cumsum(each.reshape(-1, streams), axis=0)])


class _Steps(NamedTuple):
    """What a template makes of a group.

    Attributes
    ----------
    template : bytes of each stream
    until_ns : shape (segments,), the middle of the silence after each
    ends_ns : shape (segments,), the last end in each
    like : shape (segments, streams), whether a stream moved in a segment what it does in the template
    share : shape (segments,), ratio of the template's bytes that were moved, all streams alike
    clarity : see `CLEAR`; NaN where most segments have no silence inside
    explained : ratio of the streams' bytes that are in steps, all streams alike
    told : whether silences or bytes tell that these are the steps, and not parts of them
    """

    template: Floats
    until_ns: Integers
    ends_ns: Integers
    like: Flags
    share: Floats
    clarity: float
    explained: float
    told: bool = False

    @property
    def whole(self) -> Flags:
        """Say which segments are like the template."""
        whole: Flags = self.like.mean(axis=1) >= MOST
        return whole

    @property
    def period_ns(self) -> float:
        return float(np.median(np.diff(self.ends_ns[self.whole])))

    def is_likely(self) -> bool:
        """Say whether most segments are like the template, and explain most of what is sent."""
        whole = self.whole
        return bool(whole.sum() >= FEW and whole.mean() >= MOST and self.explained >= MOST)

    def is_clear(self) -> bool:
        """Say whether the template explains all that is sent, and the silences between segments are longer ones."""
        return bool(self.explained >= ALL and self.clarity >= LONGER)


def steps_together(
    flows: pl.DataFrame,
    pairs: pl.DataFrame,
    settings: RhythmSettings,
    *,
    by_bytes: bool = False,
    parts: pl.Series | None = None,
) -> Found:
    """Find the steps of groups whose pairs show them together.

    Parameters
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    pairs : `pair`, `src_addr`, `dst_addr`, `group`, `bytes`, `first_ns`, `last_ns`, a row for each pair of the groups
    by_bytes : whether the byte clock may tell the steps where silences do not
    parts : groups that are pipelines: their steps end where nothing is under way, if nothing else tells them

    Returns
    -------
    the steps of groups of which most bytes and most NICs take part in them, told or not
    """
    times, offsets, groups = _looked_at(flows, pairs, parts)
    return _believed([_found(times, offsets, group, settings, by_bytes=by_bytes) for group in groups], pairs, settings)


def ended_alike(flows: pl.DataFrame, pairs: pl.DataFrame, steps: pl.DataFrame, settings: RhythmSettings) -> Found:
    """Cut groups where their steps end, whoever found the steps (`step_ends`).

    Parameters
    ----------
    flows, pairs : as `steps_together` takes them; `pairs` as `stream_rhythms` returns, besides
    steps : `group`, `end_ns`, ascending in each group: when the steps ended that were found

    Returns
    -------
    the steps of groups that are silent between them, that end elsewhere, and of which no pair is a pipeline's
    """
    linked = pairs.join(answered(pairs, settings), on="pair", how="semi").select("group").unique()
    asked = pairs.join(linked, on="group", how="anti", maintain_order="left")
    times, offsets, groups = _looked_at(flows, asked, None)
    ends = {group: part["end_ns"].to_numpy() for (group,), part in steps.group_by("group", maintain_order=True)}
    known = [(group, ends.get(group.pairs["group"][0], np.zeros(0, np.int64))) for group in groups]
    return _believed([_ended_alike(times, offsets, group, own, settings) for group, own in known], asked, settings)


def _looked_at(
    flows: pl.DataFrame, pairs: pl.DataFrame, parts: pl.Series | None
) -> tuple[_Times, Integers, list[_Group]]:
    """Return the times and bytes of the flows, where each pair's begin, and the pairs of groups that are looked at."""
    offsets = nic_pairs.starts_of_pairs(flows)
    place = np.searchsorted(flows["pair"].to_numpy()[offsets[:-1]], pairs["pair"].to_numpy())
    begins, ends, sizes = (flows[name].to_numpy() for name in nic_pairs.TIMES)
    heavy = pl.col("bytes") >= LEAST * pl.col("bytes").max().over("group")
    span = pl.col("last_ns") - pl.col("first_ns")
    throughout = span >= THROUGHOUT * span.filter(heavy).median().over("group")
    looked_at = pairs.select("pair", "group", "src_addr", "dst_addr", place=place).filter(
        pairs.select(throughout & heavy).to_series()
    )
    return (begins, ends, sizes), offsets, _groups(looked_at.sort("group", "pair"), parts)


def _believed(found: list[Found | None], pairs: pl.DataFrame, settings: RhythmSettings) -> Found:
    """Return the steps of groups of which most bytes and most NICs take part in them."""
    none = pairs.clear().select(
        "pair", "group", group_period_ns=pl.lit(0.0), clarity=pl.lit(0.0), told=pl.lit(value=True)
    )
    every = all_of([Found(none, *np.zeros((4, 0), np.int64)), *(one for one in found if one is not None)])
    return every.of(_explained(every.streams, pairs, settings))


def _explained(streams: pl.DataFrame, pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups of which most bytes, and most NICs, are of pairs that take part in the steps: `group`."""

    def measured(some: pl.DataFrame) -> pl.DataFrame:
        nics = pl.concat([some.select("group", addr=end) for end in nic_pairs.PAIR]).unique()
        bytes_ = some.group_by("group").agg(pl.col("bytes").sum())
        return nics.group_by("group").agg(nics=pl.len()).join(bytes_, on="group")

    known = pairs.join(streams.select("group").unique(), on="group", how="semi")
    theirs = measured(known.join(streams, on="pair", how="semi"))
    return theirs.join(measured(known), on="group", suffix="_in_all").filter(
        pl.col("bytes") >= settings.least_explained * pl.col("bytes_in_all"),
        pl.col("nics") >= settings.least_support * pl.col("nics_in_all"),
    )


def all_of(found: list[Found]) -> Found:
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


def _groups(pairs: pl.DataFrame, piped: pl.Series | None) -> list[_Group]:
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


class _Sample(NamedTuple):
    """What is looked at of a group.

    Attributes
    ----------
    traffic : of some senders, without what never pauses
    pairs : shape (pairs of the group,), whether these senders have it
    foreign : shape (pairs of these senders,), whether most of it never pauses
    """

    traffic: _Traffic
    pairs: Flags
    foreign: Flags


def _sample(times: _Times, offsets: Integers, group: _Group) -> _Sample | None:
    """Return what is looked at of a group; None if all of it never pauses."""
    senders = int(group.sender.max()) + 1
    looked_at = min(senders, max(SAMPLE * senders // group.place.size, FEWEST))
    chosen = np.isin(group.sender, np.linspace(0, senders - 1, looked_at).astype(np.int64))
    traffic = _traffic(times, offsets, group.place[chosen], group.sender[chosen])
    pausing = _pausing(traffic)
    foreign = np.bincount(traffic.pair, traffic.sizes * pausing) < HALF * np.bincount(traffic.pair, traffic.sizes)
    traffic = traffic.of(pausing)
    return _Sample(traffic, chosen, foreign) if traffic.stream.size else None


def _found(
    times: _Times, offsets: Integers, group: _Group, settings: RhythmSettings, *, by_bytes: bool
) -> Found | None:
    """Return the steps of one group."""
    sample = _sample(times, offsets, group)
    if sample is None:
        return None
    moved_until = partial(_moved_until, times, offsets, group.place)
    steps = _steps(sample.traffic, settings, by_bytes=by_bytes)
    cut = None if steps is None else _as_steps(steps, moved_until(steps.until_ns), group.back, settings)
    told = steps is None or steps.told
    if cut is None and (group.is_piped or (steps is not None and told)):
        silences = sample.traffic.silences(settings.shortest_quiet_ms * NANOSECONDS_PER_MS)
        cut, told = _between_empty(sample.traffic, silences, moved_until, group.back), True
    return None if cut is None else _with_part(cut, group, sample, told=told)


def _ended_alike(
    times: _Times, offsets: Integers, group: _Group, ends: Integers, settings: RhythmSettings
) -> Found | None:
    """Return the steps of one group, given when they ended as somebody found them."""
    sample = _sample(times, offsets, group)
    steps = None if sample is None else _steps_at(sample.traffic, ends, settings)
    if sample is None or steps is None:
        return None
    cut = _as_steps(steps, _moved_until(times, offsets, group.place, steps.until_ns), group.back, settings)
    return None if cut is None else _with_part(cut, group, sample, told=True)


def _with_part(cut: _Cut, group: _Group, sample: _Sample, *, told: bool) -> Found:
    """Return the steps of a group, with the pairs that take part in them."""
    steady = _takes_part(cut.alike.T)
    steady[np.flatnonzero(sample.pairs)[sample.foreign]] = False
    described = {"group_period_ns": pl.lit(cut.period_ns), "clarity": pl.lit(cut.clarity), "told": pl.lit(told)}
    streams = group.pairs.filter(pl.Series(steady)).with_columns(**described)
    low, high = np.zeros(streams.height, np.int64), np.full(streams.height, cut.until_ns.size)
    return Found(streams, cut.until_ns, cut.number, low, high)


class _Cut(NamedTuple):
    """The steps of a group.

    Attributes
    ----------
    until_ns, number, period_ns, clarity : as of `Found`
    alike : shape (pairs, steps), bytes of steps that are like others
    """

    until_ns: Integers
    number: Integers
    period_ns: float
    clarity: float
    alike: Floats


def _as_steps(steps: _Steps, each: Floats, back: Integers, settings: RhythmSettings) -> _Cut | None:
    """Return the steps that a template makes of a group; None where bytes come back later than in the segment that
    they were sent in, for then segments are parts of steps.

    Parameters
    ----------
    each : shape (pairs, segments), bytes
    back : of each pair, as `balance.answers` returns
    """
    step = steps.share >= HALF
    step[-1] &= steps.share[-1] >= settings.least_step  # the rest of it may be still to come
    if balance.unreturned(_by_step(each, np.flatnonzero(step)), back) > balance.UNRETURNED:
        return None
    number = np.where(step, np.cumsum(step) - 1, -1)
    return _Cut(steps.until_ns, number, steps.period_ns, steps.clarity, each[:, steps.whole])


def _between_empty(
    traffic: _Traffic, silences: _Silences, moved_until: Callable[[Integers], Floats], back: Integers
) -> _Cut | None:
    """Return the steps of a group whose pipelines are empty between them; None without two such moments.

    Parameters
    ----------
    moved_until : given the times up to which segments go, what each pair moves in each, shape (pairs, segments)
    back : of each pair, as `balance.answers` returns
    """
    if not silences.at.size:
        return None
    last_ends = np.append(traffic.latest[silences.at - 1], traffic.latest[-1])
    until = np.append((last_ends[:-1] + traffic.starts[silences.at]) // 2, LAST)
    each = moved_until(until)
    ends = balance.ends_of_steps(each, back)
    if ends.size < 2:
        return None
    of_steps = _by_step(each, ends)
    in_all = of_steps.sum(axis=0)
    alike = np.abs(in_all / np.median(in_all) - 1) <= SAME
    if alike.mean() < MOST:
        return None
    segment = np.arange(until.size)
    number = np.where(segment <= ends[-1], np.searchsorted(ends, segment), -1)
    return _Cut(until, number, float(np.median(np.diff(last_ends[ends]))), 0.0, of_steps[:, alike])


def _moved_until(times: _Times, offsets: Integers, place: Integers, until_ns: Integers) -> Floats:
    """Return what some pairs move in each of several segments, given up to when they go: shape (pairs, segments)."""
    segments = until_ns.size
    rows, within = grouped_sort.spread(offsets, place)
    low, high = np.zeros(place.size, np.int64), np.full(place.size, segments)
    segment = asof.first_from(times[0][rows], within, until_ns, low, high)
    cell = np.repeat(np.arange(place.size), np.diff(within)) * segments + segment
    each: Floats = np.bincount(cell, times[2][rows], place.size * segments).astype(np.float64)
    return each.reshape(place.size, segments)


def _by_step(each: Floats, ends: Integers) -> Floats:
    """Return what is moved in each step but the first, shape (pairs, steps), given the last segment of each step."""
    moved = np.cumsum(each, axis=1)[:, ends]
    steps: Floats = np.diff(moved, axis=1)
    return steps


def _traffic(times: _Times, offsets: Integers, places: Integers, senders: Integers) -> _Traffic:
    rows, within = grouped_sort.spread(offsets, places)
    starts, ends, sizes = (one[rows] for one in times)
    order = grouped_sort.time_order(starts)
    pair = np.repeat(np.arange(places.size), np.diff(within))[order]
    stream = np.unique(senders, return_inverse=True)[1][pair]
    return _Traffic(stream, pair, starts[order], np.maximum.accumulate(ends[order]), ends[order], sizes[order])


def _pausing(traffic: _Traffic) -> Flags:
    """Say which records are of what pauses now and then, as all traffic of training does, and no copy of files."""
    order = np.argsort(traffic.pair, kind="stable")
    pair, starts, ends = traffic.pair[order], traffic.starts[order], traffic.ends[order]
    offsets = ragged.bounds(pair)
    ends = np.concatenate([np.maximum.accumulate(ends[low:high]) for low, high in pairwise(offsets)])
    pauses = np.maximum(np.append(starts[1:] - ends[:-1], 0), 0)
    pauses[offsets[1:] - 1] = 0
    typical = float(np.median([_of_half(pauses[low:high]) for low, high in pairwise(offsets)]))
    begins = np.zeros(pair.size, np.bool_)
    begins[offsets[:-1]] = True
    begins[1:] |= pauses[:-1] >= BRIEF * typical
    run = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    lasts = ends[np.append(first[1:], pair.size) - 1] - starts[first]
    pausing = np.empty(pair.size, np.bool_)
    pausing[order] = (lasts <= ENDLESS * typical)[run] if typical else True
    return pausing


def _of_half(pauses: Integers) -> float:
    """Return the pause such that those as long make up half of the time of all."""
    ordered = np.sort(pauses)
    total = np.cumsum(ordered)
    return float(ordered[np.searchsorted(total, total[-1] / 2)])


def _steps(traffic: _Traffic, settings: RhythmSettings, *, by_bytes: bool) -> _Steps | None:
    """Return the steps of a group: what the smallest template between whose segments the silences stand out makes of
    it; where none does, what the template makes of it that comes again by the byte clock, or the clearest one if it
    explains all. None without any of these.

    Foreign traffic fills the silences. So pairs that have no part in the likeliest steps are left out once, and so are
    records that last longer than these; and the others are asked again.
    """
    best = _shown(traffic, settings, by_bytes=by_bytes)
    if best is None:
        return None
    segment = np.searchsorted(best.until_ns, traffic.starts)
    pairs, segments = int(traffic.pair.max()) + 1, best.until_ns.size
    each = np.bincount(traffic.pair * segments + segment, traffic.sizes, pairs * segments).astype(np.float64)
    steady = _takes_part(each.reshape(pairs, segments).T[best.whole])
    kept = steady[traffic.pair] & (best.whole[segment] | (traffic.ends - traffic.starts <= best.period_ns))
    again = best if kept.all() else _shown(traffic.of(kept), settings, by_bytes=by_bytes)
    return again if again is not None and (again.told or again.is_clear()) else None


def _shown(traffic: _Traffic, settings: RhythmSettings, *, by_bytes: bool) -> _Steps | None:
    """Return what the smallest template between whose segments the silences stand out makes of a group; where none
    does, what comes again by the byte clock; and where this tells no steps either, the clearest template."""
    silences = traffic.silences(settings.shortest_quiet_ms * NANOSECONDS_PER_MS)
    if silences.at.size < FEW:
        return None
    total = traffic.moved(silences.at[:0])[-1]
    fitted = [
        _fitted(traffic, silences, total, template, settings, SILENCES_PER_STEP)
        for template in _unlike(_proposed(traffic, silences))
    ]
    best = _likeliest([one for one in fitted if one is not None and one.is_likely()])
    if not by_bytes or (best is not None and best.told):
        return best
    step = byte_clock.step_bytes(traffic.starts, int(traffic.latest[-1]), traffic.sizes, traffic.pair)
    if step is not None:
        template = _moved_in(step, traffic.moved(np.arange(1, traffic.stream.size)))
        found = _fitted(traffic, silences, total, template, settings, ALL_PER_STEP)
        if found is not None and found.explained >= settings.least_explained and found.clarity >= LONGER:
            return found._replace(told=True)
    return best


def _moved_in(step: float, moved: Floats) -> Floats:
    """Return what each sender typically moves while all of them move the bytes of a step.

    Parameters
    ----------
    moved : shape (records, senders), what each moved before a record
    """
    sent = moved.sum(axis=1)
    begins = np.flatnonzero(sent <= sent[-1] - step)
    begins = begins[np.linspace(0, begins.size - 1, min(begins.size, STRETCHES)).astype(np.int64)]
    typical: Floats = np.median(moved[np.searchsorted(sent, sent[begins] + step)] - moved[begins], axis=0)
    return typical


def _likeliest(tried: list[_Steps]) -> _Steps | None:
    """Return what the smallest clear template makes of a group, or the clearest one; None without any.

    Bursts that have no silence inside may be steps, or parts of steps: nobody can tell what several of them are, unless
    these explain more, as they do where something comes once in them.
    """
    tried = sorted(tried, key=lambda one: one.template.sum())
    single = max((one.explained for one in tried if np.isnan(one.clarity)), default=0.0)
    known = [one for one in tried if one.clarity >= 0 and one.explained > single * (1 + SAME)]
    clear = next((one for one in known if one.clarity >= CLEAR), None)
    return clear._replace(told=True) if clear else max(known, key=lambda one: one.clarity, default=None)


def _proposed(traffic: _Traffic, silences: _Silences) -> list[Floats]:
    """Return the bytes of each stream in segments that come again between silences of some length, those first that
    make up most of all bytes."""
    moved = traffic.moved(silences.at)
    longest, found = np.argsort(-silences.length, kind="stable"), []
    for count in np.unique(np.geomspace(FEW, silences.at.size, LEVELS).astype(np.int64)):
        cuts = np.concatenate([[0], np.sort(longest[:count]) + 1, [len(moved) - 1]])
        segments = np.diff(moved[cuts], axis=0)
        in_all = segments.sum(axis=1)
        size = np.floor(np.log(in_all) / SAME)
        carried = {one: in_all[np.abs(size - one) <= 1].sum() for one in np.unique(size)}
        one = max(carried, key=lambda one: carried[one])
        if np.count_nonzero(alike := np.abs(size - one) <= 1) >= 2:
            found.append((carried[one], np.median(segments[alike], axis=0)))
    return [template for _, template in sorted(found, key=lambda one: -one[0])]


def _unlike(templates: list[Floats]) -> list[Floats]:
    """Return the first of templates that are the same, and no more than are tried."""
    kept: list[Floats] = []
    for template in templates:
        if template.any() and all(abs(np.log(template.sum() / other.sum())) > SAME for other in kept):
            kept.append(template)
    return kept[:PROPOSED]


def _fitted(
    traffic: _Traffic, silences: _Silences, total: Floats, template: Floats, settings: RhythmSettings, per_step: int
) -> _Steps | None:
    """Return what a template makes of a group, the segments of which have made it better; None where there are none."""
    for _ in range(TURNS):
        if not template.any():
            return None
        longest = silences.longest(_count(per_step, total, template))
        cuts, segments = _cut(traffic, longest, longest.length, template, settings)
        whole = _like(segments, template, settings)[:, template > 0].mean(axis=1) >= MOST
        if whole.sum() < FEW:
            return None
        template = np.median(segments[whole], axis=0)
    return _described(traffic, longest, cuts, total, template, segments, settings)


def _steps_at(traffic: _Traffic, ends: Integers, settings: RhythmSettings) -> _Steps | None:
    """Return the steps of a group, cut where steps end; None where those found end there, or others are not as many.

    Parameters
    ----------
    ends : when the steps ended that were found, ns
    """
    silences = traffic.silences(settings.shortest_quiet_ms * NANOSECONDS_PER_MS)
    moved = traffic.moved(np.searchsorted(traffic.starts, ends, side="right"))[1:-1]
    if silences.at.size < FEW or len(moved) < FEW:
        return None
    total = traffic.moved(silences.at[:0])[-1]
    found = _fitted(traffic, silences, total, np.median(np.diff(moved, axis=0), axis=0), settings, ALL_PER_STEP)
    if found is None or found.explained < MOST or found.whole.sum() < MOST * ends.size:
        return None
    longest = silences.longest(_count(ALL_PER_STEP, total, found.template))
    sender = np.zeros(int(traffic.pair.max()) + 1, np.int64)
    sender[traffic.pair] = traffic.stream
    records = traffic.pair, traffic.starts, traffic.sizes
    steps = total.sum() / found.template.sum()
    waits = step_ends.waits(records, sender, longest.at, traffic.latest[longest.at - 1], steps)
    cuts, segments = _cut(traffic, longest, waits - np.median(waits), found.template, settings)
    ended = _described(traffic, longest, cuts, total, found.template, segments, settings)
    if ended.whole.sum() < FEW:
        return None

    def waited(moments: Integers) -> float:
        at = np.searchsorted(traffic.starts, moments, side="right")
        return float(np.median(step_ends.waits(records, sender, at, moments, steps)))

    return ended if waited(ended.ends_ns[ended.whole][:-1]) > waited(ends[:-1]) + step_ends.LATER else None


def _count(per_step: int, total: Floats, template: Floats) -> int:
    """Return how many silences cuts are chosen from."""
    return per_step * max(int(total.sum() / template.sum()), SILENCES_PER_STEP)


def _cut(
    traffic: _Traffic, silences: _Silences, worth: Floats, template: Floats, settings: RhythmSettings
) -> tuple[Integers, Floats]:
    """Return the best cuts at silences, and what each stream moves between them, shape (segments, streams).

    Parameters
    ----------
    worth : shape (silences,), of a cut at each, the logarithm of some time
    """
    moved, there = traffic.moved(silences.at), template > 0
    cuts = best_cuts(
        *(moved[:, there] / template[there], np.concatenate([[0.0], worth, [0.0]])),
        tolerance=settings.byte_tolerance,
        most=1 - MOST,
    )
    segments: Floats = np.diff(moved[cuts], axis=0)
    return cuts, segments


def _like(segments: Floats, template: Floats, settings: RhythmSettings) -> Flags:
    """Say whether each stream moves in each segment what it does in the template, shape (segments, streams)."""
    like: Flags = (np.abs(segments - template) <= settings.byte_tolerance * template) & (template > 0)
    return like


def _described(
    traffic: _Traffic,
    silences: _Silences,
    cuts: Integers,
    total: Floats,
    template: Floats,
    segments: Floats,
    settings: RhythmSettings,
) -> _Steps:
    """Return what a template makes of a group, given what each stream moves in each segment."""
    there, like = template > 0, _like(segments, template, settings)
    share = np.minimum(segments[:, there] / template[there], 1.0).mean(axis=1)
    at, inner = cuts[1:-1] - 1, np.ones(silences.at.size, np.bool_)
    inner[at] = False
    between, inside = silences.length[at], silences.length[inner]
    clarity = np.nan
    if inside.size >= HALF * between.size > 0:
        clarity = float((between.mean() - inside.mean()) / np.sqrt(between.var() + inside.var() + JITTER))
    begins = silences.at[at]
    ends = np.append(traffic.latest[begins - 1], traffic.latest[-1])
    until = np.append((ends[:-1] + traffic.starts[begins]) // 2, LAST)
    whole = (like.mean(axis=1) >= MOST).sum()
    explained = float((np.minimum(whole * template, total) / total).mean())
    return _Steps(template, until, ends, like, share, clarity, explained)


def _takes_part(segments: Floats) -> Flags:
    """Say which pairs move in most segments about what they typically do: shape (segments, pairs) -> (pairs,)."""
    typical = np.median(segments, axis=0)
    there = (segments >= HALF * typical) & (segments <= typical / HALF)
    part: Flags = (typical > 0) & (there.mean(axis=0) > HALF)
    return part
