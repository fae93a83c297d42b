"""A run's messages: every burst of every queue pair, from the times of its cycles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.collectives import LAUNCH_S
from llmprism_tasks.simulate.network.messages import PACKET_BYTES, Messages, joined, noise, packets_of
from llmprism_tasks.simulate.network.rank_layout import coordinates
from llmprism_tasks.simulate.steps.cycles import Cycles, Sent
from llmprism_tasks.simulate.traffic.runs import Run, cut

EARLY_BYTES = 4 << 20  # what a channel's buffers hold while the ring is not complete (NCCL_BUFFSIZE)
STALL_S = 2e-4  # shorter stalls leave no trace
SCALAR_BYTES = 256  # an all-reduced number passes each hop twice
SCALAR_PACKET_BYTES = 128  # one line of the LL128 protocol
CHUNK_BYTES = 512 << 10  # an eighth of the buffers: what a receiver asks for at a time (NCCL_STEPS)
CONTROL_BYTES = 64  # a clear-to-send entry (ncclIbSendFifo, NCCL, src/transport/net_ib.cc)
SCALAR_S = LAUNCH_S + 4e-6


@dataclass(frozen=True)
class Bundle:
    """Messages of queue pairs in cycles before they are put on the clock; arrays broadcast to (cycles, n)."""

    rows: Indices
    start: Reals
    seconds: Reals
    payload: Reals
    packet_bytes: int = PACKET_BYTES


def messages(run: Run, *, first_queue_pair: int, span: tuple[int, int], seed: int) -> Messages:
    """Return the messages of all cycles that touch a span of time.

    Queue pairs are numbered from `first_queue_pair`, in the order of the job's connections. Starts and ends are spread
    by some microseconds.
    """
    chosen = np.flatnonzero((run.start_ns[1:] > span[0]) & (run.start_ns[:-1] < span[1]))
    cycles: Cycles = cut(run.cycles, chosen)
    bundles = [*_bulk_bundles(cycles.sent), *_scalar_bundles(run, cycles), *_control_bundles(run, cycles.sent)]
    return joined([_on_the_clock(bundle, run.start_ns[chosen], first_queue_pair, seed) for bundle in bundles])


def _bulk_bundles(sent: Sent) -> tuple[Bundle, Bundle]:
    """Return what ranks push early into a ring that is not complete, and the rest that flows when it is.

    A hop whose two ends have come while others are late fills the receiver's buffers, at its own pace, and stalls.
    """
    stalled = sent.start - sent.met > STALL_S
    early = np.where(stalled, np.minimum(sent.payload, EARLY_BYTES), 0.0)
    pushing = np.minimum(sent.alone * early / np.maximum(sent.payload, 1) + LAUNCH_S, sent.start - sent.met)
    return (
        Bundle(sent.rows, sent.met, pushing, early),
        Bundle(sent.rows, sent.start, sent.seconds, sent.payload - early),
    )


def _control_bundles(run: Run, sent: Sent) -> list[Bundle]:
    """Return the receivers' answers, the other way, while a message flows: one for each chunk."""
    links = run.model.connections
    if "control" not in links.by_use:
        return []
    answers = np.ceil(sent.payload / CHUNK_BYTES) * CONTROL_BYTES
    return [Bundle(sent.rows + links.first("control"), sent.start, sent.seconds, answers, CONTROL_BYTES)]


def _scalar_bundles(run: Run, cycles: Cycles) -> tuple[Bundle, Bundle]:
    """Return the loss, averaged over the last pp_stage's first channels, and the gradients' norm.

    The norm is summed up over each replica's ranks or, where parameters are sharded, over those that share them.
    """
    job, links = run.model.job, run.model.connections
    use = "shard" if job.sharded else "dp"
    rings = links.by_use[use]
    _, _, pp = coordinates(job, rings.src_rank)
    loss = links.first(use) + np.flatnonzero((pp == job.pp - 1) & (rings.lane == 0))
    replica = links.first("norm") + np.arange(len(links.by_use["norm"]))
    norm = np.concatenate([replica, loss]) if job.sharded else replica
    payload, seconds = np.full((1, 1), float(SCALAR_BYTES)), np.full((1, 1), SCALAR_S)
    between = (cycles.reduced + cycles.norm)[:, None] / 2
    return (
        Bundle(loss[None], between, seconds, payload, SCALAR_PACKET_BYTES),
        Bundle(norm[None], cycles.norm[:, None], seconds, payload, SCALAR_PACKET_BYTES),
    )


def _on_the_clock(bundle: Bundle, cycle_ns: Indices, first_queue_pair: int, seed: int) -> Messages:
    shape = (len(cycle_ns), bundle.rows.shape[1])
    payload = np.broadcast_to(bundle.payload, shape).ravel()
    real: NDArray[np.bool_] = payload > 0
    queue_pair = first_queue_pair + np.broadcast_to(bundle.rows, shape).ravel()[real].astype(np.int64)
    start_s = np.broadcast_to(bundle.start, shape).ravel()[real]
    seconds = np.broadcast_to(bundle.seconds, shape).ravel()[real]
    base = np.broadcast_to(cycle_ns[:, None], shape).ravel()[real]
    start_ns = base + np.rint(start_s * 1e9).astype(np.int64)
    spread = np.minimum(LAUNCH_S, seconds) / 2 * 1e9
    begin = start_ns + (spread * noise(seed, "start", queue_pair, start_ns)).astype(np.int64)
    end = start_ns + np.rint(seconds * 1e9 - spread * noise(seed, "end", queue_pair, start_ns)).astype(np.int64)
    sent = payload[real].astype(np.int64)
    packets = packets_of(sent, bundle.packet_bytes)
    return Messages(queue_pair=queue_pair, start_ns=begin, end_ns=end, payload_bytes=sent, packets=packets)
