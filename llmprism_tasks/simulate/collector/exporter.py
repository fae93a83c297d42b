"""The collector: messages on queue pairs become flow records, as a switch's exporter would cut and count them."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.messages import Messages, noise
from llmprism_tasks.simulate.scenario.collector import Collector

RESENT_PACKETS = 300  # a go-back-N retransmission repeats what was in flight, at most this
MANY_SAMPLES = 30.0  # from so many expected samples on, a normal distribution stands for the binomial one


def collect(
    messages: Messages, collector: Collector, *, seed: int, clock_ns: Indices, numbers: Indices | None = None
) -> Messages:
    """Turn messages into flow records, in the order in which they arrive.

    Packets are sampled, then messages of a queue pair with less than the idle timeout between them make one record,
    which the active timeout cuts. Then packets are sent again, records lost and doubled, and clocks are off and
    coarse, each as the collector's settings say.

    Parameters
    ----------
    clock_ns : how far ahead the clock is that stamps each queue pair's records
    numbers : a number for each queue pair that is the same in all spans, for the noise; its index if left out
    """
    if numbers is None:
        numbers = np.arange(len(clock_ns))
    seen = messages if collector.sampled == 1 else _sample(messages, collector.sampled, seed, numbers)
    if not len(seen):
        return seen
    records = _cut(_merge(seen, collector.idle_timeout_ms * 1e6), round(collector.active_timeout_s * 1e9))
    return _imperfect(records, collector, seed, clock_ns, numbers)


def _sample(messages: Messages, every: int, seed: int, numbers: Indices) -> Messages:
    """Count each packet with a probability of 1 / every; messages of which none is counted vanish.

    Estimates are what was counted times `every`. Times are those of the first and the last packet counted, packets
    being spread evenly over their message.
    """

    def uniform(stream: str) -> Reals:
        return noise(seed, stream, numbers[messages.queue_pair], messages.start_ns)

    counted = _binomial(messages.packets, 1 / every, uniform("sampled"), uniform("sampled more"))
    lasted = messages.end_ns - messages.start_ns
    # The least of k uniform numbers is distributed as 1 - u^(1/k), and the others lie uniformly above it.
    first = 1 - uniform("first sample") ** (1 / np.maximum(counted, 1))
    last = first + (1 - first) * np.where(counted > 1, uniform("last sample") ** (1 / np.maximum(counted - 1, 1)), 0)
    estimate = counted * every
    sampled = Messages(
        queue_pair=messages.queue_pair,
        start_ns=messages.start_ns + (first * lasted).astype(np.int64),
        end_ns=messages.start_ns + np.maximum((last * lasted).astype(np.int64), (first * lasted).astype(np.int64) + 1),
        payload_bytes=np.rint(messages.payload_bytes / messages.packets * estimate).astype(np.int64),
        packets=estimate,
    )
    return sampled.take(counted > 0)


def _binomial(trials: Indices, probability: float, uniform: Reals, other: Reals) -> Indices:
    """Draw from binomial distributions by two uniform numbers each; few expected successes are drawn as Poisson."""
    mean = trials * probability
    normal = np.sqrt(-2 * np.log(np.maximum(uniform, 1e-300))) * np.cos(2 * np.pi * other)
    many = np.rint(mean + np.sqrt(mean * (1 - probability)) * normal)
    few, term = np.zeros_like(mean), np.exp(-np.minimum(mean, MANY_SAMPLES))
    below = term.copy()
    for count in range(1, int(3 * MANY_SAMPLES)):
        few += uniform >= below
        term = term * mean / count
        below += np.where(mean < MANY_SAMPLES, term, 0)
    drawn = np.where(mean < MANY_SAMPLES, few, many)
    return np.clip(drawn, 0, trials).astype(np.int64)


def _merge(messages: Messages, idle_ns: float) -> Messages:
    """Make one record of messages of a queue pair with less than the idle timeout between them."""
    sent = messages.take(np.lexsort((messages.start_ns, messages.queue_pair)))
    other = np.flatnonzero(np.diff(sent.queue_pair, prepend=-1))
    # Times of one queue pair lie far above those of the one before it, so one running maximum serves all of them.
    apart = np.repeat(np.arange(len(other)), np.diff(other, append=len(sent))) * (np.ptp(sent.end_ns) + 1)
    last_end = np.maximum.accumulate(sent.end_ns - sent.end_ns.min() + apart)
    silence = (sent.start_ns - sent.end_ns.min() + apart)[1:] - last_end[:-1]
    begins = np.append(True, silence >= idle_ns)
    begins[other] = True
    first = np.flatnonzero(begins)
    return Messages(
        queue_pair=sent.queue_pair[first],
        start_ns=sent.start_ns[first],
        end_ns=np.maximum.reduceat(sent.end_ns, first),
        payload_bytes=np.add.reduceat(sent.payload_bytes, first),
        packets=np.add.reduceat(sent.packets, first),
    )


def _cut(records: Messages, active_ns: int) -> Messages:
    """Cut records each `active_ns` after their start; what they carry is spread evenly over their time."""
    lasted = records.end_ns - records.start_ns
    if not active_ns or not (lasted > active_ns).any():
        return records
    pieces = np.maximum(1, -(-lasted // active_ns))
    of = np.repeat(np.arange(len(records)), pieces)
    index = np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin, end = index * active_ns, np.minimum((index + 1) * active_ns, lasted[of])

    packets, ratio = records.packets[of], np.maximum(lasted[of], 1)
    # The first packet leaves at the start and the last one at the end, the others evenly between them.
    before = np.ceil((packets - 1) * (begin / ratio))
    until = np.where(index + 1 == pieces[of], packets, np.ceil((packets - 1) * (end / ratio)))
    per_packet = records.payload_bytes[of] / packets
    cut = Messages(
        queue_pair=records.queue_pair[of],
        start_ns=records.start_ns[of] + begin,
        end_ns=records.start_ns[of] + end,
        payload_bytes=(np.rint(until * per_packet) - np.rint(before * per_packet)).astype(np.int64),
        packets=(until - before).astype(np.int64),
    )
    return cut.take(cut.packets > 0)


def _imperfect(records: Messages, collector: Collector, seed: int, clock_ns: Indices, numbers: Indices) -> Messages:
    def uniform(stream: str) -> Reals:
        return noise(seed, stream, numbers[records.queue_pair], records.start_ns)

    def struck(stream: str, share: float) -> NDArray[np.bool_]:
        return np.zeros(len(records), dtype=bool) if share == 0 else uniform(stream) < share

    resent = struck("resent", collector.retransmitted)
    again = np.zeros_like(records.packets)
    if resent.any():
        in_flight = 1 + np.floor(RESENT_PACKETS * uniform("in flight")).astype(np.int64)
        again = np.where(resent, np.minimum(records.packets, in_flight), 0)
    per_packet = -(-records.payload_bytes // records.packets)
    ahead = clock_ns[records.queue_pair]
    seen = Messages(
        queue_pair=records.queue_pair,
        start_ns=records.start_ns + ahead,
        end_ns=records.end_ns + ahead,
        payload_bytes=records.payload_bytes + again * per_packet,
        packets=records.packets + again,
    )
    copies = np.where(struck("lost", collector.lost), 0, 1 + struck("doubled", collector.doubled))
    kept = np.repeat(np.arange(len(seen)), copies)
    arrived = seen.take(kept)
    if collector.doubled and collector.doubled_us:
        is_copy = np.diff(kept, prepend=-1) == 0
        off = (2 * uniform("copy")[kept] - 1) * collector.doubled_us * 1e3
        arrived = _moved(arrived, np.where(is_copy, off, 0).astype(np.int64))
    arrived = _coarse(arrived, max(1, round(collector.clock_us * 1e3)))
    late = np.zeros(len(arrived))
    if collector.disorder_ms:
        late = uniform("row")[kept] * collector.disorder_ms * 1e6
    return arrived.take(np.lexsort((arrived.queue_pair, arrived.start_ns + late.astype(np.int64))))


def _moved(records: Messages, by_ns: Indices) -> Messages:
    return dataclasses.replace(records, start_ns=records.start_ns + by_ns, end_ns=records.end_ns + by_ns)


def _coarse(records: Messages, tick_ns: int) -> Messages:
    """Cut times to whole ticks."""
    if tick_ns == 1:
        return records
    start_ns, end_ns = records.start_ns // tick_ns * tick_ns, records.end_ns // tick_ns * tick_ns
    return dataclasses.replace(records, start_ns=start_ns, end_ns=end_ns)
