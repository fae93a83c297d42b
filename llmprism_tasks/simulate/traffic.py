"""A run's messages: every burst of every queue pair, from the times of its cycles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmprism_tasks.simulate.connections import LANES, coordinates
from llmprism_tasks.simulate.cycles import LAUNCH_S, Cycles, Rings, volumes
from llmprism_tasks.simulate.fabric import Indices, QueuePairs, Reals
from llmprism_tasks.simulate.records import Messages, joined, noise, packets_of, wire_bytes
from llmprism_tasks.simulate.runs import Run, cut
from llmprism_tasks.simulate.sizes import activation_bytes

EARLY_BYTES = 4 << 20  # what a channel's buffers hold while the ring is not complete (NCCL_BUFFSIZE)
STALL_S = 2e-4  # shorter stalls leave no trace
SCALAR_BYTES = 256  # an all-reduced number passes each hop twice, in one 128-byte line
SCALAR_PACKETS = 2
SCALAR_S = LAUNCH_S + 4e-6


@dataclass(frozen=True)
class Bundle:
    """Messages of queue pairs in cycles before they are put on the clock; arrays broadcast to (cycles, rows, n)."""

    rows: Indices
    start: Reals
    seconds: Reals
    payload: Reals
    packets: int = 0


def messages(run: Run, *, first_queue_pair: int, span: tuple[int, int], seed: int) -> Messages:
    """Return the messages of all cycles that touch a span of time.

    Queue pairs are numbered from `first_queue_pair`: rings, then the pipeline's, then those of scalars. Starts and
    ends are spread by some microseconds.
    """
    chosen = np.flatnonzero((run.start_ns[1:] > span[0]) & (run.start_ns[:-1] < span[1]))
    cycles: Cycles = cut(run.cycles, chosen)
    links = run.model.connections
    gradients, parameters = volumes(run.model)
    bundles = [
        *_ring_bundles(run, links.rings, cycles.gather, parameters),
        *_ring_bundles(run, links.rings, cycles.sync, gradients),
        _pipeline_bundle(run, chosen, cycles),
        *_scalar_bundles(run, cycles),
    ]
    return joined([_on_the_clock(bundle, run.start_ns[chosen], first_queue_pair, seed) for bundle in bundles])


def _ring_bundles(run: Run, pairs: QueuePairs, rings: Rings, volume: Reals) -> tuple[Bundle, Bundle]:
    """Return what ranks push early into a ring that is not complete, and the rest that flows when it is.

    A hop whose two ends have come while others are late fills the receiver's buffers and stalls.
    """
    rows = np.arange(len(pairs))
    tp, src_dp, pp = coordinates(run.model.job, pairs.src_rank)
    _, dst_dp, _ = coordinates(run.model.job, pairs.dst_rank)
    start, seconds = rings.start[:, pp, tp], rings.seconds[:, pp, tp, pairs.lane]
    before = np.concatenate([np.full((*start.shape[:2], 1), -np.inf), rings.end[:, pp, tp, :-1]], axis=2)
    both = np.maximum(np.maximum(rings.ready[:, pp, src_dp], rings.ready[:, pp, dst_dp]), before)
    stalled = start - both > STALL_S
    early = np.where(stalled, np.minimum(volume[pp], EARLY_BYTES), 0.0)
    pushing = np.minimum(seconds * early / np.maximum(volume[pp], 1) + LAUNCH_S, start - both)
    return Bundle(rows, both, pushing, early), Bundle(rows, start, seconds, volume[pp] - early)


def _pipeline_bundle(run: Run, chosen: Indices, cycles: Cycles) -> Bundle:
    job, pairs = run.model.job, run.model.connections.pipeline
    _, dp, src_pp = coordinates(job, pairs.src_rank)
    _, _, dst_pp = coordinates(job, pairs.dst_rank)
    where = ((dst_pp < src_pp).astype(np.int64), np.minimum(src_pp, dst_pp), dp)
    sent = np.full((1, 1, 1), activation_bytes(job, LANES), dtype=np.float64)
    pure = wire_bytes(sent) * 8 / run.pipeline_bps[chosen][:, :, None]
    rows = len(run.model.connections.rings) + np.arange(len(pairs))
    return Bundle(rows, cycles.transfer_start[:, *where], (pure + LAUNCH_S) * cycles.transfer_factor[:, *where], sent)


def _scalar_bundles(run: Run, cycles: Cycles) -> tuple[Bundle, Bundle]:
    """Return the loss, averaged over the last pp_stage's first channels, and each replica's gradient norm."""
    links = run.model.connections
    _, _, pp = coordinates(run.model.job, links.rings.src_rank)
    loss = np.flatnonzero((pp == run.model.job.pp - 1) & (links.rings.lane == 0))
    norm = len(links.rings) + len(links.pipeline) + np.arange(len(links.scalars))
    payload, seconds = np.full((1, 1, 1), float(SCALAR_BYTES)), np.full((1, 1, 1), SCALAR_S)
    between = (cycles.synced + cycles.norm)[:, None, None] / 2
    return (
        Bundle(loss, between, seconds, payload, SCALAR_PACKETS),
        Bundle(norm, cycles.norm[:, None, None], seconds, payload, SCALAR_PACKETS),
    )


def _on_the_clock(bundle: Bundle, cycle_ns: Indices, first_queue_pair: int, seed: int) -> Messages:
    several = max(part.shape[2] for part in (bundle.start, bundle.seconds, bundle.payload))
    shape = (len(cycle_ns), len(bundle.rows), several)
    payload = np.broadcast_to(bundle.payload, shape).ravel()
    real: NDArray[np.bool_] = payload > 0
    queue_pair = np.broadcast_to(first_queue_pair + bundle.rows[None, :, None], shape).ravel()[real]
    start_s = np.broadcast_to(bundle.start, shape).ravel()[real]
    seconds = np.broadcast_to(bundle.seconds, shape).ravel()[real]
    base = np.broadcast_to(cycle_ns[:, None, None], shape).ravel()[real]
    start_ns = base + np.rint(start_s * 1e9).astype(np.int64)
    spread = np.minimum(LAUNCH_S, seconds) / 2 * 1e9
    begin = start_ns + (spread * noise(seed, "start", queue_pair, start_ns)).astype(np.int64)
    end = start_ns + np.rint(seconds * 1e9 - spread * noise(seed, "end", queue_pair, start_ns)).astype(np.int64)
    sent = payload[real].astype(np.int64)
    packets = np.full(len(sent), bundle.packets) if bundle.packets else packets_of(sent)
    return Messages(queue_pair=queue_pair, start_ns=begin, end_ns=end, payload_bytes=sent, packets=packets)
