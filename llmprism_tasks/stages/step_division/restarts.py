"""Restarts: what was sent before a long silence belongs to another run, of the same job or of another.

Jobs follow each other on the same hosts, and a job that crashed comes back after a pause. Their steps last differently
long, move other bytes, and are counted anew; one rhythm for both would be that of neither.

A restart is told from a pause by the weights that are loaded: in a step of training all that a NIC sends comes back to
it, round rings and along pipelines. Weights go one way, from those who have them to those who start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.numerics import graphs, ragged
from llmprism_tasks.numerics.asof import AFTER_ALL
from llmprism_tasks.numerics.robust import Flags, Integers
from llmprism_tasks.settings import Settings, TrafficSettings
from llmprism_tasks.stages.step_division.groups.balance import STRAY_PART
from llmprism_tasks.stages.step_division.kernels import long_silences
from llmprism_tasks.stages.step_division.periodicity import PairRhythms
from llmprism_tasks.stages.step_division.stage_lines import (
    ends_of_pairs,
    have_circles,
    main_pairs,
    silent_together,
)
from llmprism_tasks.stages.traffic import nic_pairs

Time = TypeVar("Time", int, Integers)
"""One time, or an array of them."""

PARTS_OF_SILENCE = 10
"""Parts into which the shortest silence is divided: silences are measured in these, not from flow to flow, for a table
of pairs and parts is a hundred times smaller than that of flows."""


@dataclass(frozen=True)
class OneWay:
    """What goes one way in groups of NICs.

    Attributes
    ----------
    bytes : shape (groups, parts): by how much the NICs of a group send more than they get, or less, in each part of
        time; a hundredth of all that they move at least
    groups : shape (rows,): the group of each row that was asked about
    replicated : shape (groups,): whether some of its NICs are joined in a circle: it is no line of stages, but has
        replicas, which weights go to
    """

    bytes: Integers
    groups: Integers
    replicated: Flags


@dataclass(frozen=True)
class BusyTimes:
    """When pairs, or jobs, were busy, in parts of time of which `PARTS_OF_SILENCE` make the shortest long silence.

    Attributes
    ----------
    table : shape (rows, parts), as `long_silences.busy_until` returns
    now : shape (rows,): the part up to which a silence of each row lasts that is not over
    first_ns : when the first part begins
    part_ns : how long each part lasts
    end : the part with the window's end
    """

    table: Integers
    now: Integers
    first_ns: int
    part_ns: int
    end: int

    @classmethod
    def of(
        cls, bulk: pl.DataFrame, rows: Integers, window: Window, settings: TrafficSettings, fell_ns: Integers | None
    ) -> BusyTimes:
        """Measure the parts of time in which pairs send; the parameters are those of `_restart_times`."""
        part_ns = int(settings.restart_silence_s * NANOSECONDS_PER_SECOND) // PARTS_OF_SILENCE
        starts, ends = bulk["flow_start_ns"].to_numpy(), bulk["flow_end_ns"].to_numpy()
        offsets = nic_pairs.starts_of_pairs(bulk)
        table = long_silences.busy_until(starts, ends, offsets, rows, part_ns, window.end_ns)
        first = int(starts.min()) // part_ns
        end = window.end_ns // part_ns - first
        now = np.full(len(table), end)
        if fell_ns is not None:
            now = np.where(fell_ns > 0, fell_ns // part_ns - first, now)
        return cls(table, now, first * part_ns, part_ns, end)

    def part(self, time_ns: Time) -> Time:
        """Return the part of time with a time, or with each of several."""
        return (time_ns - self.first_ns) // self.part_ns

    def begin_ns(self, parts: Integers) -> Integers:
        """Return when some parts of time begin."""
        return self.first_ns + parts * self.part_ns

    def of_rows(self, rows: Integers) -> BusyTimes:
        """Return the same of some rows."""
        return replace(self, table=self.table[rows], now=self.now[rows])

    def last_long_silence(
        self, ratio: float, latest: tuple[int, int], traded: OneWay | None = None
    ) -> tuple[Integers, Flags]:
        """Return the part in which each row resumes after its last long silence (-1 without one), and whether any of
        its silences was taken for a pause.

        Parameters
        ----------
        ratio, latest : as for `long_silences.last_long_silence`
        traded : what goes one way in the groups of these rows, which tells restarts from pauses; None: all silences
            that come again are pauses
        """
        anew = None
        if traded is not None:
            anew = long_silences.begins_anew(
                self.table, traded.bytes, traded.groups, traded.replicated, PARTS_OF_SILENCE
            )
        return long_silences.last_long_silence(self.table, self.now, PARTS_OF_SILENCE, ratio, *latest, anew)


@dataclass(frozen=True, eq=False)
class GpuTraffic:
    """Bulk flows between GPUs, and what `restarts.part_at_restarts` makes of them.

    Attributes
    ----------
    bulk : all, as `nic_pairs.in_order` returns
    former : of these, what pairs sent before they last began anew
    running : what they have sent since
    """

    bulk: pl.DataFrame
    former: pl.DataFrame
    running: PairRhythms

    @classmethod
    def of(cls, bulk: pl.DataFrame, window: Window, settings: Settings) -> GpuTraffic:
        """Part bulk flows between GPUs, look-back included, where pairs began anew."""
        bulk = nic_pairs.in_order(bulk)
        former, running = part_at_restarts(bulk, window, settings.traffic)
        return cls(bulk, former, PairRhythms(running, settings.rhythm))


def since_restart(bulk: pl.DataFrame, window: Window, settings: TrafficSettings) -> pl.DataFrame:
    """Return the second part of what `part_at_restarts` does: the runs there are in the window."""
    return part_at_restarts(bulk, window, settings)[1]


def part_at_restarts(
    bulk: pl.DataFrame, window: Window, settings: TrafficSettings
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Part what pairs sent before their last long silence, if it began before the window, from what they sent since.

    When a silence begins in the window, the run before it still has steps to be told (see `runs`). A pair that has not
    come back takes no part in the run there is now.

    Parameters
    ----------
    bulk : bulk flows, look-back included
    """
    bulk = nic_pairs.in_order(bulk)
    return _part_at_times(bulk, _pair_restart_times(bulk, window, settings))


def runs(bulk: pl.DataFrame, window: Window, settings: TrafficSettings) -> list[pl.DataFrame]:
    """Return the flows of the runs that jobs have in the window: of those that ended in it, and of the present ones.

    Parameters
    ----------
    bulk : bulk flows with `job_id`, look-back included
    """
    bulk = nic_pairs.in_order(since_restart(bulk, window, settings))
    former, present = _part_at_times(bulk, _job_restart_times(bulk, window, settings))
    return [present] if former.is_empty() else [former, present]


def _pair_restart_times(bulk: pl.DataFrame, window: Window, settings: TrafficSettings) -> Integers:
    """Return when each pair went on after a silence that began before the window, in ns; 0 without one.

    A silence that is not over counts, too. If both of the pair's NICs fell silent in the window, it counts up to that
    time: then their job has ended, and the pair may merely have had its last turn before the window.
    """
    rows, fell_ns = silent_together(bulk, window.start_ns), _fell_silent_ns(bulk, window, settings)
    of_rows = np.zeros(int(rows.max(initial=-1)) + 1, np.int64)
    np.maximum.at(of_rows, rows, fell_ns)
    of_rows[rows[fell_ns == 0]] = 0  # what goes on anywhere on a line has not ended
    begins_ns = _restart_times(bulk, rows, window, settings, before_ns=window.start_ns, fell_ns=of_rows)
    return _begun_with_others(bulk, begins_ns, settings)


def _fell_silent_ns(bulk: pl.DataFrame, window: Window, settings: TrafficSettings) -> Integers:
    """Return when the first NIC of each pair ended its main traffic, in ns, if both did in the window, and long before
    its end; else 0."""
    source, target, count = ends_of_pairs(bulk)
    offsets, main, last_ns = nic_pairs.starts_of_pairs(bulk), main_pairs(bulk), np.zeros(count, np.int64)
    ends_ns = np.maximum.reduceat(bulk["flow_end_ns"].to_numpy(), offsets[:-1])
    for ends in (source, target):
        np.maximum.at(last_ns, ends[main], ends_ns[main])
    silent_ns = window.end_ns - int(settings.restart_silence_s * NANOSECONDS_PER_SECOND)
    fell = (last_ns >= window.start_ns) & (last_ns < silent_ns)
    return np.where(fell[source] & fell[target], np.minimum(last_ns[source], last_ns[target]), 0)


def _job_restart_times(bulk: pl.DataFrame, window: Window, settings: TrafficSettings) -> Integers:
    """Return when each pair's job went on after a silence that was over before the window's end; 0 without one."""
    jobs = bulk["job_id"].gather(nic_pairs.starts_of_pairs(bulk)[:-1]).rank("dense").to_numpy().astype(np.int64) - 1
    return _restart_times(bulk, jobs, window, settings, until_ns=window.end_ns)


def _part_at_times(bulk: pl.DataFrame, begins_ns: Integers) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Part flows at a time of each pair's."""
    if not begins_ns.any():
        return bulk.clear(), bulk
    counts = np.diff(nic_pairs.starts_of_pairs(bulk))
    former = pl.Series(bulk["flow_start_ns"].to_numpy() < np.repeat(begins_ns, counts))
    if not former.any():
        return bulk.clear(), bulk
    return bulk.filter(former), bulk.filter(~former)


def _begun_with_others(bulk: pl.DataFrame, begins_ns: Integers, settings: TrafficSettings) -> Integers:
    """Let pairs that show no silence of their own begin when the main pairs of both their NICs last did.

    These are pairs that send while jobs start, and no more: weights go along trees, over pairs that no step uses. And
    they are pairs that go on while all others of their NICs are silent, with a copy of files or chatter beside the
    job's traffic: if one pair of a run had a longer past than the others, the run would have no steps.
    """
    if not begins_ns.any():
        return begins_ns
    least_ns = int(settings.restart_silence_s * NANOSECONDS_PER_SECOND)
    source, target, count = ends_of_pairs(bulk)
    latest, first = np.zeros(count, np.int64), np.full(count, AFTER_ALL)
    told_ns = np.where(main_pairs(bulk), begins_ns, 0)
    for ends in (source, target):
        np.maximum.at(latest, ends, told_ns)
    for ends in (source, target):
        np.minimum.at(first, ends, np.where(told_ns > latest[ends] - least_ns, told_ns, AFTER_ALL))
    back_ns = np.minimum(first[source], first[target])
    starts, offsets = bulk["flow_start_ns"].to_numpy(), nic_pairs.starts_of_pairs(bulk)
    # A pair that has not come back begins nothing, so its NICs may have ended before this one.
    came_back = begins_ns <= np.maximum.reduceat(starts, offsets[:-1])
    came_back &= begins_ns > np.maximum(latest[source], latest[target]) - least_ns
    goes_on_alone = _others_came_back(bulk, came_back)
    told_ns = np.where((begins_ns == 0) & goes_on_alone, back_ns, begins_ns)
    pair = np.repeat(np.arange(begins_ns.size), np.diff(offsets))
    soon = (starts < back_ns[pair]) & (starts >= back_ns[pair] - least_ns)
    np.minimum.at(back_ns, pair[soon], starts[soon])
    silent = begins_ns == 0
    # Asked again, for by now the start-up may begin earlier.
    silent[pair[(starts < back_ns[pair]) & (starts >= back_ns[pair] - least_ns)]] = False
    return np.where(silent, back_ns, told_ns)


def _others_came_back(bulk: pl.DataFrame, came_back: Flags) -> Flags:
    """Say of which pairs all others of both their NICs came back after a silence: all but a hundredth of their bytes.

    Parameters
    ----------
    came_back : which pairs did
    """
    source, target, count = ends_of_pairs(bulk)
    moved = ragged.sums(bulk["bytes"].to_numpy(), nic_pairs.starts_of_pairs(bulk))
    anew = np.where(came_back, moved, 0)
    of_nics = np.zeros((2, count))
    for ends in (source, target):
        np.add.at(of_nics[0], ends, moved)
        np.add.at(of_nics[1], ends, anew)
    others, of_them = of_nics[:, source] + of_nics[:, target] - 2 * np.stack([moved, anew])
    alone: Flags = (of_them > 0) & (STRAY_PART * (others - of_them) <= others)
    return alone


def _restart_times(
    bulk: pl.DataFrame,
    rows: Integers,
    window: Window,
    settings: TrafficSettings,
    *,
    before_ns: int | None = None,
    until_ns: int | None = None,
    fell_ns: Integers | None = None,
) -> Integers:
    """Return for each pair when it, or its job, went on after the last of its long silences, in ns; 0 without one.

    A silence is long that lasts `restart_silence_s`, and `restart_ratio` times as long as in half of all other time, of
    which so much must have been seen at least: between steps of 90 s a pair may be silent for most of a minute, though
    in the synchronisation that ends them it sends without a pause.

    Parameters
    ----------
    rows : what is silent together: a number for each pair
    before_ns : silences count that begin before this time
    until_ns : silences count that are over before this time
    fell_ns : of each row, up to when a silence that is not over lasts; 0: up to the window's end
    """
    if not rows.size:
        return rows
    busy = BusyTimes.of(bulk, rows, window, settings, fell_ns)
    latest = (
        busy.end if before_ns is None else busy.part(before_ns) - 1,
        busy.table.shape[1] if until_ns is None else busy.part(until_ns) - 1,
    )
    begins, paused = busy.last_long_silence(settings.restart_ratio, latest)
    doubted = np.flatnonzero(paused)
    if doubted.size:
        parts = busy.part(bulk["flow_start_ns"].to_numpy())
        traded = one_way(bulk, rows, doubted, parts, busy.table.shape[1])
        begins[doubted], _ = busy.of_rows(doubted).last_long_silence(settings.restart_ratio, latest, traded)
    begins = begins[rows]
    return np.where(begins < 0, 0, busy.begin_ns(begins))


def one_way(bulk: pl.DataFrame, rows: Integers, wanted: Integers, parts: Integers, count: int) -> OneWay:
    """Measure what goes one way among the NICs of some rows. NICs that a pair joins, of whichever row, are one group.

    Parameters
    ----------
    bulk : bulk flows, as `nic_pairs.in_order` returns
    rows, wanted : the row that each pair counts for, and those that are asked about, in order
    parts, count : the part of time in which each flow begins, and how many there are
    """
    source, target, nics = ends_of_pairs(bulk)
    chosen = np.isin(rows, wanted)
    theirs = np.zeros(nics, np.bool_)
    theirs[source[chosen]] = theirs[target[chosen]] = True
    among = theirs[source] & theirs[target]
    pairs, of_rows = (source[among], target[among]), (source[chosen], np.searchsorted(wanted, rows[chosen]))
    groups = _group_numbers(pairs, of_rows, nics, wanted.size)
    counts = np.diff(nic_pairs.starts_of_pairs(bulk))
    flows = np.repeat(among, counts)
    sizes = bulk["bytes"].to_numpy()[flows]
    sent, got = np.zeros((2, nics, count), np.int64)
    for moved, ends in ((sent, source), (got, target)):
        np.add.at(moved, (np.repeat(ends, counts)[flows], parts[flows]), sizes)
    apart, in_all = np.zeros((2, int(groups.max()) + 1, count), np.int64)
    for moved, whole in ((np.abs(sent - got), apart), (sent + got, in_all)):
        np.add.at(whole, groups[:nics], moved)
    replicated = have_circles(*pairs, groups[:nics], len(apart))
    return OneWay(np.maximum(apart, in_all // STRAY_PART), groups[nics:], replicated)


def _group_numbers(
    pairs: tuple[Integers, Integers], of_rows: tuple[Integers, Integers], nics: int, count: int
) -> Integers:
    """Return the group of each NIC, and after these the group of each row. A group is what pairs join; a row is in the
    group of its pairs.

    Parameters
    ----------
    pairs : the two NICs of each pair
    of_rows : NICs, and for each a row that has a pair of it
    """
    left, right = np.concatenate([pairs[0], of_rows[0]]), np.concatenate([pairs[1], nics + of_rows[1]])
    _, groups = np.unique(graphs.connected_components(left, right, nics + count), return_inverse=True)
    return groups
