"""Overdue jobs: jobs that are silent for longer than their own rhythm explains, and where in a step they fell silent.

A job is silent when all its members are; members that wait for a hung one soon fall silent, too. A silence must be
clearly longer than any earlier silence of the same job. In the middle of a step, it is a hang or a crash. Jobs that end
normally or write a checkpoint fall silent between two steps, where hangs happen as well. All jobs are silent while the
collector stands still, which is not reported. A job that comes back with other NICs in place of some members was
restarted, at whatever point of a step it had stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics.robust import MAJORITY, SURE
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.liveness.first_stopped import find_first_stopped
from llmprism_tasks.stages.liveness.foreign import LONGER_BY_STEPS, foreign_pairs
from llmprism_tasks.stages.liveness.progress.step_progress import StepProgress, step_progress_at
from llmprism_tasks.stages.liveness.progress.whole_steps import LEAST_STEPS_NS
from llmprism_tasks.stages.liveness.quiet_times import (
    RESTART_SHARE,
    SAME_PLACE,
    Gap,
    are_of_collector,
    beyond_chatter,
    long_gaps,
    quiet_times,
    restart_silence_ns,
)
from llmprism_tasks.stages.liveness.resumption import resumption
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.index import TrafficIndex

PREFETCHED_STEPS = 4
"""Steps whose samples a data loader may read ahead without a step consuming them."""
LAST_STEPS = 2
"""Steps before a silence in which each member exchanges data with another. Two, because one may just have begun or have
lost its records."""


@dataclass(frozen=True)
class Silence:
    """A silence that is longer than any before it.

    Attributes
    ----------
    gap : the time without flows
    until_ns : when the job came back, or the last time at which it was known to be silent
    restarted : whether the job restarted from the beginning when it came back
    alone : whether nothing else was seen meanwhile; then the collector may have been silent
    in_place : probability that a job that came back alone had stood still, as `resumption` returns it; 0 while its step
        is not over
    where : how far the job was in its step
    replaced : host of each NIC that took part before and was replaced by another NIC
    replacements : the replacing NICs, sorted
    saved : bytes that members wrote to storage when the job had fallen silent
    wrote_ns : end of the last record of what they wrote to storage in the silence; 0 without one
    in_mid_step : whether it began in the middle of a step, and not with a checkpoint
    is_news : whether it is short beside what was seen of the job, and no earlier window could tell of it: it has just
        become too long, or is just over
    """

    gap: Gap
    until_ns: int
    restarted: bool
    alone: bool
    where: StepProgress
    replaced: Mapping[str, str] = field(default_factory=dict)
    replacements: tuple[str, ...] = ()
    saved: int = 0
    wrote_ns: int = 0
    in_mid_step: bool = True
    is_news: bool = True
    in_place: float = 0.0

    @property
    def unwitnessed(self) -> bool:
        """Return whether the collector may have made the silence: nothing else was seen meanwhile, and the job does not
        go on where it stood."""
        return self.alone and self.in_place < SURE

    @property
    def over(self) -> bool:
        """Return whether the job has come back."""
        return self.gap.back_ns is not None


def long_silences(
    bulk: pl.DataFrame,
    traffic: TrafficIndex,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
    elsewhere: pl.DataFrame | None = None,
) -> list[Silence]:
    """Return the silences of jobs that last beyond the window's start.

    Silences after which other NICs took the place of members are returned wherever the job stood in its step.
    Membership is known only after some steps, so these are returned also if the job came back in the window before.

    Parameters
    ----------
    bulk : bulk flows inside jobs, look-back included, with `job_id`
    traffic : all flows of the same time
    topology : `addr`, `host`; other addresses are storage
    elsewhere : `flow_start_ns` of flows in other partitions of the platform, if `traffic` is that of one partition
    """
    found, flows = [], traffic.table
    away = pl.Series("flow_start_ns", dtype=pl.Int64) if elsewhere is None else elsewhere["flow_start_ns"]
    bulk, foreign, amid = _separate_foreign_traffic(bulk, window, settings)
    away = pl.concat([away, amid])
    for gap in long_gaps(bulk, window, settings):
        of_job = bulk.filter(pl.col("job_id") == gap.job_id)
        mine = nic_pairs.named(of_job)
        gap = _beside_habits(gap, of_job, mine, topology, settings, foreign)  # noqa: PLW2901
        nics = pl.concat([mine["src_addr"], mine["dst_addr"]]).unique().implode()
        sends, receives = (pl.col(end).is_in(nics) for end in ("src_addr", "dst_addr"))
        inside = pl.all_horizontal(pl.col(*PAIR).is_in(topology["addr"].implode()))
        outside = flows.filter(sends ^ receives, ~inside)
        written = _storage_writes(outside.filter(sends), gap, window)
        if not (gap.is_longest or written["bytes"].sum() >= settings.recognition.least_bytes):
            continue
        before = mine.filter(pl.col("flow_start_ns") <= gap.since_ns)
        where = step_progress_at(before, gap.since_ns, settings, foreign)
        if where is None or not _exchange_data(mine):
            continue
        # A member's record that ends in the silence shows that the collector was at work then, whenever it began.
        ended = flows.filter(sends ^ receives)["flow_end_ns"].rename("flow_start_ns")
        others = pl.concat([flows.filter(~(sends & receives))["flow_start_ns"], ended, away])
        silence = _build_silence(gap, where, mine, others, window)
        if _has_loaded_checkpoint(gap, where, outside.filter(receives), outside.filter(sends), settings):
            silence = dataclasses.replace(silence, restarted=True)
        silence = _with_replaced_nics(silence, mine, traffic, topology)
        strangers = pl.concat([flows.filter(~(sends | receives))["flow_start_ns"], away])
        resumed = None
        if silence.alone and silence.over and not silence.restarted:
            resumed = resumption(mine, gap, window, settings)
        if resumed is not None:
            silence = dataclasses.replace(silence, in_place=resumed.in_place)
        known_ns = silence.until_ns if resumed is None else resumed.shown_ns
        lasts = known_ns > window.start_ns and not _has_collector_stopped(silence, strangers)
        if not (silence.replaced or lasts):
            continue
        judged = _judged(silence, written, mine["flow_start_ns"], others, window, settings)
        if judged is not None:
            found.append(judged)
    return found


def _beside_habits(
    gap: Gap,
    of_job: pl.DataFrame,
    mine: pl.DataFrame,
    topology: pl.DataFrame,
    settings: Settings,
    foreign: pl.DataFrame,
) -> Gap:
    """Return a gap held against the longest one before it that may be the same habit.

    A job pauses by choice at one place of its step, and all together. What began at another place, with one host that
    had stopped first, was a fault.

    Parameters
    ----------
    of_job, mine : the job's flows, with addresses as codes and as text
    foreign : as for `step_progress_at`
    """
    least_ns = restart_silence_ns(settings)
    if gap.longest_ns <= least_ns:
        return gap
    gaps = (
        quiet_times(of_job)
        .filter(pl.col("back_ns") <= gap.since_ns)
        .select("since_ns", length=pl.col("back_ns") - pl.col("since_ns"))
    )
    longest_ns = int(gaps.filter(pl.col("length") <= least_ns)["length"].max() or 0)  # type: ignore[arg-type]
    hosts = dict(topology.select("addr", "host").rows())

    def stood(since_ns: int) -> StepProgress | None:
        before = mine.filter(pl.col("flow_start_ns") <= since_ns)
        return step_progress_at(before, since_ns, settings, foreign)

    now = stood(gap.since_ns)
    for since_ns, length in gaps.filter(pl.col("length") > least_ns).sort("length", descending=True).iter_rows():
        where = stood(since_ns)
        if now is None or where is None or not _was_fault(where, now, hosts):
            longest_ns = length
            break
    return gap.beside(longest_ns)


def _was_fault(where: StepProgress, now: StepProgress, hosts: Mapping[str, str]) -> bool:
    """Return whether a job stood still for one host, and at another place of its step than now."""
    place, other = ((one.silent_ns - one.ended_ns) / one.period_ns % 1 for one in (where, now))
    apart = abs(place - other)
    first = find_first_stopped(where, hosts, together=True) if min(apart, 1 - apart) > SAME_PLACE else None
    return first is not None and first.chances[first.host] > MAJORITY


def _judged(
    silence: Silence, written: pl.DataFrame, sent: pl.Series, others: pl.Series, window: Window, settings: Settings
) -> Silence | None:
    """Return a silence with what was saved in it and whether it is news; None if it is too short, or a checkpoint
    after which other NICs took part.

    Parameters
    ----------
    written : records of what members wrote to storage meanwhile
    sent, others : start of each flow of the job, and of each outside it, ns
    """
    gap, where = silence.gap, silence.where
    longest_ns = 0 if silence.replaced else gap.longest_ns
    patience = longest_ns + max(where.period_ns * LONGER_BY_STEPS, restart_silence_ns(settings))
    unseen_ns = _unseen_ns(silence, pl.concat([sent, others]), window)
    overdue_ = silence.until_ns - gap.since_ns - unseen_ns > patience
    saved = _bytes_in_interval(written, gap.since_ns - where.period_ns, gap.since_ns + where.period_ns)
    saves = saved >= settings.recognition.least_bytes
    in_mid_step = where.midway and not saves
    # A pause that is over needs no patience: no hang can be meant.
    stuck = in_mid_step and not where.even
    if not overdue_ and (stuck or not silence.over or silence.restarted or unseen_ns):
        return None
    if silence.replaced and saves:
        return None
    return dataclasses.replace(
        silence,
        saved=saved,
        wrote_ns=int(written["flow_end_ns"].max() or 0),  # type: ignore[arg-type]
        in_mid_step=in_mid_step,
        is_news=_is_surprising(silence, patience)
        and (silence.over or not _was_known(silence, others, patience, window)),
    )


def _exchange_data(flows: pl.DataFrame) -> bool:
    """Return whether most NICs send as well as receive, as those of a job do: copies go from one to the next."""
    sends, receives = ({*flows[end].unique()} for end in PAIR)
    return len(sends & receives) >= MAJORITY * len(sends | receives)


def _separate_foreign_traffic(
    bulk: pl.DataFrame, window: Window, settings: Settings
) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
    """Return the flows of jobs without chatter, and without those of foreign pairs while their job stands still.

    Returns
    -------
    the flows; the foreign pairs (`src_addr`, `dst_addr`); when each of the others was last seen in the silence, ns
    """
    bulk = beyond_chatter(bulk, settings)
    found = foreign_pairs(
        bulk, window, least_ns=int(RESTART_SHARE * restart_silence_ns(settings)), more=LONGER_BY_STEPS
    )
    if found.is_empty():
        return bulk, pl.DataFrame(schema=dict.fromkeys(PAIR, pl.String)), pl.Series("flow_start_ns", [], pl.Int64)
    flows = bulk.join(found, on="pair", how="left", maintain_order="left")
    under_way = (pl.col("flow_start_ns") < pl.col("back_ns")) & (pl.col("flow_end_ns") > pl.col("since_ns"))
    amid = under_way.fill_null(value=False)
    pairs = nic_pairs.pairs_of(bulk, list(PAIR)).join(found, on="pair", how="semi").select(PAIR)
    seen = flows.filter(amid).select(flow_start_ns=pl.min_horizontal("flow_end_ns", pl.col("back_ns") - 1)).to_series()
    return flows.filter(~amid).select(bulk.columns), pairs, seen


def _is_surprising(silence: Silence, patience_ns: float) -> bool:
    """Return whether the job was seen for longer than it was silent when it became overdue, or for long.

    Of a job that has just begun nobody knows the steps: its micro-batches may have been taken for them. Once it is
    overdue, more silence makes it no less so.

    Parameters
    ----------
    patience_ns : the silence from which on it is overdue
    """
    silent_ns = min(silence.until_ns - silence.gap.since_ns, patience_ns)
    return sum(silence.where.lengths_ns) > min(silent_ns, LEAST_STEPS_NS)


def _was_known(silence: Silence, others: pl.Series, patience_ns: float, window: Window) -> bool:
    """Return whether the window before could tell of a silence: other flows were seen in it for long enough.

    Parameters
    ----------
    others : start of each flow outside the job, and end of those of members, ns
    """
    seen_ns = window.start_ns if silence.alone else int(others.filter(others < window.start_ns).max() or 0)  # type: ignore[arg-type]
    return seen_ns - silence.gap.since_ns > patience_ns


def _unseen_ns(silence: Silence, sent: pl.Series, window: Window) -> int:
    """Return how much of a silence lies in windows without any record, which may still arrive late; ns.

    Parameters
    ----------
    sent : start of each flow of the platform, ns
    """
    if not silence.over:
        return 0

    first, last = ((ns - window.start_ns) // window.length_ns for ns in (silence.gap.since_ns, silence.until_ns))
    seen = ((sent - window.start_ns) // window.length_ns).unique().is_between(first, last).sum()
    return int(last - first + 1 - seen) * window.length_ns


def _has_collector_stopped(silence: Silence, strangers: pl.Series) -> bool:
    """Return whether all flows that have nothing to do with the job stopped with it: then the collector stopped.

    They need to have stopped within one step of the job's silence, at its beginning and at its end, because the job may
    have nothing to send for up to a step after the others are back. If the job went on, a silence of theirs that is a
    step shorter is enough where it is their longest.

    Parameters
    ----------
    strangers : start of each flow that does not touch the job's NICs, ns
    """
    since_ns, until_ns, step_ns = silence.gap.since_ns, silence.until_ns, silence.where.period_ns
    since, until = (np.array([ns]) for ns in (since_ns, until_ns))
    if silence.over and are_of_collector(strangers.sort().to_numpy(), since, until, step_ns).any():
        return True
    near = strangers.filter(strangers.is_between(since_ns - step_ns, until_ns, closed="left")).sort()
    if near.is_empty():
        return False
    lengths = near.extend_constant(until_ns, 1).diff().drop_nulls()
    longest = lengths.arg_max()
    began_ns, lasted_ns = near[longest], lengths[longest]  # type: ignore[index]
    return bool(began_ns <= since_ns + step_ns and lasted_ns >= until_ns - since_ns - step_ns)


def _with_replaced_nics(silence: Silence, mine: pl.DataFrame, traffic: TrafficIndex, topology: pl.DataFrame) -> Silence:
    """Add the NICs that were replaced when a job came back.

    They exchanged data with its members in the last steps before the silence, were not seen again in any flow, and are
    as many as have joined the job since. They may have sent for up to a step longer than the other members.
    """
    if silence.gap.back_ns is None:
        return silence
    since_ns, period_ns = silence.gap.since_ns, silence.where.period_ns
    before = _addresses(mine.filter(pl.col("flow_start_ns") <= since_ns))
    joined = _addresses(mine) - before
    if not joined:
        return silence
    bulk = traffic.bulk.filter(pl.col("flow_start_ns") > since_ns - LAST_STEPS * period_ns)
    last = bulk.filter(pl.col("flow_start_ns") <= since_ns)
    partners = last.filter(pl.any_horizontal(pl.col(*PAIR).is_in(list(before))))
    later = _addresses(bulk.filter(pl.col("flow_start_ns") > since_ns + period_ns))
    ends = _addresses(partners) - before - later
    gone = dict(topology.filter(pl.col("addr").is_in(list(ends))).select("addr", "host").sort("addr").rows())
    if len(gone) != len(joined):
        return silence
    return dataclasses.replace(silence, restarted=True, replaced=gone, replacements=tuple(sorted(joined)))


def _addresses(flows: pl.DataFrame) -> set[str]:
    return {*flows["src_addr"].unique(), *flows["dst_addr"].unique()}


def _has_loaded_checkpoint(
    gap: Gap, where: StepProgress, read: pl.DataFrame, written: pl.DataFrame, settings: Settings
) -> bool:
    """Return whether members read far more from storage during a silence than for a step, as to load a checkpoint.

    While they save one, storage acknowledges what they write: that is less than they write.
    """
    if gap.back_ns is None:
        return False
    usual = _bytes_in_interval(read, gap.since_ns - PREFETCHED_STEPS * where.period_ns, gap.since_ns)
    loaded = _bytes_in_interval(read, gap.since_ns, gap.back_ns)
    saves = loaded < _bytes_in_interval(written, gap.since_ns, gap.back_ns)
    return not saves and loaded >= settings.recognition.least_bytes + 2 * usual


def _storage_writes(sent: pl.DataFrame, gap: Gap, window: Window) -> pl.DataFrame:
    """Return the records of what members wrote to storage while their job was silent.

    Parameters
    ----------
    sent : all that members sent out of the topology
    """
    until_ns = gap.back_ns or window.end_ns
    return sent.filter(pl.col("flow_end_ns") > gap.since_ns, pl.col("flow_start_ns") < until_ns)


def _bytes_in_interval(flows: pl.DataFrame, since_ns: int, until_ns: int) -> int:
    return int(flows.filter(pl.col("flow_start_ns").is_between(since_ns, until_ns))["bytes"].sum())


def _build_silence(gap: Gap, where: StepProgress, mine: pl.DataFrame, others: pl.Series, window: Window) -> Silence:
    """Return how long a job is known to be silent: until it comes back, or as long as other flows are seen.

    Parameters
    ----------
    others : start of each flow outside the job, and end of those of members, ns
    """
    until_ns = gap.back_ns or window.end_ns
    seen_ns = int(others.filter(others < until_ns).max() or 0)  # type: ignore[arg-type]
    alone = seen_ns <= gap.since_ns + where.period_ns
    if gap.back_ns is None:
        return Silence(gap, window.end_ns if alone else seen_ns, restarted=False, alone=alone, where=where)
    restarted = _is_restart(where, mine, gap.back_ns)
    return Silence(gap, gap.back_ns, restarted, alone=alone, where=where)


def _is_restart(where: StepProgress, mine: pl.DataFrame, back_ns: int) -> bool:
    """Return whether the first flows after a silence belong to no step.

    They do not if most of their bytes are weights sent from replica to replica, or go to new pairs of hosts.
    """
    first = mine.filter(pl.col("flow_start_ns").is_between(back_ns, back_ns + where.period_ns))
    sent = first.group_by(PAIR).agg(pl.col("bytes").sum()).join(where.pairs, on=PAIR, how="left")
    known = pl.min_horizontal("bytes", pl.col("usual").fill_null(0))
    return bool(sent.select(2 * known.sum() < pl.col("bytes").sum()).item())
