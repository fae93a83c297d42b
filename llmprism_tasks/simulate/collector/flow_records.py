"""All traffic of a span, of jobs and around them, as the flow records that a collector exports."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.contract.frames import schema
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.simulate.arrays import Indices
from llmprism_tasks.simulate.collector.exporter import collect
from llmprism_tasks.simulate.network.messages import HEADER_BYTES, Messages, joined, noise
from llmprism_tasks.simulate.network.queue_pairs import QueuePairs
from llmprism_tasks.simulate.network.topology import ROCE_PORT, UDP, topology
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.surroundings import Habit
from llmprism_tasks.simulate.steps.job_model import JobModel
from llmprism_tasks.simulate.traffic.background import background_bursts
from llmprism_tasks.simulate.traffic.bursts import FIVE_TUPLE, route, server_addr, together
from llmprism_tasks.simulate.traffic.runs import Run
from llmprism_tasks.simulate.traffic.startup import startup_bursts
from llmprism_tasks.simulate.traffic.step_messages import messages
from llmprism_tasks.simulate.traffic.storage import storage_bursts
from llmprism_tasks.simulate.traffic.tenants import tenant_bursts

MERGING_NS = NANOSECONDS_PER_SECOND  # cycles this much around a span are made too, for records across its edges

MINUTE_NS = 60 * NANOSECONDS_PER_SECOND
ACK_BYTES = 4  # the ACK extended transport header
ACK_NS = 6_000  # half a round trip

Path = tuple[str, ...]


@dataclass(frozen=True)
class Conversations:
    """One-way 5-tuples; arrays of one length.

    Attributes
    ----------
    number : the same in whichever span, so that the collector's noise is
    src, dst : endpoints as in `bursts`
    path : switches crossed, one tuple each
    """

    number: Indices
    src: Indices
    dst: Indices
    src_port: Indices
    dst_port: Indices
    protocol: Indices
    path: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.path)


def flow_records(
    scenario: Scenario, models: Sequence[JobModel], runs: Sequence[Sequence[Run]], span: Window, seed: int
) -> pl.DataFrame:
    """Collect the traffic of every allocation's runs and around them; keep the records that start in the span.

    Parameters
    ----------
    models, runs : of each allocation of the scenario, in their order
    """
    wide = (span.start_ns - MERGING_NS, span.end_ns + MERGING_NS)
    tables = [table for model in models for table in model.connections.tables]
    sizes = [sum(len(table) for table in model.connections.tables) for model in models]
    sent = [
        _during(messages(run, first_queue_pair=sum(sizes[:allocation]), span=wide, seed=seed), run)
        for allocation, several in enumerate(runs)
        for run in several
    ]
    others, of_others = _conversing(scenario, _others(scenario, runs, wide, seed), first_row=sum(sizes))
    known, carried = _joined([_of_queue_pairs(tables), others]), joined([*sent, of_others])
    if scenario.background.ack_packets:
        known, carried = _acknowledged(known, carried, scenario.background.ack_packets)
    records = collect(
        carried,
        scenario.collector,
        seed=seed,
        clock_ns=_clocks_ns(scenario, known.path, seed),
        numbers=known.number,
    )
    inside = records.take((records.start_ns >= span.start_ns) & (records.start_ns < span.end_ns))
    return _frame(scenario, inside, known, seed)


def _others(scenario: Scenario, runs: Sequence[Sequence[Run]], wide: tuple[int, int], seed: int) -> pl.DataFrame:
    """Return all bursts that no step makes and that touch a span."""
    there = [run for several in runs for run in several]
    starting = [
        startup_bursts(scenario, run.model, arrived_ns=run.arrived_ns, seed=seed)
        for run in there
        if run.begin_ns > run.arrived_ns > 0 and run.arrived_ns < wide[1] and run.begin_ns > wide[0]
    ]
    stored = [
        storage_bursts(scenario, run, seed=seed)
        for run in there
        if scenario.habit(run.model.job.name) != Habit(job=run.model.job.name)
    ]
    minutes = range(max(0, wide[0] // MINUTE_NS - 1), wide[1] // MINUTE_NS + 1)  # some go on into the next minute
    around = [background_bursts(scenario, minute=minute, seed=seed) for minute in minutes]
    tenants = [tenant_bursts(scenario, t, minute=minute, seed=seed) for t in scenario.tenants for minute in minutes]
    touching = (pl.col("end_ns") > wide[0]) & (pl.col("start_ns") < wide[1])
    return together([*starting, *stored, *around, *tenants]).filter(touching)


def _during(sent: Messages, run: Run) -> Messages:
    """Keep what a run sends while it is there; what it is sending when it stops is cut."""
    if run.begin_ns <= run.start_ns[0] and run.end_ns >= run.start_ns[-1]:
        return sent
    kept = sent.take((sent.start_ns >= run.begin_ns) & (sent.start_ns < run.end_ns))
    ratio = np.minimum(1.0, (run.end_ns - kept.start_ns) / np.maximum(kept.end_ns - kept.start_ns, 1))
    return dataclasses.replace(
        kept,
        end_ns=np.minimum(kept.end_ns, run.end_ns),
        payload_bytes=np.ceil(kept.payload_bytes * ratio).astype(np.int64),
        packets=np.ceil(kept.packets * ratio).astype(np.int64),
    )


def _of_queue_pairs(tables: Sequence[QueuePairs]) -> Conversations:
    def of(name: str) -> Indices:
        return np.concatenate([np.empty(0, dtype=np.int64), *(getattr(table, name) for table in tables)])

    src = of("src")
    return Conversations(
        number=np.arange(len(src)),
        src=src,
        dst=of("dst"),
        src_port=of("src_port"),
        dst_port=np.full(len(src), ROCE_PORT),
        protocol=np.full(len(src), UDP),
        path=tuple(path for table in tables for path in table.path),
    )


def _conversing(scenario: Scenario, made: pl.DataFrame, *, first_row: int) -> tuple[Conversations, Messages]:
    """Number the 5-tuples of bursts from a row on; a number for noise comes from the 5-tuple alone."""
    tuples = made.select(FIVE_TUPLE).unique().sort(FIVE_TUPLE)
    row = made.join(tuples.with_row_index("row"), on=FIVE_TUPLE, how="left", maintain_order="left")["row"]
    ends = {name: tuples[name].to_numpy() for name in FIVE_TUPLE}
    mixed = (ends["src"] * 2_654_435_761 + ends["dst"] * 40_503 + ends["src_port"] * 65_537 + ends["dst_port"]) % 2**40
    known = Conversations(
        **ends,
        number=2**40 + mixed,
        path=tuple(route(scenario.fabric, *three) for three in tuples.select("src", "dst", "src_port").iter_rows()),
    )
    columns = {name: made[name].to_numpy() for name in ("start_ns", "end_ns", "payload_bytes", "packets")}
    return known, Messages(queue_pair=first_row + row.cast(pl.Int64).to_numpy(), **columns)


def _joined(parts: Sequence[Conversations]) -> Conversations:
    names = [column.name for column in dataclasses.fields(Conversations) if column.name != "path"]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Conversations(**columns, path=tuple(path for part in parts for path in part.path))


def _acknowledged(known: Conversations, carried: Messages, every: int) -> tuple[Conversations, Messages]:
    """Add what receivers answer over RoCE: an acknowledgement for so many packets, and for each message at least."""
    back = dataclasses.replace(
        known,
        number=known.number + 2**50,
        src=known.dst,
        dst=known.src,
        path=tuple(path[::-1] for path in known.path),
    )
    roce = carried.take(known.protocol[carried.queue_pair] == UDP)
    packets = -(-roce.packets // every)
    answers = Messages(
        queue_pair=roce.queue_pair + len(known),
        start_ns=roce.start_ns + ACK_NS,
        end_ns=roce.end_ns + ACK_NS,
        payload_bytes=ACK_BYTES * packets,
        packets=packets,
    )
    return _joined([known, back]), joined([carried, answers])


def _clocks_ns(scenario: Scenario, paths: Sequence[Path], seed: int) -> Indices:
    """Return how far ahead the clock is that stamps the records of each path's queue pair."""
    collector = scenario.collector
    places = range(len(paths)) if collector.seen_by == "any" else [0] * len(paths)
    seers = [path[place % len(path)] for path, place in zip(paths, places, strict=True)]
    draws = {
        switch: np.random.default_rng([seed, zlib.crc32(switch.encode())]).standard_normal() for switch in set(seers)
    }
    return np.array([round(float(draws[seer]) * collector.skew_us * 1e3) for seer in seers], dtype=np.int64)


def _frame(scenario: Scenario, records: Messages, known: Conversations, seed: int) -> pl.DataFrame:
    """Give records the contract's columns."""
    servers = pl.Series([server_addr(index) for index in range(scenario.storage.servers)], dtype=pl.String)
    addrs, which = topology(scenario.fabric)["addr"].append(servers), records.queue_pair
    unknown = noise(seed, "path", known.number[which], records.start_ns) < scenario.collector.pathless
    columns = {
        "flow_start_ns": records.start_ns,
        "flow_end_ns": records.end_ns,
        "src_addr": addrs.gather(known.src[which]),
        "dst_addr": addrs.gather(known.dst[which]),
        "src_port": known.src_port[which],
        "dst_port": known.dst_port[which],
        "protocol": known.protocol[which],
        "bytes": records.payload_bytes + HEADER_BYTES * records.packets,
        "packets": records.packets,
        "switch_path": pl.Series([*map(list, known.path), None], dtype=pl.List(pl.String)).gather(
            np.where(unknown, len(known), which)
        ),
    }
    return pl.DataFrame(columns).cast(schema(FLOW_COLUMNS))
