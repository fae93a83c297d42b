"""Foreign traffic: what goes on between members of a job while the job stands still, such as a copy of files.

In lock step all pairs of a job fall silent soon after one of its members. A few pairs that go on sending while all
others are silent for longer than ever do not train. They would hide the silence, as heartbeats would: what a pair sends
about a time when it moves next to nothing is not asked, nor are pairs that chatter, or sent once at the start.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics import ragged
from llmprism_tasks.numerics.asof import AFTER_ALL
from llmprism_tasks.numerics.robust import LEAST_RECURRENCES, Flags, Integers
from llmprism_tasks.stages.liveness.kernels.busy_time import busy_parts
from llmprism_tasks.stages.liveness.kernels.trickle import trickles
from llmprism_tasks.stages.step_division.stage_lines import ends_of_pairs, main_pairs
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.both_ways import IDLE_SHARE_OF_NIC, both_ways

MOST_FOREIGN_PAIRS = 0.25
"""Share of a job's pairs, at most, that may be foreign: a job of four NICs has one copy, and not three."""

IDLE_SHARE_OF_PAIR = 0.02
"""Share of what a pair usually moves in as long a time up to which it trains no more: heartbeats and logs of a job that
stands still are a thousandth of its training, and nobody calls a job fifty times slower a job at work."""

CHATTER_BYTES = 65_536
"""Bytes below which a record that nothing follows is chatter: no activation is smaller, and logs have 20 kB. What a
stopped member leaves of a message follows its other parts within a second."""

LONGER_BY_STEPS = 0.25
"""Ratio of a step by which a silence must be longer than any before; long steps vary by a few percent."""

ENDS_OF_SILENCE = 4
"""Parts of a silence of which the first and the last are its ends, and what is between its midst."""

BIN_NS = 1_000_000_000
"""Bins in which silences are searched, one second; parts of one message follow each other sooner."""


def is_beyond_chatter(bulk: pl.DataFrame, *, least_ns: int, same_size: float) -> Flags:
    """Return which flows are sent about times when their pair moves more than chatter, or no later after one than the
    pair pauses in each step.

    What follows the last of these times by a second and more is chatter where it is small, unless most of the pair's
    bursts began with as much: who comes early to an exchange sends a little, and waits for the others.

    Parameters
    ----------
    bulk : flows, as `nic_pairs.in_order` returns
    least_ns : the shortest time for which a job is called silent
    same_size : ratio by which two records of one size may differ
    """
    if bulk.is_empty():
        return np.zeros(0, np.bool_)
    offsets, (source, target, _) = nic_pairs.starts_of_pairs(bulk), ends_of_pairs(bulk)
    starts, ends, sizes = (bulk[name].to_numpy() for name in nic_pairs.TIMES)
    lasted = np.maximum(starts[offsets[1:] - 1] - starts[offsets[:-1]], least_ns)
    usual = ragged.sums(sizes, offsets) / lasted * least_ns
    least = np.maximum(IDLE_SHARE_OF_PAIR * usual, IDLE_SHARE_OF_NIC * both_ways(source, target, usual))
    return ~trickles(
        starts,
        ends,
        sizes,
        offsets,
        least,
        small=CHATTER_BYTES,
        reach=least_ns // 2,
        pause=BIN_NS,
        longer=LONGER_BY_STEPS,
        same=same_size,
        recurs=LEAST_RECURRENCES,
    )


def foreign_pairs(bulk: pl.DataFrame, window: Window, *, least_ns: int, more: float) -> pl.DataFrame:
    """Return the pairs that send in the midst of the longest silence of their job's other pairs.

    Parameters
    ----------
    bulk : bulk flows inside jobs, look-back included, with `job_id`, as `nic_pairs.in_order` returns
    least_ns, more : a silence counts that reaches into the last two windows, is as long as that, and by that ratio
        longer than any of the same pairs before it

    Returns
    -------
    `pair` (its number), `since_ns`, `back_ns` (when the others fell silent, and sent again)
    """
    pairs, offsets = nic_pairs.pairs_of(bulk, ["job_id"]), nic_pairs.starts_of_pairs(bulk)
    starts, ends = bulk["flow_start_ns"].to_numpy(), bulk["flow_end_ns"].to_numpy()
    numbers = np.arange(pairs.height)
    found = busy_parts(starts, ends, offsets, numbers.astype(np.uint32), BIN_NS)
    since, back = np.zeros((2, pairs.height), np.int64)
    main = main_pairs(bulk)
    jobs = pairs["job_id"].rank("dense").to_numpy().astype(np.int64) - 1
    for job in range(int(jobs.max(initial=-1)) + 1):
        mine = numbers[jobs == job]
        amid, since[mine], back[mine] = _foreign_pairs_of_job(mine, main[mine], found, window, least_ns, more)
        back[mine[~amid]] = 0
    return pairs.select("pair", since_ns=since, back_ns=back).filter(pl.col("back_ns") > 0)


def _foreign_pairs_of_job(
    pairs: Integers, main: Flags, found: tuple[Integers, Integers, Integers], window: Window, least_ns: int, more: float
) -> tuple[Flags, int, int]:
    """Say which pairs of a job are foreign, and between which times the others are silent.

    Parameters
    ----------
    main : whether each pair moves much
    found : pair, first start and last end of each busy second
    """
    asked = int(main.sum())
    few = int(MOST_FOREIGN_PAIRS * asked)
    if not few:
        return np.zeros(pairs.size, np.bool_), 0, 0
    first, last = _extents_by_second(pairs, found)
    until = np.maximum.accumulate(last[main], axis=1)
    following = np.minimum.accumulate(first[main][:, ::-1], axis=1)[:, ::-1]
    again = np.minimum(np.append(following[:, 1:], np.full((asked, 1), AFTER_ALL), axis=1), window.end_ns)
    # All but a few are silent from `since` on, and until `back`.
    since = np.partition(until, asked - 1 - few, axis=0)[asked - 1 - few]
    back = np.partition(again, few, axis=0)[few]
    length = np.where(since > 0, back - since, 0)
    at = int(length.argmax())
    earlier = length[since < since[at]].max(initial=0)
    begins, ends = int(since[at]), int(back[at])
    if length[at] < max(least_ns, (1 + more) * earlier) or ends <= window.start_ns - window.length_ns:
        return np.zeros(pairs.size, np.bool_), 0, 0
    amid = _sends_amid(first, last, begins, ends)
    # Most pairs of a pipeline are silent for long in each step. So the silence begins when the last of the pairs that
    # do not send amid it fell silent.
    stopped = last[~amid][first[~amid] < ends]
    begins = max(begins, int(stopped.max(initial=0)))
    return _sends_amid(first, last, begins, ends), begins, ends


def _sends_amid(first: Integers, last: Integers, since_ns: int, back_ns: int) -> Flags:
    """Return which pairs send in the midst of a silence, and not only about its ends."""
    room = (back_ns - since_ns) // ENDS_OF_SILENCE
    # A copy without a pause is one record, which may have begun at any time before.
    return np.asarray(((first < back_ns - room) & (last >= since_ns + room)).any(axis=1))


def _extents_by_second(pairs: Integers, found: tuple[Integers, Integers, Integers]) -> tuple[Integers, Integers]:
    """Return first start and last end of each pair in each second, shape (pairs, seconds).

    Seconds without any have `AFTER_ALL` and 0.
    """
    pair, first, last = found
    chosen = (pair >= pairs[0]) & (pair <= pairs[-1])
    chosen[chosen] = np.isin(pair[chosen], pairs)
    row, begins, ends = np.searchsorted(pairs, pair[chosen]), first[chosen], last[chosen]
    second = begins // BIN_NS
    second -= second.min()
    shape = (pairs.size, int(second.max()) + 1)
    firsts, lasts = np.full(shape, AFTER_ALL), np.zeros(shape, np.int64)
    firsts[row, second], lasts[row, second] = begins, ends
    return firsts, lasts
