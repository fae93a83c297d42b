"""Which flows matter to a job: those between GPU NICs, bulk data apart from control messages.

All stages look at flows pair by pair, in order of time. So they are brought into this order once, and numbered by their
pair: to sort, group or join them again by two addresses would cost more than all that is worked out of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics import encoding, grouped_sort, ragged
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.settings import TrafficSettings
from llmprism_tasks.stages.traffic.gathered import gathered
from llmprism_tasks.stages.traffic.kernels import pair_sums, reassembly
from llmprism_tasks.stages.traffic.opposite import opposite, same_size

PAIR = ["src_addr", "dst_addr"]
TIMES = ["flow_start_ns", "flow_end_ns", "bytes"]
FLOW_COLUMNS = ["window_start_ns", *TIMES[:2], *PAIR, "bytes"]
"""Columns of flows that the stages look at; the others only cost memory when rows are sorted and joined."""

NUMBERED_COLUMNS = [*FLOW_COLUMNS, "pair", "row"]
"""With the number of its pair, and its row in the table: what is seldom needed, as its path, is fetched by that."""

Numbers = npt.NDArray[np.int32]


def numbered(flows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Number the pairs of flows.

    Returns
    -------
    flows : `NUMBERED_COLUMNS`, ordered by `pair`, within it by start, end and bytes; addresses are codes (`named`
        makes text of them), for text takes most of the room and of the time to copy flows
    pairs : `pair`, `src_addr`, `dst_addr`, in this order
    """
    number, pairs = pairs_met(flows)
    numbers = {name: flows[name].to_numpy() for name in FLOW_COLUMNS if name not in PAIR}
    order = grouped_sort.grouped(number, pairs.height, *(numbers[name] for name in TIMES))
    pair = np.repeat(pairs["pair"].to_numpy(), np.bincount(number, minlength=pairs.height))
    numbers = {name: grouped_sort.taken(values, order) for name, values in numbers.items()}
    coded = pairs.with_columns(pl.col(PAIR).cast(pl.Enum(pl.concat([pairs[end] for end in PAIR]).unique().sort())))
    return gathered(coded, pair).with_columns(row=order, **numbers).select(*NUMBERED_COLUMNS), pairs


def named(flows: pl.DataFrame) -> pl.DataFrame:
    """Return flows, or what was worked out of them, with addresses and jobs as text where they are codes."""
    coded = {name: kind for name, kind in flows.schema.items() if isinstance(kind, pl.Enum)}
    # A cast would make each text anew, which takes four times as long.
    return flows.with_columns(
        kind.categories.gather(flows[name].to_physical()).alias(name) for name, kind in coded.items()
    )


def as_coded(known: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Return what is known of jobs and addresses with the codes that flows have for them, to be joined with these."""
    coded = (name for name, kind in flows.schema.items() if isinstance(kind, pl.Enum) and name in known.columns)
    return known.with_columns(pl.col(name).cast(flows.schema[name]) for name in coded)


def between_gpus(flows: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Keep the flows whose both ends are known NICs.

    Parameters
    ----------
    flows : the flows table's columns, or what this function returned
    nics : `addr` and what is to be known of it: columns of the topology or of job_members

    Returns
    -------
    flows with the columns `NUMBERED_COLUMNS`, in the order of `numbered`, and with `src_…` and `dst_…` for every
    further column of `nics`
    """
    flows, pairs = _flows_and_pairs(flows)
    described = [column for column in nics.columns if column != "addr"]
    for end in ("src", "dst"):
        renamed = nics.rename({"addr": f"{end}_addr"} | {column: f"{end}_{column}" for column in described})
        pairs = pairs.join(renamed, on=f"{end}_addr")
    return flows_of_pairs(flows, pairs.drop(PAIR))


def inside_jobs(flows: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Keep the flows between two members of one job, with its `job_id`, a code as well; as `between_gpus` otherwise."""
    flows, pairs = _flows_and_pairs(flows)
    jobs = job_members.select("addr", "job_id")
    for end in PAIR:
        pairs = pairs.join(jobs.rename({"addr": end, "job_id": f"{end}_job"}), on=end)
    same = pairs.filter(pl.col(f"{PAIR[0]}_job") == pl.col(f"{PAIR[1]}_job"))
    code = pl.Enum(jobs["job_id"].unique().sort())
    return flows_of_pairs(flows, same.select("pair", job_id=pl.col(f"{PAIR[0]}_job").cast(code)))


def flows_of_pairs(flows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the flows of pairs, in their order, with what is known of each pair.

    Parameters
    ----------
    flows : with `pair`, as `in_order` returns
    pairs : `pair`, once each, and columns to add
    """
    numbers, wanted = flows["pair"].to_numpy(), pairs["pair"].to_numpy()
    offsets = ragged.of_ascending(numbers)
    each, counts = numbers[offsets[:-1]], np.diff(offsets)
    row = np.full(max(each.max(initial=-1), wanted.max(initial=-1)) + 1, -1, np.int32)
    row[wanted] = np.arange(wanted.size, dtype=np.int32)
    found = row[each]
    kept = found >= 0
    if not kept.all():
        flows, found, counts = flows.filter(pl.Series(np.repeat(kept, counts))), found[kept], counts[kept]
    described = pairs.drop("pair")
    return flows.with_columns(gathered(described, np.repeat(found, counts))) if described.width else flows


def bulk(flows: pl.DataFrame, settings: TrafficSettings) -> pl.DataFrame:
    """Keep the flows that carry data: handshakes, scalars and "ready" messages are smaller than any tensor that counts.

    Messages of a size that comes back as it went, as a pipeline's do, are one record each, though a collector cut them.
    What a pair's are depends on it and on the pair that answers it alone.
    """
    flows = in_order(flows) if "pair" in flows.columns else numbered(flows)[0]
    kept = flows["bytes"].to_numpy() > settings.control_bytes
    pair, starts, ends, sizes = (flows[name].to_numpy()[kept] for name in ("pair", *TIMES))
    offsets = ragged.of_ascending(pair)
    usual = reassembly.usual_sizes(sizes, offsets, same_size=settings.same_size)
    pairs = named(flows.select("pair", *PAIR)[np.flatnonzero(kept)[offsets[:-1]]])
    begins = reassembly.begins(
        *(starts, ends, sizes, offsets, _answered_sizes(pairs, usual, settings)),
        same_size=settings.same_size,
        longest_pause=settings.longest_pause_ms * 1e6,
    )
    if begins.all():
        return flows.filter(pl.Series(kept))
    kept[kept] = begins
    ends, sizes = reassembly.joined_messages(ends, sizes, begins)
    others = flows.drop("flow_end_ns", "bytes").filter(pl.Series(kept))
    return others.with_columns(flow_end_ns=ends, bytes=sizes).select(flows.columns)


def _answered_sizes(pairs: pl.DataFrame, usual: Integers, settings: TrafficSettings) -> Integers:
    """Return the usual sizes of pairs, 0 for those that nothing of the same size comes back to."""
    pairs = pairs.with_columns(usual=usual)
    both = pairs.join(opposite(pairs, "usual"), on=PAIR, how="left", maintain_order="left")
    same = same_size("usual", "back_usual", settings.same_size)
    return both.select(pl.when(same).then("usual").otherwise(0)).to_series().to_numpy()


def in_order(flows: pl.DataFrame) -> pl.DataFrame:
    """Return flows with `pair` in the order of `numbered`, with all their columns: as they are, if they are so."""
    if "pair" not in flows.columns:
        flows = flows.with_columns(pair=pairs_met(flows)[0])
    if _is_in_order(flows):
        return flows
    number = flows["pair"].to_numpy()
    return gathered(flows, grouped_sort.grouped(number, int(number.max(initial=-1)) + 1, *_starts_ends_bytes(flows)))


def _is_in_order(flows: pl.DataFrame) -> bool:
    return grouped_sort.ascending(flows["pair"].to_numpy(), *_starts_ends_bytes(flows))


def _starts_ends_bytes(flows: pl.DataFrame) -> list[Integers]:
    return [flows[column].to_numpy() for column in TIMES]


def step_by_step(flows: pl.DataFrame) -> pl.DataFrame:
    """Bring flows with `step` into the order of pair and step, within it of time, from that of `numbered`.

    Steps follow each other, so there is little to do but where several senders are one, or data are damaged.
    """
    pair, step = flows["pair"].to_numpy(), flows["step"].to_numpy()
    back = (step[1:] < step[:-1]) & (pair[1:] == pair[:-1])
    return flows[np.lexsort((step, pair))] if back.any() else flows


def starts_of_pairs(flows: pl.DataFrame) -> Integers:
    """Return the row where each pair begins, and the number of rows; flows as `in_order` returns."""
    return ragged.of_ascending(flows["pair"].to_numpy())


def pairs_of(flows: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Return the pairs of flows in order, named: `pair`, and columns that are the same for all flows of one."""
    return named(flows.select("pair", *columns)[starts_of_pairs(flows)[:-1]])


def sent_in_window(flows: pl.DataFrame, window: Window, settings: TrafficSettings) -> pl.DataFrame:
    """Return what pairs sent in a window: `pair`, `job_id`, `src_addr`, `dst_addr`, `flows`, `bytes`, and of these
    `bulk_flows`, `bulk_bytes`.

    Parameters
    ----------
    flows : as `inside_jobs` returns
    """
    times, sizes = (flows[column].to_numpy() for column in ("window_start_ns", "bytes"))
    found = pair_sums.at_time(starts_of_pairs(flows), times, sizes, window.start_ns, settings.control_bytes)
    columns = dict(zip(("flows", "bytes", "bulk_flows", "bulk_bytes"), found, strict=True))
    return pairs_of(flows, ["job_id", *PAIR]).with_columns(**columns).filter(pl.col("flows") > 0)


def by_endpoint(flows: pl.DataFrame) -> pl.DataFrame:
    """Return every flow twice, once for each of its ends, as `addr` (with the other end as `peer`)."""
    return pl.concat(
        [
            flows.with_columns(addr=pl.col(own), peer=pl.col(other), sends=pl.lit(sends))
            for own, other, sends in (("src_addr", "dst_addr", True), ("dst_addr", "src_addr", False))
        ]
    )


def _flows_and_pairs(flows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return flows and their pairs, as `numbered` does, though they are a part of such flows."""
    if "pair" not in flows.columns:
        return numbered(flows)
    pairs = pairs_of(flows, PAIR).unique("pair").sort("pair")
    return flows if flows.columns == NUMBERED_COLUMNS else flows.select(NUMBERED_COLUMNS), pairs


def pairs_met(flows: pl.DataFrame) -> tuple[Numbers, pl.DataFrame]:
    """Return the number of each flow's pair, and the pairs: `pair`, `src_addr`, `dst_addr`."""
    met, first = encoding.numbered(*(half.to_numpy() for half in _address_keys(flows)))
    named = flows.select(pl.col(PAIR).gather(first)).cast(pl.String)
    pairs = named.with_row_index("met").sort(PAIR)
    number = np.empty(pairs.height, np.int32)
    number[pairs["met"].to_numpy()] = np.arange(pairs.height, dtype=np.int32)
    return grouped_sort.taken(number, met), pairs.select(pl.int_range(pl.len(), dtype=pl.Int32).alias("pair"), *PAIR)


def _address_keys(flows: pl.DataFrame) -> list[pl.Series]:
    """Return two numbers for each flow, both of which are equal only within a pair: codes of addresses, or hashes."""
    ends = flows.select(PAIR)
    if pl.String not in ends.dtypes:
        return ends.select(pl.col(PAIR).to_physical().cast(pl.UInt32)).get_columns()
    return ends.cast(pl.String).select(pl.col(PAIR).hash()).get_columns()
